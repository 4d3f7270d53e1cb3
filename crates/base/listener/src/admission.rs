//! Admission of connections: pending ones, which may be closed for newer ones, and established ones.
//!
//! A connection is *pending* until its peer has identified itself: by a TLS handshake and a HELLO, by a request with
//! a token, by a complete request on a private socket. The caller decides, and calls [`Connection::establish`].
//!
//! ```text
//!             begin                      establish
//!  (nothing) -------> pending ----------------------------> established
//!                     at most `pending_of_source` of one    at most `established`,
//!                     source, `pending` in all: beyond      `established_of_source`
//!                     that, the oldest of this source, or   of one source; never
//!                     of the source with the most, is       closed for others
//!                     closed
//! ```
//!
//! Every new connection is accepted as pending. An honest peer needs only a few round trips to identify itself, so the
//! connection that is closed at a limit is most probably a silent one. A listener whose connections never identify
//! themselves has only pending ones.
//!
//! A connection with a task of its own ([`Admission::begin_task`]) is *leaving* between the eviction and its end: the
//! task first reads what the peer has already sent. A request that lies unread in the socket while a flood is accepted
//! thus still identifies its peer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thiserror::Error;

use crate::Source;

/// The pause before a listener looks again if closed connections have ended.
const CROWDED_PAUSE: Duration = Duration::from_millis(1);

/// Minimum time between two log lines about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The limits of one listener, in connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum number of established connections.
    pub established: usize,
    /// The maximum number of established connections of one source.
    pub established_of_source: usize,
    /// The maximum number of pending connections.
    pub pending: usize,
    /// The maximum number of pending connections of one source.
    pub pending_of_source: usize,
}

impl Limits {
    /// Returns the pending connection to close for a new one from `source`; `None` if there is room. `pending` has all
    /// pending connections with their sources, oldest first.
    pub fn to_be_closed<T: Copy>(&self, source: Source, pending: &[(T, Source)]) -> Option<T> {
        let first = |matches: &dyn Fn(Source) -> bool| {
            let found = pending.iter().find(|(_, source)| matches(*source));
            found.map(|(connection, _)| *connection)
        };
        let mut counts: HashMap<Source, usize> = HashMap::new();
        for (_, source) in pending {
            *counts.entry(*source).or_default() += 1;
        }
        let own = counts.get(&source).copied().unwrap_or(0);
        if source.has_own_limit() && own >= self.pending_of_source {
            return first(&|other| other == source);
        }
        if pending.len() < self.pending {
            return None;
        }
        let most = counts.values().max()?;
        first(&|other| counts.get(&other) == Some(most))
    }

    /// The limits of a listener for peers on the network, of which each has one connection or a few.
    pub const NETWORK: Limits = Limits {
        established: 64,
        established_of_source: 64,
        pending: 128,
        pending_of_source: 16,
    };

    /// The limits of a listener for programs of this machine, each of which asks and ends.
    pub const LOCAL: Limits = Limits {
        established: 64,
        established_of_source: 64,
        pending: 64,
        pending_of_source: 64,
    };
}

/// The reason why a connection cannot be established. It stays pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EstablishError {
    /// All places for established connections are in use.
    #[error("{limit} peers are connected to this listener, which is its limit: disconnect one of them first")]
    Full { limit: usize },
    /// The source has its number of established connections.
    #[error(
        "{limit} peers of {origin} are connected to this listener, which is the limit of one address: disconnect one of them first"
    )]
    FullOfSource { origin: Source, limit: usize },
    /// The connection was closed for a newer one.
    #[error("the connection was closed for a newer one before its peer had identified itself")]
    Evicted,
}

/// The connections of one listener. Clones count the same connections.
#[derive(Clone, Debug)]
pub struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    /// The listener, for the log.
    listener: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// Oldest first.
    pending: Vec<Entry>,
    /// Evicted connections whose tasks still read what their peers have sent.
    leaving: Vec<Entry>,
    established: HashMap<u64, Source>,
    /// Connections that were closed since the latest log line.
    closed: u64,
    /// Closed connections that have not ended yet.
    ending: usize,
    /// The time of the latest log line.
    logged: Option<Instant>,
}

struct Entry {
    id: u64,
    source: Source,
    /// True while the listener works on a request of the peer.
    is_busy: bool,
    /// The value of `is_busy` at the eviction.
    was_busy: bool,
    close: Close,
}

/// The way in which a connection is closed for a newer one.
enum Close {
    /// At once, by a call that does not wait.
    Call(Box<dyn FnOnce() + Send>),
    /// By the task of the connection, after a last look at its socket.
    #[cfg(feature = "tokio")]
    Task(std::sync::Arc<tokio::sync::Notify>),
}

impl core::fmt::Debug for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Entry { id, source, .. } = self;
        f.debug_struct("Entry")
            .field("id", id)
            .field("source", source)
            .finish_non_exhaustive()
    }
}

/// A counted connection. It no longer counts when its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Counted>);

#[derive(Debug)]
pub(crate) struct Counted {
    id: u64,
    shared: Arc<Shared>,
}

impl Admission {
    /// Returns the admission of a listener without connections. `listener` names it in the log.
    pub fn new(limits: Limits, listener: impl Into<String>) -> Admission {
        Admission {
            shared: Arc::new(Shared {
                limits,
                listener: listener.into(),
                state: Mutex::default(),
            }),
        }
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Returns true if a quarter as many closed connections have not ended yet as may be pending: each has a descriptor
    /// still. Do not accept another one then: the kernel's queue holds it meanwhile.
    fn is_crowded(&self) -> bool {
        self.shared.state.lock().ending >= self.shared.limits.pending.div_ceil(4)
    }

    /// Blocks until another connection may be accepted.
    pub fn wait(&self) {
        while self.is_crowded() {
            std::thread::sleep(CROWDED_PAUSE);
        }
    }

    /// Returns when another connection may be accepted.
    #[cfg(feature = "tokio")]
    pub async fn ready(&self) {
        while self.is_crowded() {
            tokio::time::sleep(CROWDED_PAUSE).await;
        }
    }

    /// Counts a new connection as pending. If its source or the listener is at its limit, calls the function with
    /// which another pending connection began, which must close that connection and must not wait.
    pub fn begin(&self, source: Source, close: impl FnOnce() + Send + 'static) -> Connection {
        self.begin_with(source, Close::Call(Box::new(close)))
    }

    /// Counts a new connection as pending, for a task: the function with which another one began notifies `evicted`.
    #[cfg(feature = "tokio")]
    pub(crate) fn begin_notified(
        &self,
        source: Source,
        evicted: Arc<tokio::sync::Notify>,
    ) -> (Connection, std::sync::Weak<Counted>) {
        let connection = self.begin_with(source, Close::Task(evicted));
        let counted = Arc::downgrade(&connection.0);
        (connection, counted)
    }

    fn begin_with(&self, source: Source, close: Close) -> Connection {
        let mut state = self.shared.state.lock();
        let closed = state.make_room(source, &self.shared);
        let id = state.next_id;
        state.next_id += 1;
        state.pending.push(Entry {
            id,
            source,
            is_busy: false,
            was_busy: false,
            close,
        });
        drop(state);
        if let Some(close) = closed {
            close();
        }
        Connection(Arc::new(Counted {
            id,
            shared: Arc::clone(&self.shared),
        }))
    }
}

impl State {
    /// Evicts a pending connection if `source` needs its place. Returns the function that closes it, to be called
    /// outside the lock.
    fn make_room(&mut self, source: Source, shared: &Shared) -> Option<Box<dyn FnOnce() + Send>> {
        let evicted = self.evict(source, shared.limits)?;
        self.closed += 1;
        self.ending += 1;
        self.log(&shared.listener, source, shared.limits);
        match evicted.close {
            Close::Call(close) => Some(close),
            #[cfg(feature = "tokio")]
            Close::Task(ref notify) => {
                notify.notify_one();
                self.leaving.push(Entry {
                    was_busy: evicted.is_busy,
                    ..evicted
                });
                None
            }
        }
    }

    /// Returns the entry of a connection that is not established, pending or leaving.
    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        let mut entries = self.pending.iter_mut().chain(&mut self.leaving);
        entries.find(|entry| entry.id == id)
    }

    /// Removes and returns the entry of a connection that is not established. A leaving one no longer counts as one
    /// that ends.
    fn remove(&mut self, id: u64) -> Option<Entry> {
        if let Some(at) = self.pending.iter().position(|entry| entry.id == id) {
            return Some(self.pending.remove(at));
        }
        let at = self.leaving.iter().position(|entry| entry.id == id)?;
        self.ending -= 1;
        Some(self.leaving.swap_remove(at))
    }

    /// Removes the pending connection that must make room for a new one from `source`, if there is one: one whose peer
    /// sends nothing or reads nothing before one on whose request the listener works.
    fn evict(&mut self, source: Source, limits: Limits) -> Option<Entry> {
        let entries = || self.pending.iter().enumerate();
        let idle = entries().filter(|(_, entry)| !entry.is_busy);
        let busy = entries().filter(|(_, entry)| entry.is_busy);
        let pending: Vec<(usize, Source)> = idle.chain(busy).map(|(at, entry)| (at, entry.source)).collect();
        let at = limits.to_be_closed(source, &pending)?;
        Some(self.pending.remove(at))
    }

    /// Logs the number of closed connections, at most once in [`LOG_INTERVAL`].
    fn log(&mut self, listener: &str, source: Source, limits: Limits) {
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return;
        }
        self.logged = Some(Instant::now());
        tracing::warn!(
            listener,
            address = %source,
            closed = self.closed,
            limit = limits.pending,
            limit_of_address = limits.pending_of_source,
            "connections whose peers had not identified themselves were closed for newer ones"
        );
        self.closed = 0;
    }
}

impl Connection {
    /// Counts the connection as established, and no longer as pending: it is not closed for others any more. An
    /// established connection stays so.
    ///
    /// # Errors
    /// [`EstablishError`] at a limit. The connection then stays pending.
    pub fn establish(&self) -> Result<(), EstablishError> {
        let Counted { id, shared } = &*self.0;
        let limits = shared.limits;
        let mut state = shared.state.lock();
        if state.established.contains_key(id) {
            return Ok(());
        }
        let Some(source) = state.entry(*id).map(|entry| entry.source) else {
            return Err(EstablishError::Evicted);
        };
        if state.established.len() >= limits.established {
            let limit = limits.established;
            return Err(EstablishError::Full { limit });
        }
        let own = state
            .established
            .values()
            .filter(|other| **other == source)
            .count();
        if source.has_own_limit() && own >= limits.established_of_source {
            return Err(EstablishError::FullOfSource {
                origin: source,
                limit: limits.established_of_source,
            });
        }
        let entry = state.remove(*id);
        state.established.insert(*id, source);
        drop(state);
        // The function may own a descriptor, which is closed outside of the lock.
        drop(entry);
        Ok(())
    }
}

impl Connection {
    /// Marks that the listener works on a request of the peer, until the guard is dropped.
    pub fn busy(&self) -> Busy {
        self.0.set_busy(true);
        Busy(self.clone())
    }
}

/// Marks a connection as busy until it is dropped.
#[derive(Debug)]
pub struct Busy(Connection);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.set_busy(false);
    }
}

impl Counted {
    fn set_busy(&self, is_busy: bool) {
        let mut state = self.shared.state.lock();
        if let Some(entry) = state.entry(self.id) {
            entry.is_busy = is_busy;
        }
    }

    /// Returns true if the evicted connection must end: the last look at its socket has not established it. If its
    /// task has read a request meanwhile, on which the listener works, another connection is evicted in its place.
    #[cfg(feature = "tokio")]
    pub(crate) fn must_end(&self) -> bool {
        let mut state = self.shared.state.lock();
        let Some(at) = state.leaving.iter().position(|entry| entry.id == self.id) else {
            return false;
        };
        if !state.leaving[at].is_busy || state.leaving[at].was_busy {
            return true;
        }
        let entry = state.leaving.swap_remove(at);
        state.ending -= 1;
        let closed = state.make_room(entry.source, &self.shared);
        let place = state.pending.partition_point(|other| other.id < entry.id);
        state.pending.insert(place, entry);
        drop(state);
        if let Some(close) = closed {
            close();
        }
        false
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let entry = state.remove(self.id);
        let was_established = state.established.remove(&self.id).is_some();
        if entry.is_none() && !was_established {
            state.ending -= 1;
        }
        drop(state);
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const LIMITS: Limits = Limits {
        established: 3,
        established_of_source: 2,
        pending: 4,
        pending_of_source: 2,
    };

    fn host(last: u8) -> Source {
        Source::Ipv4(Ipv4Addr::new(192, 0, 2, last).to_bits())
    }

    /// Opens a connection of each host, and returns which are closed, and the connections.
    fn begin_all(hosts: &[Source]) -> (Vec<bool>, Vec<Connection>) {
        let admission = Admission::new(LIMITS, "test");
        let (flags, connections): (Vec<_>, Vec<_>) = hosts
            .iter()
            .map(|source| {
                let closed = Arc::new(AtomicBool::new(false));
                let flag = Arc::clone(&closed);
                let connection = admission.begin(*source, move || flag.store(true, Ordering::Relaxed));
                (closed, connection)
            })
            .unzip();
        (
            flags.iter().map(|flag| flag.load(Ordering::Relaxed)).collect(),
            connections,
        )
    }

    #[test]
    fn the_oldest_of_a_source_makes_room_for_the_next_of_it() {
        let (closed, _connections) = begin_all(&[1, 2, 1, 1].map(host));
        assert_eq!(closed, [true, false, false, false]);
    }

    #[test]
    fn the_source_with_the_most_makes_room_where_there_is_none_left() {
        let (closed, _connections) = begin_all(&[1, 2, 2, 3, 4].map(host));
        assert_eq!(closed, [false, true, false, false, false]);
    }

    #[test]
    fn users_of_a_unix_socket_share_the_limit_of_the_listener() {
        let (closed, _connections) = begin_all(&[Source::Local; 5]);
        assert_eq!(closed, [true, false, false, false, false]);
    }

    #[test]
    fn a_flood_of_one_host_evicts_its_own_connections_and_never_the_one_of_another() {
        let hosts: Vec<Source> = core::iter::once(host(9))
            .chain(core::iter::repeat_n(host(1), 1000))
            .collect();
        let (closed, connections) = begin_all(&hosts);
        assert!(!closed[0]);
        assert_eq!(closed.iter().filter(|closed| !**closed).count(), 3);
        assert_eq!(connections[1].establish(), Err(EstablishError::Evicted));
        assert_eq!(connections[0].establish(), Ok(()));
    }

    #[test]
    fn pending_connections_take_no_place_of_established_ones_and_each_source_has_a_limit() {
        let admission = Admission::new(LIMITS, "test");
        let begin = |last| admission.begin(host(last), || {});
        let _silent: Vec<_> = (0..4).map(begin).collect();
        let own = [begin(9), begin(9)];
        assert_eq!(own.each_ref().map(Connection::establish), [Ok(()), Ok(())]);
        assert_eq!(own[0].establish(), Ok(()), "an established connection stays so");
        let error = begin(9).establish().unwrap_err();
        assert!(
            matches!(error, EstablishError::FullOfSource { limit: 2, .. }),
            "{error}"
        );
        let other = begin(8);
        assert_eq!(other.establish(), Ok(()));
        assert_eq!(begin(7).establish(), Err(EstablishError::Full { limit: 3 }));
        drop(own);
        assert_eq!(begin(7).establish(), Ok(()));
    }

    #[test]
    fn a_connection_whose_request_is_worked_on_is_closed_after_those_that_wait_for_their_peers() {
        let admission = Admission::new(LIMITS, "test");
        let order = Arc::new(Mutex::new(Vec::new()));
        let begin = |name: &'static str| {
            let order = Arc::clone(&order);
            admission.begin(Source::Local, move || order.lock().push(name))
        };
        let names = ["busy", "silent", "answered", "silent too"];
        let connections = names.map(begin);
        let _busy = connections[0].busy();
        drop(connections[2].busy());
        let _others = ["more", "more", "more"].map(begin);
        assert_eq!(*order.lock(), ["silent", "answered", "silent too"]);
    }

    #[test]
    fn a_listener_waits_while_a_quarter_of_its_pending_connections_is_closed_and_has_not_ended() {
        for (pending, quarter) in [(8, 2), (5, 2), (4, 1), (1, 1), (128, 32)] {
            let limits = Limits { pending, ..LIMITS };
            let admission = Admission::new(limits, "test");
            let begin = |_| admission.begin(Source::Local, || {});
            let mut connections: Vec<_> = (0..pending + quarter - 1).map(begin).collect();
            assert!(!admission.is_crowded(), "{} of {pending} are closed", quarter - 1);
            connections.push(begin(0));
            assert!(admission.is_crowded(), "{quarter} of {pending} are closed");
            // The oldest one, which was closed, ends.
            connections.remove(0);
            assert!(!admission.is_crowded());
            admission.wait();
        }
    }

    #[test]
    fn a_listener_that_waits_has_at_most_a_quarter_more_connections_than_may_be_pending() {
        let limits = Limits {
            pending: 128,
            ..LIMITS
        };
        let admission = Admission::new(limits, "test");
        let mut most = 0;
        let mut connections = Vec::new();
        for number in 0..1000 {
            if admission.is_crowded() {
                connections.remove(0);
            }
            connections.push(admission.begin(host((number % 200) as u8), || {}));
            most = most.max(connections.len());
        }
        assert_eq!(most, 160);
    }

    #[test]
    fn an_established_connection_is_not_closed_for_others() {
        let admission = Admission::new(LIMITS, "test");
        let closed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&closed);
        let first = admission.begin(host(1), move || flag.store(true, Ordering::Relaxed));
        first.establish().unwrap();
        let _others: Vec<_> = (0..100).map(|_| admission.begin(host(1), || {})).collect();
        assert!(!closed.load(Ordering::Relaxed));
    }

    #[test]
    fn a_closed_connection_does_not_count() {
        let admission = Admission::new(LIMITS, "test");
        for _ in 0..10 {
            let connection = admission.begin(host(1), || panic!("there is room"));
            connection.establish().unwrap();
        }
        let state = admission.shared.state.lock();
        assert_eq!((state.pending.len(), state.established.len()), (0, 0));
    }
}
