//! A session with an OVSDB server.
//!
//! ```text
//!  start ──▶ get_schema ──▶ monitor_cond_since ──▶ synchronised: updates change the replica
//!     │                      │ unknown method ─▶ monitor_cond ─ unknown method ─▶ monitor
//!     └────▶ lock: owned now, or later (`locked`); lost by `stolen`
//! ```
//!
//! A session never outlives its connection, and a replica never its session: a standalone server knows no earlier
//! transaction (`found` is false), and another database may answer at the same address.

use std::collections::{BTreeMap, VecDeque};

use millrace_types::{Duration, Time};
use serde_json::{Map, Value as Json, json};
use thiserror::Error;

use crate::operation::Operation;
use crate::replica::{Replica, ReplicaError};
use crate::schema::{Schema, SchemaError};
use crate::splitter::{Splitter, SplitterError};

/// The columns to monitor, by table.
pub type Monitored = &'static [(&'static str, &'static [&'static str])];

/// The depth of arrays and objects in a message. A schema nests 10 deep, a row of `update3` 9.
const DEPTH_MAX: usize = 32;

/// The number of requests without a reply. A session has one request at a time apart from transactions and echoes.
const REQUESTS_MAX: usize = 64;

/// The methods that monitor, the newest first.
const METHODS: [&str; 3] = ["monitor_cond_since", "monitor_cond", "monitor"];

/// The settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The name of the database: `Open_vSwitch`.
    pub database: &'static str,
    /// The lock without which the session must not write.
    pub lock: &'static str,
    /// The columns to monitor. Columns that the schema of the server lacks are left out.
    pub monitored: Monitored,
    /// The largest message, in bytes.
    pub message_size_max: usize,
    /// The largest memory of all rows, in bytes.
    pub replica_size_max: usize,
    /// The idle time after which the session sends an echo request; after the same time without any byte, it ends.
    pub probe_interval: Duration,
}

/// The number of a transaction in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(u64);

/// The outcome of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All operations were made.
    Committed,
    /// None was made.
    Refused(String),
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The replica is complete now: the first time in this session.
    Synchronised,
    /// Rows of the replica changed.
    Changed,
    /// The session got the lock, or lost it.
    Lock { is_owned: bool },
    /// A transaction ended.
    Transaction { id: TransactionId, outcome: Outcome },
}

/// The reason why a session ends. The caller closes the connection and opens another one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Violation {
    /// The bytes are no messages.
    #[error("the server sent {0}")]
    Stream(#[from] SplitterError),
    /// A message is not valid JSON, or no message of RFC 7047.
    #[error("the server sent a message that is {found}: expected {expected}")]
    Message {
        /// The kind of message found.
        found: String,
        /// The expected form.
        expected: &'static str,
    },
    /// An update does not fit the replica.
    #[error("the server sent {0}")]
    Replica(#[from] ReplicaError),
    /// The schema has another form.
    #[error("{0}")]
    Schema(#[from] SchemaError),
    /// The server refused a request that the session cannot do without.
    #[error("the server refused {method}: {error}")]
    Refused { method: &'static str, error: String },
    /// The server no longer sends the updates.
    #[error("the server cancelled the monitor: expected updates until the end of the connection")]
    Cancelled,
    /// The server was silent.
    #[error("the server was silent for {0:?}, also after an echo request")]
    Silent(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Schema,
    Lock,
    Monitor { method: usize },
    Transaction,
    Echo,
}

/// A session with a server.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    splitter: Splitter,
    schema: Schema,
    replica: Replica,
    is_synchronised: bool,
    owns_lock: bool,
    requests: BTreeMap<u64, Request>,
    next_id: u64,
    output: Vec<u8>,
    events: VecDeque<Event>,
    /// The time of the last received byte.
    heard: Time,
    is_probing: bool,
}

impl Session {
    /// Begins a session on a new connection.
    pub fn new(settings: Settings, now: Time) -> Session {
        let mut session = Session {
            settings,
            splitter: Splitter::new(settings.message_size_max, DEPTH_MAX),
            schema: Schema::default(),
            replica: Replica::default(),
            is_synchronised: false,
            owns_lock: false,
            requests: BTreeMap::new(),
            next_id: 0,
            output: Vec::new(),
            events: VecDeque::new(),
            heard: now,
            is_probing: false,
        };
        session.request(Request::Lock, "lock", &json!([settings.lock]));
        session.request(Request::Schema, "get_schema", &json!([settings.database]));
        session
    }

    /// Returns the monitored rows. They are complete after [`Event::Synchronised`].
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns the schema of the database.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns true if the session owns its lock.
    pub fn owns_lock(&self) -> bool {
        self.owns_lock
    }

    /// Returns true if the replica is complete.
    pub fn is_synchronised(&self) -> bool {
        self.is_synchronised
    }

    /// Takes the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// [`Violation`]; the session is over then.
    pub fn receive(&mut self, bytes: &[u8], now: Time) -> Result<(), Violation> {
        self.heard = now;
        self.is_probing = false;
        self.splitter.push(bytes);
        while let Some(message) = self.splitter.next_message()? {
            let json = serde_json::from_slice::<Json>(&message).map_err(|error| Violation::Message {
                found: format!("no JSON ({error})"),
                expected: "an object of RFC 7047",
            })?;
            self.message(&json)?;
        }
        Ok(())
    }

    /// Returns the time at which [`Session::handle_timeout`] is due.
    pub fn timeout(&self) -> Time {
        let intervals = if self.is_probing { 2 } else { 1 };
        self.heard + self.settings.probe_interval * intervals
    }

    /// Sends an echo request to a silent server.
    ///
    /// # Errors
    /// [`Violation::Silent`] if the server did not answer the last one.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), Violation> {
        if now < self.timeout() {
            return Ok(());
        }
        if self.is_probing {
            return Err(Violation::Silent(now.since(self.heard)));
        }
        self.is_probing = true;
        self.request(Request::Echo, "echo", &json!([]));
        Ok(())
    }

    /// Sends a transaction, which the server makes only while this session owns the lock.
    pub fn transact(&mut self, operations: &[Operation]) -> TransactionId {
        let lock = Operation::AssertLock(self.settings.lock);
        let operations = std::iter::once(&lock).chain(operations).map(Operation::to_json);
        let mut params = vec![Json::from(self.settings.database)];
        params.extend(operations);
        TransactionId(self.request(Request::Transaction, "transact", &Json::Array(params)))
    }

    fn request(&mut self, request: Request, method: &str, params: &Json) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.requests.insert(id, request);
        self.send(&json!({"id": id, "method": method, "params": params}));
        id
    }

    fn send(&mut self, message: &Json) {
        self.output.extend_from_slice(message.to_string().as_bytes());
    }

    fn message(&mut self, json: &Json) -> Result<(), Violation> {
        if self.requests.len() > REQUESTS_MAX {
            return Err(Violation::Message {
                found: format!("no reply, with {} requests open", self.requests.len()),
                expected: "replies",
            });
        }
        let (id, method) = (json.get("id"), json.get("method").and_then(Json::as_str));
        let Some(method) = method else {
            return self.reply(json, id);
        };
        let params = json
            .get("params")
            .and_then(Json::as_array)
            .map_or(&[][..], Vec::as_slice);
        match (method, params) {
            ("echo", _) => {
                let answer = json!({"id": id.cloned(), "result": params, "error": null});
                self.send(&answer);
                Ok(())
            }
            ("update", [_, updates]) if self.is_synchronised => {
                self.replica.update(updates, self.settings.replica_size_max)?;
                self.changed()
            }
            ("update2", [_, updates]) | ("update3", [_, _, updates]) if self.is_synchronised => {
                self.replica
                    .update2(updates, &self.schema, self.settings.replica_size_max)?;
                self.changed()
            }
            ("locked", _) => self.lock_is(true),
            ("stolen", _) => self.lock_is(false),
            ("monitor_canceled", _) => Err(Violation::Cancelled),
            _ => Err(Violation::Message {
                found: format!("a request {}", method.chars().take(40).collect::<String>()),
                expected: "echo, locked, stolen, or updates of the monitor",
            }),
        }
    }

    fn changed(&mut self) -> Result<(), Violation> {
        // A reader looks at the whole replica: one event stands for any number of updates.
        if self.events.back() != Some(&Event::Changed) {
            self.events.push_back(Event::Changed);
        }
        Ok(())
    }

    fn lock_is(&mut self, is_owned: bool) -> Result<(), Violation> {
        if self.owns_lock != is_owned {
            self.owns_lock = is_owned;
            self.events.push_back(Event::Lock { is_owned });
        }
        Ok(())
    }

    fn reply(&mut self, json: &Json, id: Option<&Json>) -> Result<(), Violation> {
        let number = id.and_then(Json::as_u64);
        let Some(request) = number.and_then(|id| self.requests.remove(&id)) else {
            return Err(Violation::Message {
                found: "a reply to no request".to_owned(),
                expected: "the id of a request",
            });
        };
        let error = json.get("error").filter(|error| !error.is_null());
        let result = json.get("result").unwrap_or(&Json::Null);
        match (request, error) {
            (Request::Monitor { method }, Some(error)) => self.monitor_refused(method, error),
            (Request::Schema, Some(error)) => Err(refused("get_schema", error)),
            (Request::Lock, Some(error)) => Err(refused("lock", error)),
            (Request::Transaction, _) => {
                let id = TransactionId(number.unwrap_or_default());
                let outcome = outcome(result, error);
                self.events.push_back(Event::Transaction { id, outcome });
                Ok(())
            }
            (Request::Echo, _) => Ok(()),
            (Request::Lock, None) => {
                let is_owned = result.get("locked").and_then(Json::as_bool) == Some(true);
                self.lock_is(is_owned)
            }
            (Request::Schema, None) => {
                self.schema = Schema::from_json(result)?;
                self.monitor(0);
                Ok(())
            }
            (Request::Monitor { method }, None) => self.monitored(method, result),
        }
    }

    fn monitor(&mut self, method: usize) {
        let mut tables = Map::new();
        for (table, columns) in self.settings.monitored {
            if !self.schema.has_table(table) {
                continue;
            }
            let columns: Vec<_> = columns
                .iter()
                .filter(|column| self.schema.has(table, column))
                .collect();
            let request = json!({"columns": columns});
            tables.insert((*table).to_owned(), json!([request]));
        }
        let mut params = vec![json!(self.settings.database), json!("rows"), Json::Object(tables)];
        if method == 0 {
            // No earlier transaction is known: the answer holds all rows.
            params.push(json!("00000000-0000-0000-0000-000000000000"));
        }
        let name = METHODS.get(method).copied().unwrap_or("monitor");
        self.request(Request::Monitor { method }, name, &Json::Array(params));
    }

    fn monitor_refused(&mut self, method: usize, error: &Json) -> Result<(), Violation> {
        if error_text(error).contains("unknown method") && method + 1 < METHODS.len() {
            self.monitor(method + 1);
            return Ok(());
        }
        Err(refused("monitor", error))
    }

    fn monitored(&mut self, method: usize, result: &Json) -> Result<(), Violation> {
        let (size_max, schema) = (self.settings.replica_size_max, &self.schema);
        let mut replica = Replica::default();
        match (method, result.as_array().map(Vec::as_slice)) {
            (0, Some([_, _, updates])) => replica.update2(updates, schema, size_max)?,
            (0, _) => {
                return Err(Violation::Message {
                    found: "another reply to monitor_cond_since".to_owned(),
                    expected: "found, a transaction and the rows",
                });
            }
            (1, _) => replica.update2(result, schema, size_max)?,
            _ => replica.update(result, size_max)?,
        }
        self.replica = replica;
        self.is_synchronised = true;
        self.events.push_back(Event::Synchronised);
        Ok(())
    }
}

fn error_text(error: &Json) -> String {
    match error {
        Json::String(text) => text.clone(),
        // `{"error": "unknown method", "details": …}`, or any other form.
        other => other.to_string(),
    }
    .chars()
    .take(500)
    .collect()
}

fn refused(method: &'static str, error: &Json) -> Violation {
    Violation::Refused {
        method,
        error: error_text(error),
    }
}

/// Returns the outcome of a transaction: an error of the whole, or of one operation.
fn outcome(result: &Json, error: Option<&Json>) -> Outcome {
    if let Some(error) = error {
        return Outcome::Refused(error_text(error));
    }
    let Some(results) = result.as_array() else {
        return Outcome::Refused("the reply holds no results".to_owned());
    };
    let failed = results.iter().find_map(|result| {
        let error = result.get("error")?.as_str()?;
        let details = result.get("details").and_then(Json::as_str).unwrap_or_default();
        Some(format!("{error}: {details}").chars().take(500).collect())
    });
    failed.map_or(Outcome::Committed, Outcome::Refused)
}

#[cfg(test)]
mod tests;
