//! Auxiliary connections (OpenFlow 1.3.5, section 6.3.5): further connections to a controller while its main connection
//! is up.
//!
//! Auxiliary connections share the role and the settings of the main connection; a request is answered on the
//! connection that carried it. When the main connection ends, the future that keeps the auxiliary connections
//! is dropped, which closes them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model::{self as model, AuxiliaryTransport};
use millrace_openflow::connection::Settings;
use millrace_types::Duration;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::connect::{explain, in_time, random};
use super::session::{SessionConfig, serve};
use super::status::{ChannelKind, ChannelState, ChannelTable};
use super::stream::Stream;
use super::tls::TlsFiles;
use crate::control::BridgeHandle;
use crate::controllers::{AuxiliaryId, AuxiliaryOf, ConnectionId};

/// The main connection of a controller, for its auxiliary connections.
pub(super) struct AuxiliaryContext<'a> {
    pub(super) wanted: &'a model::Controller,
    pub(super) tls: &'a Arc<TlsFiles>,
    pub(super) config: SessionConfig,
    pub(super) main: ConnectionId,
    /// The addresses of the main connection: first the switch's, then the controller's.
    pub(super) ends: (SocketAddr, SocketAddr),
}

/// Keeps the configured number of auxiliary connections. Returns at once if the number is zero, else never.
pub(super) async fn keep_auxiliaries<B: Backend>(
    context: AuxiliaryContext<'_>,
    bridge: &BridgeHandle<B>,
    channel_table: &Arc<ChannelTable>,
) {
    // The set is dropped with this future. The drop aborts the tasks.
    let mut kept = JoinSet::new();
    for number in 1..=context.wanted.auxiliary.get() {
        let is_udp = context.wanted.auxiliary_transport == AuxiliaryTransport::Udp;
        let config = SessionConfig {
            settings: Settings {
                is_datagram: is_udp,
                ..context.config.settings
            },
            auxiliary: Some(AuxiliaryOf {
                main: context.main,
                number: AuxiliaryId(number),
            }),
            ..context.config
        };
        let connection = AuxiliaryConnection {
            wanted: context.wanted.clone(),
            tls: Arc::clone(context.tls),
            config,
            ends: context.ends,
            number,
        };
        kept.spawn(connection.keep(bridge.clone(), Arc::clone(channel_table)));
    }
    while kept.join_next().await.is_some() {}
}

/// One auxiliary connection.
struct AuxiliaryConnection {
    wanted: model::Controller,
    tls: Arc<TlsFiles>,
    config: SessionConfig,
    ends: (SocketAddr, SocketAddr),
    number: u8,
}

impl AuxiliaryConnection {
    /// Keeps the connection open. Never returns.
    async fn keep<B: Backend>(self, bridge: BridgeHandle<B>, channel_table: Arc<ChannelTable>) {
        let target = match self.wanted.auxiliary_transport {
            AuxiliaryTransport::Main => format!("{} auxiliary {}", self.wanted.target, self.number),
            AuxiliaryTransport::Udp => format!("udp:{} auxiliary {}", self.ends.1, self.number),
        };
        let line = channel_table.line(target.clone(), ChannelKind::Auxiliary, ChannelState::Connecting);
        line.set_address(Some(self.ends.1));
        let mut backoff = Backoff::new(Duration::from_secs(self.wanted.max_backoff_s.get().into()));
        loop {
            line.set_state(ChannelState::Connecting);
            let problem = match self.connect().await {
                Ok(stream) => {
                    let outcome = serve(stream, bridge.clone(), self.config, &line, None, None).await;
                    if outcome.was_ready {
                        backoff.reset();
                    }
                    outcome.end.to_string()
                }
                Err(error) => explain(&error, &target),
            };
            tracing::debug!(%target, reason = %problem, "no auxiliary connection");
            line.set_error(Some(problem));
            let pause = backoff.pause(random());
            line.set_state(ChannelState::Waiting { pause });
            tokio::time::sleep(pause).await;
        }
    }

    /// Connects from the local address of the main connection to its peer.
    async fn connect(&self) -> io::Result<Stream> {
        let (mut local, peer) = self.ends;
        local.set_port(0);
        if self.wanted.auxiliary_transport == AuxiliaryTransport::Udp {
            let socket = UdpSocket::bind(local).await?;
            socket.connect(peer).await?;
            return Ok(Stream::Udp(socket));
        }
        let socket = if peer.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.bind(local)?;
        let tcp = in_time(socket.connect(peer)).await?;
        if self.wanted.target.is_tls() {
            let stream = self.tls.connect(tcp, self.wanted.target.host()).await?;
            return Ok(Stream::Tls(Box::new(stream)));
        }
        Ok(Stream::Tcp(tcp))
    }
}
