//! Composition of a packet from a description, for `trace`.
//!
//! The description is a match: `in_port=1,tcp,nw_dst=10.0.0.2,tp_dst=80`. The packet has the fields that the
//! description names. Other fields get plain values, and lengths, checksums and a payload are computed. Bits
//! that a mask excludes are zero. Addresses that the description does not name are documentation addresses
//! (RFC 5737, RFC 3849).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use millrace_types::{Mac, Pcp, PortNo, Vid};
use millrace_wire::ip::Pseudo;
use millrace_wire::{
    Dscp, Ecn, EtherType, ExtHeaders, FlowLabel, Fragment, IpProto, Isid, MplsLabel, Tc, arp, ethernet,
    icmpv4, icmpv6, ipv4, ipv6, mpls, pbb, sctp, tcp, udp, vlan,
};
use thiserror::Error;

use crate::field::Field;
use crate::key::Layer;
use crate::matching::Match;
use crate::text::{ParsedMatch, Span, TextError, TextProblem, bounded};

/// Size in bytes of the shortest frame that Ethernet allows, without the frame check sequence (IEEE 802.3, section
/// 4A.4.2).
pub const MIN_FRAME_SIZE: usize = 60;

/// Size in bytes of the longest frame that Millrace processes.
pub const MAX_FRAME_SIZE: usize = 9600;

/// The description of a packet: a match, and the properties that no match can express.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketText {
    /// The fields of the packet.
    pub fields: Match,
    /// The TTL of the outermost MPLS shim header; 64 if `None`.
    pub mpls_ttl: Option<u8>,
    /// Size of the frame in bytes, 60 to 9600. `None` is the smallest size that holds the headers.
    pub size: Option<u16>,
}

/// The reason why no packet fits the description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ComposeError {
    /// A value below 0x0600 in the EtherType field is a length.
    #[error(
        "eth_type={0} is a length, not an EtherType: expected 0x0600 or more, or 0x05ff for an 802.3 frame without one"
    )]
    NoEtherType(EtherType),
    /// The composer does not repeat or misorder extension headers.
    #[error("ipv6_exthdr={0:#x} cannot be composed: expected neither UNREP (0x80) nor UNSEQ (0x100)")]
    ExtHeaders(u16),
    /// The transport header is in the first fragment only.
    #[error("a later fragment has no {0}: expected nw_frag=no or nw_frag=first in the same description")]
    LaterFragment(Field),
}

impl FromStr for PacketText {
    type Err = TextError;

    /// Parses the items of a [`Match`], and `mpls_ttl` and `size`.
    fn from_str(text: &str) -> Result<PacketText, TextError> {
        let mut packet = PacketText::default();
        let mut draft = ParsedMatch::default();
        for item in Span::new(text).items()? {
            let (name, value) = item.split(&['=']).unwrap_or((item, item));
            let twice = match name.text() {
                "mpls_ttl" => packet.mpls_ttl.replace(bounded(value, 0xff)? as u8).is_some(),
                "size" => {
                    let size = bounded(value, MAX_FRAME_SIZE as u128)? as u16;
                    if usize::from(size) < MIN_FRAME_SIZE {
                        return Err(value.expected("a number from 60 to 9600"));
                    }
                    packet.size.replace(size).is_some()
                }
                _ => {
                    draft.take(item)?;
                    false
                }
            };
            if twice {
                return Err(item.error(TextProblem::Twice));
            }
        }
        packet.fields = draft.finish()?;
        Ok(packet)
    }
}

impl PacketText {
    /// Returns the ingress port, if the description has one.
    pub fn in_port(&self) -> Option<PortNo> {
        self.fields
            .field(Field::InPort)
            .map(|given| PortNo::from_raw(given.value as u32))
    }

    /// Returns the table metadata and the tunnel identifier, which are not in the frame.
    pub fn pipeline_fields(&self) -> (u64, u64) {
        (
            self.number(Field::Metadata, 0) as u64,
            self.number(Field::TunnelId, 0) as u64,
        )
    }

    /// Returns the frame, with valid lengths and checksums, padded with zeros to [`MIN_FRAME_SIZE`] bytes.
    ///
    /// # Errors
    /// [`ComposeError`] if no packet fits the description.
    pub fn frame(&self) -> Result<Vec<u8>, ComposeError> {
        let mut payload_size = 0;
        let mut frame = self.frame_around(&[])?;
        if let Some(size) = self.size
            && frame.len() < usize::from(size)
        {
            // The headers have the same size with and without a payload, and none grows, so that one more pass is
            // enough.
            payload_size = usize::from(size) - frame.len();
        }
        if payload_size > 0 {
            frame = self.frame_around(&vec![0; payload_size])?;
        }
        if frame.len() < MIN_FRAME_SIZE {
            frame.resize(MIN_FRAME_SIZE, 0);
        }
        Ok(frame)
    }

    fn number(&self, field: Field, default: u128) -> u128 {
        self.fields.field(field).map_or(default, |given| given.value)
    }

    fn mac(&self, field: Field, last_octet: u8) -> Mac {
        let default = Mac([2, 0, 0, 0, 0, last_octet]);
        Mac::from_u64(self.number(field, default.to_u64().into()) as u64)
    }

    fn ipv4(&self, field: Field, default: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.number(field, default.to_bits().into()) as u32)
    }

    fn ipv6(&self, field: Field, last_octet: u16) -> Ipv6Addr {
        let default = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last_octet);
        Ipv6Addr::from_bits(self.number(field, default.to_bits()))
    }

    fn eth_type(&self) -> EtherType {
        EtherType(self.number(Field::EthType, EtherType::IPV4.0.into()) as u16)
    }

    /// Returns the type of fragment of this packet.
    fn fragment(&self) -> Fragment {
        match self.number(Field::IpFrag, 0) {
            0 => Fragment::Whole,
            1 => Fragment::First,
            _ => Fragment::Later,
        }
    }

    fn ttl(&self) -> u8 {
        self.number(Field::NwTtl, 64) as u8
    }

    fn frame_around(&self, payload: &[u8]) -> Result<Vec<u8>, ComposeError> {
        let ether_type = self.eth_type();
        if self.fragment() == Fragment::Later
            && let Some(given) = self.fields.iter().find(|given| is_behind_ip(given.field))
        {
            return Err(ComposeError::LaterFragment(given.field));
        }
        let inner = match ether_type {
            EtherType::IPV4 => self.ipv4_packet(payload),
            EtherType::IPV6 => self.ipv6_packet(payload)?,
            EtherType::ARP => [&self.arp()[..], payload].concat(),
            EtherType::PBB => self.pbb(payload),
            kind if kind.is_mpls() => self.mpls(payload),
            // IEEE 802.2: both service access points are 0x42, and the control field is unnumbered information, as in
            // a spanning-tree frame.
            EtherType::NOT_ETH_TYPE => [&[0x42, 0x42, 0x03], payload].concat(),
            kind if kind < EtherType::MIN => return Err(ComposeError::NoEtherType(kind)),
            _ => payload.to_vec(),
        };
        let last = if ether_type == EtherType::NOT_ETH_TYPE {
            EtherType((inner.len() as u16).min(EtherType::MIN.0 - 1))
        } else {
            ether_type
        };
        let vid = self.number(Field::VlanVid, 0) as u16;
        let tag = (vid & 0x1000 != 0).then(|| vlan::Repr {
            vid: Vid::from_tci(vid),
            pcp: Pcp::from_tci((self.number(Field::VlanPcp, 0) as u16) << 13),
            dei: false,
            ether_type: last,
        });
        let header = ethernet::Repr {
            dst: self.mac(Field::EthDst, 2),
            src: self.mac(Field::EthSrc, 1),
            ether_type: if tag.is_some() { EtherType::VLAN } else { last },
        };
        let mut frame = header.to_bytes().to_vec();
        if let Some(tag) = tag {
            frame.extend(tag.to_bytes());
        }
        frame.extend(inner);
        Ok(frame)
    }

    fn arp(&self) -> [u8; arp::SIZE] {
        arp::Repr {
            op: self.number(Field::ArpOp, arp::REQUEST.into()) as u16,
            sha: self.mac(Field::ArpSha, 1),
            spa: self.ipv4(Field::ArpSpa, SRC_V4),
            tha: Mac::from_u64(self.number(Field::ArpTha, 0) as u64),
            tpa: self.ipv4(Field::ArpTpa, DST_V4),
        }
        .to_bytes()
    }

    /// Returns the I-TAG and a customer frame with a plain IPv4 packet.
    fn pbb(&self, payload: &[u8]) -> Vec<u8> {
        let tag = pbb::Repr {
            isid: Isid::from_low_bits(self.number(Field::PbbIsid, 0) as u32),
            pcp: Pcp::default(),
            dei: false,
            uca: false,
            customer_dst: Mac([2, 0, 0, 0, 1, 2]),
            customer_src: Mac([2, 0, 0, 0, 1, 1]),
            ether_type: EtherType::IPV4,
        };
        [&tag.to_bytes()[..], &PacketText::default().ipv4_packet(payload)].concat()
    }

    /// Returns the outermost shim header, a second one if the outermost is not the bottom of the stack, and a plain
    /// IPv4 packet.
    fn mpls(&self, payload: &[u8]) -> Vec<u8> {
        let top = mpls::Repr {
            label: MplsLabel::from_low_bits(self.number(Field::MplsLabel, 16) as u32),
            tc: Tc::from_low_bits(self.number(Field::MplsTc, 0) as u8),
            bos: self.number(Field::MplsBos, 1) != 0,
            ttl: self.mpls_ttl.unwrap_or(64),
        };
        let mut packet = top.to_bytes().to_vec();
        if !top.bos {
            let bottom = mpls::Repr {
                label: MplsLabel::from_low_bits(17),
                tc: Tc::default(),
                bos: true,
                ttl: 64,
            };
            packet.extend(bottom.to_bytes());
        }
        packet.extend(PacketText::default().ipv4_packet(payload));
        packet
    }

    fn proto(&self) -> IpProto {
        IpProto(self.number(Field::IpProto, IpProto::UDP.0.into()) as u8)
    }

    fn dscp(&self) -> Dscp {
        Dscp::from_low_bits(self.number(Field::IpDscp, 0) as u8)
    }

    fn ecn(&self) -> Ecn {
        Ecn::from_low_bits(self.number(Field::IpEcn, 0) as u8)
    }

    fn ipv4_packet(&self, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = (
            self.ipv4(Field::Ipv4Src, SRC_V4),
            self.ipv4(Field::Ipv4Dst, DST_V4),
        );
        let proto = self.proto();
        let inner = match proto {
            _ if self.fragment() == Fragment::Later => payload.to_vec(),
            IpProto::ICMPV4 => {
                let mut message = Vec::new();
                let kind = self.number(Field::Icmpv4Type, 8) as u8;
                let code = self.number(Field::Icmpv4Code, 0) as u8;
                icmpv4::Repr {
                    kind,
                    code,
                    rest_of_header: [0, 1, 0, 1],
                }
                .emit(payload, &mut message);
                message
            }
            _ => self.transport(proto, &Pseudo::V4 { src, dst }, payload),
        };
        let mut packet = Vec::new();
        let header = ipv4::Repr {
            src,
            dst,
            proto,
            dscp: self.dscp(),
            ecn: self.ecn(),
            ttl: self.ttl(),
            ident: 0,
            dont_fragment: self.fragment() == Fragment::Whole,
            more_fragments: self.fragment() == Fragment::First,
            fragment_offset: if self.fragment() == Fragment::Later {
                LATER_OFFSET
            } else {
                0
            },
            options: ipv4::Options::default(),
            payload_size: inner.len() as u16,
        };
        header.emit(&mut packet);
        packet.extend(inner);
        packet
    }

    fn ipv6_packet(&self, payload: &[u8]) -> Result<Vec<u8>, ComposeError> {
        let (src, dst) = (self.ipv6(Field::Ipv6Src, 1), self.ipv6(Field::Ipv6Dst, 2));
        let pseudo = Pseudo::V6 { src, dst };
        let proto = self.proto();
        let upper = match proto {
            _ if self.fragment() == Fragment::Later => payload.to_vec(),
            IpProto::ICMPV6 => self.icmpv6(&pseudo, payload),
            _ => self.transport(proto, &pseudo, payload),
        };
        let mut headers = ExtHeaders(self.number(Field::Ipv6Exthdr, 0) as u16);
        if self.fragment() != Fragment::Whole {
            headers = ExtHeaders(headers.0 | ExtHeaders::FRAG.0);
        }
        if headers.0 & (ExtHeaders::UNREP | ExtHeaders::UNSEQ).0 != 0 {
            return Err(ComposeError::ExtHeaders(headers.0));
        }
        let (next_header, extensions) = extension_headers(headers, proto, self.fragment());
        let header = ipv6::Repr {
            src,
            dst,
            next_header,
            dscp: self.dscp(),
            ecn: self.ecn(),
            flow_label: FlowLabel::from_low_bits(self.number(Field::Ipv6Flabel, 0) as u32),
            hop_limit: self.ttl(),
            payload_size: (extensions.len() + upper.len()) as u16,
        };
        Ok([&header.to_bytes()[..], &extensions, &upper].concat())
    }

    fn icmpv6(&self, pseudo: &Pseudo, payload: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        let kind = self.number(Field::Icmpv6Type, 128) as u8;
        let code = self.number(Field::Icmpv6Code, 0) as u8;
        let body = match kind {
            icmpv6::NEIGHBOR_SOLICIT | icmpv6::NEIGHBOR_ADVERT => {
                let solicit = kind == icmpv6::NEIGHBOR_SOLICIT;
                let lla = self.mac(
                    if solicit {
                        Field::Ipv6NdSll
                    } else {
                        Field::Ipv6NdTll
                    },
                    1,
                );
                let target = self.ipv6(Field::Ipv6NdTarget, 2);
                // ND options are multiples of 8 bytes, so not every size of the payload is possible.
                icmpv6::NdRepr {
                    kind,
                    flags: 0,
                    target,
                    lla: Some(lla),
                }
                .body()
            }
            _ => [&[0, 1, 0, 1], payload].concat(),
        };
        icmpv6::Repr { kind, code }.emit(pseudo, &body, &mut message);
        message
    }

    fn transport(&self, proto: IpProto, pseudo: &Pseudo, payload: &[u8]) -> Vec<u8> {
        let mut segment = Vec::new();
        let port = |field| self.number(field, 0) as u16;
        match proto {
            IpProto::TCP => tcp::Repr {
                src: port(Field::TcpSrc),
                dst: port(Field::TcpDst),
                seq: 0,
                ack: 0,
                flags: self.number(Field::TcpFlags, tcp::flags::SYN.into()) as u16,
                window: u16::MAX,
                urgent: 0,
                options: tcp::Options::default(),
            }
            .emit(pseudo, payload, &mut segment),
            IpProto::UDP => {
                udp::Repr {
                    src: port(Field::UdpSrc),
                    dst: port(Field::UdpDst),
                }
                .emit(pseudo, payload, &mut segment);
            }
            IpProto::SCTP => {
                let header = sctp::Repr {
                    src: port(Field::SctpSrc),
                    dst: port(Field::SctpDst),
                    tag: 0,
                };
                header.emit(payload, &mut segment);
            }
            _ => segment.extend_from_slice(payload),
        }
        segment
    }
}

const SRC_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DST_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Fragment offset of a composed later fragment, in units of 8 bytes.
const LATER_OFFSET: u16 = 185;

/// Returns true for the fields of headers that only the first fragment contains.
fn is_behind_ip(field: Field) -> bool {
    matches!(field.layer(), Some(Layer::L4 | Layer::NdTarget))
}

/// Returns the first next-header value and the extension headers before `upper`, in the order of RFC 8200, section
/// 4.1. Headers after ESP or "no next header" are not visible.
fn extension_headers(headers: ExtHeaders, upper: IpProto, fragment: Fragment) -> (IpProto, Vec<u8>) {
    // Each header but ESP is 8 bytes long here (the authentication header 16): options are padding, a routing header has
    // no segments left, and authentication data is zero. RFC 8200, section 4.5: the fragment offset is in the high 13
    // bits, and the more-fragments bit is the lowest.
    let [high, low] = match fragment {
        Fragment::Whole => 0,
        Fragment::First => 1,
        Fragment::Later => LATER_OFFSET << 3,
    }
    .to_be_bytes();
    let mut chain: Vec<(IpProto, Vec<u8>)> = Vec::new();
    let mut add = |bit, proto, bytes: &[u8]| {
        if headers.contains(bit) {
            chain.push((proto, bytes.to_vec()));
        }
    };
    add(ExtHeaders::HOP, IpProto::HOP_BY_HOP, &[0, 0, 1, 4, 0, 0, 0, 0]);
    add(ExtHeaders::DEST, IpProto::DEST_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0]);
    add(ExtHeaders::ROUTER, IpProto::ROUTING, &[0, 0, 253, 0, 0, 0, 0, 0]);
    add(
        ExtHeaders::FRAG,
        IpProto::FRAGMENT,
        &[0, 0, high, low, 0, 0, 0, 1],
    );
    add(
        ExtHeaders::AUTH,
        IpProto::AH,
        &[0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
    );
    add(ExtHeaders::ESP, IpProto::ESP, &[0, 0, 0, 1, 0, 0, 0, 1]);
    let mut next = if headers.contains(ExtHeaders::NO_NEXT) {
        IpProto::NO_NEXT
    } else {
        upper
    };
    let mut bytes = Vec::new();
    for (proto, mut header) in chain.into_iter().rev() {
        if proto != IpProto::ESP {
            header[0] = next.0;
        }
        header.extend(bytes);
        bytes = header;
        next = proto;
    }
    (next, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{Depth, L3, L4, Layers};

    fn frame(text: &str) -> Vec<u8> {
        text.parse::<PacketText>().unwrap().frame().unwrap()
    }

    #[test]
    fn a_described_tcp_segment_has_its_fields_and_right_checksums() {
        let frame = frame("tcp,dl_vlan=5,dl_vlan_pcp=3,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80,nw_ttl=1");
        let ethernet = ethernet::View::new(&frame).unwrap();
        let tag = vlan::View::new(ethernet.payload()).unwrap();
        assert_eq!((tag.vid().raw(), tag.pcp().raw()), (5, 3));
        let ip = ipv4::View::new(tag.payload()).unwrap();
        assert!(ip.checksum_is_right());
        assert_eq!((ip.ttl(), ip.dst()), (1, Ipv4Addr::new(10, 0, 0, 2)));
        let segment = tcp::View::new(ip.payload()).unwrap();
        assert_eq!(segment.dst(), 80);
        assert!(segment.checksum_is_right(&ip.pseudo()));
        assert_eq!(frame.len(), MIN_FRAME_SIZE);
    }

    #[test]
    fn what_is_described_is_what_a_parser_sees() {
        for (text, l3, l4) in [
            ("", L3::Ipv4, L4::Udp),
            ("arp,arp_op=2", L3::Arp, L4::None),
            ("icmp", L3::Ipv4, L4::Icmpv4),
            ("sctp,size=900", L3::Ipv4, L4::Sctp),
            ("ip,nw_proto=89", L3::Ipv4, L4::None),
            ("tcp6", L3::Ipv6, L4::Tcp),
            (
                "icmp6,icmp_type=136,nd_tll=02:00:00:00:00:09",
                L3::Ipv6,
                L4::Icmpv6,
            ),
            ("udp6,ipv6_exthdr=0x7c", L3::Ipv6, L4::Udp),
            ("mpls,mpls_bos=0", L3::Mpls, L4::None),
            ("pbb,pbb_isid=77", L3::Pbb, L4::None),
            ("dl_type=0x05ff,size=200", L3::None, L4::None),
            ("dl_type=0x88cc,dl_vlan=4", L3::None, L4::None),
        ] {
            let frame = frame(text);
            let layers = Layers::parse(&frame, Depth::All);
            assert_eq!((layers.l3(), layers.l4()), (l3, l4), "{text}");
        }
    }

    #[test]
    fn every_extension_header_that_is_asked_for_is_there() {
        for bits in 0..0x80_u16 {
            let text = format!("udp6,ipv6_exthdr={bits:#x}");
            let frame = frame(&text);
            let header = ipv6::View::new(&frame[14..]).unwrap();
            let seen = header.walk().headers;
            let hidden = if bits & ExtHeaders::ESP.0 != 0 {
                ExtHeaders::NO_NEXT.0
            } else {
                0
            };
            assert_eq!(seen.0, bits & !hidden, "{text}");
        }
    }

    #[test]
    fn a_described_packet_has_the_ttl_the_flags_and_the_fragment_that_were_asked_for() {
        for text in [
            "tcp,nw_ttl=0,tcp_flags=0xfff",
            "tcp6,nw_ttl=255,tcp_flags=+ns-syn",
            "udp,nw_frag=first,tp_dst=7",
            "udp6,nw_frag=first,tp_dst=7",
            "ip,nw_proto=17,nw_frag=later",
            "ipv6,nw_proto=17,nw_frag=later",
            "ip,nw_frag=not_later",
            "ipv6,nw_frag=yes",
            "ip,nw_frag=no",
        ] {
            let packet: PacketText = text.parse().unwrap();
            let mut key = crate::FlowKey::default();
            let frame = packet.frame().unwrap();
            key.extract(&frame, &Layers::parse(&frame, Depth::All));
            let rule = packet.fields.rule(millrace_types::Priority(0));
            assert!(rule.matches(&key), "{text}: {key:?}");
        }
    }

    #[test]
    fn a_frame_is_as_long_as_was_asked_and_never_too_short() {
        assert_eq!(frame("udp").len(), 60);
        for size in [64, 128, 1518, 9600] {
            assert_eq!(frame(&format!("udp,size={size}")).len(), size);
            assert_eq!(frame(&format!("mpls,size={size}")).len(), size);
        }
        assert!("udp,size=59".parse::<PacketText>().is_err());
        assert!("udp,size=9601".parse::<PacketText>().is_err());
    }

    #[test]
    fn what_no_packet_can_be_is_refused() {
        let error = |text: &str| text.parse::<PacketText>().unwrap().frame().unwrap_err();
        assert_eq!(
            error("dl_type=0x0100"),
            ComposeError::NoEtherType(EtherType(0x100))
        );
        assert_eq!(error("ipv6,ipv6_exthdr=0x180"), ComposeError::ExtHeaders(0x180));
        assert!("ip,nw_ttl=1,nw_ttl=2".parse::<PacketText>().is_err());
        assert_eq!(
            error("icmp,icmp_type=8,nw_frag=later"),
            ComposeError::LaterFragment(Field::Icmpv4Type)
        );
    }
}
