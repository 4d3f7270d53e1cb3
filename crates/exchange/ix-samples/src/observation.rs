//! One sampled packet of a member: its headers, its ends, and the traffic that it stands for.

use std::net::IpAddr;

use millrace_flow::{Field, FlowKey, Layer};
use millrace_ix_model::Timestamp;
use millrace_ix_plan::layout::Metadata;
use millrace_sflow::{FlowSample, Output};
use millrace_wire::{Depth, EtherType, IpProto, Layers};

/// The service of a packet and the ends at which it enters and leaves, as indices in the metadata of the
/// sample.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ends {
    /// The index of the service.
    pub service: u32,
    /// The index of the end at which the packet enters.
    pub ingress_end: u32,
    /// The index of the end at which the packet leaves; 0 if the packet leaves at several ends, or was dropped
    /// before this end was known.
    pub egress_end: u32,
}

/// A sampled packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Observation {
    /// The time at which the sample arrived at the collector.
    pub at: Timestamp,
    /// The service and the ends.
    pub ends: Ends,
    /// The number of packets that the sample stands for.
    pub packets: f64,
    /// The number of bytes that the sample stands for.
    pub bytes: f64,
    /// True if a switch dropped the packet.
    pub is_dropped: bool,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// The source port; 0 without one.
    pub source_port: u16,
    /// The destination port; 0 without one.
    pub destination_port: u16,
    /// The type and code of ICMP; zeros for other protocols.
    pub icmp: (u8, u8),
    /// The control bits of TCP; 0 for other protocols.
    pub tcp_flags: u16,
    /// The fragment bits: bit 0 is set in every fragment, bit 1 in every fragment but the first.
    pub fragment: u8,
    /// The differentiated services code point.
    pub dscp: u8,
}

/// Returns the sum of the bytes of observations; 0 without any. (`Iterator::sum` of no `f64` is -0.)
pub(crate) fn total_bytes<'a>(observations: impl IntoIterator<Item = &'a Observation>) -> f64 {
    let bytes = observations.into_iter().map(|packet| packet.bytes);
    bytes.fold(0.0, |sum, bytes| sum + bytes)
}

impl Observation {
    /// Returns true for a packet of a BGP session: TCP at port 179 with ACK and without SYN and RST (RFC 9293, section 3.1), which a
    /// switch passes on. Somebody who tries ports has no session.
    pub(crate) fn is_bgp(&self) -> bool {
        const BGP: u16 = 179;
        const SYN_RST_ACK: u16 = 0x16;
        const ACK: u16 = 0x10;
        let has_port = self.source_port == BGP || self.destination_port == BGP;
        self.protocol == IpProto::TCP.0 && has_port && self.tcp_flags & SYN_RST_ACK == ACK && !self.is_dropped
    }

    /// Returns the observation of a sample. Returns `None` if the packet is not IP, is not a packet of the
    /// exchange, or arrived by a trunk: the switch where the packet entered the exchange samples it, too.
    pub fn of(sample: &FlowSample, at: Timestamp) -> Option<Observation> {
        let record = sample.millrace.as_ref()?;
        let metadata = Metadata::from_word(record.metadata);
        if metadata.by_trunk || metadata.service == 0 {
            return None;
        }
        let mut key = FlowKey::default();
        let size = sample.frame_size as usize;
        key.extract(
            &sample.header,
            &Layers::parse_head(&sample.header, size, Depth::All),
        );
        let field = |field| key.field(field);
        if !key.has(Layer::Ip) {
            return None;
        }
        let (source, destination) = match EtherType(field(Field::EthType) as u16) {
            EtherType::IPV4 => (
                IpAddr::V4((field(Field::Ipv4Src) as u32).into()),
                IpAddr::V4((field(Field::Ipv4Dst) as u32).into()),
            ),
            _ => (
                IpAddr::V6(field(Field::Ipv6Src).into()),
                IpAddr::V6(field(Field::Ipv6Dst).into()),
            ),
        };
        let protocol = IpProto(field(Field::IpProto) as u8);
        let fragment = field(Field::IpFrag) as u8;
        // The protocol whose header the packet has.
        let l4 = (key.has(Layer::L4) && fragment & 2 == 0).then_some(protocol);
        let (source_port, destination_port) = match l4 {
            Some(IpProto::TCP | IpProto::UDP | IpProto::SCTP) => {
                (field(Field::TcpSrc) as u16, field(Field::TcpDst) as u16)
            }
            _ => (0, 0),
        };
        let icmp = match l4 {
            Some(IpProto::ICMPV4) => (field(Field::Icmpv4Type) as u8, field(Field::Icmpv4Code) as u8),
            Some(IpProto::ICMPV6) => (field(Field::Icmpv6Type) as u8, field(Field::Icmpv6Code) as u8),
            _ => (0, 0),
        };
        // A packet that leaves by several ends, or was dropped before its end was known, belongs to no end.
        let egress_end = match metadata.egress_end {
            end if end & Metadata::COPIES != 0 => 0,
            end => end,
        };
        let packets = f64::from(sample.rate);
        Some(Observation {
            at,
            ends: Ends {
                service: metadata.service,
                ingress_end: metadata.ingress_end,
                egress_end,
            },
            packets,
            bytes: packets * f64::from(sample.frame_size),
            is_dropped: matches!(sample.output, Output::Dropped(_)),
            source,
            destination,
            protocol: protocol.0,
            source_port,
            destination_port,
            icmp,
            tcp_flags: if protocol == IpProto::TCP {
                field(Field::TcpFlags) as u16
            } else {
                0
            },
            fragment,
            dscp: field(Field::IpDscp) as u8,
        })
    }
}
