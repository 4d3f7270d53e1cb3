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
    NoOutput = "no_output": "The matched flow entries send the packet nowhere: a rule that drops.";
    OutputToInPort = "output_to_in_port": "An action sends the packet to its own ingress port by number, which only IN_PORT may do.";
    NoSuchPort = "no_such_port": "An action names a port that the bridge does not have.";
    PortDown = "port_down": "The egress port is administratively down, its link is down, or it is blocked.";
    PortNoForward = "port_no_forward": "The egress port is configured not to forward (OFPPC_NO_FWD).";
    PortNoReceive = "port_no_receive": "The ingress port is down or configured not to receive (OFPPC_NO_RECV).";
    PortNoPacketIn = "port_no_packet_in": "A table miss wanted a packet-in, and the ingress port is configured against it (OFPPC_NO_PACKET_IN).";
    NoFloodPort = "no_flood_port": "The packet was to be flooded, and there is no other port to flood it to.";
    InvalidTtl = "invalid_ttl": "The TTL ran out, and packet-ins for that are off.";
    NoHeadroom = "no_headroom": "A header was to be pushed, and the buffer has no room in front.";
    NoBuffer = "no_buffer": "A copy was needed, and the packet pool is empty.";
    NoGroup = "no_group": "An action names a group that does not exist.";
    NoLiveBucket = "no_live_bucket": "The group has no bucket for the packet: it has none at all, or none that is live.";
    GroupLimit = "group_limit": "Groups that send to groups are nested too deep, or made more copies of one packet than are allowed.";
    Meter = "meter": "The packet came faster than a band of its meter allows.";
    TooShort = "too_short": "The frame is shorter than an Ethernet header.";
    NormalReserved = "normal_reserved": "NORMAL does not forward the link-local group addresses 01:80:c2:00:00:00 to :0f.";
    NormalVlan = "normal_vlan": "NORMAL: the ingress port does not carry the packet's VLAN.";
    NormalSamePort = "normal_same_port": "NORMAL: the destination was learned on the ingress port.";
    BadTable = "bad_table": "OUTPUT to TABLE outside of a packet-out.";
    Fragment = "fragment": "The packet is an IP fragment, and the bridge drops them (OFPC_FRAG_DROP).";
    FragmentMalformed = "fragment_malformed": "An IP fragment was to be put together with others, and it is none of any packet: without data, of an odd size in the middle, or beyond the longest packet.";
    FragmentOverlap = "fragment_overlap": "IP fragments of one packet have data for the same place, or contradict each other about its length: none of them is used (RFC 5722).";
    FragmentTimeout = "fragment_timeout": "The other IP fragments of the packet did not come within 60 seconds.";
    FragmentMemory = "fragment_memory": "There was no room for more unfinished packets, and those whose fragments came first made way.";
    TunnelUnresolved = "tunnel_unresolved": "The packet was to go into a tunnel whose next hop has not told its MAC address (ARP, neighbour discovery).";
    TunnelMtu = "tunnel_mtu": "The packet was to go into a tunnel, and is too long for the underlay then.";
    TunnelPayload = "tunnel_payload": "The packet was to go into a tunnel that carries no such packets: GTP-U takes IP, MPLS over UDP takes MPLS, both without VLAN tags.";
    TunnelKey = "tunnel_key": "The packet was to go into a tunnel whose key is the packet's tunnel_id, and that is too large.";
    TunnelUnknown = "tunnel_unknown": "An envelope came to an address of a tunnel, and no tunnel has its sender and key.";
    TunnelMalformed = "tunnel_malformed": "An envelope came to an address of a tunnel with a header that is cut short, unknown or fragmented, or with a wrong checksum.";
    TunnelCongested = "tunnel_congested": "An envelope met congestion, and the packet inside does not say so (RFC 6040).";
    NshMalformed = "nsh_malformed": "A network service header (RFC 8300) came to an address of ours that is cut short, of another version, of an unknown type of metadata, of a wrong length, a message of maintenance, or with something else than an Ethernet frame behind it.";
    NshUnknown = "nsh_unknown": "A network service header came to an address of ours, and no port takes its path and index.";
    NshTtl = "nsh_ttl": "A network service header came whose time to live ends here.";
    NshIndex = "nsh_index": "A network service header came with the index zero, or was to be sent without one: by a port that says none, or with a tunnel_id that has none.";
    WorkerFull = "worker_full": "The ring to the worker that the packet's flow belongs to is full.";
    Uncuttable = "uncuttable": "A long TCP packet was to be cut into segments, and its headers are no longer those of TCP over IP.";
    TransmitFull = "transmit_full": "The transmit queue of the egress port is full.";
    QueueFull = "queue_full": "The queue of the egress port that the packet was to wait in is full, or its bytes are.";
    Policer = "policer": "The packet came faster than the policer of its ingress port allows.";
    FunctionDrop = "function_drop": "A network function of a chain dropped the packet.";
    HopDown = "hop_down": "A hop of a chain is down and fails closed.";
    PacketInFull = "packet_in_full": "The queue of packet-ins to the control side is full.";
    PacketInLimit = "packet_in_limit": "The packet-in rate limit was reached.";
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
