//! The part that workers see: lookups of bursts.

use crate::NextHop;

/// The number of a next-hop group: 24 bits; 0 is "no route".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub(crate) u32);

impl GroupId {
    /// No route.
    pub const NONE: GroupId = GroupId(0);

    /// Returns true for "no route".
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The routes of one VRF, as workers read them. Cloning is cheap; clones see the same routes.
#[derive(Clone, Debug)]
pub struct Fib {}

impl Fib {
    /// Looks up IPv4 addresses (in host order: 10.0.0.1 is `0x0a00_0001`); `groups[i]` becomes the group of `addresses[i]`,
    /// or [`GroupId::NONE`]. Only the shorter length of the two slices is looked up.
    pub fn lookup_v4_burst(&self, addresses: &[u32], groups: &mut [GroupId]) {
        for (_, group) in addresses.iter().zip(groups) {
            *group = GroupId::NONE;
        }
    }

    /// Looks up IPv6 addresses ([`std::net::Ipv6Addr::to_bits`]) as [`Fib::lookup_v4_burst`] does IPv4 addresses.
    pub fn lookup_v6_burst(&self, addresses: &[u128], groups: &mut [GroupId]) {
        for (_, group) in addresses.iter().zip(groups) {
            *group = GroupId::NONE;
        }
    }

    /// Returns the group of one IPv4 address.
    pub fn lookup_v4(&self, address: u32) -> GroupId {
        let mut groups = [GroupId::NONE];
        self.lookup_v4_burst(&[address], &mut groups);
        groups[0]
    }

    /// Returns the group of one IPv6 address.
    pub fn lookup_v6(&self, address: u128) -> GroupId {
        let mut groups = [GroupId::NONE];
        self.lookup_v6_burst(&[address], &mut groups);
        groups[0]
    }
}

/// The next-hop groups and next hops of all VRFs, as workers read them. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct NextHops {}

impl NextHops {
    /// Returns the next hop of a flow: the member of the group that its hash selects. A flow keeps its member while the
    /// group does. None for [`GroupId::NONE`].
    #[inline]
    pub fn member(&self, group: GroupId, flow_hash: u64) -> Option<&NextHop> {
        self.live_member(group, flow_hash, |_| true)
    }

    /// Returns the next hop of a flow among the members for which `is_live` holds: a flow whose member is dead goes to
    /// another, and no other flow moves. If none is live, returns the member that [`NextHops::member`] returns.
    #[inline]
    pub fn live_member(
        &self,
        group: GroupId,
        flow_hash: u64,
        is_live: impl FnMut(&NextHop) -> bool,
    ) -> Option<&NextHop> {
        let _ = (group, flow_hash, is_live);
        None
    }
}
