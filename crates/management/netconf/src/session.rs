//! A session: hello, then one reply to each `rpc` in order.
//!
//! ```text
//! Hello --(hello of the client)--> Open --(close-session, an error of framing)--> Closed
//! ```

use std::sync::Arc;

use millrace_yang::datastore::{Client, Datastore};
use millrace_yang::edit::NETCONF;
use millrace_yang::xml::Element;

use crate::capabilities::{BASE_1_0, BASE_1_1, capabilities};
use crate::framing::Framing;
use crate::notification::{ConfigChange, Subscription};
use crate::operations::{self, Context};
use crate::reply::{Reply, RpcError};
use crate::shared::{Ended, Shared};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Hello,
    Open,
    Closed,
}

/// The result of received bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The bytes for the client.
    pub output: Vec<u8>,
    /// True if the connection closes once they are sent.
    pub closes: bool,
}

/// A session of a client. [`Session::end`] releases what it holds.
#[derive(Debug)]
pub struct Session {
    id: u32,
    client: Client,
    shared: Arc<Shared>,
    framing: Framing,
    phase: Phase,
    /// The revision of a confirmed commit without `persist`, which ends with the session.
    pub(crate) unconfirmed: Option<u64>,
    subscription: Option<Subscription>,
}

impl Session {
    /// Begins a session. `login` is the time in the form of RFC 3339. `end` closes its connection when an administrator kills it.
    pub fn new(client: Client, login: &str, shared: Arc<Shared>, end: Ended) -> Session {
        let id = shared.begin(&client.name, login, end);
        Session {
            id,
            client,
            shared,
            framing: Framing::default(),
            phase: Phase::Hello,
            unconfirmed: None,
            subscription: None,
        }
    }

    /// Returns the hello of the server, the first bytes of the connection.
    pub fn hello(&self) -> Vec<u8> {
        let mut list = Element::new(NETCONF, "capabilities");
        for capability in capabilities() {
            list = list.with(Element::new(NETCONF, "capability").with_text(capability));
        }
        let hello = Element::new(NETCONF, "hello")
            .with(list)
            .with(Element::new(NETCONF, "session-id").with_text(self.id.to_string()));
        self.framing
            .framed(&format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{hello}"))
    }

    /// Returns the number of the session.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Takes bytes of the client, and returns the replies.
    pub fn receive(&mut self, bytes: &[u8], store: &mut dyn Datastore) -> Outcome {
        let mut outcome = Outcome::default();
        if self.phase == Phase::Closed || self.framing.receive(bytes).is_err() {
            self.phase = Phase::Closed;
        }
        while self.phase != Phase::Closed {
            let message = match self.phase {
                Phase::Hello => self.framing.next_hello(),
                _ => self.framing.next_message(),
            };
            match message {
                Ok(None) => break,
                Ok(Some(message)) => self.message(&message, store, &mut outcome.output),
                Err(_) => self.phase = Phase::Closed,
            }
        }
        outcome.closes = self.phase == Phase::Closed;
        outcome
    }

    fn message(&mut self, message: &[u8], store: &mut dyn Datastore, output: &mut Vec<u8>) {
        let element = Element::parse(message);
        if self.phase == Phase::Hello {
            self.phase = match element.as_ref().map(Hello::of) {
                Ok(Some(hello)) => {
                    if hello.is_1_1 {
                        self.framing.chunk();
                    }
                    Phase::Open
                }
                _ => Phase::Closed,
            };
            return;
        }
        let (reply, attributes) = match element {
            Ok(element) => (self.rpc(&element, store), element.attributes),
            // A message that is no XML has no message-id to answer with (RFC 6241, appendix A, malformed-message).
            Err(error) => (
                RpcError::new("rpc", "malformed-message", error.to_string()).into(),
                Vec::new(),
            ),
        };
        let text = reply.message(&attributes);
        output.extend(self.framing.framed(&text));
    }

    fn rpc(&mut self, rpc: &Element, store: &mut dyn Datastore) -> Reply {
        if rpc.namespace != NETCONF || rpc.name != "rpc" {
            let error = RpcError::new("rpc", "unknown-element", "expected `rpc` of NETCONF");
            return error.with_info("bad-element", rpc.name.clone()).into();
        }
        if rpc.attribute("", "message-id").is_none() {
            let error = RpcError::new(
                "rpc",
                "missing-attribute",
                "expected the attribute message-id of rpc",
            );
            return error
                .with_info("bad-attribute", "message-id")
                .with_info("bad-element", "rpc")
                .into();
        }
        let [operation] = rpc.children.as_slice() else {
            return RpcError::new("protocol", "missing-element", "expected one operation in rpc")
                .with_info("bad-element", "rpc")
                .into();
        };
        if ["", NETCONF].contains(&operation.namespace.as_str()) && operation.name == "close-session" {
            self.phase = Phase::Closed;
            return Reply::Ok;
        }
        let mut context = Context {
            id: self.id,
            client: &self.client,
            shared: &self.shared,
            store,
            unconfirmed: &mut self.unconfirmed,
            subscription: &mut self.subscription,
            attributes: &rpc.attributes,
        };
        operations::run(operation, &mut context).unwrap_or_else(Reply::Errors)
    }

    /// Returns the bytes of a notification; `None` if the client has not subscribed, or its filter selects nothing.
    pub fn notification(&self, change: &ConfigChange) -> Option<Vec<u8>> {
        let Subscription(filter) = self.subscription.as_ref()?;
        let message = change.message(filter.as_ref())?;
        Some(self.framing.framed(&message))
    }

    /// Ends the session: its confirmed commit without `persist` is taken back at once (RFC 6241, section 8.4.1), and its locks
    /// are free.
    pub fn end(&mut self, store: &mut dyn Datastore) {
        self.phase = Phase::Closed;
        if let Some(revision) = self.unconfirmed.take() {
            let is_pending = matches!(store.pending(), Ok(Some(pending)) if pending.revision == revision);
            if is_pending {
                // If the switch is away, its own time-out takes the revision back.
                let _ = store.cancel(revision, "NETCONF session ended before the confirmation");
            }
        }
        if self.shared.state().running_lock == Some(self.id) {
            let _ = store.unlock();
        }
        self.shared.end(self.id);
    }
}

struct Hello {
    is_1_1: bool,
}

impl Hello {
    /// Returns the hello of a client; `None` if it is none, or offers no version that the server has.
    fn of(element: &Element) -> Option<Hello> {
        // A client's hello has no session-id (RFC 6241, section 8.1).
        let is_hello = element.namespace == NETCONF && element.name == "hello";
        if !is_hello || element.child("session-id").is_some() {
            return None;
        }
        let offered = &element.child("capabilities")?.children;
        let has = |wanted: &str| {
            offered
                .iter()
                .any(|one| one.name == "capability" && one.trimmed() == wanted)
        };
        let is_1_1 = has(BASE_1_1);
        (is_1_1 || has(BASE_1_0)).then_some(Hello { is_1_1 })
    }
}
