//! A connection that the switch opens, and opens again when it ends.

use core::hash::{BuildHasher, Hasher};
use std::collections::hash_map::RandomState;
use std::io;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model::{self as model, Host};
use millrace_openflow::connection::Settings;
use millrace_types::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::PacketInLimit;
use super::auxiliary::{Way, keep_auxiliaries};
use super::backoff::Backoff;
use super::session::{Terms, serve};
use super::status::{Board, ChannelKind, ChannelState};
use super::stream::Stream;
use super::tls::{TlsFiles, TlsTrouble};
use crate::control::BridgeHandle;

/// How long one attempt may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of a connection with this echo interval; 0 never asks.
pub(super) fn settings(echo_interval: model::EchoInterval) -> Settings {
    let seconds = u64::from(echo_interval.get());
    Settings {
        echo_interval: (seconds > 0).then(|| Duration::from_secs(seconds)),
        // Silent as long again after the echo request, it is closed.
        echo_misses: 1,
        ..Settings::default()
    }
}

/// Keeps a controller connected, for ever.
pub(super) async fn keep_connected<B: Backend>(
    wanted: model::Controller,
    tls: Arc<TlsFiles>,
    bridge: BridgeHandle<B>,
    board: Arc<Board>,
) {
    let target = wanted.target.to_string();
    let line = board.line(target.clone(), ChannelKind::Active, ChannelState::Connecting);
    let terms = Terms {
        settings: settings(wanted.echo_interval_s),
        is_configured: true,
        limit: wanted.packet_in_rate.map(|rate| PacketInLimit {
            rate: rate.get(),
            burst: wanted.packet_in_burst.get(),
        }),
        auxiliary: None,
    };
    let mut backoff = Backoff::new(Duration::from_secs(wanted.max_backoff_s.get().into()));
    let mut told: Option<String> = None;
    loop {
        line.set_state(ChannelState::Connecting);
        let trouble = match connect(&wanted.target, &tls).await {
            Ok(stream) => {
                line.set_address(stream.peer_address());
                let ends = stream.local_address().zip(stream.peer_address());
                let (herald, heralded) = oneshot::channel();
                let auxiliaries = async {
                    // Not before the main connection is up, and only until it ends.
                    if let (Ok(main), Some(ends)) = (heralded.await, ends) {
                        let way = Way {
                            wanted: &wanted,
                            tls: &tls,
                            terms,
                            main,
                            ends,
                        };
                        keep_auxiliaries(way, &bridge, &board).await;
                    }
                    core::future::pending().await
                };
                let report = tokio::select! {
                    report = serve(stream, bridge.clone(), terms, &line, Some(herald), None) => report,
                    never = auxiliaries => never,
                };
                let trouble = report.end.to_string();
                if report.was_ready {
                    backoff.reset();
                    // The session has logged it: a warning follows if the next attempt fails.
                    told = Some(trouble.clone());
                }
                trouble
            }
            Err(error) => explain(&error, &target),
        };
        // The same trouble of attempts in a row is logged once.
        if told.as_ref() != Some(&trouble) {
            tracing::warn!(bridge = %board.bridge(), %target, %trouble, "cannot connect to the controller");
            told = Some(trouble.clone());
        }
        line.set_error(Some(trouble));
        let pause = backoff.pause(random());
        line.set_state(ChannelState::Waiting { pause });
        tokio::time::sleep(pause).await;
    }
}

async fn connect(target: &model::ControllerTarget, tls: &TlsFiles) -> io::Result<Stream> {
    let attempt = async {
        match target.host() {
            Host::Ip(ip) => TcpStream::connect((*ip, target.port())).await,
            Host::Name(name) => TcpStream::connect((name.as_str(), target.port())).await,
        }
    };
    let tcp = tokio::time::timeout(CONNECT_TIMEOUT, attempt)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    if target.is_tls() {
        let stream = tls.connect(tcp, target.host()).await?;
        return Ok(Stream::Tls(Box::new(stream)));
    }
    Ok(Stream::Tcp(tcp))
}

/// What went wrong, and what to do.
pub(super) fn explain(error: &io::Error, target: &str) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::ConnectionRefused => "is the controller running, and on this port?",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "is there a route to the controller, and no firewall in between?"
        }
        _ if error
            .get_ref()
            .is_some_and(<dyn core::error::Error + Send + Sync>::is::<TlsTrouble>) =>
        {
            return format!("{target}: {error}");
        }
        _ => "check the address of the controller",
    };
    format!("{target}: {error}; {remedy}")
}

/// Any number: the keys of hash maps are random in every process and differ each time.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
