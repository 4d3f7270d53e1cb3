//! Actions that change a packet: set_field, push, pop, TTL.
//!
//! An action does nothing if the packet does not have the header that it changes.
//!
//! # Where tags go
//! OpenFlow 1.3.5 (section 5.12, and section 7.2.5 for each push) puts a new tag outermost: immediately after
//! the Ethernet header, before all other tags. Section 5.12.1 defines the sources of its fields. After
//! push_mpls and push_pbb, matches therefore do not see the VLAN tags of the packet. (OpenFlow 1.1 and 1.2,
//! and Open vSwitch in all versions, put an MPLS shim after the VLAN tags.)
//!
//! | pushed | copied from | else |
//! | --- | --- | --- |
//! | VLAN identifier, priority | outermost VLAN tag | 0 |
//! | MPLS label, traffic class | outermost MPLS shim | 0 |
//! | MPLS TTL | outermost MPLS shim, or IP | 0 |
//! | PBB service instance | outermost PBB tag | 0 |
//! | PBB priority | outermost VLAN tag | 0 |
//! | PBB customer addresses | Ethernet addresses, which stay as they are | |

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_flow::{Action, Field, FlowKey, SetField};
use millrace_types::{Mac, Pcp, Vid};
use millrace_wire::checksum::Change;
use millrace_wire::rewrite::{self, Ttl};
use millrace_wire::{
    Depth, Dscp, Ecn, EtherType, FlowLabel, IpProto, Isid, L3, L4, Layers, MplsLabel, Packet, Tc, ethernet,
    mpls, pbb, vlan,
};

/// The size of the two Ethernet addresses, bytes.
const ADDRESSES: usize = 12;
/// The shift of the priority in a tag's control information.
const PCP_SHIFT: u32 = 13;
/// The number of bytes that [`push_pbb`] adds: an EtherType, and the tag without its last two bytes. These
/// are the EtherType of the customer's frame, which is there already.
const PBB_PUSHED: usize = 2 + pbb::SIZE - 2;

/// The effect of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// The action was executed, as far as the packet has the header that it needs.
    Done,
    /// The action did nothing, because the TTL has run out.
    TtlExpired,
    /// The action did nothing, because the buffer has no headroom for a tag.
    NoHeadroom,
}

/// The cached parse of a packet's headers while actions change them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    /// The offsets of the headers, parsed to the deepest one; `None` if they are unknown or outdated.
    layers: Option<Layers>,
    /// True if headers have changed since the key was read. Actions on a TTL do not set this: the key holds only the
    /// TTL of IP (`ttl_changed`).
    pub(crate) changed: bool,
    /// True if the TTL of IP has changed since the key was read.
    ttl_changed: bool,
}

impl Headers {
    pub(crate) const UNKNOWN: Headers = Headers {
        layers: None,
        changed: false,
        ttl_changed: false,
    };

    #[inline]
    pub(crate) fn layers<P: Packet>(&mut self, packet: &P) -> Layers {
        *self.layers.get_or_insert_with(|| Layers::of(packet, Depth::All))
    }

    /// Updates the key to the current headers of the packet, at least as deep as `depth`.
    #[inline]
    pub(crate) fn refresh_key<P: Packet>(&mut self, packet: &P, key: &mut FlowKey, depth: Depth) {
        if core::mem::take(&mut self.changed) {
            match &self.layers {
                Some(layers) => key.extract(packet.head(), layers),
                // Most packets do not need the offsets of their headers.
                None => key.read(packet.head(), packet.len(), depth),
            }
        } else if self.ttl_changed {
            self.read_ip_ttl(packet, key);
        }
        self.ttl_changed = false;
    }

    /// Executes an action that changes the packet, and ignores other actions. Fields that are not in the
    /// packet are set in `key`.
    #[inline(always)]
    pub(crate) fn execute<P: Packet>(
        &mut self,
        packet: &mut P,
        key: &mut FlowKey,
        action: &Action,
    ) -> Effect {
        // The actions below are the most frequent ones, and need no parse.
        match action {
            Action::SetField(set) => match set.field() {
                Field::EthDst => {
                    rewrite::eth_dst(packet.head_mut(), Mac::from_u64(set.value() as u64));
                }
                Field::EthSrc => {
                    rewrite::eth_src(packet.head_mut(), Mac::from_u64(set.value() as u64));
                }
                // The headers after a tag keep their offsets and types.
                Field::VlanVid => {
                    rewrite::vlan_vid(packet.head_mut(), Vid::from_tci(set.value() as u16));
                }
                Field::VlanPcp => {
                    rewrite::vlan_pcp(
                        packet.head_mut(),
                        Pcp::from_tci((set.value() as u16) << PCP_SHIFT),
                    );
                }
                _ => return self.execute_any(packet, key, action),
            },
            Action::PushVlan(ether_type) => {
                (self.layers, self.changed) = (None, true);
                return push_vlan(packet, *ether_type);
            }
            Action::PopVlan => {
                if rewrite::vlan_tci(packet.head()).is_some() {
                    pop_tag(packet);
                }
                self.layers = None;
            }
            _ => return self.execute_any(packet, key, action),
        }
        self.changed = true;
        Effect::Done
    }

    #[inline(never)]
    fn execute_any<P: Packet>(&mut self, packet: &mut P, key: &mut FlowKey, action: &Action) -> Effect {
        match *action {
            Action::SetField(set) => {
                self.set_field(packet, key, set);
                Effect::Done
            }
            Action::PushMpls(ether_type) => self.push(packet, push_mpls, ether_type),
            Action::PushPbb(ether_type) => self.push(packet, push_pbb, ether_type),
            Action::PopMpls(ether_type) => self.pop(packet, |packet, layers| {
                pop_mpls(packet, layers, ether_type);
            }),
            Action::PopPbb => self.pop(packet, pop_pbb),
            Action::DecNwTtl => {
                self.ttl_changed = true;
                self.ttl(packet, rewrite::dec_ip_ttl)
            }
            Action::DecMplsTtl => self.ttl(packet, rewrite::dec_mpls_ttl),
            Action::SetNwTtl(ttl) => {
                self.ttl_changed = true;
                self.rewrite(packet, |head, layers| rewrite::ip_ttl(head, layers, ttl))
            }
            Action::SetMplsTtl(ttl) => {
                self.rewrite(packet, |head, layers| rewrite::mpls_ttl(head, layers, ttl))
            }
            Action::CopyTtlIn => self.rewrite(packet, rewrite::copy_ttl_in),
            Action::CopyTtlOut => self.rewrite(packet, rewrite::copy_ttl_out),
            // VLAN tags are handled by the caller.
            Action::PushVlan(_)
            | Action::PopVlan
            | Action::Output { .. }
            | Action::Group(_)
            | Action::SetQueue(_) => Effect::Done,
        }
    }

    /// Copies the TTL of IP into the key.
    #[inline]
    fn read_ip_ttl<P: Packet>(&mut self, packet: &P, key: &mut FlowKey) {
        let ttl = rewrite::ip_ttl_of(packet.head(), &self.layers(packet));
        if let Some(ttl) = ttl {
            key.set_field(Field::NwTtl, ttl.into());
        }
    }

    /// Executes an action that decrements a TTL. No header moves.
    #[inline]
    fn ttl<P: Packet>(&mut self, packet: &mut P, change: fn(&mut [u8], &Layers) -> Ttl) -> Effect {
        let layers = self.layers(packet);
        match change(packet.head_mut(), &layers) {
            Ttl::Expired => Effect::TtlExpired,
            Ttl::Changed | Ttl::Absent => Effect::Done,
        }
    }

    #[inline]
    fn rewrite<P: Packet>(
        &mut self,
        packet: &mut P,
        change: impl FnOnce(&mut [u8], &Layers) -> bool,
    ) -> Effect {
        let layers = self.layers(packet);
        change(packet.head_mut(), &layers);
        Effect::Done
    }

    fn push<P: Packet>(
        &mut self,
        packet: &mut P,
        push: fn(&mut P, &Layers, EtherType) -> Effect,
        ether_type: EtherType,
    ) -> Effect {
        let layers = self.layers(packet);
        if !layers.has_ethernet() {
            return Effect::Done;
        }
        self.layers = None;
        self.changed = true;
        push(packet, &layers, ether_type)
    }

    fn pop<P: Packet>(&mut self, packet: &mut P, pop: impl FnOnce(&mut P, &Layers)) -> Effect {
        let layers = self.layers(packet);
        pop(packet, &layers);
        self.layers = None;
        self.changed = true;
        Effect::Done
    }

    #[inline]
    fn set_field<P: Packet>(&mut self, packet: &mut P, key: &mut FlowKey, set: SetField) {
        let (field, value) = (set.field(), set.value());
        match field {
            Field::TunnelId => key.set_field(field, value),
            _ => {
                let layers = self.layers(packet);
                set_in_packet(packet.head_mut(), &layers, field, value);
                if moves_layers(field) {
                    self.layers = None;
                }
                self.changed = true;
            }
        }
    }
}

/// Returns true if a change of the field changes which headers follow.
const fn moves_layers(field: Field) -> bool {
    matches!(
        field,
        Field::EthType | Field::IpProto | Field::MplsBos | Field::Icmpv6Type | Field::Icmpv6Code
    )
}

fn set_in_packet(head: &mut [u8], layers: &Layers, field: Field, value: u128) {
    let (byte, half, word) = (value as u8, value as u16, value as u32);
    let mac = Mac::from_u64(value as u64);
    let (ipv4, ipv6) = (Ipv4Addr::from(word), Ipv6Addr::from(value));
    match field {
        Field::EthType => rewrite::eth_type(head, layers, EtherType(half)),
        Field::IpDscp => rewrite::ip_dscp(head, layers, Dscp::from_low_bits(byte)),
        Field::IpEcn => rewrite::ip_ecn(head, layers, Ecn::from_low_bits(byte)),
        Field::IpProto => ip_proto(head, layers, IpProto(byte)),
        Field::Ipv4Src => rewrite::ipv4_src(head, layers, ipv4),
        Field::Ipv4Dst => rewrite::ipv4_dst(head, layers, ipv4),
        Field::TcpSrc => rewrite::l4_src(head, layers, L4::Tcp, half),
        Field::TcpDst => rewrite::l4_dst(head, layers, L4::Tcp, half),
        Field::UdpSrc => rewrite::l4_src(head, layers, L4::Udp, half),
        Field::UdpDst => rewrite::l4_dst(head, layers, L4::Udp, half),
        Field::SctpSrc => rewrite::l4_src(head, layers, L4::Sctp, half),
        Field::SctpDst => rewrite::l4_dst(head, layers, L4::Sctp, half),
        Field::Icmpv4Type => rewrite::icmpv4_type(head, layers, byte),
        Field::Icmpv4Code => rewrite::icmpv4_code(head, layers, byte),
        Field::ArpOp => rewrite::arp_op(head, layers, half),
        Field::ArpSpa => rewrite::arp_spa(head, layers, ipv4),
        Field::ArpTpa => rewrite::arp_tpa(head, layers, ipv4),
        Field::ArpSha => rewrite::arp_sha(head, layers, mac),
        Field::ArpTha => rewrite::arp_tha(head, layers, mac),
        Field::Ipv6Src => rewrite::ipv6_src(head, layers, ipv6),
        Field::Ipv6Dst => rewrite::ipv6_dst(head, layers, ipv6),
        Field::Ipv6Flabel => rewrite::ipv6_flow_label(head, layers, FlowLabel::from_low_bits(word)),
        Field::Icmpv6Type => rewrite::icmpv6_type(head, layers, byte),
        Field::Icmpv6Code => rewrite::icmpv6_code(head, layers, byte),
        Field::Ipv6NdTarget => rewrite::nd_target(head, layers, ipv6),
        Field::Ipv6NdSll => rewrite::nd_sll(head, layers, mac),
        Field::Ipv6NdTll => rewrite::nd_tll(head, layers, mac),
        Field::MplsLabel => rewrite::mpls_label(head, layers, MplsLabel::from_low_bits(word)),
        Field::MplsTc => rewrite::mpls_tc(head, layers, Tc::from_low_bits(byte)),
        Field::MplsBos => rewrite::mpls_bos(head, layers, byte != 0),
        Field::PbbIsid => rewrite::pbb_isid(head, layers, Isid::from_low_bits(word)),
        // Ethernet addresses, VLAN tags and the tunnel are set elsewhere. All other fields cannot be set.
        Field::EthDst
        | Field::EthSrc
        | Field::VlanVid
        | Field::VlanPcp
        | Field::TunnelId
        | Field::InPort
        | Field::InPhyPort
        | Field::Metadata
        | Field::Ipv6Exthdr
        | Field::TcpFlags
        | Field::IpFrag
        | Field::NwTtl => false,
    };
}

/// Sets the IP protocol, and updates the checksum of the present transport header, whose pseudo-header contains the
/// protocol, although the packet is afterwards read as another transport.
fn ip_proto(head: &mut [u8], layers: &Layers, proto: IpProto) -> bool {
    let checksum_at = layers.l4_offset()
        + match layers.l4() {
            L4::Tcp => 16,
            L4::Udp => 6,
            L4::Icmpv6 => 2,
            L4::None | L4::Sctp | L4::Icmpv4 => return rewrite::ip_proto(head, layers, proto),
        };
    if !rewrite::ip_proto(head, layers, proto) {
        return false;
    }
    let change = Change::of16(u16::from(layers.ip_proto().0), u16::from(proto.0));
    let checksum: Option<&mut [u8; 2]> = head.get_mut(checksum_at..).and_then(<[u8]>::first_chunk_mut);
    if let Some(checksum) = checksum {
        let old = u16::from_be_bytes(*checksum);
        let new = match layers.l4() {
            L4::Udp => change.apply_udp(old),
            _ => change.apply(old),
        };
        *checksum = new.to_be_bytes();
    }
    true
}

/// Inserts `N` bytes after the Ethernet addresses.
fn insert<P: Packet, const N: usize>(packet: &mut P, bytes: [u8; N]) -> Effect {
    if packet.prepend(N).is_err() {
        return Effect::NoHeadroom;
    }
    let head = packet.head_mut();
    head.copy_within(N..N + ADDRESSES, 0);
    head[ADDRESSES..ADDRESSES + N].copy_from_slice(&bytes);
    Effect::Done
}

/// Removes the `N` bytes that end at `end`.
fn remove<P: Packet, const N: usize>(packet: &mut P, end: usize) {
    packet.head_mut().copy_within(0..end - N, N);
    packet.trim_front(N);
}

/// Pushes a VLAN tag with the fields of the outermost one, if there is one (OpenFlow 1.3.5, section 5.12.1).
pub(crate) fn push_vlan<P: Packet>(packet: &mut P, ether_type: EtherType) -> Effect {
    if packet.head().len() < ethernet::SIZE {
        return Effect::Done;
    }
    let tci = rewrite::vlan_tci(packet.head()).unwrap_or(0) & !vlan::DEI;
    push_tag(packet, ether_type, tci)
}

/// Pushes a VLAN tag onto a packet with an Ethernet header.
pub(crate) fn push_tag<P: Packet>(packet: &mut P, ether_type: EtherType, tci: u16) -> Effect {
    let ([a, b], [c, d]) = (ether_type.0.to_be_bytes(), tci.to_be_bytes());
    insert(packet, [a, b, c, d])
}

/// Removes the outermost VLAN tag of a packet that has one.
pub(crate) fn pop_tag<P: Packet>(packet: &mut P) {
    remove::<P, { vlan::SIZE }>(packet, ADDRESSES + vlan::SIZE);
}

fn push_mpls<P: Packet>(packet: &mut P, layers: &Layers, ether_type: EtherType) -> Effect {
    let head = packet.head();
    let l3 = layers.l3_offset();
    let byte = |at: usize| head.get(at).copied().unwrap_or(0);
    let shim = head.get(l3..).and_then(<[u8]>::first_chunk::<{ mpls::SIZE }>);
    let entry = match (layers.l3(), shim) {
        (L3::Mpls, Some(shim)) => u32::from_be_bytes(*shim) & !mpls::BOS,
        // TTL and hop limit: RFC 791, section 3.1, and RFC 8200, section 3.
        (L3::Ipv4, _) => u32::from(byte(l3 + 8)),
        (L3::Ipv6, _) => u32::from(byte(l3 + 7)),
        _ => 0,
    };
    let next = EtherType(u16::from_be_bytes([byte(ADDRESSES), byte(ADDRESSES + 1)]));
    let entry = if next.is_mpls() { entry } else { entry | mpls::BOS };
    // EtherType and shim are 6 bytes long: 4 are inserted, and the last 2 overwrite the old EtherType, which is
    // not kept.
    let ([a, b], [c, d, e, f]) = (ether_type.0.to_be_bytes(), entry.to_be_bytes());
    let effect = insert(packet, [a, b, c, d]);
    if effect == Effect::Done {
        packet.head_mut()[ADDRESSES + 4..ADDRESSES + 6].copy_from_slice(&[e, f]);
    }
    effect
}

fn push_pbb<P: Packet>(packet: &mut P, layers: &Layers, ether_type: EtherType) -> Effect {
    let head = packet.head();
    let tag = head.get(layers.l3_offset()..).and_then(<[u8]>::first_chunk::<4>);
    let isid = match (layers.l3(), tag) {
        (L3::Pbb, Some(tag)) => u32::from_be_bytes(*tag) & Isid::MAX.raw(),
        _ => 0,
    };
    let pcp = Pcp::from_tci(rewrite::vlan_tci(head).unwrap_or(0));
    let tci = (u32::from(pcp.raw()) << 29 | isid).to_be_bytes();
    if packet.prepend(PBB_PUSHED).is_err() {
        return Effect::NoHeadroom;
    }
    // The old addresses stay where they are and become the customer's; a copy of them goes in front.
    let head = packet.head_mut();
    head.copy_within(PBB_PUSHED..PBB_PUSHED + ADDRESSES, 0);
    head[ADDRESSES..ADDRESSES + 2].copy_from_slice(&ether_type.0.to_be_bytes());
    head[ADDRESSES + 2..ADDRESSES + 6].copy_from_slice(&tci);
    Effect::Done
}

fn pop_mpls<P: Packet>(packet: &mut P, layers: &Layers, ether_type: EtherType) {
    let at = layers.l3_offset();
    if layers.l3() == L3::Mpls {
        packet.head_mut()[at - 2..at].copy_from_slice(&ether_type.0.to_be_bytes());
        remove::<P, { mpls::SIZE }>(packet, at + mpls::SIZE);
    }
}

fn pop_pbb<P: Packet>(packet: &mut P, layers: &Layers) {
    let at = layers.l3_offset();
    if layers.l3() != L3::Pbb {
        return;
    }
    // The backbone's VLAN tags, in front of the PBB tag, stay. The customer's addresses replace the
    // backbone's.
    let mut customer = [0; ADDRESSES];
    customer.copy_from_slice(&packet.head()[at + 4..at + 4 + ADDRESSES]);
    remove::<P, PBB_PUSHED>(packet, at - 2 + PBB_PUSHED);
    packet.head_mut()[..ADDRESSES].copy_from_slice(&customer);
}
