//! Keys that take one of a fixed set of words.

use crate::decode::{Decoder, Detail, Field, decode_choice};
use crate::node::{Node, Value};
use crate::schema::{Choice, Shape};

macro_rules! choice {
    ($( $(#[doc = $doc:literal])+ $Name:ident { $( $(#[doc = $vdoc:literal])+ $Variant:ident = $word:literal, )+ } )*) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name {
            $( $(#[doc = $vdoc])+ $Variant, )+
        }

        impl $Name {
            /// Returns the word in a configuration.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( $Name::$Variant => $word, )+
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Field for $Name {
            fn shape() -> Shape {
                Shape::Choice(&[$( Choice { word: $word, doc: concat!($($vdoc),+) }, )+])
            }

            fn decode(decoder: &mut Decoder, node: &Node) -> Option<$Name> {
                decode_choice(decoder, node, &Self::shape(), &[$( ($word, $Name::$Variant), )+])
            }

            fn encode(&self, _: Detail) -> Option<Node> {
                Some(Value::Text(self.as_str().to_owned()).into())
            }
        }
    )*};
}

choice! {
    /// The packets of a chain that use the same worker and the same instance of a function.
    ChainSpread {
        /// Packets of a flow, in both directions. Fragments of a flow, which have no ports, may use another instance.
        Flow = "flow",
        /// Packets between the same two outermost IP addresses, including fragments and packets in tunnels.
        Addresses = "addresses",
    }
    /// The way of packets of an interface of the router into its bridge.
    InterfaceEgress {
        /// To the port of the destination's MAC address, as NORMAL does, without the flow tables.
        Direct = "direct",
        /// Through the flow tables from table 0 on, with the number of the interface as `in_port`.
        Tables = "tables",
    }
    /// The version of the spanning tree protocol.
    RstpVersion {
        /// Rapid spanning tree, and spanning tree where a neighbour knows no other.
        Rstp = "rstp",
        /// Spanning tree only (IEEE 802.1D-1998).
        Stp = "stp",
    }
    /// The decision if a port leads to hosts.
    RstpEdge {
        /// After 3 seconds without a BPDU.
        Auto = "auto",
        /// Until a BPDU arrives.
        Yes = "yes",
        /// Never.
        No = "no",
    }
    /// The decision if the link of a port in a spanning tree has two ends.
    RstpPointToPoint {
        /// As the device says: full duplex.
        Auto = "auto",
        /// Two bridges, whatever the device says.
        Yes = "yes",
        /// A shared medium.
        No = "no",
    }
    /// LLDP at a port of a bridge with `lldp`.
    PortLldp {
        /// LLDPDUs are sent and received.
        Both = "both",
        /// LLDPDUs are sent; those of neighbours pass through the port like any packet.
        Send = "send",
        /// LLDPDUs are received, and none is sent.
        Receive = "receive",
        /// No LLDP: LLDPDUs pass through the port like any packet.
        Off = "off",
    }
    /// The content of the records of IPFIX.
    IpfixRecords {
        /// Sampled packets with the same headers, ports and outcome, counted together.
        Flows = "flows",
        /// Single packets: the first bytes of the frame (RFC 5477).
        Packets = "packets",
    }
    /// The decision which members of a LAG carry packets.
    LagMode {
        /// LACP, with LACPDUs in any case.
        Active = "active",
        /// LACP, with LACPDUs to a partner that sends LACPDUs.
        Passive = "passive",
        /// No LACP: all members with a link carry packets.
        On = "on",
    }
    /// The rate of LACPDUs that a LAG asks its partner for.
    LagRate {
        /// One each 30 seconds; a silent partner is given up after 90 seconds.
        Slow = "slow",
        /// One each second; a silent partner is given up after 3 seconds.
        Fast = "fast",
    }
    /// The behaviour of a LAG with LACP while no member hears a partner.
    LagFallback {
        /// The LAG is down.
        None = "none",
        /// One member carries packets: of those with a link the one with the lowest `priority`, and then number.
        Individual = "individual",
    }
    /// The type of a tag of a service VLAN.
    ServiceTag {
        /// A service tag (IEEE 802.1ad): EtherType 0x88a8.
        Dot1ad = "802.1ad",
        /// As a customer's: EtherType 0x8100.
        Dot1q = "802.1q",
    }
    /// The part of the switch that decides about packets that arrive at a port.
    PortPipeline {
        /// The flow tables.
        Tables = "tables",
        /// NORMAL, without the flow tables: the learning bridge, and the router's interfaces.
        Normal = "normal",
    }
    /// The use of huge pages for DPDK's memory.
    HugePages {
        /// Use huge pages if they are available.
        Auto = "auto",
        /// Do not start without huge pages.
        Required = "required",
        /// Use ordinary pages.
        Off = "off",
    }
    /// The behaviour of a worker without work.
    Idle {
        /// Sleep while no packet arrives; the sleep grows with the idle time, up to a limit.
        Adaptive = "adaptive",
        /// Poll without sleep: lowest latency, at the cost of a full core.
        Busy = "busy",
    }
    /// The isolation class of a network function: the more the function is trusted, the closer it runs to the
    /// switch.
    HopClass {
        /// In the worker: fastest; the function is trusted like the switch.
        Inline = "inline",
        /// In a process that shares packet memory: trusted with other packets, but not with the switch.
        Ring = "ring",
        /// In a process that works on copies of its packets: trusted with those packets only.
        Isolated = "isolated",
    }
    /// The treatment of packets while a hop of a chain is down.
    OnFailure {
        /// Packets are dropped.
        Closed = "closed",
        /// Packets continue at the next hop.
        Open = "open",
        /// Packets leave the chain by its end.
        Bypass = "bypass",
    }
    /// The frames that bypass an emulated path: they are forwarded at once and unchanged.
    WanBypass {
        /// ARP and neighbour discovery.
        ArpNd = "arp-nd",
        /// Frames to group addresses.
        Multicast = "multicast",
    }
    /// Handoff of received flows to other workers. It has no effect with one worker.
    Spread {
        /// When the worker is overloaded and another is not.
        Auto = "auto",
        /// From the start: all flows, evenly, and then according to load.
        Always = "always",
        /// Never.
        Off = "off",
    }
    /// The use of the cache of traversals of a bridge. It affects the forwarding rate only.
    FlowCache {
        /// Use the cache while it saves time.
        Auto = "auto",
        /// Never.
        Off = "off",
    }
    /// The LOCAL port of a bridge, which connects the machine to the network of the bridge.
    LocalPort {
        /// No LOCAL port: packets sent to LOCAL are dropped.
        Off = "off",
        /// A tap device of the kernel with the name of the bridge. Needs CAP_NET_ADMIN.
        Tap = "tap",
    }
    /// The behaviour when an entry is added to a full flow table.
    WhenFull {
        /// Reject the entry with OFPFMFC_TABLE_FULL.
        Refuse = "refuse",
        /// Evict the entry with a timeout that would expire first. If all are constantly in use, the choice
        /// is among 64 entries. The eviction sends a flow_removed (reason OFPRR_DELETE) if the entry asked
        /// for one. A table without entries that have a timeout rejects the new entry.
        Evict = "evict",
    }
    /// The transport of auxiliary connections.
    AuxiliaryTransport {
        /// The same as the main connection: TCP, or TLS.
        Main = "main",
        /// UDP, unencrypted: messages may be lost, and only echoes, features, packet-ins and packet-outs are served.
        Udp = "udp",
    }
    /// The interval of continuity check messages (IEEE 802.1ag-2007, table 21-16).
    CcmInterval {
        /// 100 milliseconds.
        Ms100 = "100ms",
        /// 1 second.
        S1 = "1s",
        /// 10 seconds.
        S10 = "10s",
    }
    /// The trust in the marks of a device that classifies packets.
    OffloadMode {
        /// `trust` for a NIC in software of the same user, `verify` for any other, while marks save time.
        Auto = "auto",
        /// Marks are not used; the device chooses queues only.
        Dispatch = "dispatch",
        /// The key of each marked packet is compared with that of its mark.
        Verify = "verify",
        /// The key of one marked packet in 1,024 is compared; a wrong mark ends the trust.
        Trust = "trust",
    }
    /// The metering algorithm of a policer.
    PolicerKind {
        /// One rate and two bursts (RFC 2697): green within `cir` and `cbs`, yellow within `ebs` of unused tokens.
        SingleRate = "srtcm",
        /// Two rates (RFC 2698): red above `pir`, yellow above `cir`.
        TwoRate = "trtcm",
        /// Two rates (RFC 4115): green within `cir`, yellow within `eir` beyond that; yellow packets use no tokens of
        /// the committed rate.
        TwoRateExcess = "trtcm-4115",
    }
    /// The verdict of a policer.
    ColorVerdict {
        /// Packets pass.
        Pass = "pass",
        /// Packets are dropped.
        Drop = "drop",
    }
    /// The fields that a select group can hash. Names are those of OpenFlow, except `tp_src` and `tp_dst`:
    /// the ports of TCP, UDP and SCTP, or the type and code of ICMP.
    SelectField {
        /// Ingress port.
        InPort = "in_port",
        /// Metadata.
        Metadata = "metadata",
        /// Tunnel key.
        TunnelId = "tunnel_id",
        /// MAC destination.
        EthDst = "eth_dst",
        /// MAC source.
        EthSrc = "eth_src",
        /// EtherType.
        EthType = "eth_type",
        /// VLAN.
        VlanVid = "vlan_vid",
        /// IP protocol.
        IpProto = "ip_proto",
        /// IPv4 source.
        Ipv4Src = "ipv4_src",
        /// IPv4 destination.
        Ipv4Dst = "ipv4_dst",
        /// IPv6 source.
        Ipv6Src = "ipv6_src",
        /// IPv6 destination.
        Ipv6Dst = "ipv6_dst",
        /// IPv6 flow label.
        Ipv6Flabel = "ipv6_flabel",
        /// Source port.
        TpSrc = "tp_src",
        /// Destination port.
        TpDst = "tp_dst",
        /// IPv4 address of the sender in ARP.
        ArpSpa = "arp_spa",
        /// IPv4 address of the target in ARP.
        ArpTpa = "arp_tpa",
        /// MPLS label.
        MplsLabel = "mpls_label",
        /// PBB service instance (I-SID).
        PbbIsid = "pbb_isid",
    }
    /// The treatment of IP fragments until a controller changes it (OpenFlow 1.3.5, section 7.3.2).
    Fragments {
        /// Fragments are matched as other packets; all but the first have no ports.
        Normal = "normal",
        /// Fragments are dropped.
        Drop = "drop",
        /// Fragments are reassembled, and the whole packets traverse the tables.
        Reassemble = "reassemble",
    }
    /// The behaviour of a bridge while no controller is connected (OpenFlow 1.3.5, section 6.3.2).
    FailMode {
        /// Forward with the existing entries; packets for the controller are dropped (`no_controller`).
        Secure = "secure",
        /// Forward as a learning bridge (`NORMAL`): at once the packets that match no entry; all packets after three
        /// times the longest `echo_interval_s`, 15 s by default, without a controller that sent more than its
        /// handshake. Until then, packets that entries send to the controller are dropped (`no_controller`). A bridge
        /// without `controllers` keeps its entries in effect.
        Standalone = "standalone",
    }
    /// The treatment of the flow entries of a bridge that becomes a learning bridge (OpenFlow 1.3.5, section 6.3.2).
    StandaloneFlows {
        /// Delete all of them, as Open vSwitch does; groups and meters stay.
        Delete = "delete",
        /// Keep them, without effect until a controller is connected.
        Keep = "keep",
    }
}
