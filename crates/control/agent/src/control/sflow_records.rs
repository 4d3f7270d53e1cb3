//! Conversion of the data plane's samples to sFlow samples: interface numbers, drop codes, VLANs.

use millrace_datapath::{DiscardedPacket, SampleOutcome, SampledPacket};
use millrace_pipeline::DropReason;
use millrace_sflow as sflow;
use millrace_sflow::{DropCode, INTERNAL_INTERFACE, MillraceRecord, Output, SwitchRecord, UNKNOWN};
use millrace_types::{PortNo, Vid};

/// The interface number of LOCAL: the numbers of data sources have 24 bits.
const LOCAL_INTERFACE: u32 = 0x00ff_fffe;

/// Returns the interface number of a port: its OpenFlow number.
pub(super) fn interface(port: PortNo) -> u32 {
    match port {
        PortNo::LOCAL => LOCAL_INTERFACE,
        port => port.raw(),
    }
}

/// Returns the reason of sFlow that is closest to a drop reason (sFlow.org, "sFlow Dropped Packet Notification Structures",
/// October 2020).
pub(super) fn drop_code(reason: DropReason) -> DropCode {
    match reason {
        DropReason::NoOutput
        | DropReason::TableMiss
        | DropReason::FunctionDrop
        | DropReason::RouteAclIn
        | DropReason::RouteAclOut => DropCode::ACL,
        DropReason::InvalidTtl | DropReason::NshTtl | DropReason::RouteTtl => DropCode::TTL,
        DropReason::Meter
        | DropReason::Policer
        | DropReason::PacketInLimit
        | DropReason::LinkProtocolLimit
        | DropReason::RoutePuntLimit => DropCode::RATE_LIMIT,
        DropReason::TransmitFull
        | DropReason::QueueFull
        | DropReason::NoBuffer
        | DropReason::WorkerFull
        | DropReason::OamFull
        | DropReason::PacketInFull
        | DropReason::RoutePuntFull
        | DropReason::RouteRingFull => DropCode::NO_BUFFER,
        DropReason::NoHeadroom | DropReason::FragmentMemory => DropCode::UNKNOWN_BUFFER,
        DropReason::TunnelMtu | DropReason::RouteMtu => DropCode::TOO_BIG,
        DropReason::NormalVlan => DropCode::INGRESS_VLAN_FILTER,
        DropReason::NoFloodPort | DropReason::NoLiveBucket => DropCode::PORT_LIST_EMPTY,
        DropReason::OutputToInPort | DropReason::NormalSamePort => DropCode::PORT_LOOPBACK_FILTER,
        DropReason::FragmentMalformed
        | DropReason::FragmentOverlap
        | DropReason::RouteMalformed
        | DropReason::RouteChecksum
        | DropReason::RouteOptions => DropCode::IP_HEADER_CORRUPTED,
        DropReason::TunnelUnresolved | DropReason::RouteNeighbour => DropCode::UNRESOLVED_NEIGHBOUR,
        DropReason::RouteNone => DropCode::NET_UNREACHABLE,
        DropReason::RouteUnreachable | DropReason::RouteInterfaceDown => DropCode::HOST_UNREACHABLE,
        DropReason::RouteProhibited => DropCode::PROHIBITED,
        DropReason::RouteBlackhole => DropCode::BLACKHOLE_ROUTE,
        DropReason::RouteEtherType => DropCode::NON_IP,
        DropReason::RouteMartianSource
        | DropReason::RouteMartianDestination
        | DropReason::RouteMulticast
        | DropReason::RouteBroadcast
        | DropReason::RouteScope => DropCode::NON_ROUTABLE,
        DropReason::RouteOtherHost | DropReason::RouteNoInterface => DropCode::UNKNOWN_L3,
        DropReason::TunnelMalformed | DropReason::NshMalformed => DropCode::DECAPSULATION,
        DropReason::TunnelPayload
        | DropReason::TunnelKey
        | DropReason::TunnelUnknown
        | DropReason::TunnelCongested
        | DropReason::NshUnknown
        | DropReason::NshIndex => DropCode::UNKNOWN_TUNNEL,
        DropReason::NoSuchPort
        | DropReason::PortDown
        | DropReason::PortNoForward
        | DropReason::PortNoReceive
        | DropReason::PortBlocked
        | DropReason::MirrorPort
        | DropReason::LagNotCollecting
        | DropReason::LagNotDistributing
        | DropReason::NormalReserved
        | DropReason::NormalProtected
        | DropReason::TooShort => DropCode::UNKNOWN_L2,
        DropReason::PortNoPacketIn
        | DropReason::NoGroup
        | DropReason::GroupLimit
        | DropReason::BadTable
        | DropReason::Fragment
        | DropReason::FragmentTimeout
        | DropReason::NotSegmentable
        | DropReason::BadOffload
        | DropReason::NoController
        | DropReason::HopDown => DropCode::UNKNOWN,
    }
}

/// The sequence number and totals that a sample of a source carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SourceNumbers {
    /// The number of the last sample.
    pub(super) sequence: u32,
    /// The number of packets from which samples were taken. It wraps, as in a datagram.
    pub(super) pool: u32,
    /// The number of lost samples. It wraps.
    pub(super) drops: u32,
}

/// Returns a sample of sFlow.
pub(super) fn flow_sample(sample: &SampledPacket, numbers: SourceNumbers) -> sflow::FlowSample {
    let output = match sample.outcome {
        SampleOutcome::Sent { port, .. } => Output::Interface(interface(port)),
        SampleOutcome::Copied(count) => Output::Several(count),
        SampleOutcome::Dropped { reason, .. } => Output::Dropped(drop_code(reason)),
        SampleOutcome::Taken => Output::Interface(INTERNAL_INTERFACE),
        SampleOutcome::Unknown => Output::Interface(0),
    };
    let drop_reason = match sample.outcome {
        SampleOutcome::Dropped { reason, .. } => Some(reason),
        _ => None,
    };
    let source = VlanTag::of(sample.tci);
    let destination = match sample.outcome {
        SampleOutcome::Sent { tci, .. } => Some(VlanTag::of(tci)),
        _ => None,
    };
    sflow::FlowSample {
        sequence: numbers.sequence,
        source: interface(sample.port),
        rate: sample.rate,
        pool: numbers.pool,
        drops: numbers.drops,
        input: interface(sample.port),
        output,
        frame_size: sample.size,
        header: sample.header.bytes().to_vec(),
        switch: Some(SwitchRecord {
            source_vlan: source.vid.into(),
            source_priority: source.priority.into(),
            destination_vlan: destination.map_or(UNKNOWN, |tag| tag.vid.into()),
            destination_priority: destination.map_or(UNKNOWN, |tag| tag.priority.into()),
        }),
        millrace: Some(MillraceRecord {
            metadata: sample.metadata,
            cookie: sample.cookie.map_or(0, |cookie| cookie.0),
            drop_reason: drop_reason.map_or_else(String::new, |reason| reason.name().to_owned()),
        }),
    }
}

/// The identifier and the priority of a VLAN tag; zeros without a tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct VlanTag {
    pub(super) vid: u16,
    pub(super) priority: u8,
}

impl VlanTag {
    pub(super) fn of(tci: Option<u16>) -> VlanTag {
        tci.map_or_else(VlanTag::default, |tci| VlanTag {
            vid: Vid::from_tci(tci).raw(),
            priority: (tci >> 13) as u8,
        })
    }
}

/// Returns the sFlow notification of a dropped packet; the agent sets the sequence number. The source is the
/// ingress port, or else the egress port.
pub(super) fn discarded(packet: &DiscardedPacket, drops: u32) -> sflow::DiscardedPacket {
    let input = packet.in_port.map_or(0, interface);
    let output = packet.out_port.map_or(0, interface);
    sflow::DiscardedPacket {
        sequence: 0,
        source: if input == 0 { output } else { input },
        drops,
        input,
        output,
        reason: drop_code(packet.reason),
        frame_size: packet.size,
        header: packet.header.bytes().to_vec(),
        millrace: Some(MillraceRecord {
            metadata: 0,
            cookie: 0,
            drop_reason: packet.reason.name().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_the_numbers_of_their_ports_within_24_bits() {
        assert_eq!(interface(PortNo::from_raw(7)), 7);
        assert!(interface(PortNo::LOCAL) < 1 << 24);
    }

    #[test]
    fn a_tag_is_split_into_identifier_and_priority_and_no_tag_is_zero() {
        assert_eq!(
            VlanTag::of(Some(0xa064)),
            VlanTag {
                vid: 100,
                priority: 5
            }
        );
        assert_eq!(VlanTag::of(None), VlanTag { vid: 0, priority: 0 });
    }
}
