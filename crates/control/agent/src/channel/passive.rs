//! An address on which the switch listens for controllers.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use millrace_datapath::io::Backend;
use millrace_listener::{Admission, Connection, Limits};
use millrace_model as model;
use millrace_types::Duration;
use tokio::task::JoinSet;

use super::session::{SessionConfig, SessionEnd, serve, settings};
use super::status::{ChannelKind, ChannelState, ChannelTable};
use super::stream::{Listener, Stream};
use super::tls::TlsFiles;
use crate::control::BridgeHandle;

/// Binds a listener. Blocks, and tries again for `patience` while the address is in use: a former listener may be about
/// to release it.
///
/// # Errors
/// The reason and the next step.
pub(super) fn bind(target: &model::ListenTarget, patience: Duration) -> Result<Listener, String> {
    let deadline = Instant::now() + patience;
    let bound = loop {
        match Listener::bind(target) {
            Err(error) if is_in_use(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => break done,
        }
    };
    bound.map_err(|error| {
        format!(
            "cannot listen: {error}. To fix it: {}",
            next_step(target, error.kind())
        )
    })
}

fn next_step(target: &model::ListenTarget, problem: io::ErrorKind) -> String {
    match (target, problem) {
        (model::ListenTarget::Tcp(address) | model::ListenTarget::Tls(address), io::ErrorKind::AddrInUse) => {
            format!(
                "another process has the port (`ss -ltnp 'sport = {}'` names it): end that, or choose another port",
                address.port()
            )
        }
        (model::ListenTarget::Tcp(_) | model::ListenTarget::Tls(_), io::ErrorKind::PermissionDenied) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: choose another port".to_owned()
        }
        (model::ListenTarget::Tcp(_) | model::ListenTarget::Tls(_), io::ErrorKind::AddrNotAvailable) => {
            "choose an address of this machine: it does not have this one".to_owned()
        }
        (model::ListenTarget::Tcp(_) | model::ListenTarget::Tls(_), _) => "choose another address".to_owned(),
        (model::ListenTarget::Unix(file), io::ErrorKind::AddrInUse) => format!(
            "another process listens on it (`ss -lxp src {}` names it), or it is no socket: end that, or choose \
             another file",
            file.as_str()
        ),
        (model::ListenTarget::Unix(_), io::ErrorKind::NotFound) => "create its folder first".to_owned(),
        (model::ListenTarget::Unix(_), _) => {
            "choose a file in a folder that millraced may write to".to_owned()
        }
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Serves every controller that connects. Never returns.
pub(super) async fn listen<B: Backend>(
    listener: Listener,
    wanted: model::Listener,
    tls: Arc<TlsFiles>,
    bridge: BridgeHandle<B>,
    channel_table: Arc<ChannelTable>,
) {
    let target = wanted.target.to_string();
    let line = channel_table.line(target.clone(), ChannelKind::Listener, ChannelState::Listening);
    line.set_address(listener.address());
    let config = SessionConfig {
        settings: settings(wanted.echo_interval_s),
        is_configured: false,
        limit: None,
        // Only the switch opens auxiliary connections (OpenFlow 1.3.5, section 6.3.5).
        auxiliary: None,
    };
    let admission = Admission::new(Limits::NETWORK, format!("{} {target}", channel_table.bridge()));
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    admission.ready().await;
                    let (connection, eviction) = admission.begin_task(stream.peer_address().into());
                    let tls = wanted.target.is_tls().then(|| Arc::clone(&tls));
                    let status = (target.clone(), Arc::clone(&channel_table));
                    let serving = serve_one(stream, tls, config, status, bridge.clone(), connection);
                    sessions.spawn(async move { eviction.bound(serving).await.unwrap_or(Ok(())) });
                }
                // An error such as EMFILE passes with time; accepting again at once would spin.
                Err(error) => {
                    tracing::warn!(bridge = %channel_table.bridge(), %target, %error, "cannot accept a controller");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(done) = sessions.join_next() => {
                if let Ok(Err(reason)) = done {
                    if let Some(suppressed) = line.admits_log() {
                        tracing::warn!(bridge = %channel_table.bridge(), %target, %reason, suppressed, "controller refused");
                    }
                    line.set_error(Some(reason));
                }
            }
        }
    }
}

/// Serves a controller until the connection ends. The connection is pending until the HELLO exchange is complete.
///
/// # Errors
/// The reason why the connection was not admitted.
async fn serve_one<B: Backend>(
    stream: Stream,
    tls: Option<Arc<TlsFiles>>,
    config: SessionConfig,
    (target, channel_table): (String, Arc<ChannelTable>),
    bridge: BridgeHandle<B>,
    connection: Connection,
) -> Result<(), String> {
    let address = stream.peer_address();
    let line = channel_table.line(target.clone(), ChannelKind::Accepted, ChannelState::Connecting);
    line.set_address(address);
    let stream = match (stream, tls) {
        (Stream::Tcp(tcp), Some(tls)) => {
            let peer = address.map(|address| address.to_string()).unwrap_or_default();
            let stream = tls
                .accept(tcp)
                .await
                .map_err(|error| format!("{peer}: {error}"))?;
            Stream::Tls(Box::new(stream))
        }
        (stream, _) => stream,
    };
    let outcome = serve(stream, bridge, config, &line, None, Some(connection)).await;
    if let SessionEnd::TooMany(error) = outcome.end {
        return Err(error.to_string());
    }
    if !outcome.was_ready {
        let address = address.map(tracing::field::display);
        tracing::debug!(bridge = %channel_table.bridge(), %target, address, reason = %outcome.end, "handshake failed");
    }
    Ok(())
}
