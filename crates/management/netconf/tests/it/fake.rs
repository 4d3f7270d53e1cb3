//! A switch in memory, and clients of one server.

use std::sync::Arc;

use millrace_model::Config;
use millrace_netconf::{BASE_1_0, Framing, Session, Shared};
use millrace_yang::datastore::{Change, Client, Datastore, Failure, Pending, Role, Snapshot};
use parking_lot::Mutex;
use serde_json::{Map, Value as Json};

/// The time at which sessions begin.
pub(crate) const LOGIN: &str = "2026-11-29T12:00:00Z";

pub(crate) const BASE: &str = r#"
    [[bridge]]
    name = "br0"
    [[bridge.port]]
    name = "p1"
    number = 1
    device = "memory"
"#;

/// The configurations of a switch, newest last, as `millraced` would keep them.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) revisions: Vec<(Config, String)>,
    pub(crate) pending: Option<u64>,
    pub(crate) lock: Option<String>,
}

/// A session's view of the switch.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) switch: Arc<Mutex<Switch>>,
    name: String,
}

impl Switch {
    pub(crate) fn new() -> Arc<Mutex<Switch>> {
        Switch::of(BASE)
    }

    /// Returns a switch with this configuration.
    pub(crate) fn of(toml: &str) -> Arc<Mutex<Switch>> {
        let config = Config::from_toml("test", toml).unwrap();
        Arc::new(Mutex::new(Switch {
            revisions: vec![(config, String::new())],
            pending: None,
            lock: None,
        }))
    }

    pub(crate) fn head(&self) -> u64 {
        self.revisions.len() as u64 - 1
    }

    pub(crate) fn document(&self) -> Json {
        self.revisions.last().unwrap().0.to_json()
    }

    /// The time for the confirmation has passed.
    pub(crate) fn expire(&mut self) {
        if let Some(revision) = self.pending.take() {
            let before = self.revisions[revision as usize - 1].clone();
            self.revisions.push(before);
        }
    }
}

impl Datastore for Store {
    fn running(&mut self) -> Result<Snapshot, Failure> {
        let switch = self.switch.lock();
        Ok(Snapshot {
            revision: switch.head(),
            document: switch.document().as_object().unwrap().clone(),
        })
    }

    fn replace(&mut self, document: &Map<String, Json>, base: u64, change: &Change) -> Result<u64, Failure> {
        let mut switch = self.switch.lock();
        let config = Config::from_json(&Json::Object(document.clone()))
            .map_err(|error| Failure::Invalid(error.to_string()))?;
        if switch.lock.as_ref().is_some_and(|holder| *holder != self.name) {
            return Err(Failure::Locked("locked".to_owned()));
        }
        if base != switch.head() {
            return Err(Failure::Stale(format!(
                "the configuration is at revision {}",
                switch.head()
            )));
        }
        if switch.pending.is_some() && change.confirm_within.is_none() {
            return Err(Failure::Conflict("a revision waits".to_owned()));
        }
        if change.dry_run {
            return Ok(switch.head());
        }
        // As the store of the switch: what equals the head is no revision, but for a pending one with another comment.
        let (newest, comment) = switch.revisions.last().unwrap();
        if *newest == config && (switch.pending.is_none() || *comment == change.comment) {
            return Ok(switch.head());
        }
        switch.revisions.push((config, change.comment.clone()));
        let head = switch.head();
        switch.pending = change.confirm_within.map(|_| head);
        Ok(head)
    }

    fn pending(&mut self) -> Result<Option<Pending>, Failure> {
        let switch = self.switch.lock();
        Ok(switch.pending.map(|revision| Pending {
            revision,
            comment: switch.revisions[revision as usize].1.clone(),
        }))
    }

    fn confirm(&mut self, revision: u64) -> Result<(), Failure> {
        let mut switch = self.switch.lock();
        assert_eq!(switch.pending, Some(revision));
        switch.pending = None;
        Ok(())
    }

    fn cancel(&mut self, revision: u64, _: &str) -> Result<(), Failure> {
        let mut switch = self.switch.lock();
        assert_eq!(switch.pending, Some(revision));
        switch.expire();
        Ok(())
    }

    fn lock(&mut self) -> Result<(), Failure> {
        let mut switch = self.switch.lock();
        match &switch.lock {
            Some(holder) => Err(Failure::Locked(format!("{holder} holds the lock"))),
            None => {
                switch.lock = Some(self.name.clone());
                Ok(())
            }
        }
    }

    fn unlock(&mut self) -> Result<(), Failure> {
        self.switch.lock().lock = None;
        Ok(())
    }

    fn state(&mut self) -> Result<Map<String, Json>, Failure> {
        let port = serde_json::json!({
            "bridge": "br0", "name": "p1", "number": 1, "if_index": 17, "admin": "up", "link": "up", "mac": "02:00:00:00:00:01",
            "speed_bps": 1_000_000_000, "rx": {"packets": 7, "bytes": 700}, "tx": {"bytes": 3},
        });
        Ok(Map::from_iter([
            ("started".to_owned(), Json::from(LOGIN)),
            ("revision".to_owned(), Json::from(0)),
            ("port".to_owned(), Json::Array(vec![port])),
        ]))
    }
}

/// A client with an open session.
pub(crate) struct Peer {
    pub(crate) session: Session,
    pub(crate) store: Store,
    framing: Framing,
}

impl Peer {
    /// Begins a session and says hello for version 1.0.
    pub(crate) fn new(switch: &Arc<Mutex<Switch>>, shared: &Arc<Shared>, name: &str, role: Role) -> Peer {
        let client = Client {
            name: name.to_owned(),
            role,
        };
        let mut peer = Peer {
            session: Session::new(client, LOGIN, Arc::clone(shared), Box::new(|| {})),
            store: Store {
                switch: Arc::clone(switch),
                name: name.to_owned(),
            },
            framing: Framing::default(),
        };
        let hello = format!(
            r#"<hello xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><capabilities><capability>{BASE_1_0}</capability></capabilities></hello>]]>]]>"#
        );
        let outcome = peer.session.receive(hello.as_bytes(), &mut peer.store);
        assert!(!outcome.closes && outcome.output.is_empty());
        peer
    }

    /// Returns the reply to an operation.
    pub(crate) fn call(&mut self, operation: &str) -> String {
        let rpc = format!(
            r#"<rpc message-id="1" xmlns="urn:ietf:params:xml:ns:netconf:base:1.0">{operation}</rpc>]]>]]>"#
        );
        let outcome = self.session.receive(rpc.as_bytes(), &mut self.store);
        self.framing.receive(&outcome.output).unwrap();
        String::from_utf8(self.framing.next_message().unwrap().unwrap()).unwrap()
    }

    /// Runs an operation that must succeed.
    pub(crate) fn ok(&mut self, operation: &str) {
        let reply = self.call(operation);
        assert!(reply.contains("<ok/>"), "{operation}: {reply}");
    }

    /// Runs an operation that must fail with a tag.
    pub(crate) fn fails(&mut self, operation: &str, tag: &str) -> String {
        let reply = self.call(operation);
        assert!(
            reply.contains(&format!("<error-tag>{tag}</error-tag>")),
            "{operation}: {reply}"
        );
        reply
    }

    /// Edits the candidate with data inside of `bridge` br0.
    pub(crate) fn edit(&mut self, inner: &str) {
        self.ok(&edit(inner));
    }
}

/// Returns an edit-config of the candidate.
pub(crate) fn edit(inner: &str) -> String {
    format!(
        r#"<edit-config><target><candidate/></target><config><bridge xmlns="urn:millrace:switch"><name>br0</name>{inner}</bridge></config></edit-config>"#
    )
}

/// Returns the field of bridge br0 in the newest configuration.
pub(crate) fn field(switch: &Arc<Mutex<Switch>>, key: &str) -> Json {
    switch.lock().document()["bridge"][0][key].clone()
}
