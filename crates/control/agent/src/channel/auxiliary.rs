//! Auxiliary connections (section 6.3.5): more connections to a controller, kept while the main one is up.
//!
//! They share the role and the settings of the main connection; what is asked on one is answered on it. The future
//! that keeps them is dropped with the main connection, and they with it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model::{self as model, AuxiliaryTransport};
use millrace_openflow::connection::Settings;
use millrace_types::Duration;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;

use super::active::{CONNECT_TIMEOUT, explain, random};
use super::backoff::Backoff;
use super::session::{Terms, serve};
use super::status::{Board, ChannelKind, ChannelState};
use super::stream::Stream;
use super::tls::TlsFiles;
use super::{AuxiliaryId, AuxiliaryPlace, ConnectionId};
use crate::control::BridgeHandle;

/// How a controller is reached that is connected.
pub(super) struct Way<'a> {
    pub(super) wanted: &'a model::Controller,
    pub(super) tls: &'a Arc<TlsFiles>,
    pub(super) terms: Terms,
    pub(super) main: ConnectionId,
    /// The switch's and the controller's address of the main connection.
    pub(super) ends: (SocketAddr, SocketAddr),
}

/// Keeps as many auxiliary connections as are wanted, for ever.
pub(super) async fn keep_auxiliaries<B: Backend>(way: Way<'_>, bridge: &BridgeHandle<B>, board: &Arc<Board>) {
    // Dropped with this future, it ends its tasks.
    let mut kept = JoinSet::new();
    for number in 1..=way.wanted.auxiliary.get() {
        let is_udp = way.wanted.auxiliary_transport == AuxiliaryTransport::Udp;
        let terms = Terms {
            settings: Settings {
                is_datagram: is_udp,
                ..way.terms.settings
            },
            auxiliary: Some(AuxiliaryPlace {
                main: way.main,
                number: AuxiliaryId(number),
            }),
            ..way.terms
        };
        let one = One {
            wanted: way.wanted.clone(),
            tls: Arc::clone(way.tls),
            terms,
            ends: way.ends,
            number,
        };
        kept.spawn(one.keep(bridge.clone(), Arc::clone(board)));
    }
    while kept.join_next().await.is_some() {}
}

/// One auxiliary connection.
struct One {
    wanted: model::Controller,
    tls: Arc<TlsFiles>,
    terms: Terms,
    ends: (SocketAddr, SocketAddr),
    number: u8,
}

impl One {
    async fn keep<B: Backend>(self, bridge: BridgeHandle<B>, board: Arc<Board>) {
        let target = match self.wanted.auxiliary_transport {
            AuxiliaryTransport::Main => format!("{} auxiliary {}", self.wanted.target, self.number),
            AuxiliaryTransport::Udp => format!("udp:{} auxiliary {}", self.ends.1, self.number),
        };
        let line = board.line(target.clone(), ChannelKind::Auxiliary, ChannelState::Connecting);
        line.set_address(Some(self.ends.1));
        let mut backoff = Backoff::new(Duration::from_secs(self.wanted.max_backoff_s.get().into()));
        loop {
            line.set_state(ChannelState::Connecting);
            let trouble = match self.connect().await {
                Ok(stream) => {
                    let report = serve(stream, bridge.clone(), self.terms, &line, None, None).await;
                    if report.was_ready {
                        backoff.reset();
                    }
                    report.end.to_string()
                }
                Err(error) => explain(&error, &target),
            };
            tracing::debug!(%target, %trouble, "no auxiliary connection");
            line.set_error(Some(trouble));
            let pause = backoff.pause(random());
            line.set_state(ChannelState::Waiting { pause });
            tokio::time::sleep(pause).await;
        }
    }

    /// Connects from the address of the main connection to where that goes.
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
        let tcp = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(peer))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if self.wanted.target.is_tls() {
            let stream = self.tls.connect(tcp, self.wanted.target.host()).await?;
            return Ok(Stream::Tls(Box::new(stream)));
        }
        Ok(Stream::Tcp(tcp))
    }
}
