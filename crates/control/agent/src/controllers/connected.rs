//! One connected controller: its main connection and its auxiliary connections.

use std::sync::Arc;

use millrace_openflow::{Peer, SwitchConfig};
use millrace_types::Time;

use super::bundles::Bundles;
use super::id::{AuxiliaryId, ConnectionId};
use super::outbox::Outbox;
use super::tally::ChannelCounters;
use super::token_bucket::TokenBucket;

/// A limit of packet-ins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketInLimit {
    /// Packet-ins per second; 0 is no limit.
    pub(crate) rate: u32,
    /// The burst size, in packet-ins.
    pub(crate) burst: u32,
}

/// The main connection to which an auxiliary connection belongs, and its number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuxiliaryOf {
    pub(crate) main: ConnectionId,
    pub(crate) number: AuxiliaryId,
}

/// A connection whose HELLO exchange is complete.
pub(crate) struct NewConnection {
    pub(crate) id: ConnectionId,
    /// True if the switch opened the connection, as the configuration asks.
    pub(crate) is_configured: bool,
    /// The address of the peer, for the log.
    pub(crate) address: Arc<str>,
    /// `None` for a main connection.
    pub(crate) auxiliary: Option<AuxiliaryOf>,
    pub(crate) outbox: Outbox,
    pub(crate) tally: Arc<ChannelCounters>,
    pub(crate) limit: Option<PacketInLimit>,
}

/// A connected controller.
pub(crate) struct ControllerSession {
    /// The main connection.
    pub(crate) id: ConnectionId,
    /// True if the switch opened the connection, as the configuration asks.
    pub(crate) is_configured: bool,
    /// True if the controller has sent a request that is no part of the handshake. A controller that closes the
    /// connection before may refuse this switch.
    pub(crate) has_requested: bool,
    /// The address of the peer, for the log.
    pub(crate) address: Arc<str>,
    /// Role and settings, which all connections of the controller share.
    pub(crate) peer: Peer,
    pub(crate) outbox: Outbox,
    pub(crate) tally: Arc<ChannelCounters>,
    pub(super) bundles: Bundles,
    limit: Option<PacketInLimit>,
    bucket: TokenBucket,
    pub(super) auxiliaries: Vec<Auxiliary>,
}

/// An auxiliary connection of a controller (OpenFlow 1.3.5, section 6.3.5).
pub(super) struct Auxiliary {
    pub(super) id: ConnectionId,
    pub(super) number: AuxiliaryId,
    pub(super) outbox: Outbox,
    pub(super) tally: Arc<ChannelCounters>,
    pub(super) bundles: Bundles,
}

impl ControllerSession {
    /// Returns a controller with only a main connection.
    pub(super) fn new(new: NewConnection, miss_send_len: u16) -> ControllerSession {
        ControllerSession {
            id: new.id,
            is_configured: new.is_configured,
            has_requested: false,
            address: new.address,
            peer: Peer {
                switch_config: SwitchConfig {
                    miss_send_len,
                    ..SwitchConfig::DEFAULT
                },
                ..Peer::default()
            },
            outbox: new.outbox,
            tally: new.tally,
            bundles: Bundles::default(),
            limit: new.limit,
            bucket: TokenBucket::default(),
            auxiliaries: Vec::new(),
        }
    }

    /// Returns true if the controller's own limit admits one more packet-in at `now`.
    pub(crate) fn admits_packet_in(&mut self, now: Time) -> bool {
        self.limit
            .is_none_or(|limit| self.bucket.take(now, limit.rate, limit.burst))
    }

    /// Returns true if packet-ins are distributed over auxiliary connections, flow by flow.
    pub(crate) fn spreads_packet_ins(&self) -> bool {
        !self.auxiliaries.is_empty()
    }

    /// Returns the outbox and the counters of the connection that carries packet-ins of flows with this hash.
    pub(crate) fn packet_in_connection(&self, hash: u64) -> (&Outbox, &ChannelCounters) {
        let len = self.auxiliaries.len() as u128;
        // The high word of the product maps the hash onto 0..len by the high bits of the hash, which are mixed best.
        let index = ((u128::from(hash) * len) >> 64) as usize;
        match self.auxiliaries.get(index) {
            Some(auxiliary) => (&auxiliary.outbox, &auxiliary.tally),
            None => (&self.outbox, &self.tally),
        }
    }

    /// Returns true if `id` is the main connection or an auxiliary connection.
    pub(super) fn has(&self, id: ConnectionId) -> bool {
        self.id == id || self.auxiliaries.iter().any(|auxiliary| auxiliary.id == id)
    }
}
