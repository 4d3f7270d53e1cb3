//! State that the sessions of a server share: the candidate (RFC 6241, section 8.3), its lock, and the list of sessions.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value as Json};

/// The candidate: a trimmed document, and the revision on which it is based.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) base: u64,
    pub(crate) document: Map<String, Json>,
}

/// A confirmed commit that changed nothing: there is nothing to take back, so the switch does not know of it, but the client may
/// still confirm or cancel it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trial {
    pub(crate) session: u32,
    pub(crate) persist: Option<String>,
    pub(crate) until: Instant,
}

impl Trial {
    /// Returns true if a session may confirm it with `persist_id`.
    pub(crate) fn is_of(&self, session: u32, persist_id: Option<&str>) -> bool {
        let is_named = match &self.persist {
            Some(persist) => persist_id == Some(persist),
            None => persist_id.is_none() && self.session == session,
        };
        is_named && Instant::now() < self.until
    }
}

/// Ends a session from another one. The function of a transport closes its connection.
pub type Ended = Box<dyn Fn() + Send + Sync>;

struct Entry {
    user: String,
    login: String,
    end: Ended,
}

/// A session, as `netconf-state` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: u32,
    pub(crate) user: String,
    /// The time at which it began, in the form of RFC 3339.
    pub(crate) login: String,
}

#[derive(Default)]
pub(crate) struct State {
    /// The candidate with its changes; `None` while it equals `running`.
    pub(crate) candidate: Option<Candidate>,
    /// The session that holds the lock of the candidate.
    pub(crate) candidate_lock: Option<u32>,
    /// The newest confirmed commit that changed nothing.
    pub(crate) trial: Option<Trial>,
    /// The session that holds the lock of `running`.
    pub(crate) running_lock: Option<u32>,
    sessions: BTreeMap<u32, Entry>,
    last_id: u32,
}

/// State that the sessions of a server share.
#[derive(Default)]
pub struct Shared {
    state: Mutex<State>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A session that panicked leaves a whole document: changes replace it at once.
        self.state.lock()
    }

    /// Adds a session, and returns its number (RFC 6241, section 8.1).
    pub(crate) fn begin(&self, user: &str, login: &str, end: Ended) -> u32 {
        let mut state = self.state();
        loop {
            state.last_id = state.last_id.checked_add(1).unwrap_or(1);
            let id = state.last_id;
            if let std::collections::btree_map::Entry::Vacant(place) = state.sessions.entry(id) {
                let (user, login) = (user.to_owned(), login.to_owned());
                place.insert(Entry { user, login, end });
                return id;
            }
        }
    }

    /// Removes a session, with its locks and the changes of a candidate that it had locked (RFC 6241, section 8.3.5.2).
    pub(crate) fn end(&self, id: u32) {
        let mut state = self.state();
        state.sessions.remove(&id);
        if state.candidate_lock == Some(id) {
            state.candidate_lock = None;
            state.candidate = None;
        }
        if state.running_lock == Some(id) {
            state.running_lock = None;
        }
        state
            .trial
            .take_if(|trial| trial.persist.is_none() && trial.session == id);
    }

    /// Ends another session. Returns false if there is none.
    pub(crate) fn kill(&self, id: u32) -> bool {
        let state = self.state();
        match state.sessions.get(&id) {
            Some(entry) => {
                (entry.end)();
                true
            }
            None => false,
        }
    }

    /// Returns the sessions.
    pub(crate) fn sessions(&self) -> Vec<Listed> {
        let state = self.state();
        state
            .sessions
            .iter()
            .map(|(id, entry)| Listed {
                id: *id,
                user: entry.user.clone(),
                login: entry.login.clone(),
            })
            .collect()
    }
}
