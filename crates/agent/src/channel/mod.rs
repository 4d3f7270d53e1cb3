//! The connections of a bridge with its controllers.
//!
//! [`Connector`] keeps the connections that the configuration wants; each runs as an async task
//! (`session.rs`) around a [`Connection`](millrace_openflow::connection::Connection), and hands decoded
//! requests to the control thread. [`Channels`] is what the control thread knows of them: whom to answer
//! and whom to tell.

mod active;
mod backoff;
mod bucket;
mod connector;
mod outbox;
mod passive;
mod session;
mod status;
mod stream;
mod tls;

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use millrace_model as model;
use millrace_openflow::roles::RoleArbiter;
use millrace_openflow::{Peer, SwitchConfig};
use millrace_types::Time;

use crate::handlers::{Buffers, Bundles};
use bucket::Bucket;
pub(crate) use outbox::{Outbox, outbox_room};
use status::Tally;

pub use connector::Connector;
pub use status::{Board, ChannelKind, ChannelState, ChannelStatus};

/// A connection that is, or was, up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(u64);

impl ConnectionId {
    fn next() -> ConnectionId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A limit of packet-ins: so many a second (0 for no limit), so many at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketInLimit {
    rate: u32,
    burst: u32,
}

/// A controller that is connected, as the control thread knows it.
pub(crate) struct Connected {
    pub(crate) id: ConnectionId,
    /// Whether the switch opened the connection, as the configuration asks.
    pub(crate) is_configured: bool,
    pub(crate) peer: Peer,
    pub(crate) outbox: Outbox,
    pub(crate) tally: Arc<Tally>,
    pub(crate) bundles: Bundles,
    limit: Option<PacketInLimit>,
    bucket: Bucket,
}

impl Connected {
    /// Whether one more packet-in may go to this controller now.
    pub(crate) fn admits_packet_in(&mut self, now: Time) -> bool {
        self.limit
            .is_none_or(|limit| self.bucket.take(now, limit.rate, limit.burst))
    }
}

/// The connections that are up, owned by the control thread.
#[derive(Default)]
pub struct Channels {
    connected: Vec<Connected>,
    pub(crate) roles: RoleArbiter<ConnectionId>,
    pub(crate) buffers: Buffers,
    bucket: Bucket,
}

impl Channels {
    /// Whether one of the configured controllers is connected. Connections from outside do not count: a
    /// person with `ovs-ofctl` is no controller.
    pub fn is_controlled(&self) -> bool {
        self.connected.iter().any(|connected| connected.is_configured)
    }

    /// How many controllers are connected, whoever opened the connection.
    pub fn len(&self) -> usize {
        self.connected.len()
    }

    /// Whether no controller is connected.
    pub fn is_empty(&self) -> bool {
        self.connected.is_empty()
    }

    pub(crate) fn connected(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        self.connected.iter_mut().find(|connected| connected.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connected> {
        self.connected.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connected> {
        self.connected.iter_mut()
    }

    /// Whether the limit of the bridge lets one more packet-in through.
    pub(crate) fn admits_packet_in(&mut self, config: &model::Bridge, now: Time) -> bool {
        let (rate, burst) = (config.packet_in_rate.get(), config.packet_in_burst.get());
        self.bucket.take(now, rate, burst)
    }

    pub(crate) fn add(&mut self, newcomer: Newcomer, miss_send_len: u16) {
        self.connected.push(Connected {
            id: newcomer.id,
            is_configured: newcomer.is_configured,
            peer: Peer {
                switch_config: SwitchConfig {
                    miss_send_len,
                    ..SwitchConfig::DEFAULT
                },
                ..Peer::default()
            },
            outbox: newcomer.outbox,
            tally: newcomer.tally,
            bundles: Bundles::default(),
            limit: newcomer.limit,
            bucket: Bucket::default(),
        });
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.connected.retain(|connected| connected.id != id);
        self.roles.disconnected(id);
    }
}

/// A connection that has agreed on a version.
pub(crate) struct Newcomer {
    pub(crate) id: ConnectionId,
    pub(crate) is_configured: bool,
    pub(crate) outbox: Outbox,
    pub(crate) tally: Arc<Tally>,
    pub(crate) limit: Option<PacketInLimit>,
}
