//! A switch in memory, and paths and values of clients.

use millrace_gnmi::proto::gnmi::typed_value::Value;
use millrace_gnmi::proto::gnmi::{Path, PathElem, TypedValue, Update};
use millrace_gnmi::view::View;
use millrace_model::Config;
use millrace_yang::datastore::{Change, Datastore, Failure, Pending, Snapshot};
use serde_json::{Map, Value as Json, json};

pub(crate) const BASE: &str = r#"
    [[bridge]]
    name = "br0"
    [[bridge.port]]
    name = "p1"
    number = 1
    device = "memory"
    vlan = 7
    [[bridge.port]]
    name = "p2"
    number = 2
    device = "memory"
    mtu = 9000
    trunks = [10, 20]
"#;

/// The configurations of a switch, newest last.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) revisions: Vec<(Config, String)>,
    pub(crate) pending: Option<u64>,
    /// The number of writes that another client is faster than.
    pub(crate) rivals: usize,
}

impl Switch {
    pub(crate) fn new() -> Switch {
        Switch {
            revisions: vec![(Config::from_toml("test", BASE).unwrap(), String::new())],
            pending: None,
            rivals: 0,
        }
    }

    pub(crate) fn head(&self) -> u64 {
        self.revisions.len() as u64 - 1
    }

    pub(crate) fn document(&self) -> Map<String, Json> {
        self.revisions
            .last()
            .unwrap()
            .0
            .to_json()
            .as_object()
            .unwrap()
            .clone()
    }

    pub(crate) fn view(&self) -> View {
        View::new(self.head(), &self.document(), &state(5))
    }

    /// Returns the field of a port of br0.
    pub(crate) fn port(&self, index: usize, key: &str) -> Json {
        self.document()["bridge"][0]["port"][index]
            .get(key)
            .cloned()
            .unwrap_or_default()
    }
}

/// Returns the state of a switch whose port p1 has received `packets`.
pub(crate) fn state(packets: u64) -> Map<String, Json> {
    let port = json!({
        "bridge": "br0", "name": "p1", "number": 1, "device": "memory", "mac": "02:00:00:00:00:01", "mtu": 1500,
        "admin": "up", "link": "up", "rx": {"packets": packets, "bytes": packets * 64, "drops": 0, "errors": 0},
        "tx": {"packets": 0, "bytes": 0, "drops": 0, "errors": 0},
    });
    Map::from_iter([
        ("revision".to_owned(), json!(0)),
        ("port".to_owned(), json!([port])),
    ])
}

impl Datastore for Switch {
    fn running(&mut self) -> Result<Snapshot, Failure> {
        Ok(Snapshot {
            revision: self.head(),
            document: self.document(),
        })
    }

    fn replace(&mut self, document: &Map<String, Json>, base: u64, change: &Change) -> Result<u64, Failure> {
        if self.rivals > 0 {
            self.rivals -= 1;
            let again = self.revisions.last().unwrap().clone();
            self.revisions.push(again);
        }
        if base != self.head() {
            return Err(Failure::Stale("stale".to_owned()));
        }
        let config = Config::from_json(&Json::Object(document.clone()))
            .map_err(|error| Failure::Invalid(error.to_string()))?;
        self.revisions.push((config, change.comment.clone()));
        self.pending = change.confirm_within.map(|_| self.head());
        Ok(self.head())
    }

    fn pending(&mut self) -> Result<Option<Pending>, Failure> {
        Ok(self.pending.map(|revision| Pending {
            revision,
            comment: self.revisions[revision as usize].1.clone(),
        }))
    }

    fn confirm(&mut self, _: u64) -> Result<(), Failure> {
        self.pending = None;
        Ok(())
    }

    fn cancel(&mut self, revision: u64, _: &str) -> Result<(), Failure> {
        self.pending = None;
        let before = self.revisions[revision as usize - 1].clone();
        self.revisions.push(before);
        Ok(())
    }

    fn lock(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn unlock(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn state(&mut self) -> Result<Map<String, Json>, Failure> {
        Ok(state(5))
    }
}

/// Returns the path of a text: `/bridge[name=br0]/port[name=p1]/mtu`. A value of a key has no `/`; `|` stands for it.
pub(crate) fn path(text: &str) -> Path {
    let elem = text.split('/').filter(|part| !part.is_empty()).map(|part| {
        let mut pieces = part.split('[');
        let name = pieces.next().unwrap().to_owned();
        let keys = pieces.map(|piece| piece.trim_end_matches(']').split_once('=').unwrap());
        PathElem {
            name,
            key: keys
                .map(|(key, value)| (key.to_owned(), value.replace('|', "/")))
                .collect(),
        }
    });
    Path {
        elem: elem.collect(),
        ..Path::default()
    }
}

/// Returns an update with a value in JSON_IETF.
#[expect(clippy::needless_pass_by_value, reason = "tests build the value in the call")]
pub(crate) fn update(text: &str, value: Json) -> Update {
    Update {
        path: Some(path(text)),
        val: Some(TypedValue {
            value: Some(Value::JsonIetfVal(value.to_string().into_bytes())),
        }),
        ..Update::default()
    }
}
