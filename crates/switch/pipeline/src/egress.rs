//! What a worker does with the results of the pipeline: the one interface between packets' processing and
//! whatever moves them.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{Cookie, Mac, PortNo, QueueId, TableId, Vid};

use crate::DropReason;

/// Why a packet goes to the controllers (`ofp_packet_in_reason`, section 7.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInReason {
    /// `OFPR_NO_MATCH`: the table-miss entry sent it.
    NoMatch = 0,
    /// `OFPR_ACTION`: another entry, or a packet-out, sent it.
    Action = 1,
    /// `OFPR_INVALID_TTL`: its TTL ran out.
    InvalidTtl = 2,
}

/// What a packet-in says besides the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInInfo {
    /// Why.
    pub reason: PacketInReason,
    /// The table of the entry that sent it.
    pub table: TableId,
    /// The cookie of that entry; all ones for a packet-out (section 7.4.1).
    pub cookie: Cookie,
    /// How many bytes the action asks for; 0xffff (`OFPCML_NO_BUFFER`) is all of them.
    pub max_len: u16,
    /// Ingress port.
    pub in_port: PortNo,
    /// Physical port beneath a logical ingress port; the ingress port otherwise.
    pub in_phy_port: PortNo,
    /// Metadata that tables have written.
    pub metadata: u64,
    /// Metadata of a logical port.
    pub tunnel_id: u64,
}

/// A source address that NORMAL saw where the MAC table does not have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// The VLAN, zero for none.
    pub vid: Vid,
    /// The station.
    pub mac: Mac,
    /// Where it is.
    pub port: PortNo,
}

/// Where packets go. Implementations neither block nor allocate: workers call them.
pub trait Egress<P> {
    /// Sends a packet out of a port, which exists and is up.
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P);

    /// Sends packets out of one port, in order, and leaves the burst empty. What goes to one port in a row comes
    /// by this way.
    #[inline]
    fn transmit_burst(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut ArrayVec<P, BURST>) {
        for packet in burst.drain(..) {
            self.transmit(port, queue, packet);
        }
    }

    /// Hands a packet to the control side for the controllers.
    fn packet_in(&mut self, info: PacketInInfo, packet: P);

    /// Tells the control side of a station. May be forgotten: the next packet brings it again.
    fn learn(&mut self, learn: Learn);

    /// Hands a copy of a packet that an armed [`LiveTrace`](crate::LiveTrace) waited for to the control
    /// side, as it came in.
    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P);

    /// Hands a packet to the control side that came in at the underlay of a tunnel, and asks for an address of ours on
    /// that link or tells another's (ARP, neighbour discovery). May be forgotten: who asks, asks again.
    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        let _ = (underlay, packet);
    }

    /// Disposes of a packet that went nowhere. It has been counted.
    fn dropped(&mut self, reason: DropReason, packet: P) {
        let _ = (reason, packet);
    }

    /// Disposes of packets that went nowhere for one reason, and leaves the burst empty. What is dropped in a row
    /// comes by this way.
    #[inline]
    fn dropped_burst(&mut self, reason: DropReason, burst: &mut ArrayVec<P, BURST>) {
        for packet in burst.drain(..) {
            self.dropped(reason, packet);
        }
    }
}
