//! Flows: the state of a conversation that outlives its packets.

use core::net::IpAddr;

use millrace_types::Time;

use crate::app::AppState;
use crate::detect;
use crate::tcp;

/// The direction of a packet in its flow. The client is who sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

impl Direction {
    /// Returns 0 for the direction to the server, 1 for that to the client.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        }
    }

    /// Returns the other direction.
    #[inline]
    pub const fn reverse(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// The endpoints of a flow as its first packet had them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Address of the client.
    pub client: IpAddr,
    /// Address of the server.
    pub server: IpAddr,
    /// Port of the client; for ICMP its type.
    pub client_port: u16,
    /// Port of the server; for ICMP its identifier.
    pub server_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// VLAN identifiers, outermost first.
    pub vlans: [u16; 3],
}

/// The decision about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowVerdict {
    /// Its packets are inspected.
    #[default]
    None,
    /// A pass rule matched: its packets are forwarded without inspection.
    Pass,
    /// Its packets are dropped.
    Drop,
    /// Its packets are forwarded and its data are not followed.
    Bypass,
}

/// Packets and bytes of one direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionCounters {
    /// Packets.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

/// The state of a flow as rules ask for it (`flow:established`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowState {
    /// One direction was seen; the handshake of TCP is not complete.
    #[default]
    New,
    /// Both directions were seen; the handshake of TCP is complete.
    Established,
    /// TCP ended.
    Closed,
}

/// The state of a flow.
#[derive(Debug)]
pub struct Flow {
    /// The endpoints.
    pub key: FlowKey,
    /// Number of the flow, from 1.
    pub id: u64,
    /// Time of the first packet.
    pub start: Time,
    /// Time of the last packet.
    pub last: Time,
    /// The state.
    pub state: FlowState,
    /// Packets and bytes, by [`Direction::index`].
    pub counters: [DirectionCounters; 2],
    /// The decision about the flow.
    pub verdict: FlowVerdict,
    /// Application protocol, parser and transactions.
    pub app: AppState,
    /// State of detection: flowbits, counters, alerts that are raised once.
    pub detect: detect::FlowState,
    /// State of TCP; `None` for other protocols.
    pub tcp: Option<Box<tcp::Session>>,
}

impl Flow {
    /// Returns true if the flow is established in the sense of `flow:established`.
    pub fn is_established(&self) -> bool {
        self.state == FlowState::Established
    }

    /// Returns true if the packet with `counters` already updated is the first of its direction.
    pub fn is_first(&self, direction: Direction) -> bool {
        self.counters[direction.index()].packets == 1
    }
}
