//! TCP connections of BGP peers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::Routing;

/// The bytes that are read at once.
const READ_SIZE: usize = 64 * 1024;
/// The time within which a peer must take what is sent to it.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// The present connection of each peer: its number, and the way to end it with a last message.
type ByPeer = BTreeMap<IpAddr, (u64, oneshot::Sender<Vec<u8>>)>;
/// The connections, which every task of a peer shares.
type Connections = Arc<Mutex<ByPeer>>;

fn lock(connections: &Connections) -> MutexGuard<'_, ByPeer> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts connections at an address until the process ends.
pub(super) async fn listen(address: SocketAddr, routing: &Routing) -> Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("bgp.listen {address}"))?;
    tracing::info!(%address, "BGP peers connect here");
    let routing = routing.clone();
    let connections = Connections::default();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    number += 1;
                    let (routing, connections) = (routing.clone(), Arc::clone(&connections));
                    tokio::spawn(accept(
                        stream,
                        from.ip().to_canonical(),
                        number,
                        routing,
                        connections,
                    ));
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

async fn accept(
    mut stream: TcpStream,
    peer: IpAddr,
    number: u64,
    routing: Routing,
    connections: Connections,
) {
    let now = routing.now();
    let accepted = routing.shared.lock().peer(peer).map(|state| state.accept(now));
    let ended = match accepted {
        None => {
            tracing::warn!(%peer, "a BGP connection from an address that no bgp.peer has");
            return;
        }
        Some(Err(farewell)) => {
            tracing::info!(%peer, "a BGP connection is refused");
            let _lost = stream.write_all(&farewell).await;
            return;
        }
        Some(Ok(farewell)) => farewell,
    };
    let (sender, end) = oneshot::channel();
    let before = lock(&connections).insert(peer, (number, sender));
    if let Some((_, before)) = before {
        let _closed = before.send(ended.unwrap_or_default());
    }
    tracing::info!(%peer, "BGP connection");
    converse(stream, peer, number, end, &routing, &connections).await;
    let mut present = lock(&connections);
    if present.get(&peer).is_some_and(|(other, _)| *other == number) {
        present.remove(&peer);
        drop(present);
        let now = routing.now();
        let mut authority = routing.shared.lock();
        if let Some(state) = authority.peer(peer) {
            state.connection_lost(now);
            let reason = state.state().last_error;
            tracing::info!(%peer, reason, "BGP connection closed");
        }
        if authority.collect(peer) {
            routing.changed.notify_one();
        }
    }
}

/// Moves bytes between the connection and the session until either ends, or a newer connection replaces this one.
async fn converse(
    mut stream: TcpStream,
    peer: IpAddr,
    number: u64,
    mut end: oneshot::Receiver<Vec<u8>>,
    routing: &Routing,
    connections: &Connections,
) {
    let _unsupported = stream.set_nodelay(true);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let (output, is_open, deadline) = {
            let mut authority = routing.shared.lock();
            let Some(state) = authority.peer(peer) else { return };
            (state.take_output(), state.is_open(), state.deadline())
        };
        if !output.is_empty()
            && !matches!(
                tokio::time::timeout(WRITE_TIME, stream.write_all(&output)).await,
                Ok(Ok(()))
            )
        {
            return;
        }
        if !is_open {
            let _closed = stream.shutdown().await;
            return;
        }
        let now = routing.now();
        let wait = deadline.map_or(Duration::from_secs(3600), |deadline| deadline.since(now));
        let received = tokio::select! {
            farewell = &mut end => {
                let _lost = stream.write_all(&farewell.unwrap_or_default()).await;
                return;
            }
            received = stream.read(&mut buffer) => received.ok(),
            () = tokio::time::sleep(wait) => None.or(Some(usize::MAX)),
        };
        let now = routing.now();
        // A newer connection has the session: these bytes are not its own.
        if lock(connections)
            .get(&peer)
            .is_none_or(|(present, _)| *present != number)
        {
            continue;
        }
        let mut authority = routing.shared.lock();
        let Some(state) = authority.peer(peer) else { return };
        match received {
            Some(usize::MAX) => state.poll(now),
            None | Some(0) => return,
            Some(len) => {
                state.receive(buffer.get(..len).unwrap_or_default(), now);
                state.poll(now);
            }
        }
        if authority.collect(peer) {
            routing.changed.notify_one();
        }
    }
}
