//! The match fields of OpenFlow 1.3.5 (section 7.2.3.7, table 11) and those that Open vSwitch adds, each defined once.
//!
//! One row holds the wire format of a field (OXM header, width, maskability, prerequisites), its position in a
//! [`FlowKey`](crate::FlowKey), its text format, and its settability. The codec, the key, the text form, table
//! features and the command line follow from the row. To add a field, add a row, and read the field from the packet in
//! `extract.rs` (and in `common.rs` and `header_columns.rs` if common packets have it).

use core::fmt;

use crate::key::{FlowKey, Layer};

/// The position of a field in a [`FlowKey`](crate::FlowKey): `bits` wide, `shift` bits above the lowest bit of word
/// `word`. A field of 128 bits occupies `word` (high half) and `word + 1` (low half).
///
/// Fields with prerequisites that exclude each other share a position: TCP, UDP and SCTP ports and the ICMP types and
/// codes; IPv4 and ARP addresses; ND link-layer options and ARP hardware addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitPosition {
    /// Index of the first 64-bit word.
    pub word: u8,
    /// Distance of the field's lowest bit from the word's lowest bit.
    pub shift: u8,
}

/// The identity of a field on the wire: the OXM header without mask bit and length (OpenFlow 1.3.5, section 7.2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OxmId {
    /// The OXM class (`OFPXMC_*`).
    pub class: u16,
    /// The number of the field within its class, 7 bits.
    pub number: u8,
    /// The experimenter identifier, which follows the header of a field of class [`OxmId::EXPERIMENTER`]; zero
    /// otherwise.
    pub experimenter: u32,
}

impl OxmId {
    /// `OFPXMC_OPENFLOW_BASIC`: the fields that OpenFlow 1.3.5 defines.
    pub const BASIC: u16 = 0x8000;
    /// `OFPXMC_NXM_1`: the fields that Nicira defined for Open vSwitch (`NXM_NX_*`).
    pub const NXM_1: u16 = 0x0001;
    /// `OFPXMC_EXPERIMENTER`: an experimenter identifier follows the header.
    pub const EXPERIMENTER: u16 = 0xffff;
    /// The experimenter identifier of the Open Networking Foundation; its extensions to OpenFlow 1.3 became basic
    /// fields of OpenFlow 1.5.
    pub const ONF: u32 = 0x4f4e_4600;

    const fn basic(number: u8) -> OxmId {
        OxmId::of_class(OxmId::BASIC, number)
    }

    const fn nxm(number: u8) -> OxmId {
        OxmId::of_class(OxmId::NXM_1, number)
    }

    const fn onf(number: u8) -> OxmId {
        OxmId {
            experimenter: OxmId::ONF,
            ..OxmId::of_class(OxmId::EXPERIMENTER, number)
        }
    }

    const fn of_class(class: u16, number: u8) -> OxmId {
        OxmId {
            class,
            number,
            experimenter: 0,
        }
    }

    /// Returns the size in bytes of the experimenter identifier between the header and the value.
    pub const fn experimenter_size(self) -> usize {
        if self.class == OxmId::EXPERIMENTER { 4 } else { 0 }
    }
}

/// Further OXM headers under which a field is accepted. Open vSwitch had `NXM_NX_TCP_FLAGS` before the ONF assigned a
/// number to TCP flags.
const SYNONYMS: [(OxmId, Field); 1] = [(OxmId::nxm(34), Field::TcpFlags)];

/// The permission of a mask in a match on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    /// A match cannot have a mask.
    Never,
    /// A match may have a mask by the definition of the field.
    Always,
    /// A match may have a mask in Open vSwitch, but not in OpenFlow 1.3.5.
    Extension,
}

/// The text format of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A port number or the name of a reserved port.
    Port,
    /// A decimal number.
    Decimal,
    /// A hexadecimal number with `0x`.
    Hex,
    /// Six octets with colons.
    Mac,
    /// An IPv4 address, the mask as an address or a prefix length.
    Ipv4,
    /// An IPv6 address, the mask as an address or a prefix length.
    Ipv6,
    /// TCP flags by name: `syn|ack` for exactly these, `+syn-ack` for these bits and no others.
    TcpFlags,
    /// The type of IP fragment: `no`, `yes`, `first`, `later` or `not_later`.
    Fragment,
}

/// The condition that the rest of a match must meet before a field is valid (OpenFlow 1.3.5, section 7.2.3.8, table
/// 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// No condition.
    None,
    /// The other field is matched, with any value.
    Present(Field),
    /// The VLAN tag is present (`OFPVID_PRESENT` set).
    Tagged,
    /// The other field is matched exactly, with one of these values.
    OneOf(Field, &'static [u16]),
}

impl fmt::Display for Prerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prerequisite::None => f.write_str("nothing"),
            Prerequisite::Present(field) => write!(f, "{field}"),
            Prerequisite::Tagged => f.write_str("vlan_vid with 0x1000 set"),
            Prerequisite::OneOf(field, values) => {
                write!(f, "{field}=")?;
                for (at, value) in values.iter().enumerate() {
                    let or = if at == 0 { "" } else { " or " };
                    write!(f, "{or}{value:#x}")?;
                }
                Ok(())
            }
        }
    }
}

const IP: Prerequisite = Prerequisite::OneOf(Field::EthType, &[0x0800, 0x86dd]);
const IPV4: Prerequisite = Prerequisite::OneOf(Field::EthType, &[0x0800]);
const IPV6: Prerequisite = Prerequisite::OneOf(Field::EthType, &[0x86dd]);
const ARP: Prerequisite = Prerequisite::OneOf(Field::EthType, &[0x0806]);
const MPLS: Prerequisite = Prerequisite::OneOf(Field::EthType, &[0x8847, 0x8848]);
const PBB: Prerequisite = Prerequisite::OneOf(Field::EthType, &[0x88e7]);
pub(crate) const TCP: Prerequisite = Prerequisite::OneOf(Field::IpProto, &[6]);
pub(crate) const UDP: Prerequisite = Prerequisite::OneOf(Field::IpProto, &[17]);
pub(crate) const SCTP: Prerequisite = Prerequisite::OneOf(Field::IpProto, &[132]);
const ICMPV4: Prerequisite = Prerequisite::OneOf(Field::IpProto, &[1]);
const ICMPV6: Prerequisite = Prerequisite::OneOf(Field::IpProto, &[58]);
const ND: Prerequisite = Prerequisite::OneOf(Field::Icmpv6Type, &[135, 136]);
const ND_SOLICIT: Prerequisite = Prerequisite::OneOf(Field::Icmpv6Type, &[135]);
const ND_ADVERT: Prerequisite = Prerequisite::OneOf(Field::Icmpv6Type, &[136]);

struct Row {
    oxm: OxmId,
    name: &'static str,
    ovs_name: &'static str,
    bits: u8,
    wire_size: u8,
    mask: Mask,
    settable: bool,
    format: Format,
    prerequisite: Prerequisite,
    position: BitPosition,
    layer: Option<Layer>,
}

macro_rules! fields {
    ($( $(#[$doc:meta])* $variant:ident = $class:ident($number:literal): $name:literal / $ovs:literal, $bits:literal bits in $size:literal,
        mask $mask:ident, set $set:ident, $format:ident, $prereq:expr, at $word:literal << $shift:literal, in $layer:expr; )*) => {
        /// A match field. The discriminant is the field's row in the table, and for basic fields (`OFPXMT_OFB_*`) also
        /// the OXM field number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Field {
            $( $(#[$doc])* $variant, )*
        }

        impl Field {
            /// Number of fields.
            pub const LEN: usize = [$(Field::$variant),*].len();

            /// Every field, in the order of the table: basic fields by OXM number, then those of Open vSwitch.
            pub const ALL: [Field; Field::LEN] = [$(Field::$variant),*];

            const ROWS: [Row; Field::LEN] = [$(Row {
                oxm: OxmId::$class($number),
                name: $name,
                ovs_name: $ovs,
                bits: $bits,
                wire_size: $size,
                mask: Mask::$mask,
                settable: $set,
                format: Format::$format,
                prerequisite: $prereq,
                position: BitPosition { word: $word, shift: $shift },
                layer: $layer,
            }),*];
        }
    };
}

fields! {
    /// Ingress port: numerical representation of the incoming port, starting at 1.
    InPort = basic(0): "in_port" / "in_port", 32 bits in 4, mask Never, set false, Port, Prerequisite::None, at 0 << 32, in None;
    /// Physical port beneath a logical ingress port.
    InPhyPort = basic(1): "in_phy_port" / "in_phy_port", 32 bits in 4, mask Never, set false, Port, Prerequisite::Present(Field::InPort), at 0 << 0, in None;
    /// Table metadata, passed between tables.
    Metadata = basic(2): "metadata" / "metadata", 64 bits in 8, mask Always, set false, Hex, Prerequisite::None, at 1 << 0, in None;
    /// Ethernet destination address.
    EthDst = basic(3): "eth_dst" / "dl_dst", 48 bits in 6, mask Always, set true, Mac, Prerequisite::None, at 3 << 16, in None;
    /// Ethernet source address.
    EthSrc = basic(4): "eth_src" / "dl_src", 48 bits in 6, mask Always, set true, Mac, Prerequisite::None, at 4 << 16, in None;
    /// Ethernet type of the payload, after all VLAN tags.
    EthType = basic(5): "eth_type" / "dl_type", 16 bits in 2, mask Never, set true, Hex, Prerequisite::None, at 5 << 0, in None;
    /// VLAN identifier of the outermost tag, with `OFPVID_PRESENT` (0x1000) in bit 12.
    VlanVid = basic(6): "vlan_vid" / "vlan_vid", 13 bits in 2, mask Always, set true, Hex, Prerequisite::None, at 3 << 0, in None;
    /// Priority of the outermost VLAN tag.
    VlanPcp = basic(7): "vlan_pcp" / "dl_vlan_pcp", 3 bits in 1, mask Never, set true, Decimal, Prerequisite::Tagged, at 7 << 56, in None;
    /// Differentiated services code point (the high 6 bits of the traffic class).
    IpDscp = basic(8): "ip_dscp" / "ip_dscp", 6 bits in 1, mask Never, set true, Decimal, IP, at 7 << 48, in Some(Layer::Ip);
    /// Explicit congestion notification (the low 2 bits of the traffic class).
    IpEcn = basic(9): "ip_ecn" / "nw_ecn", 2 bits in 1, mask Never, set true, Decimal, IP, at 7 << 40, in Some(Layer::Ip);
    /// IPv4 protocol, or the IPv6 next header after the extension headers.
    IpProto = basic(10): "ip_proto" / "nw_proto", 8 bits in 1, mask Never, set true, Decimal, IP, at 5 << 24, in Some(Layer::Ip);
    /// IPv4 source address.
    Ipv4Src = basic(11): "ipv4_src" / "nw_src", 32 bits in 4, mask Always, set true, Ipv4, IPV4, at 6 << 32, in Some(Layer::Ip);
    /// IPv4 destination address.
    Ipv4Dst = basic(12): "ipv4_dst" / "nw_dst", 32 bits in 4, mask Always, set true, Ipv4, IPV4, at 6 << 0, in Some(Layer::Ip);
    /// TCP source port.
    TcpSrc = basic(13): "tcp_src" / "tp_src", 16 bits in 2, mask Extension, set true, Decimal, TCP, at 5 << 48, in Some(Layer::L4);
    /// TCP destination port.
    TcpDst = basic(14): "tcp_dst" / "tp_dst", 16 bits in 2, mask Extension, set true, Decimal, TCP, at 5 << 32, in Some(Layer::L4);
    /// UDP source port.
    UdpSrc = basic(15): "udp_src" / "udp_src", 16 bits in 2, mask Extension, set true, Decimal, UDP, at 5 << 48, in Some(Layer::L4);
    /// UDP destination port.
    UdpDst = basic(16): "udp_dst" / "udp_dst", 16 bits in 2, mask Extension, set true, Decimal, UDP, at 5 << 32, in Some(Layer::L4);
    /// SCTP source port.
    SctpSrc = basic(17): "sctp_src" / "sctp_src", 16 bits in 2, mask Extension, set true, Decimal, SCTP, at 5 << 48, in Some(Layer::L4);
    /// SCTP destination port.
    SctpDst = basic(18): "sctp_dst" / "sctp_dst", 16 bits in 2, mask Extension, set true, Decimal, SCTP, at 5 << 32, in Some(Layer::L4);
    /// ICMP type.
    Icmpv4Type = basic(19): "icmpv4_type" / "icmp_type", 8 bits in 1, mask Never, set true, Decimal, ICMPV4, at 5 << 48, in Some(Layer::L4);
    /// ICMP code.
    Icmpv4Code = basic(20): "icmpv4_code" / "icmp_code", 8 bits in 1, mask Never, set true, Decimal, ICMPV4, at 5 << 32, in Some(Layer::L4);
    /// ARP operation.
    ArpOp = basic(21): "arp_op" / "arp_op", 16 bits in 2, mask Never, set true, Decimal, ARP, at 4 << 0, in Some(Layer::Arp);
    /// ARP source IPv4 address.
    ArpSpa = basic(22): "arp_spa" / "arp_spa", 32 bits in 4, mask Always, set true, Ipv4, ARP, at 6 << 32, in Some(Layer::Arp);
    /// ARP target IPv4 address.
    ArpTpa = basic(23): "arp_tpa" / "arp_tpa", 32 bits in 4, mask Always, set true, Ipv4, ARP, at 6 << 0, in Some(Layer::Arp);
    /// ARP source hardware address.
    ArpSha = basic(24): "arp_sha" / "arp_sha", 48 bits in 6, mask Always, set true, Mac, ARP, at 14 << 0, in Some(Layer::Arp);
    /// ARP target hardware address.
    ArpTha = basic(25): "arp_tha" / "arp_tha", 48 bits in 6, mask Always, set true, Mac, ARP, at 15 << 0, in Some(Layer::Arp);
    /// IPv6 source address.
    Ipv6Src = basic(26): "ipv6_src" / "ipv6_src", 128 bits in 16, mask Always, set true, Ipv6, IPV6, at 8 << 0, in Some(Layer::Ip);
    /// IPv6 destination address.
    Ipv6Dst = basic(27): "ipv6_dst" / "ipv6_dst", 128 bits in 16, mask Always, set true, Ipv6, IPV6, at 10 << 0, in Some(Layer::Ip);
    /// IPv6 flow label.
    Ipv6Flabel = basic(28): "ipv6_flabel" / "ipv6_label", 20 bits in 4, mask Always, set true, Hex, IPV6, at 16 << 0, in Some(Layer::Ip);
    /// ICMPv6 type.
    Icmpv6Type = basic(29): "icmpv6_type" / "icmpv6_type", 8 bits in 1, mask Never, set true, Decimal, ICMPV6, at 5 << 48, in Some(Layer::L4);
    /// ICMPv6 code.
    Icmpv6Code = basic(30): "icmpv6_code" / "icmpv6_code", 8 bits in 1, mask Never, set true, Decimal, ICMPV6, at 5 << 32, in Some(Layer::L4);
    /// Target address of a neighbour discovery message.
    Ipv6NdTarget = basic(31): "ipv6_nd_target" / "nd_target", 128 bits in 16, mask Never, set true, Ipv6, ND, at 12 << 0, in Some(Layer::NdTarget);
    /// Source link-layer address option of a neighbour solicitation; zero without the option, as in Open vSwitch.
    Ipv6NdSll = basic(32): "ipv6_nd_sll" / "nd_sll", 48 bits in 6, mask Never, set true, Mac, ND_SOLICIT, at 14 << 0, in Some(Layer::NdTarget);
    /// Target link-layer address option of a neighbour advertisement; zero without the option, as in Open vSwitch.
    Ipv6NdTll = basic(33): "ipv6_nd_tll" / "nd_tll", 48 bits in 6, mask Never, set true, Mac, ND_ADVERT, at 15 << 0, in Some(Layer::NdTarget);
    /// Label of the outermost MPLS shim header.
    MplsLabel = basic(34): "mpls_label" / "mpls_label", 20 bits in 4, mask Never, set true, Decimal, MPLS, at 16 << 44, in Some(Layer::Mpls);
    /// Traffic class of the outermost MPLS shim header.
    MplsTc = basic(35): "mpls_tc" / "mpls_tc", 3 bits in 1, mask Never, set true, Decimal, MPLS, at 7 << 44, in Some(Layer::Mpls);
    /// Bottom-of-stack bit of the outermost MPLS shim header.
    MplsBos = basic(36): "mpls_bos" / "mpls_bos", 1 bits in 1, mask Never, set true, Decimal, MPLS, at 7 << 47, in Some(Layer::Mpls);
    /// Service instance identifier of the PBB I-TAG.
    PbbIsid = basic(37): "pbb_isid" / "pbb_isid", 24 bits in 3, mask Always, set true, Decimal, PBB, at 16 << 20, in Some(Layer::Pbb);
    /// Metadata of a logical port (tunnel key).
    TunnelId = basic(38): "tunnel_id" / "tun_id", 64 bits in 8, mask Always, set true, Hex, Prerequisite::None, at 2 << 0, in None;
    /// The IPv6 extension headers of the packet, and flags for repeated or misordered ones (`OFPIEH_*`).
    Ipv6Exthdr = basic(39): "ipv6_exthdr" / "ipv6_exthdr", 9 bits in 2, mask Always, set false, Hex, IPV6, at 7 << 16, in Some(Layer::Ip);
    /// TCP control bits, and the three reserved bits above NS (`ONFOXM_ET_TCP_FLAGS`). As in Open vSwitch, all are
    /// zero in a packet that has IP protocol TCP and no TCP header: a later fragment, or a truncated packet.
    TcpFlags = onf(42): "tcp_flags" / "tcp_flags", 12 bits in 2, mask Always, set false, TcpFlags, TCP, at 7 << 0, in Some(Layer::Ip);
    /// The type of IP fragment (`NXM_NX_IP_FRAG`): bit 0 is set in every fragment, bit 1 in all but the first.
    IpFrag = nxm(26): "ip_frag" / "nw_frag", 2 bits in 1, mask Always, set false, Fragment, IP, at 7 << 12, in Some(Layer::Ip);
    /// IPv4 time to live or IPv6 hop limit (`NXM_NX_IP_TTL`).
    NwTtl = nxm(29): "nw_ttl" / "nw_ttl", 8 bits in 1, mask Never, set false, Decimal, IP, at 7 << 32, in Some(Layer::Ip);
}

impl Field {
    /// Returns the field with this OXM header, if there is one.
    #[inline]
    pub fn from_oxm(id: OxmId) -> Option<Field> {
        // Basic fields are in the order of their OXM numbers.
        let basic = Self::ALL.get(usize::from(id.number)).copied();
        basic
            .filter(|field| field.oxm() == id)
            .or_else(|| Field::from_extension(id))
    }

    #[cold]
    fn from_extension(id: OxmId) -> Option<Field> {
        let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == id);
        let mut rows = Self::ALL.into_iter().filter(|field| field.is_extension());
        rows.find(|field| field.oxm() == id)
            .or(synonym.map(|(_, field)| *field))
    }

    /// Returns the field at this row of the table, if there is one.
    #[inline]
    pub fn from_index(index: u8) -> Option<Field> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Returns the row in the table, 0 to [`Field::LEN`] - 1.
    #[inline]
    pub const fn index(self) -> u8 {
        self as u8
    }

    /// Returns the OXM header without mask bit and length.
    #[inline]
    pub const fn oxm(self) -> OxmId {
        self.row().oxm
    }

    /// Returns true for a field that OpenFlow 1.3.5 does not define.
    #[inline]
    pub const fn is_extension(self) -> bool {
        self.row().oxm.class != OxmId::BASIC
    }

    const fn row(self) -> &'static Row {
        &Self::ROWS[self as usize]
    }

    /// Returns the name in the specification, in lower case: `ipv4_src`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the name that ovs-ofctl prints: `nw_src`.
    pub const fn ovs_name(self) -> &'static str {
        self.row().ovs_name
    }

    /// Returns the width in bits, 1 to 128.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.row().bits as u32
    }

    /// Returns the size in bytes of a value in an OXM TLV.
    #[inline]
    pub const fn wire_size(self) -> usize {
        self.row().wire_size as usize
    }

    /// Returns the highest value, which is also the mask of an exact match.
    #[inline]
    pub const fn max_value(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Returns true if a match on this field may carry a mask in OpenFlow 1.3.5 or in Open vSwitch.
    pub const fn is_maskable(self) -> bool {
        !matches!(self.row().mask, Mask::Never)
    }

    /// Returns true if a match on this field may carry a mask in OpenFlow 1.3.5.
    pub const fn is_maskable_in_standard(self) -> bool {
        matches!(self.row().mask, Mask::Always)
    }

    /// Returns true if a set_field action may change the field.
    pub const fn is_settable(self) -> bool {
        self.row().settable
    }

    /// Returns the text format of the values.
    pub const fn format(self) -> Format {
        self.row().format
    }

    /// Returns the prerequisite of a match on this field.
    pub const fn prerequisite(self) -> Prerequisite {
        self.row().prerequisite
    }

    /// Returns the position in a key.
    #[inline]
    pub const fn position(self) -> BitPosition {
        self.row().position
    }

    /// Returns the header that the packet must contain for the field to have a value.
    pub const fn layer(self) -> Option<Layer> {
        self.row().layer
    }

    /// Returns the value of this field in `key`.
    pub fn value_in(self, key: &FlowKey) -> u128 {
        key.field(self)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of match fields, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FieldSet(u64);

impl FieldSet {
    /// No field.
    pub const EMPTY: FieldSet = FieldSet(0);
    /// Every field.
    pub const ALL: FieldSet = FieldSet((1 << Field::LEN) - 1);

    /// Adds one field.
    pub const fn insert(&mut self, field: Field) {
        self.0 |= 1 << field.index();
    }

    /// Returns true if the set contains the field.
    pub const fn contains(self, field: Field) -> bool {
        self.0 & (1 << field.index()) != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 | other.0)
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the fields, in the order of [`Field::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.contains(*field))
    }
}

impl FromIterator<Field> for FieldSet {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> FieldSet {
        let mut set = FieldSet::EMPTY;
        fields.into_iter().for_each(|field| set.insert(field));
        set
    }
}

impl fmt::Debug for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_oxm_header_and_by_its_row() {
        for (row, field) in Field::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(field.index()), row);
            assert_eq!(Field::from_index(field.index()), Some(field));
            assert_eq!(Field::from_oxm(field.oxm()), Some(field));
            assert_eq!(field.is_extension(), row >= 40, "{field}");
            if !field.is_extension() {
                assert_eq!(usize::from(field.oxm().number), row, "{field}");
            }
        }
        assert_eq!(Field::from_index(Field::LEN as u8), None);
        for unknown in [OxmId::basic(40), OxmId::basic(42), OxmId::nxm(0), OxmId::onf(26)] {
            assert_eq!(Field::from_oxm(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn tcp_flags_have_the_name_of_nicira_as_well() {
        assert_eq!(Field::from_oxm(OxmId::nxm(34)), Some(Field::TcpFlags));
        assert_eq!(Field::TcpFlags.oxm(), OxmId::onf(42));
    }

    #[test]
    fn a_field_fits_its_place_and_its_wire_size() {
        for field in Field::ALL {
            let position = field.position();
            assert!(
                field.bits() == 128 || u32::from(position.shift) + field.bits() <= 64,
                "{field}"
            );
            assert!(field.bits() <= 8 * field.wire_size() as u32, "{field}");
        }
    }

    #[test]
    fn fields_share_a_place_only_if_no_packet_has_both() {
        let exclusive = |field: Field| match field.layer() {
            Some(Layer::L4) => "l4",
            Some(Layer::Arp | Layer::NdTarget) => "addresses",
            Some(Layer::Ip) if field.format() == Format::Ipv4 => "addresses",
            _ => "alone",
        };
        for a in Field::ALL {
            for b in Field::ALL.into_iter().filter(|b| *b > a) {
                let (mut key_a, mut key_b) = (FlowKey::default(), FlowKey::default());
                key_a.set_field(a, a.max_value());
                key_b.set_field(b, b.max_value());
                let overlap = key_a.words().iter().zip(key_b.words()).any(|(x, y)| x & y != 0);
                if overlap {
                    assert_eq!(exclusive(a), exclusive(b), "{a} and {b} overlap");
                    assert_ne!(exclusive(a), "alone", "{a} and {b} overlap");
                }
            }
        }
    }
}
