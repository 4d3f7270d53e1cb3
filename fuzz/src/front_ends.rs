//! Messages of clients of NETCONF and gNMI.

use std::sync::Arc;

use millrace_gnmi::proto::gnmi::{GetRequest, SetRequest, SubscriptionList};
use millrace_gnmi::subscribe::Subscriptions;
use millrace_gnmi::view::View;
use millrace_model::Config;
use millrace_netconf::{MESSAGE_SIZE_MAX, Session, Shared};
use millrace_yang::datastore::{Change, Client, Datastore, Failure, Pending, Role, Snapshot};
use prost::Message as _;
use serde_json::{Map, Value as Json};

const BASE: &str = r#"
    [[bridge]]
    name = "br0"
    [[bridge.port]]
    name = "p1"
    number = 1
    device = "memory"
    trunks = [10, 20]
"#;

/// A switch that accepts valid configurations.
struct Switch(Config);

impl Switch {
    fn new() -> Switch {
        Switch(Config::from_toml("base", BASE).unwrap())
    }
}

impl Datastore for Switch {
    fn running(&mut self) -> Result<Snapshot, Failure> {
        let document = self.0.to_json().as_object().unwrap().clone();
        Ok(Snapshot {
            revision: 1,
            document,
        })
    }

    fn replace(&mut self, document: &Map<String, Json>, _: u64, change: &Change) -> Result<u64, Failure> {
        let config = Config::from_json(&Json::Object(document.clone()));
        let config = config.map_err(|error| Failure::Invalid(error.to_string()))?;
        if !change.dry_run {
            self.0 = config;
        }
        Ok(1)
    }

    fn pending(&mut self) -> Result<Option<Pending>, Failure> {
        Ok(None)
    }

    fn confirm(&mut self, _: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn cancel(&mut self, _: u64, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn lock(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn unlock(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn state(&mut self) -> Result<Map<String, Json>, Failure> {
        Ok(Map::new())
    }
}

/// Feeds a session of NETCONF in pieces of different sizes.
///
/// Properties: any bytes end the session or are answered; the configuration stays valid; a closed session answers nothing.
pub(crate) fn netconf(bytes: &[u8]) {
    let client = Client {
        name: "fuzz".to_owned(),
        role: Role::Admin,
    };
    let mut switch = Switch::new();
    let mut session = Session::new(
        client,
        "2026-11-29T12:00:00Z",
        Arc::new(Shared::default()),
        Box::new(|| {}),
    );
    let (mut rest, mut size, mut is_closed) = (bytes, 1, false);
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(size.min(rest.len()));
        rest = tail;
        size = size % 89 * 3 + 1;
        let outcome = session.receive(piece, &mut switch);
        assert!(!is_closed || outcome.output.is_empty());
        assert!(outcome.output.len() < MESSAGE_SIZE_MAX + bytes.len() * 16);
        is_closed |= outcome.closes;
    }
    session.end(&mut switch);
}

/// Reads the bytes as a request of gNMI: the first byte says which.
///
/// Properties: each request is answered or refused; a Set leaves a valid configuration.
pub(crate) fn gnmi(bytes: &[u8]) {
    let Some((kind, message)) = bytes.split_first() else {
        return;
    };
    let mut switch = Switch::new();
    let document = switch.running().unwrap().document;
    let view = View::new(1, &document, &Map::new());
    match kind % 3 {
        0 => {
            if let Ok(request) = GetRequest::decode(message) {
                let _ = millrace_gnmi::get(&request, &view, 0);
            }
        }
        1 => {
            if let Ok(request) = SetRequest::decode(message) {
                let _ = millrace_gnmi::set(&request, &mut switch, 0);
                switch.0.validate().unwrap();
            }
        }
        _ => {
            let Ok(request) = SubscriptionList::decode(message) else {
                return;
            };
            let Ok(mut subscriptions) = Subscriptions::new(&request, std::time::Duration::ZERO) else {
                return;
            };
            let _ = subscriptions.snapshot(&view, 0);
            let _ = subscriptions.changed(&view, 0);
            let _ = subscriptions.due(&view, std::time::Duration::from_secs(60), 0);
        }
    }
}
