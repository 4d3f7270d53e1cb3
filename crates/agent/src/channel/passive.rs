//! An address on which the switch waits for controllers.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Instant;

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_types::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::active::settings;
use super::session::{Terms, serve};
use super::status::{Board, ChannelKind, ChannelState};
use crate::control::BridgeHandle;

/// Controllers that one listener serves at once.
const CONNECTIONS_LEN: usize = 64;

/// Binds an address, which somebody may be giving up within `patience`. Blocks.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn bind(
    target: model::ListenTarget,
    patience: Duration,
) -> Result<(TcpListener, SocketAddr), String> {
    let deadline = Instant::now() + patience;
    let attempt = || {
        let listener = StdListener::bind(target.address())?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((TcpListener::from_std(listener)?, address))
    };
    let bound = || loop {
        match attempt() {
            Err(error) if is_in_use(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => break done,
        }
    };
    bound().map_err(|error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another process has the port (`ss -ltnp 'sport = {}'` names it): end that, or choose another port",
                target.address().port()
            ),
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need CAP_NET_BIND_SERVICE: choose another port".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "this machine does not have the address".to_owned(),
            _ => "choose another address".to_owned(),
        };
        format!("cannot listen: {error}. Remedy: {remedy}")
    })
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Serves every controller that comes, for ever.
pub(super) async fn listen<B: Backend>(
    listener: TcpListener,
    wanted: model::Listener,
    bridge: BridgeHandle<B>,
    board: Arc<Board>,
) {
    let target = wanted.target.to_string();
    let line = board.line(target.clone(), ChannelKind::Listener, ChannelState::Listening);
    line.set_address(listener.local_addr().ok());
    let terms = Terms {
        settings: settings(wanted.echo_interval_s),
        is_configured: false,
        limit: None,
    };
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, address)) if sessions.len() >= CONNECTIONS_LEN => {
                tracing::warn!(%target, %address, limit = CONNECTIONS_LEN, "too many controllers: refused");
                drop(stream);
            }
            Ok((stream, address)) => {
                let serving = serve_one(
                    stream,
                    address,
                    terms,
                    target.clone(),
                    bridge.clone(),
                    Arc::clone(&board),
                );
                sessions.spawn(serving);
            }
            // Out of descriptors, or the like: it passes, and asking at once again would only spin.
            Err(error) => {
                tracing::warn!(%target, %error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_one<B: Backend>(
    stream: TcpStream,
    address: SocketAddr,
    terms: Terms,
    target: String,
    bridge: BridgeHandle<B>,
    board: Arc<Board>,
) {
    let line = board.line(target, ChannelKind::Accepted, ChannelState::Connecting);
    line.set_address(Some(address));
    let report = serve(stream, bridge, terms, &line).await;
    tracing::info!(%address, end = %report.end, "controller gone");
}
