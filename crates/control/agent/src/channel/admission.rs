//! Limits of the connections of a listener: the number of controllers, and the number of pending connections.
//!
//! Any host that reaches the listener can open a connection and stay silent. A connection is *pending* until
//! the TLS handshake, if there is one, and the HELLO exchange are complete (OpenFlow 1.3.5, section 6.3.1).
//! Pending connections have separate limits, so that they do not count toward the limit of controllers:
//!
//! ```text
//!             accept                 HELLO exchanged
//!  (nothing) --------> pending ---------------------> controller
//!                      at most 16 of one address,     at most 64
//!                      128 in all: beyond that, the
//!                      oldest of this address, or of the
//!                      address with the most, is closed
//! ```
//!
//! Every new connection is accepted as pending. A controller needs only a few round trips to exchange HELLO, so the
//! connection that is closed at a limit is most probably a silent one.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_types::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The limits of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The maximum number of connected controllers.
    controllers: usize,
    /// The maximum number of pending connections.
    pending: usize,
    /// The maximum number of pending connections of one address.
    pending_of_address: usize,
}

impl Limits {
    /// The limits of every listener.
    pub(super) const DEFAULT: Limits = Limits {
        controllers: 64,
        pending: 128,
        pending_of_address: 16,
    };
}

/// Minimum time between two log lines about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The error for a new controller while the listener serves the maximum number of controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{limit} controllers are connected to this listener, which is its limit: disconnect one of them first"
)]
pub(super) struct TooManyControllers {
    limit: usize,
}

/// A network that counts as one address: an IPv4 address, or a 64-bit IPv6 prefix, from which one host can choose its
/// addresses (RFC 4291, section 2.5.1). `None` for a local socket.
type Source = Option<u64>;

fn source(address: Option<SocketAddr>) -> Source {
    address.map(|address| match address.ip().to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    })
}

/// The connections of one listener.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    limits: Limits,
    /// The bridge and the address to listen on, for the log.
    listener: Arc<(String, String)>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    controllers: usize,
    /// Oldest first.
    pending: Vec<PendingEntry>,
    /// Connections that were closed since the latest log line.
    closed: u64,
    /// The time of the latest log line.
    logged: Option<Instant>,
}

#[derive(Debug)]
struct PendingEntry {
    id: u64,
    source: Source,
    close: oneshot::Sender<()>,
}

/// A pending connection. Dropping it decrements the count of pending connections.
#[derive(Debug)]
pub(super) struct Pending {
    id: u64,
    admission: Admission,
}

/// A connected controller. Dropping it decrements the count of controllers.
#[derive(Debug)]
pub(super) struct ControllerPermit(Admission);

/// A signal to a pending connection that it must be closed for a newer one.
#[derive(Debug)]
pub(super) struct Eviction(oneshot::Receiver<()>);

impl Admission {
    /// Returns the admission of a listener without connections. `bridge` and `target` are for the log.
    pub(super) fn new(limits: Limits, bridge: &str, target: &str) -> Admission {
        Admission {
            limits,
            listener: Arc::new((bridge.to_owned(), target.to_owned())),
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection as pending. If the address or the listener is at its limit of pending
    /// connections, closes one of them.
    pub(super) fn begin(&self, address: Option<SocketAddr>) -> (Pending, Eviction) {
        let source = source(address);
        let mut state = self.state();
        if let Some(at) = state.to_be_closed(source, self.limits) {
            let entry = state.pending.remove(at);
            // The send fails if the connection has ended.
            let _ended = entry.close.send(());
            state.closed += 1;
            state.log(&self.listener, address, self.limits);
        }
        let (close, closed) = oneshot::channel();
        let id = state.next_id;
        state.next_id += 1;
        state.pending.push(PendingEntry { id, source, close });
        let pending = Pending {
            id,
            admission: self.clone(),
        };
        (pending, Eviction(closed))
    }
}

impl State {
    /// Returns the index of the pending connection to close for a new one from `source`; `None` if there is room.
    fn to_be_closed(&self, source: Source, limits: Limits) -> Option<usize> {
        let count = |source| self.pending.iter().filter(|entry| entry.source == source).count();
        if source.is_some() && count(source) >= limits.pending_of_address {
            return self.pending.iter().position(|entry| entry.source == source);
        }
        if self.pending.len() < limits.pending {
            return None;
        }
        let counts: Vec<usize> = self.pending.iter().map(|waiting| count(waiting.source)).collect();
        let most = counts.iter().max()?;
        counts.iter().position(|count| count == most)
    }

    /// Logs the number of closed connections, at most once in [`LOG_INTERVAL`].
    fn log(&mut self, (bridge, target): &(String, String), address: Option<SocketAddr>, limits: Limits) {
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return;
        }
        self.logged = Some(Instant::now());
        tracing::warn!(
            %bridge,
            %target,
            address = address.map(tracing::field::display),
            closed = self.closed,
            limit = limits.pending,
            limit_of_address = limits.pending_of_address,
            "connections without HELLO were closed for newer ones"
        );
        self.closed = 0;
    }
}

impl Pending {
    /// Counts the connection as a controller, and no longer as pending.
    ///
    /// # Errors
    /// [`TooManyControllers`] if the listener serves the maximum number of controllers.
    pub(super) fn establish(self) -> Result<ControllerPermit, TooManyControllers> {
        let admission = self.admission.clone();
        let limit = admission.limits.controllers;
        let mut state = admission.state();
        if state.controllers >= limit {
            return Err(TooManyControllers { limit });
        }
        state.controllers += 1;
        drop(state);
        Ok(ControllerPermit(admission))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let id = self.id;
        self.admission.state().pending.retain(|entry| entry.id != id);
    }
}

impl Drop for ControllerPermit {
    fn drop(&mut self) {
        self.0.state().controllers -= 1;
    }
}

impl Eviction {
    /// Returns when the connection must be closed. Never returns once the connection is no longer pending.
    pub(super) async fn evicted(self) {
        if self.0.await.is_err() {
            core::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        controllers: 2,
        pending: 4,
        pending_of_address: 2,
    };

    fn address(last: u8) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, last], 1000)))
    }

    fn is_evicted(eviction: &mut Eviction) -> bool {
        eviction.0.try_recv().is_ok()
    }

    #[test]
    fn the_oldest_of_an_address_makes_room_for_the_next_of_it() {
        let admission = Admission::new(LIMITS, "br0", "ptcp:0");
        let mut all: Vec<_> = [1, 2, 1, 1].map(|last| admission.begin(address(last))).into();
        let evicted: Vec<bool> = all.iter_mut().map(|(_, eviction)| is_evicted(eviction)).collect();
        assert_eq!(evicted, [true, false, false, false]);
    }

    #[test]
    fn the_address_with_the_most_makes_room_where_there_is_none_left() {
        let admission = Admission::new(LIMITS, "br0", "ptcp:0");
        let mut all: Vec<_> = [1, 2, 2, 3, 4].map(|last| admission.begin(address(last))).into();
        let evicted: Vec<bool> = all.iter_mut().map(|(_, eviction)| is_evicted(eviction)).collect();
        assert_eq!(evicted, [false, true, false, false, false]);
    }

    #[test]
    fn pending_connections_take_no_place_from_controllers() {
        let admission = Admission::new(LIMITS, "br0", "ptcp:0");
        let _silent: Vec<_> = (0..4).map(|last| admission.begin(address(last))).collect();
        let establish = || admission.begin(address(9)).0.establish();
        let (first, _second) = (establish().unwrap(), establish().unwrap());
        assert_eq!(establish().unwrap_err(), TooManyControllers { limit: 2 });
        drop(first);
        assert!(establish().is_ok());
    }

    #[test]
    fn a_closed_connection_is_not_counted() {
        let admission = Admission::new(LIMITS, "br0", "ptcp:0");
        for _ in 0..10 {
            let (pending, mut eviction) = admission.begin(address(1));
            drop(pending);
            assert!(!is_evicted(&mut eviction));
        }
        assert_eq!(admission.state().pending.len(), 0);
    }

    #[test]
    fn addresses_of_one_ipv6_prefix_are_one_address_and_mapped_ones_are_ipv4() {
        let of = |text: &str| source(Some(SocketAddr::new(text.parse().unwrap(), 1)));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
