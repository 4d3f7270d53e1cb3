//! Keys that take one of a few words.

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
            /// The word that stands for it in a configuration.
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
    /// Whether DPDK takes its memory from huge pages.
    HugePages {
        /// Use them where they can be had.
        Auto = "auto",
        /// Do not start without them.
        Required = "required",
        /// Do without.
        Off = "off",
    }
    /// What a worker does when there is nothing to do.
    Idle {
        /// Sleep, longer the longer nothing comes, within a bound.
        Adaptive = "adaptive",
        /// Spin: least latency, a whole core.
        Busy = "busy",
    }
    /// How far a network function is trusted, and so where it runs.
    HopClass {
        /// In the worker: as trusted as the switch, and the fastest.
        Inline = "inline",
        /// In a process that shares the memory of packets: trusted with other packets, not with the switch.
        Ring = "ring",
        /// In a process that packets are copied to and from: not trusted with anything else.
        Isolated = "isolated",
    }
    /// What happens to packets while a hop of a chain is down.
    OnFailure {
        /// They are dropped.
        Closed = "closed",
        /// They go on with the next hop.
        Open = "open",
        /// They leave the chain by its end.
        Bypass = "bypass",
    }
    /// Whether a worker gives flows that it receives to other workers. With one worker it means nothing.
    Spread {
        /// When it has too much to do and another has not.
        Auto = "auto",
        /// From the beginning: all flows, evenly, and then as load asks for it.
        Always = "always",
        /// Never.
        Off = "off",
    }
    /// Whether workers remember the paths of packets through the tables of a bridge. It changes how fast packets are
    /// forwarded, and nothing else.
    FlowCache {
        /// While that saves time.
        Auto = "auto",
        /// Never.
        Off = "off",
    }
    /// Whether a bridge has a LOCAL port, by which the machine itself takes part in its network.
    LocalPort {
        /// None: what is sent to LOCAL is dropped.
        Off = "off",
        /// A tap device of the kernel with the name of the bridge. Needs CAP_NET_ADMIN.
        Tap = "tap",
    }
    /// What a flow table that is full does with one entry more.
    WhenFull {
        /// Refuse it, with OFPFMFC_TABLE_FULL.
        Refuse = "refuse",
        /// Make room: of the entries with a timeout, the one goes that would go first, with a flow_removed (reason
        /// OFPRR_DELETE) if it asked for one. Where all are in use all the time, the first among 64. A table without
        /// entries that have a timeout refuses.
        Evict = "evict",
    }
    /// What auxiliary connections are made of.
    AuxiliaryTransport {
        /// The same as the main connection: TCP, or TLS.
        Main = "main",
        /// UDP, unencrypted: messages may be lost, and only echoes, features, packet-ins and packet-outs are served.
        Udp = "udp",
    }
    /// By what a policer gives packets their colors.
    PolicerKind {
        /// One rate and two bursts (RFC 2697): green within `cir` and `cbs`, yellow within `ebs` of what was left over.
        SingleRate = "srtcm",
        /// Two rates (RFC 2698): red above `pir`, yellow above `cir`.
        TwoRate = "trtcm",
        /// Two rates (RFC 4115): green within `cir`, yellow within `eir` beyond that; yellow packets take nothing from
        /// what is committed.
        TwoRateExcess = "trtcm-4115",
    }
    /// Whether a policer lets packets pass.
    ColorVerdict {
        /// They pass.
        Pass = "pass",
        /// They are dropped.
        Drop = "drop",
    }
    /// What a select group may tell flows apart by: fields as OpenFlow names them, but for ports, which are those of
    /// TCP, UDP and SCTP, and the type and code of ICMP.
    SelectField {
        /// Ingress port.
        InPort = "in_port",
        /// Metadata.
        Metadata = "metadata",
        /// Key of a tunnel.
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
        /// Service of PBB.
        PbbIsid = "pbb_isid",
    }
    /// What becomes of IP fragments until a controller says otherwise (OpenFlow 1.3.5, section 7.3.2).
    Fragments {
        /// They are packets like others; all but the first have no ports.
        Normal = "normal",
        /// They are dropped.
        Drop = "drop",
        /// They are put together, and go through the tables as whole packets.
        Reassemble = "reassemble",
    }
    /// What a bridge does while no controller is connected (OpenFlow 1.3.5, section 6.4).
    FailMode {
        /// Keep forwarding with the entries it has; packets for the controller are dropped.
        Secure = "secure",
        /// Forward as a learning bridge.
        Standalone = "standalone",
    }
}
