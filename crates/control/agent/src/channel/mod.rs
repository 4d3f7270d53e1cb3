//! The connections of a bridge with its controllers.
//!
//! [`Connector`] keeps the connections that the configuration wants; each runs as an async task
//! (`session.rs`) around a [`Connection`](millrace_openflow::connection::Connection), and hands decoded
//! requests to the control thread. [`Channels`] is what the control thread knows of them: whom to answer
//! and whom to tell.

mod active;
mod admission;
mod auxiliary;
mod backoff;
mod bucket;
mod connector;
mod log_limit;
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

use crate::handlers::{Buffers, Bundles, Monitors};
use bucket::Bucket;
use log_limit::LogLimit;
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
    /// True if the switch opened the connection, as the configuration asks.
    pub(crate) is_configured: bool,
    /// The address of the peer, for the log.
    pub(crate) address: Arc<str>,
    pub(crate) peer: Peer,
    pub(crate) outbox: Outbox,
    pub(crate) tally: Arc<Tally>,
    bundles: Bundles,
    limit: Option<PacketInLimit>,
    bucket: Bucket,
    /// Its auxiliary connections; the one above is the main connection.
    auxiliaries: Vec<Auxiliary>,
}

/// An auxiliary connection of a controller (section 6.3.5): another way to the same peer, with its role and settings.
struct Auxiliary {
    id: ConnectionId,
    number: AuxiliaryId,
    outbox: Outbox,
    tally: Arc<Tally>,
    bundles: Bundles,
}

/// `auxiliary_id`: zero is the main connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AuxiliaryId(pub(crate) u8);

impl Connected {
    /// Returns true if one more packet-in may go to this controller now.
    pub(crate) fn admits_packet_in(&mut self, now: Time) -> bool {
        self.limit
            .is_none_or(|limit| self.bucket.take(now, limit.rate, limit.burst))
    }

    /// Returns true if packet-ins go over several connections, flow by flow.
    pub(crate) fn spreads_packet_ins(&self) -> bool {
        !self.auxiliaries.is_empty()
    }

    /// Returns the connection for packet-ins of the flow with this hash.
    pub(crate) fn packet_in_way(&self, hash: u64) -> (&Outbox, &Tally) {
        let len = self.auxiliaries.len() as u128;
        // The high bits of the hash are the best ones.
        let at = ((u128::from(hash) * len) >> 64) as usize;
        match self.auxiliaries.get(at) {
            Some(auxiliary) => (&auxiliary.outbox, &auxiliary.tally),
            None => (&self.outbox, &self.tally),
        }
    }

    fn has(&self, id: ConnectionId) -> bool {
        self.id == id || self.auxiliaries.iter().any(|auxiliary| auxiliary.id == id)
    }
}

/// The connections that are up, owned by the control thread.
#[derive(Default)]
pub struct Channels {
    connected: Vec<Connected>,
    pub(crate) roles: RoleArbiter<ConnectionId>,
    pub(crate) buffers: Buffers,
    pub(crate) monitors: Monitors,
    /// Limits the log lines about refused changes.
    pub(crate) refusals: LogLimit,
    bucket: Bucket,
}

impl Channels {
    /// Returns true if one of the configured controllers is connected. Connections from outside do not count: a person
    /// with `ovs-ofctl` is no controller.
    pub fn is_controlled(&self) -> bool {
        self.connected.iter().any(|connected| connected.is_configured)
    }

    /// How many controllers are connected, whoever opened the connection.
    pub fn len(&self) -> usize {
        self.connected.len()
    }

    /// Returns true if no controller is connected.
    pub fn is_empty(&self) -> bool {
        self.connected.is_empty()
    }

    /// Returns the controller with this connection, be it its main or an auxiliary one.
    pub(crate) fn connected(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        self.connected.iter_mut().find(|connected| connected.has(id))
    }

    /// Which connection of its controller it is.
    pub(crate) fn auxiliary_id(&self, id: ConnectionId) -> AuxiliaryId {
        self.auxiliary(id)
            .map_or(AuxiliaryId::default(), |auxiliary| auxiliary.number)
    }

    /// Where replies to requests of this connection go.
    pub(crate) fn outbox(&mut self, id: ConnectionId) -> Option<Outbox> {
        match self.auxiliary(id) {
            Some(auxiliary) => Some(auxiliary.outbox.clone()),
            None => Some(self.connected(id)?.outbox.clone()),
        }
    }

    /// Returns the bundles of this connection.
    pub(crate) fn bundles(&mut self, id: ConnectionId) -> Option<&mut Bundles> {
        let connected = self.connected(id)?;
        if connected.id == id {
            return Some(&mut connected.bundles);
        }
        let mut auxiliaries = connected.auxiliaries.iter_mut();
        Some(&mut auxiliaries.find(|auxiliary| auxiliary.id == id)?.bundles)
    }

    /// Returns the size of messages in bundles of all connections in bytes.
    pub(crate) fn bundled_size(&self) -> usize {
        let of_one = |connected: &Connected| {
            let auxiliaries = connected.auxiliaries.iter();
            connected.bundles.size()
                + auxiliaries
                    .map(|auxiliary| auxiliary.bundles.size())
                    .sum::<usize>()
        };
        self.connected.iter().map(of_one).sum()
    }

    fn auxiliary(&self, id: ConnectionId) -> Option<&Auxiliary> {
        let mut auxiliaries = self.connected.iter().flat_map(|connected| &connected.auxiliaries);
        auxiliaries.find(|auxiliary| auxiliary.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connected> {
        self.connected.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connected> {
        self.connected.iter_mut()
    }

    /// Returns true if the limit of the bridge lets one more packet-in through.
    pub(crate) fn admits_packet_in(&mut self, config: &model::Bridge, now: Time) -> bool {
        let (rate, burst) = (config.packet_in_rate.get(), config.packet_in_burst.get());
        self.bucket.take(now, rate, burst)
    }

    /// Takes a connection; false if it is an auxiliary one whose main connection is gone.
    pub(crate) fn add(&mut self, newcomer: Newcomer, miss_send_len: u16) -> bool {
        if let Some(place) = newcomer.auxiliary {
            let mut connected = self.connected.iter_mut();
            let Some(main) = connected.find(|connected| connected.id == place.main) else {
                return false;
            };
            main.auxiliaries.push(Auxiliary {
                id: newcomer.id,
                number: place.number,
                outbox: newcomer.outbox,
                tally: newcomer.tally,
                bundles: Bundles::default(),
            });
            return true;
        }
        self.connected.push(Connected {
            id: newcomer.id,
            is_configured: newcomer.is_configured,
            address: newcomer.address,
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
            auxiliaries: Vec::new(),
        });
        true
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.connected.retain(|connected| connected.id != id);
        for connected in &mut self.connected {
            connected.auxiliaries.retain(|auxiliary| auxiliary.id != id);
        }
        self.roles.disconnected(id);
        self.monitors.disconnected(id);
    }
}

/// Of which main connection an auxiliary one is, and its number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuxiliaryPlace {
    pub(crate) main: ConnectionId,
    pub(crate) number: AuxiliaryId,
}

/// A connection that has agreed on a version.
pub(crate) struct Newcomer {
    pub(crate) id: ConnectionId,
    pub(crate) is_configured: bool,
    /// The address of the peer, for the log.
    pub(crate) address: Arc<str>,
    /// `None` for a main connection.
    pub(crate) auxiliary: Option<AuxiliaryPlace>,
    pub(crate) outbox: Outbox,
    pub(crate) tally: Arc<Tally>,
    pub(crate) limit: Option<PacketInLimit>,
}
