//! Datagrams and samples as values.

use std::net::IpAddr;

/// An sFlow datagram: samples of one agent, with a sequence number that shows losses to a collector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The address of the agent, which identifies the switch.
    pub agent: IpAddr,
    /// The number of the sub-agent that sends, such as a bridge.
    pub sub_agent: u32,
    /// The sequence number of the datagram; it grows by one.
    pub sequence: u32,
    /// Time since the start of the switch, in milliseconds.
    pub uptime_ms: u32,
    pub samples: Vec<Sample>,
    /// The number of samples of other formats, which were skipped. It is not emitted.
    pub skipped: u32,
}

/// A packet, the counters of an interface, or the notification of a drop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sample {
    /// A packet.
    Flow(FlowSample),
    /// Counters of an interface.
    Counters(CounterSample),
    /// A dropped packet, which was not chosen by sampling.
    Discarded(DiscardedPacket),
}

/// The destination of a sampled packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// The number of one interface; 0 is unknown.
    Interface(u32),
    /// The packet was dropped.
    Dropped(DropCode),
    /// The number of interfaces to which the packet was sent.
    Several(u32),
}

/// The sFlow number of a drop reason. Numbers up to 255 are ICMP codes; the constants begin at 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropCode(pub u32);

impl DropCode {
    /// ICMP code 0: net unreachable (RFC 792).
    pub const NET_UNREACHABLE: DropCode = DropCode(0);
    /// ICMP code 1: host unreachable (RFC 792).
    pub const HOST_UNREACHABLE: DropCode = DropCode(1);
    /// ICMP code 13: communication administratively prohibited (RFC 1812, section 5.2.7.1).
    pub const PROHIBITED: DropCode = DropCode(13);
    /// Any other reason.
    pub const UNKNOWN: DropCode = DropCode(256);
    /// The TTL ran out.
    pub const TTL: DropCode = DropCode(257);
    /// A filter dropped the packet.
    pub const ACL: DropCode = DropCode(258);
    /// No buffer, or a full queue.
    pub const NO_BUFFER: DropCode = DropCode(259);
    /// A rate limit (traffic shaping).
    pub const RATE_LIMIT: DropCode = DropCode(261);
    /// The packet is too long for the interface.
    pub const TOO_BIG: DropCode = DropCode(262);
    /// The ingress port does not carry the VLAN of the packet.
    pub const INGRESS_VLAN_FILTER: DropCode = DropCode(265);
    /// The packet was flooded, but the list of ports was empty.
    pub const PORT_LIST_EMPTY: DropCode = DropCode(267);
    /// The egress port of the packet is its ingress port.
    pub const PORT_LOOPBACK_FILTER: DropCode = DropCode(268);
    /// The route discards its packets.
    pub const BLACKHOLE_ROUTE: DropCode = DropCode(269);
    /// The packet is no IP packet, and only IP is routed.
    pub const NON_IP: DropCode = DropCode(270);
    /// An IP header is malformed.
    pub const IP_HEADER_CORRUPTED: DropCode = DropCode(275);
    /// The MAC address of the next hop is not known.
    pub const UNRESOLVED_NEIGHBOUR: DropCode = DropCode(279);
    /// The packet's addresses are not routed.
    pub const NON_ROUTABLE: DropCode = DropCode(281);
    /// A tunnel header cannot be removed.
    pub const DECAPSULATION: DropCode = DropCode(282);
    /// Any other reason of layer 2.
    pub const UNKNOWN_L2: DropCode = DropCode(284);
    /// Any other reason of layer 3.
    pub const UNKNOWN_L3: DropCode = DropCode(285);
    /// Any other reason of a buffer.
    pub const UNKNOWN_BUFFER: DropCode = DropCode(287);
    /// Any other reason of a tunnel.
    pub const UNKNOWN_TUNNEL: DropCode = DropCode(288);
}

/// A sampled packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowSample {
    /// The sequence number of the samples of this source; it grows by one.
    pub sequence: u32,
    /// The interface at which packets are sampled.
    pub source: u32,
    /// The sampling rate: one of this many packets is sampled, on average.
    pub rate: u32,
    /// The sample pool: the number of packets from which samples were chosen.
    pub pool: u32,
    /// The number of samples that were lost in the switch.
    pub drops: u32,
    /// The ingress interface of the packet.
    pub input: u32,
    /// The destination of the packet.
    pub output: Output,
    /// Size of the frame without frame check sequence, in bytes.
    pub frame_size: u32,
    /// The first bytes of the frame at ingress; at most [`MAX_HEADER_SIZE`](crate::MAX_HEADER_SIZE) are
    /// emitted.
    pub header: Vec<u8>,
    /// The VLANs of the packet at ingress and egress.
    pub switch: Option<SwitchRecord>,
    /// Metadata and drop reason of Millrace.
    pub millrace: Option<MillraceRecord>,
}

/// The notification of a dropped packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscardedPacket {
    /// The sequence number of the notifications of this source; it grows by one.
    pub sequence: u32,
    /// The ingress interface of the packet. If it is not known: the egress interface that dropped the packet,
    /// or 0.
    pub source: u32,
    /// The number of notifications that were lost in the switch or suppressed by their rate limit.
    pub drops: u32,
    /// The ingress interface of the packet; 0 if it is not known.
    pub input: u32,
    /// The egress interface that dropped the packet; 0 if the packet was dropped elsewhere.
    pub output: u32,
    pub reason: DropCode,
    /// Size of the frame without frame check sequence, in bytes.
    pub frame_size: u32,
    /// The first bytes of the frame as it was dropped.
    pub header: Vec<u8>,
    /// Drop reason of Millrace.
    pub millrace: Option<MillraceRecord>,
}

/// The extended switch record: the VLANs of a packet at ingress and egress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchRecord {
    /// VLAN id at ingress; 0 without tag, [`UNKNOWN`](crate::UNKNOWN) if it is not known.
    pub source_vlan: u32,
    /// Priority at ingress.
    pub source_priority: u32,
    /// VLAN id at egress; 0 without tag, [`UNKNOWN`](crate::UNKNOWN) if it is not known.
    pub destination_vlan: u32,
    /// Priority at egress.
    pub destination_priority: u32,
}

/// The enterprise record of Millrace in a flow sample: metadata and cookie of the pipeline, and the drop reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MillraceRecord {
    /// The metadata of the packet after its last table.
    pub metadata: u64,
    /// The cookie of the last flow entry that matched; 0 without one.
    pub cookie: u64,
    /// The name of the drop reason; empty for a packet that was sent.
    pub drop_reason: String,
}

/// Counters of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterSample {
    /// The sequence number of the counter samples of this source; it grows by one.
    pub sequence: u32,
    /// The interface.
    pub source: u32,
    /// The generic interface counters; `None` if the sample has none.
    pub counters: Option<InterfaceCounters>,
    /// The Ethernet counters; `None` if the sample has none.
    pub ethernet: Option<EthernetCounters>,
    /// The OpenFlow port; `None` if the sample does not have it.
    pub openflow: Option<OpenFlowPort>,
    /// The name of the port; `None` if the sample does not have it.
    pub name: Option<String>,
}

/// The Ethernet counters that Millrace has; the others of the record are emitted as unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthernetCounters {
    /// Frames that were not sent because of errors (dot3StatsInternalMacTransmitErrors).
    pub transmit_errors: u32,
    /// Frames that were not received because of errors (dot3StatsInternalMacReceiveErrors).
    pub receive_errors: u32,
}

/// The bridge and the number of an OpenFlow port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlowPort {
    /// The datapath id of the bridge.
    pub dpid: u64,
    /// The number of the port.
    pub number: u32,
}

/// Generic interface counters. Millrace has one counter for unicast, multicast and broadcast packets
/// together. It is emitted as the unicast counter; the multicast and broadcast counters are emitted as
/// unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterfaceCounters {
    /// The number of the interface.
    pub interface: u32,
    /// Rate in bit/s; 0 if it is not known.
    pub speed: u64,
    /// True if the interface is administratively up.
    pub is_admin_up: bool,
    /// True if the link of the interface is up.
    pub is_link_up: bool,
    /// Bytes received.
    pub in_octets: u64,
    /// Packets received.
    pub in_packets: u32,
    /// Received packets that were dropped.
    pub in_discards: u32,
    /// Received packets with errors.
    pub in_errors: u32,
    /// Bytes sent.
    pub out_octets: u64,
    /// Packets sent.
    pub out_packets: u32,
    /// Packets that were dropped before transmission.
    pub out_discards: u32,
    /// Packets that were not sent because of errors.
    pub out_errors: u32,
}
