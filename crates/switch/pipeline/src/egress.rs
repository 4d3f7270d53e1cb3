//! The interface between the pipeline and the worker, which transmits packets and talks to the control side.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{Cookie, Mac, PortNo, QueueId, TableId, Vid};

use crate::DropReason;

/// The reason of a packet-in (`ofp_packet_in_reason`, OpenFlow 1.3.5, section 7.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInReason {
    /// `OFPR_NO_MATCH`: the table-miss entry sent the packet.
    NoMatch = 0,
    /// `OFPR_ACTION`: another entry, or a packet-out, sent the packet.
    Action = 1,
    /// `OFPR_INVALID_TTL`: the packet's TTL ran out.
    InvalidTtl = 2,
}

/// The fields of a packet-in besides the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInInfo {
    pub reason: PacketInReason,
    /// The table of the entry that sent the packet.
    pub table: TableId,
    /// The cookie of that entry; all ones for a packet-out (OpenFlow 1.3.5, section 7.4.1).
    pub cookie: Cookie,
    /// The number of bytes that the action asks for; 0xffff (`OFPCML_NO_BUFFER`) is all of them.
    pub max_len: u16,
    /// The ingress port.
    pub in_port: PortNo,
    /// The physical port under a logical ingress port; the ingress port otherwise.
    pub in_phy_port: PortNo,
    /// The metadata that tables have written.
    pub metadata: u64,
    /// The metadata of a logical port.
    pub tunnel_id: u64,
}

/// A source address seen by NORMAL that the MAC table does not have at this port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// The VLAN, zero for none.
    pub vid: Vid,
    /// The MAC address.
    pub mac: Mac,
    /// The port where it was seen.
    pub port: PortNo,
}

/// The destination of packets. Implementations must neither block nor allocate, because workers call them.
pub trait Egress<P> {
    /// Sends a packet out of a port, which exists and is up.
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P);

    /// Sends packets out of one port, in order, and leaves the burst empty. The pipeline passes consecutive
    /// packets for one port in one call.
    #[inline]
    fn transmit_burst(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut ArrayVec<P, BURST>) {
        for packet in burst.drain(..) {
            self.transmit(port, queue, packet);
        }
    }

    /// Hands a packet to the control side for the controllers.
    fn packet_in(&mut self, info: PacketInInfo, packet: P);

    /// Reports a MAC address to the control side. The report may be lost: the next packet repeats it.
    fn learn(&mut self, learn: Learn);

    /// Hands the control side a copy of a received packet, unmodified, that matches an armed
    /// [`LiveTrace`](crate::LiveTrace).
    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P);

    /// Hands the control side a packet of address resolution (ARP, neighbour discovery) from the underlay of a tunnel:
    /// a request for a local address, or an announcement of a neighbour's address. The packet may be lost, because its
    /// sender repeats it.
    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        let _ = (underlay, packet);
    }

    /// Announces a packet for the tunnel behind a logical port, before it is encapsulated.
    fn encapsulating(&mut self, port: PortNo, packet: &P) {
        let _ = (port, packet);
    }

    /// Announces packets that arrived by the tunnel behind a logical port, after they were decapsulated.
    fn decapsulated(&mut self, port: PortNo, packets: &[P]) {
        let _ = (port, packets);
    }

    /// Announces that the following calls belong to the observed packet of a burst
    /// ([`Processor::begin_observation`](crate::Processor::begin_observation)).
    fn begin_notes(&mut self) {}

    /// Announces that the following calls belong to the packets after the observed packet.
    fn end_notes(&mut self) {}

    /// Hands the control side an OAM frame that was received at a monitored port.
    fn oam(&mut self, port: PortNo, packet: P) {
        let _ = (port, packet);
    }

    /// Disposes of a dropped packet, which is counted already.
    fn dropped(&mut self, reason: DropReason, packet: P) {
        let _ = (reason, packet);
    }

    /// Disposes of packets dropped for one reason, and leaves the burst empty. The pipeline passes
    /// consecutive drops in one call.
    #[inline]
    fn dropped_burst(&mut self, reason: DropReason, burst: &mut ArrayVec<P, BURST>) {
        for packet in burst.drain(..) {
            self.dropped(reason, packet);
        }
    }
}
