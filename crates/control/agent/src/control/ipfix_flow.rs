//! Flows of IPFIX: what two packets have in common, their counts, and their records.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_datapath::{SampleOutcome, SampledPacket};
use millrace_flow::{Field, FlowKey, Layer};
use millrace_ipfix::element::*;
use millrace_ipfix::{Template, Values};
use millrace_sflow::DropCode;
use millrace_wire::{Depth, EtherType, IpProto, Layers};

use super::sflow_records::{VlanTag, drop_code, interface};

/// The elements that the records of all flows begin with, followed by `more`.
macro_rules! flow_elements {
    ($($more:expr),* $(,)?) => {
        &[
            FLOW_START_MILLISECONDS,
            FLOW_END_MILLISECONDS,
            PACKET_DELTA_COUNT,
            OCTET_DELTA_COUNT,
            LAYER2_OCTET_DELTA_COUNT,
            OBSERVATION_POINT_ID,
            SELECTOR_ID,
            FLOW_DIRECTION,
            INGRESS_INTERFACE,
            EGRESS_INTERFACE,
            FORWARDING_STATUS,
            FLOW_END_REASON,
            SOURCE_MAC_ADDRESS,
            DESTINATION_MAC_ADDRESS,
            ETHERNET_TYPE,
            VLAN_ID,
            DOT1Q_PRIORITY,
            POST_VLAN_ID,
            $($more),*
        ]
    };
}

/// Flows that are not IP.
pub(super) const OTHER: Template = Template {
    id: 256,
    scopes: 0,
    elements: flow_elements!(),
};
/// Flows of IPv4.
pub(super) const IPV4: Template = Template {
    id: 257,
    scopes: 0,
    elements: flow_elements!(
        IP_VERSION,
        PROTOCOL_IDENTIFIER,
        IP_CLASS_OF_SERVICE,
        IP_TTL,
        SOURCE_TRANSPORT_PORT,
        DESTINATION_TRANSPORT_PORT,
        TCP_CONTROL_BITS,
        SOURCE_IPV4_ADDRESS,
        DESTINATION_IPV4_ADDRESS,
        ICMP_TYPE_CODE_IPV4,
    ),
};
/// Flows of IPv6.
pub(super) const IPV6: Template = Template {
    id: 258,
    scopes: 0,
    elements: flow_elements!(
        IP_VERSION,
        PROTOCOL_IDENTIFIER,
        IP_CLASS_OF_SERVICE,
        IP_TTL,
        SOURCE_TRANSPORT_PORT,
        DESTINATION_TRANSPORT_PORT,
        TCP_CONTROL_BITS,
        SOURCE_IPV6_ADDRESS,
        DESTINATION_IPV6_ADDRESS,
        ICMP_TYPE_CODE_IPV6,
        FLOW_LABEL_IPV6,
    ),
};
/// Single packets (RFC 5477, section 4).
pub(super) const PACKET: Template = Template {
    id: 259,
    scopes: 0,
    elements: &[
        OBSERVATION_TIME_MILLISECONDS,
        OBSERVATION_POINT_ID,
        SELECTOR_ID,
        INGRESS_INTERFACE,
        EGRESS_INTERFACE,
        FORWARDING_STATUS,
        DATA_LINK_FRAME_SIZE,
        DATA_LINK_FRAME_SECTION,
    ],
};

/// The reason why a record is sent (RFC 5102, section 5.11.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndReason {
    IdleTimeout = 1,
    ActiveTimeout = 2,
    ForcedEnd = 4,
    LackOfResources = 5,
}

/// The addresses of an IP flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Addresses {
    V4 {
        source: Ipv4Addr,
        destination: Ipv4Addr,
    },
    V6 {
        source: Ipv6Addr,
        destination: Ipv6Addr,
        flow_label: u32,
    },
}

/// The IP part of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Ip {
    addresses: Addresses,
    protocol: u8,
    class_of_service: u8,
    source_port: u16,
    destination_port: u16,
    /// Type and code.
    icmp: u16,
}

/// The values that all packets of a flow have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FlowId {
    input: u32,
    output: u32,
    forwarding_status: u8,
    /// The mean number of packets for each sample, which is the number of the sampler, too.
    rate: u32,
    source: [u8; 6],
    destination: [u8; 6],
    ethernet_type: u16,
    vlan: VlanTag,
    /// The identifier of the tag with which the packets leave.
    post_vlan: u16,
    ip: Option<Ip>,
}

/// The counts of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) packets: u64,
    octets: u64,
    layer2_octets: u64,
    /// Times in milliseconds since 1970.
    start_ms: u64,
    end_ms: u64,
    ttl: u8,
    tcp_flags: u16,
}

impl Counts {
    /// Adds the counts of a later packet.
    pub(super) fn add(&mut self, later: &Counts) {
        self.packets += later.packets;
        self.octets += later.octets;
        self.layer2_octets += later.layer2_octets;
        self.end_ms = later.end_ms;
        self.tcp_flags |= later.tcp_flags;
    }
}

/// Returns the forwardingStatus (RFC 7270, section 4.12) of an outcome.
fn forwarding_status(outcome: SampleOutcome) -> u8 {
    const UNKNOWN: u8 = 0;
    const FORWARDED: u8 = 64;
    const DROPPED: u8 = 128;
    const ACL_DENY: u8 = 129;
    const UNROUTABLE: u8 = 131;
    const ADJACENCY: u8 = 132;
    const FRAGMENTATION_AND_DF_SET: u8 = 133;
    const BAD_TTL: u8 = 137;
    const POLICER: u8 = 138;
    const BAD_OUTPUT_INTERFACE: u8 = 142;
    const CONSUMED: u8 = 192;
    match outcome {
        SampleOutcome::Sent { .. } | SampleOutcome::Copied(_) => FORWARDED,
        SampleOutcome::Taken => CONSUMED,
        SampleOutcome::Unknown => UNKNOWN,
        SampleOutcome::Dropped { reason, .. } => match drop_code(reason) {
            DropCode::ACL => ACL_DENY,
            DropCode::NET_UNREACHABLE | DropCode::HOST_UNREACHABLE | DropCode::NON_ROUTABLE => UNROUTABLE,
            DropCode::UNRESOLVED_NEIGHBOUR => ADJACENCY,
            DropCode::TOO_BIG => FRAGMENTATION_AND_DF_SET,
            DropCode::TTL => BAD_TTL,
            DropCode::RATE_LIMIT => POLICER,
            DropCode::PORT_LIST_EMPTY | DropCode::PORT_LOOPBACK_FILTER => BAD_OUTPUT_INTERFACE,
            _ => DROPPED,
        },
    }
}

/// Returns the egress interface; 0 without exactly one.
fn output(outcome: SampleOutcome) -> u32 {
    match outcome {
        SampleOutcome::Sent { port, .. } => interface(port),
        SampleOutcome::Dropped { port, .. } => port.map_or(0, interface),
        SampleOutcome::Copied(_) | SampleOutcome::Taken | SampleOutcome::Unknown => 0,
    }
}

/// Returns the length of an IP packet by its header; `None` if the header has none, as for packets that are to be segmented.
fn ip_length(header: &[u8], is_v4: bool) -> Option<u64> {
    let (at, fixed) = if is_v4 { (2, 0) } else { (4, 40) };
    let bytes = header.get(at..at + 2)?;
    let length = u64::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    (length != 0).then_some(length + fixed)
}

/// Returns the flow of a packet, and the counts of that packet alone.
pub(super) fn flow_of(sample: &SampledPacket, now_ms: u64) -> (FlowId, Counts) {
    let header = sample.header.bytes();
    let layers = Layers::parse_head(header, sample.size as usize, Depth::All);
    let mut key = FlowKey::default();
    key.extract(header, &layers);
    let field = |field| key.field(field);
    let mac = |name| {
        let bytes = (field(name) as u64).to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    };
    let is_first = field(Field::IpFrag) as u8 & 2 == 0;
    let protocol = IpProto(field(Field::IpProto) as u8);
    // The protocol whose header the packet has.
    let l4 = (key.has(Layer::L4) && is_first).then_some(protocol);
    let has_ports = matches!(l4, Some(IpProto::TCP | IpProto::UDP | IpProto::SCTP));
    let is_v4 = field(Field::EthType) == u128::from(EtherType::IPV4.0);
    let ip = key.has(Layer::Ip).then(|| Ip {
        addresses: match is_v4 {
            true => Addresses::V4 {
                source: (field(Field::Ipv4Src) as u32).into(),
                destination: (field(Field::Ipv4Dst) as u32).into(),
            },
            false => Addresses::V6 {
                source: field(Field::Ipv6Src).into(),
                destination: field(Field::Ipv6Dst).into(),
                flow_label: field(Field::Ipv6Flabel) as u32,
            },
        },
        protocol: protocol.0,
        class_of_service: (field(Field::IpDscp) as u8) << 2 | field(Field::IpEcn) as u8,
        source_port: if has_ports { field(Field::TcpSrc) as u16 } else { 0 },
        destination_port: if has_ports { field(Field::TcpDst) as u16 } else { 0 },
        icmp: match l4 {
            Some(IpProto::ICMPV4) => (field(Field::Icmpv4Type) as u16) << 8 | field(Field::Icmpv4Code) as u16,
            Some(IpProto::ICMPV6) => (field(Field::Icmpv6Type) as u16) << 8 | field(Field::Icmpv6Code) as u16,
            _ => 0,
        },
    });
    let after = match sample.outcome {
        SampleOutcome::Sent { tci, .. } => tci,
        _ => None,
    };
    let id = FlowId {
        input: interface(sample.port),
        output: output(sample.outcome),
        forwarding_status: forwarding_status(sample.outcome),
        rate: sample.rate,
        source: mac(Field::EthSrc),
        destination: mac(Field::EthDst),
        ethernet_type: field(Field::EthType) as u16,
        vlan: VlanTag::of(sample.tci),
        post_vlan: VlanTag::of(after).vid,
        ip,
    };
    let size = u64::from(sample.size);
    let behind = size.saturating_sub(layers.l3_offset() as u64);
    let octets = match ip {
        Some(_) => header
            .get(layers.l3_offset()..)
            .and_then(|header| ip_length(header, is_v4))
            .map_or(behind, |length| length.min(behind)),
        None => size,
    };
    let counts = Counts {
        packets: 1,
        octets,
        layer2_octets: size,
        start_ms: now_ms,
        end_ms: now_ms,
        ttl: if ip.is_some() {
            field(Field::NwTtl) as u8
        } else {
            0
        },
        tcp_flags: if l4 == Some(IpProto::TCP) {
            field(Field::TcpFlags) as u16
        } else {
            0
        },
    };
    (id, counts)
}

/// Returns the record of a flow with its template.
pub(super) fn record(
    id: &FlowId,
    counts: &Counts,
    point: u32,
    reason: EndReason,
) -> (&'static Template, Values) {
    let values = Values::new()
        .u64(counts.start_ms)
        .u64(counts.end_ms)
        .u64(counts.packets)
        .u64(counts.octets)
        .u64(counts.layer2_octets)
        .u32(point)
        .u32(id.rate)
        // Packets are observed as they arrive.
        .u8(0)
        .u32(id.input)
        .u32(id.output)
        .u8(id.forwarding_status)
        .u8(reason as u8)
        .mac(id.source)
        .mac(id.destination)
        .u16(id.ethernet_type)
        .u16(id.vlan.vid)
        .u8(id.vlan.priority)
        .u16(id.post_vlan);
    let Some(ip) = &id.ip else {
        return (&OTHER, values);
    };
    let is_v4 = matches!(ip.addresses, Addresses::V4 { .. });
    let values = values
        .u8(if is_v4 { 4 } else { 6 })
        .u8(ip.protocol)
        .u8(ip.class_of_service)
        .u8(counts.ttl)
        .u16(ip.source_port)
        .u16(ip.destination_port)
        .u16(counts.tcp_flags);
    match ip.addresses {
        Addresses::V4 { source, destination } => (&IPV4, values.ipv4(source).ipv4(destination).u16(ip.icmp)),
        Addresses::V6 {
            source,
            destination,
            flow_label,
        } => (
            &IPV6,
            values.ipv6(source).ipv6(destination).u16(ip.icmp).u32(flow_label),
        ),
    }
}

/// Returns the record of a single packet.
pub(super) fn packet(sample: &SampledPacket, point: u32, size_max: usize, now_ms: u64) -> Values {
    let header = sample.header.bytes();
    Values::new()
        .u64(now_ms)
        .u32(point)
        .u32(sample.rate)
        .u32(interface(sample.port))
        .u32(output(sample.outcome))
        .u8(forwarding_status(sample.outcome))
        .u16(u16::try_from(sample.size).unwrap_or(u16::MAX))
        .bytes(&header[..header.len().min(size_max)])
}
