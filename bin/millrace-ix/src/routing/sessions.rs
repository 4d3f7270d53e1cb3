//! TCP connections of BGP peers.
//!
//! A peer has one session, which uses the newest connection that the session did not refuse. No bytes pass
//! between an older connection and the session, because the older connection carried an earlier BGP session.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use millrace_ix_filter::{FilterController, Shared};
use millrace_types::Time;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::Routing;
use super::tcp::Protection;

/// The size of the read buffer, in bytes.
const READ_SIZE: usize = 64 * 1024;
/// The time within which a peer must take the bytes that are sent to it.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// The longest wait of a session without timers.
const IDLE: Duration = Duration::from_secs(3600);

/// The current connections of all listeners: one for each peer.
#[derive(Default)]
pub(super) struct Connections(Mutex<Present>);

#[derive(Default)]
struct Present {
    /// The number of the newest connection.
    newest: u64,
    /// For each peer: the number of its connection, and the sender of the message that ends it.
    by_peer: BTreeMap<IpAddr, (u64, oneshot::Sender<Vec<u8>>)>,
}

/// The answer to a new connection.
enum Admission {
    /// No peer has the address.
    Unknown,
    /// The session refuses the connection with these bytes.
    Refused(Vec<u8>),
    /// The connection carries the session from now on.
    Admitted {
        number: u64,
        /// Yields the last bytes of the connection when another one replaces it.
        end: oneshot::Receiver<Vec<u8>>,
    },
}

impl Connections {
    /// Admits a new connection of a peer, which replaces the older connection. The connection number and the
    /// session change under one lock.
    fn admit(&self, shared: &Shared, peer: IpAddr, now: Time) -> Admission {
        let mut present = self.0.lock();
        let accepted = shared.lock().peer(peer).map(|state| state.accept(now));
        let farewell = match accepted {
            None => return Admission::Unknown,
            Some(Err(farewell)) => return Admission::Refused(farewell),
            Some(Ok(farewell)) => farewell.unwrap_or_default(),
        };
        present.newest += 1;
        let number = present.newest;
        let (sender, end) = oneshot::channel();
        if let Some((_, before)) = present.by_peer.insert(peer, (number, sender)) {
            let _closed = before.send(farewell);
        }
        Admission::Admitted { number, end }
    }

    /// Runs `act` on the filter_controller if the connection is the current one of its peer. Returns `None`
    /// otherwise.
    fn with<T>(
        &self,
        shared: &Shared,
        peer: IpAddr,
        number: u64,
        act: impl FnOnce(&mut FilterController) -> Option<T>,
    ) -> Option<T> {
        let present = self.0.lock();
        let is_present = present
            .by_peer
            .get(&peer)
            .is_some_and(|(found, _)| *found == number);
        is_present.then(|| act(&mut shared.lock())).flatten()
    }

    /// Removes a connection that has ended, and informs its session. Returns true if routes have changed. The
    /// end of a replaced connection does not affect the session.
    fn remove(&self, shared: &Shared, peer: IpAddr, number: u64, now: Time) -> bool {
        let mut present = self.0.lock();
        if present
            .by_peer
            .get(&peer)
            .is_none_or(|(found, _)| *found != number)
        {
            return false;
        }
        present.by_peer.remove(&peer);
        let mut filter_controller = shared.lock();
        if let Some(state) = filter_controller.peer(peer) {
            state.connection_lost(now);
            let reason = state.state().last_error;
            tracing::info!(%peer, reason, "BGP connection closed");
        }
        filter_controller.collect(peer)
    }
}

/// Accepts connections at an address until the process ends.
pub(super) fn listen(
    address: SocketAddr,
    protection: &Protection,
    connections: &Arc<Connections>,
    routing: &Routing,
) -> Result<()> {
    let listener =
        super::tcp::listener(address, protection).with_context(|| format!("bgp.listen {address}"))?;
    tracing::info!(%address, "BGP peers connect here");
    let (routing, connections) = (routing.clone(), Arc::clone(connections));
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let peer = from.ip().to_canonical();
                    tokio::spawn(serve(stream, peer, routing.clone(), Arc::clone(&connections)));
                }
                Err(error) => {
                    tracing::warn!(%error, "bgp.listen");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(())
}

/// Serves a connection until it ends.
async fn serve(mut stream: TcpStream, peer: IpAddr, routing: Routing, connections: Arc<Connections>) {
    let (number, end) = match connections.admit(&routing.shared, peer, routing.now()) {
        Admission::Unknown => {
            tracing::warn!(%peer, "a BGP connection from an address that no bgp.peer has");
            return;
        }
        Admission::Refused(farewell) => {
            tracing::info!(%peer, "a BGP connection is refused");
            let _lost = write(&mut stream, &farewell).await;
            return;
        }
        Admission::Admitted { number, end } => (number, end),
    };
    tracing::info!(%peer, "BGP connection");
    let _unsupported = stream.set_nodelay(true);
    converse(stream, peer, number, end, &routing, &connections).await;
    if connections.remove(&routing.shared, peer, number, routing.now()) {
        routing.changed.notify_one();
    }
}

/// Writes bytes to a peer, which must take them within [`WRITE_TIME`].
async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    tokio::time::timeout(WRITE_TIME, stream.write_all(bytes)).await?
}

/// The reason why a connection stops waiting.
enum Wake {
    /// The peer sent this many bytes; 0 if it closed the connection.
    Received(usize),
    /// A timer of the session is due.
    Timer,
}

/// Moves bytes between the connection and the session until either ends, or a newer connection replaces this one.
async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: IpAddr,
    number: u64,
    mut end: oneshot::Receiver<Vec<u8>>,
    routing: &Routing,
    connections: &Connections,
) {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let step = connections.with(&routing.shared, peer, number, |filter_controller| {
            let state = filter_controller.peer(peer)?;
            Some((state.take_output(), state.is_open(), state.deadline()))
        });
        let Some((output, is_open, deadline)) = step else {
            // The session now uses a newer connection.
            let _lost = write(&mut stream, &end.await.unwrap_or_default()).await;
            return;
        };
        if !output.is_empty() && write(&mut stream, &output).await.is_err() {
            return;
        }
        if !is_open {
            let _closed = stream.shutdown().await;
            return;
        }
        let wait = deadline.map_or(IDLE, |deadline| deadline.since(routing.now()));
        let wake = tokio::select! {
            farewell = &mut end => {
                let _lost = write(&mut stream, &farewell.unwrap_or_default()).await;
                return;
            }
            received = stream.read(&mut buffer) => Wake::Received(received.unwrap_or(0)),
            () = tokio::time::sleep(wait) => Wake::Timer,
        };
        let now = routing.now();
        let bytes = match wake {
            Wake::Received(0) => return,
            Wake::Received(len) => buffer.get(..len).unwrap_or_default(),
            Wake::Timer => &[],
        };
        // Bytes of a connection that was replaced meanwhile are dropped. The next iteration ends the
        // connection.
        let has_changes = connections.with(&routing.shared, peer, number, |filter_controller| {
            let state = filter_controller.peer(peer)?;
            state.receive(bytes, now);
            state.poll(now);
            Some(filter_controller.collect(peer))
        });
        if has_changes == Some(true) {
            routing.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use millrace_bgp::{FamilySet, Limits, PeerSettings, SessionSettings};
    use millrace_ix_filter::{PeerInfo, SessionKind};
    use millrace_ix_model::Timestamp;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn shared() -> Shared {
        let mut filter_controller = FilterController::new(
            millrace_ix_filter::Settings::default(),
            false,
            Time::ZERO,
            Timestamp::from_secs(0),
        );
        let info = PeerInfo {
            kind: SessionKind::Member,
            account: None,
            asn: 64_501,
        };
        let session = SessionSettings {
            local_as: 64_500,
            router_id: [192, 0, 2, 1].into(),
            peer_as: 64_501,
            hold_secs: 90,
            families: FamilySet::ALL,
            add_path: false,
            enforce_first_as: true,
            restart_secs: 120,
        };
        let limits = Limits::default();
        filter_controller.put_peer(PEER, info, PeerSettings { session, limits }, Time::ZERO);
        Shared::new(filter_controller)
    }

    fn admit(connections: &Connections, shared: &Shared) -> (u64, oneshot::Receiver<Vec<u8>>) {
        match connections.admit(shared, PEER, Time::ZERO) {
            Admission::Admitted { number, end } => (number, end),
            Admission::Unknown | Admission::Refused(_) => panic!("the connection is not admitted"),
        }
    }

    fn output(connections: &Connections, shared: &Shared, number: u64) -> Option<Vec<u8>> {
        connections.with(shared, PEER, number, |filter_controller| {
            filter_controller.peer(PEER).map(millrace_bgp::Peer::take_output)
        })
    }

    #[test]
    fn the_open_of_a_new_session_goes_to_the_new_connection_and_never_to_the_one_that_it_replaces() {
        let (connections, shared) = (Connections::default(), shared());
        let (first, mut end) = admit(&connections, &shared);
        assert!(end.try_recv().is_err());
        let (second, _end) = admit(&connections, &shared);
        assert_ne!(first, second);
        assert!(
            !end.try_recv().unwrap().is_empty(),
            "the first gets a NOTIFICATION"
        );
        assert_eq!(output(&connections, &shared, first), None);
        let open = output(&connections, &shared, second).unwrap();
        assert_eq!(open.get(18), Some(&1), "OPEN");
        connections.remove(&shared, PEER, first, Time::ZERO);
        let state = || shared.lock().peer(PEER).unwrap().state().session;
        assert_eq!(
            state(),
            "open_sent",
            "the end of the first does not end the session"
        );
        connections.remove(&shared, PEER, second, Time::ZERO);
        assert_eq!(state(), "idle");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_connection_ends_although_its_peer_takes_no_bytes() {
        for is_waiting in [false, true] {
            let routing = Routing::in_memory(shared(), Duration::ZERO);
            let connections = Connections::default();
            let (number, end) = admit(&connections, &routing.shared);
            let open = output(&connections, &routing.shared, number);
            assert!(open.is_some(), "the OPEN is not what the peer does not take");
            let replace = || admit(&connections, &routing.shared);
            let _before = (!is_waiting).then(replace);
            let (ours, _theirs) = tokio::io::duplex(1);
            let both = async {
                tokio::join!(converse(ours, PEER, number, end, &routing, &connections), async {
                    is_waiting.then(replace)
                })
            };
            let ended = tokio::time::timeout(WRITE_TIME * 2, both).await;
            assert!(ended.is_ok(), "replaced while it waits: {is_waiting}");
            routing.handle.stop();
        }
    }

    #[test]
    fn an_address_without_a_peer_is_not_admitted() {
        let unknown = IpAddr::from([192, 0, 2, 3]);
        let admission = Connections::default().admit(&shared(), unknown, Time::ZERO);
        assert!(matches!(admission, Admission::Unknown));
    }
}
