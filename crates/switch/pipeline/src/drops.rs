//! The reasons for which packets and copies of packets are dropped, each with a stable name, a sentence for people
//! and a counter.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($( $variant:ident = $name:literal: $text:literal; )*) => {
        /// The reason why a packet was dropped.
        ///
        /// The names are part of the interface: metrics, `millrace show drops` and alarms use them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $( #[doc = $text] $variant, )*
        }

        impl DropReason {
            /// Every reason.
            pub const ALL: [DropReason; DropReason::COUNT] = [$(DropReason::$variant),*];
            /// The number of reasons.
            pub const COUNT: usize = [$($name),*].len();

            /// Returns the stable name: lower case and underscores.
            pub const fn name(self) -> &'static str {
                match self { $( DropReason::$variant => $name, )* }
            }

            /// Returns one sentence for people.
            pub const fn description(self) -> &'static str {
                match self { $( DropReason::$variant => $text, )* }
            }
        }
    };
}

reasons! {
    TableMiss = "table_miss": "No flow entry matched, and the table has no table-miss entry.";
    NoOutput = "no_output": "The matched flow entries send the packet nowhere, as an entry without actions does.";
    OutputToInPort = "output_to_in_port": "An action sends the packet to its own ingress port by number, which only IN_PORT may do.";
    NoSuchPort = "no_such_port": "An action names a port that the bridge does not have.";
    PortDown = "port_down": "The egress port is administratively down, its link is down, or it is blocked.";
    PortNoForward = "port_no_forward": "The egress port is configured not to forward (OFPPC_NO_FWD).";
    PortNoReceive = "port_no_receive": "The ingress port is down or configured not to receive (OFPPC_NO_RECV).";
    PortBlocked = "port_blocked": "The ingress port is blocked, as flap damping does after too many changes of its link.";
    MirrorPort = "mirror_port": "The port is the output port of a mirror, which neither receives packets nor sends others than copies.";
    PortNoPacketIn = "port_no_packet_in": "A table miss requires a packet_in, and the ingress port is configured not to send any (OFPPC_NO_PACKET_IN).";
    NoFloodPort = "no_flood_port": "The packet is flooded, and the bridge has no other port for it.";
    InvalidTtl = "invalid_ttl": "The TTL ran out, and no controller asked for a packet_in (OFPR_INVALID_TTL).";
    NoHeadroom = "no_headroom": "An action pushes a header, and the buffer has no headroom for it.";
    NoBuffer = "no_buffer": "A copy of the packet is needed, and the packet pool is empty.";
    NoGroup = "no_group": "An action names a group that does not exist.";
    NoLiveBucket = "no_live_bucket": "The group has no bucket, or none that is live.";
    GroupLimit = "group_limit": "Groups that forward to groups are nested too deeply, or execute too many buckets for one packet.";
    Meter = "meter": "The packet exceeds the rate of a band of its meter.";
    TooShort = "too_short": "The frame is shorter than an Ethernet header.";
    NormalReserved = "normal_reserved": "NORMAL does not forward the link-local group addresses 01:80:c2:00:00:00 to :0f.";
    NormalVlan = "normal_vlan": "NORMAL: the ingress port, or the port of a known destination, does not carry the packet's VLAN.";
    NormalProtected = "normal_protected": "NORMAL: the ingress port and the port of the destination are both protected.";
    NormalSamePort = "normal_same_port": "NORMAL: the destination was learned on the ingress port.";
    BadTable = "bad_table": "An action outputs to TABLE outside of a packet_out.";
    Fragment = "fragment": "The packet is an IP fragment, and the bridge drops fragments (OFPC_FRAG_DROP).";
    FragmentMalformed = "fragment_malformed": "An IP fragment cannot be reassembled: it ends within its headers, has no data, an invalid size, or an end beyond the longest packet.";
    FragmentOverlap = "fragment_overlap": "IP fragments of one packet overlap or contradict each other about its length. With IPv6 none of them is used (RFC 5722); with IPv4 those that were stored are dropped.";
    FragmentTimeout = "fragment_timeout": "The other IP fragments of the packet did not arrive within 60 seconds.";
    FragmentMemory = "fragment_memory": "The memory for reassembly is full, and the packet whose first fragment is the oldest was evicted.";
    TunnelUnresolved = "tunnel_unresolved": "The next hop of the tunnel has not answered with its MAC address (ARP, neighbour discovery).";
    TunnelMtu = "tunnel_mtu": "The encapsulated packet exceeds the MTU of the underlay.";
    TunnelPayload = "tunnel_payload": "The tunnel cannot carry the packet: GTP-U carries IP, MPLS over UDP carries MPLS, both without VLAN tags.";
    TunnelKey = "tunnel_key": "The key of the tunnel is the packet's tunnel_id, which is too large for the header.";
    TunnelUnknown = "tunnel_unknown": "An encapsulated packet arrived at an address of a tunnel, and no tunnel has its source and key.";
    TunnelMalformed = "tunnel_malformed": "An encapsulated packet arrived at an address of a tunnel with a truncated, unknown or fragmented header, or with a wrong checksum.";
    TunnelCongested = "tunnel_congested": "An encapsulated packet met congestion, and the inner packet cannot carry the mark (RFC 6040).";
    NshMalformed = "nsh_malformed": "A network service header (RFC 8300) is truncated, or has an unsupported version, type of metadata, length or payload, or is a maintenance message.";
    NshUnknown = "nsh_unknown": "No port accepts the path and index of a network service header.";
    NshTtl = "nsh_ttl": "The time to live of a network service header ran out.";
    NshIndex = "nsh_index": "A network service header has the index zero, or no index is configured for the packet to send.";
    BadOffload = "bad_offload": "A device delivered a frame that does not fit the checksum or the segmentation that its sender left to the switch, or that is longer than the MTU; the log names the port and a remedy.";
    WorkerFull = "worker_full": "The ring to the worker that owns the packet's flow is full.";
    NotSegmentable = "not_segmentable": "A GSO packet must be segmented, and an action changed its headers into something other than TCP or UDP over IP.";
    TransmitFull = "transmit_full": "The transmit queue of the egress port is full.";
    QueueFull = "queue_full": "The queue of the egress port is full, in packets or in bytes.";
    Policer = "policer": "The packet exceeds the rate of its ingress port's policer.";
    FunctionDrop = "function_drop": "A network function of a chain dropped the packet.";
    HopDown = "hop_down": "A hop of a chain is down and fails closed.";
    OamFull = "oam_full": "The queue of frames of OAM and link protocols (BFD, continuity checks, LACP, RSTP, LLDP) to the control side is full.";
    LinkProtocolLimit = "link_protocol_limit": "The member of a LAG received more than 100 LACPDUs, markers and LLDPDUs in a second.";
    LagNotCollecting = "lag_not_collecting": "The packet arrived at a member of a LAG that does not collect: LACP has no partner there, or the LAG is down.";
    LagNotDistributing = "lag_not_distributing": "The packet is for a LAG of which no member distributes.";
    PacketInFull = "packet_in_full": "The queue of packet-ins to the control side is full.";
    NoController = "no_controller": "The packet is for a controller, and none is connected that takes it: slaves and asynchronous configurations may refuse packet-ins.";
    PacketInLimit = "packet_in_limit": "The packet-in rate limit was reached.";
    RouteOtherHost = "route_other_host": "The router received a frame for another host: a copy of a flood, or a frame that an action sent to the router without its MAC address.";
    RouteEtherType = "route_ether_type": "The router takes IPv4, IPv6, ARP and IS-IS, and the frame is none of these.";
    RouteNoInterface = "route_no_interface": "The router has no interface in the VLAN of the frame, or the interface is down.";
    RouteMalformed = "route_malformed": "The IP header is truncated, or its version, header length or total length is wrong (RFC 1812, section 5.2.2; RFC 8200).";
    RouteChecksum = "route_checksum": "The checksum of the IPv4 header is wrong.";
    RouteMartianSource = "route_martian_source": "The source is no address of a host: unspecified, loopback, multicast, broadcast, or one of the router's own (RFC 1812, section 5.3.7).";
    RouteMartianDestination = "route_martian_destination": "The destination is no address that is routed: unspecified, loopback, or reserved (RFC 1812, section 5.3.7).";
    RouteMulticast = "route_multicast": "The destination is a multicast group beyond the link, and the router forwards no multicast.";
    RouteBroadcast = "route_broadcast": "A broadcast of a subnet behind another interface (RFC 2644), or a packet to one host in a broadcast frame.";
    RouteScope = "route_scope": "The source or destination is valid on its link only, and the packet would leave the link (RFC 4007).";
    RouteOptions = "route_options": "The options of the IPv4 header are malformed, or contain a source route, which the router does not follow.";
    RouteAclIn = "route_acl_in": "The inbound access list of the interface denies the packet.";
    RouteAclOut = "route_acl_out": "The outbound access list of the interface denies the packet.";
    RouteNone = "route_none": "The VRF has no route to the destination.";
    RouteBlackhole = "route_blackhole": "The route discards its packets (blackhole).";
    RouteUnreachable = "route_unreachable": "The route rejects its packets as unreachable.";
    RouteProhibited = "route_prohibited": "The route rejects its packets as prohibited.";
    RouteTtl = "route_ttl": "The time to live or the hop limit ran out at the router.";
    RouteMtu = "route_mtu": "The packet exceeds the MTU of the next hop and must not be fragmented.";
    RouteInterfaceDown = "route_interface_down": "The next hop is behind an interface that is down or was removed.";
    RouteNeighbour = "route_neighbour": "The next hop has not answered with its MAC address, or too many packets wait for it.";
    RoutePuntLimit = "route_punt_limit": "The packet is for the kernel, and its class has used up its rate.";
    RoutePuntFull = "route_punt_full": "The queue to the kernel's interface is full, or the interface is gone.";
    RouteRingFull = "route_ring_full": "The ring to the router, or to the router of another bridge, is full.";
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One counter for each [`DropReason`], written by one worker and read by anyone.
#[derive(Debug)]
pub struct DropCounts([AtomicU64; DropReason::COUNT]);

impl Default for DropCounts {
    fn default() -> DropCounts {
        DropCounts([const { AtomicU64::new(0) }; DropReason::COUNT])
    }
}

impl DropCounts {
    /// Adds to a counter. Only the worker that owns it may call this: two writers would lose counts.
    #[inline]
    pub fn add(&self, reason: DropReason, packets: u64) {
        let count = &self.0[reason as usize];
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(packets),
            Ordering::Relaxed,
        );
    }

    /// Returns the sum of all counters.
    pub(crate) fn total(&self) -> u64 {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// Returns a counter.
    pub fn read(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_made_for_metrics() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
            assert!(reason.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(reason.description().ends_with('.'));
            assert!(
                DropReason::ALL[..i]
                    .iter()
                    .all(|other| other.name() != reason.name())
            );
        }
    }

    #[test]
    fn a_drop_is_counted_under_its_reason_only() {
        let counts = DropCounts::default();
        counts.add(DropReason::NoBuffer, 2);
        counts.add(DropReason::NoBuffer, 1);
        assert_eq!(counts.read(DropReason::NoBuffer), 3);
        assert_eq!(counts.read(DropReason::TableMiss), 0);
    }
}
