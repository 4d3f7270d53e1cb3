//! A connection that the switch opens, and opens again when it ends.

use std::io;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_types::Duration;
use tokio::sync::oneshot;

use super::auxiliary::{AuxiliaryContext, keep_auxiliaries};
use super::backoff::Backoff;
use super::connect::{connect_to, explain, random};
use super::session::{SessionConfig, serve, settings};
use super::status::{ChannelKind, ChannelState, ChannelTable};
use super::stream::Stream;
use super::tls::TlsFiles;
use crate::control::BridgeHandle;
use crate::controllers::PacketInLimit;

/// Keeps a controller connected. Never returns.
pub(super) async fn keep_connected<B: Backend>(
    wanted: model::Controller,
    tls: Arc<TlsFiles>,
    bridge: BridgeHandle<B>,
    channel_table: Arc<ChannelTable>,
) {
    let target = wanted.target.to_string();
    let line = channel_table.line(target.clone(), ChannelKind::Active, ChannelState::Connecting);
    let config = SessionConfig {
        settings: settings(wanted.echo_interval_s),
        is_configured: true,
        limit: wanted.packet_in_rate.map(|rate| PacketInLimit {
            rate: rate.get(),
            burst: wanted.packet_in_burst.get(),
        }),
        auxiliary: None,
    };
    let mut backoff = Backoff::new(Duration::from_secs(wanted.max_backoff_s.get().into()));
    // The latest problem in the log.
    let mut logged: Option<String> = None;
    loop {
        line.set_state(ChannelState::Connecting);
        let problem = match connect(&wanted.target, &tls).await {
            Ok(stream) => {
                line.set_address(stream.peer_address());
                let ends = stream.local_address().zip(stream.peer_address());
                let (ready, when_ready) = oneshot::channel();
                let auxiliaries = async {
                    // Auxiliary connections begin when the main connection is up, and end with it.
                    if let (Ok(main), Some(ends)) = (when_ready.await, ends) {
                        let context = AuxiliaryContext {
                            wanted: &wanted,
                            tls: &tls,
                            config,
                            main,
                            ends,
                        };
                        keep_auxiliaries(context, &bridge, &channel_table).await;
                    }
                    core::future::pending().await
                };
                let outcome = tokio::select! {
                    outcome = serve(stream, bridge.clone(), config, &line, Some(ready), None) => outcome,
                    never = auxiliaries => never,
                };
                let problem = outcome.end.to_string();
                if outcome.was_ready {
                    backoff.reset();
                    // The session has logged the end; a warning follows if the next attempt fails.
                    logged = Some(problem.clone());
                }
                problem
            }
            Err(error) => explain(&error, &target),
        };
        // Attempts in a row that fail for the same reason are logged once.
        if logged.as_ref() != Some(&problem) {
            tracing::warn!(bridge = %channel_table.bridge(), %target, reason = %problem, "cannot connect to the controller");
            logged = Some(problem.clone());
        }
        line.set_error(Some(problem));
        let pause = backoff.pause(random());
        line.set_state(ChannelState::Waiting { pause });
        tokio::time::sleep(pause).await;
    }
}

async fn connect(target: &model::ControllerTarget, tls: &TlsFiles) -> io::Result<Stream> {
    let tcp = connect_to(target.host(), target.port()).await?;
    if target.is_tls() {
        let stream = tls.connect(tcp, target.host()).await?;
        return Ok(Stream::Tls(Box::new(stream)));
    }
    Ok(Stream::Tcp(tcp))
}
