//! Action lists that set several header fields, compiled for the flow entries that have them.
//!
//! Most entries that do more than send a packet set a few fields to constants: NAT, routing, load balancing.
//! Such a list becomes one [`HeaderRewrite`] when the entry is installed. The rewrites have a separate table,
//! because most entries need none; the [`ActionSummary`](crate::action_summary::ActionSummary) of the entry
//! contains the index.

use core::net::Ipv4Addr;

use millrace_flow::{Action, Field, SetField};
use millrace_types::{Mac, Pcp, Vid};
use millrace_wire::rewrite::{HeaderField, HeaderRewrite};
use millrace_wire::{Dscp, Ecn, L4};

/// Returns one rewrite with the effect of all these actions; `None` if there are no actions, or if a rewrite cannot
/// express one of them.
fn compile(changes: &[Action]) -> Option<HeaderRewrite> {
    let mut rewrite = HeaderRewrite::NONE;
    let is_complete = changes
        .iter()
        .all(|change| field_of(change).is_some_and(|field| rewrite.set(field)));
    (is_complete && !changes.is_empty()).then_some(rewrite)
}

/// Returns the header field that an action changes.
fn field_of(action: &Action) -> Option<HeaderField> {
    match action {
        Action::SetField(set) => set_field(*set),
        Action::SetNwTtl(ttl) => Some(HeaderField::Ttl(*ttl)),
        Action::DecNwTtl => Some(HeaderField::DecTtl),
        _ => None,
    }
}

fn set_field(set: SetField) -> Option<HeaderField> {
    let value = set.value();
    let (byte, half) = (value as u8, value as u16);
    let (mac, address) = (Mac::from_u64(value as u64), Ipv4Addr::from(value as u32));
    Some(match set.field() {
        Field::EthDst => HeaderField::EthDst(mac),
        Field::EthSrc => HeaderField::EthSrc(mac),
        Field::VlanVid => HeaderField::VlanVid(Vid::from_tci(half)),
        Field::VlanPcp => HeaderField::VlanPcp(Pcp::new(byte).ok()?),
        Field::IpDscp => HeaderField::Dscp(Dscp::from_low_bits(byte)),
        Field::IpEcn => HeaderField::Ecn(Ecn::from_low_bits(byte)),
        Field::Ipv4Src => HeaderField::Ipv4Src(address),
        Field::Ipv4Dst => HeaderField::Ipv4Dst(address),
        Field::TcpSrc => HeaderField::L4Src(L4::Tcp, half),
        Field::TcpDst => HeaderField::L4Dst(L4::Tcp, half),
        Field::UdpSrc => HeaderField::L4Src(L4::Udp, half),
        Field::UdpDst => HeaderField::L4Dst(L4::Udp, half),
        _ => return None,
    })
}

/// The rewrites of the entries of a bridge. Each has an index that stays the same until its entry is removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rewrites {
    /// Rewrites by index. The rewrite of a removed entry stays until its index is used again.
    all: Vec<HeaderRewrite>,
    free: Vec<u32>,
}

impl Rewrites {
    /// Compiles these actions and stores the result. Returns its index; `None` if one rewrite cannot express
    /// the actions.
    pub(crate) fn insert(&mut self, changes: &[Action]) -> Option<u32> {
        let rewrite = compile(changes)?;
        if let Some(index) = self.free.pop() {
            *self.all.get_mut(index as usize)? = rewrite;
            return Some(index);
        }
        let index = u32::try_from(self.all.len()).ok()?;
        self.all.push(rewrite);
        Some(index)
    }

    /// Frees the index of a removed entry.
    pub(crate) fn remove(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Removes all rewrites.
    pub(crate) fn clear(&mut self) {
        *self = Rewrites::default();
    }

    /// Returns all rewrites by index.
    #[inline(always)]
    pub(crate) fn all(&self) -> &[HeaderRewrite] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::PortNo;
    use millrace_wire::EtherType;

    fn set(field: Field, value: u128) -> Action {
        Action::SetField(SetField::new(field, value).unwrap())
    }

    #[test]
    fn network_address_translation_is_one_rewrite() {
        let nat = [
            set(Field::EthSrc, 1),
            set(Field::EthDst, 2),
            set(Field::Ipv4Src, 0xc000_0201),
            set(Field::TcpSrc, 40_000),
            Action::DecNwTtl,
        ];
        assert!(compile(&nat).is_some());
        let marked = [set(Field::IpDscp, 46), set(Field::IpEcn, 1), Action::SetNwTtl(9)];
        assert!(compile(&marked).is_some());
        assert!(compile(&[set(Field::VlanVid, 0x1005), set(Field::VlanPcp, 7)]).is_some());
    }

    #[test]
    fn what_a_rewrite_cannot_express_is_not_compiled() {
        let address = set(Field::Ipv4Src, 1);
        for other in [
            set(Field::Ipv6Src, 1),
            set(Field::SctpSrc, 1),
            set(Field::IpProto, 6),
            set(Field::TunnelId, 1),
            Action::PushVlan(EtherType::VLAN),
            Action::output(PortNo::from_raw(1)),
            address,
        ] {
            assert_eq!(compile(&[address, other]), None, "{other:?}");
        }
        assert_eq!(compile(&[]), None);
    }

    #[test]
    fn the_index_of_a_removed_rewrite_is_used_again() {
        let mut rewrites = Rewrites::default();
        let indices = [1, 2].map(|address| rewrites.insert(&[set(Field::Ipv4Src, address)]));
        assert_eq!(indices, [Some(0), Some(1)]);
        rewrites.remove(0);
        assert_eq!(rewrites.insert(&[set(Field::Ipv4Dst, 3)]), Some(0));
        assert_eq!(rewrites.all().len(), 2);
        assert_eq!(rewrites.insert(&[Action::PopVlan]), None);
    }
}
