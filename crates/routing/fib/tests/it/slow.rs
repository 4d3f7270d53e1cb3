//! A slow table beside the FIB: a list of routes.

use millrace_fib::{
    Family, Fib, FibId, GroupId, NextHopId, NextHopKind, NextHopSpec, Prefix, Writer, bits_of,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A FIB and the list of its routes.
pub(crate) struct Both {
    pub(crate) writer: Writer,
    pub(crate) id: FibId,
    pub(crate) fib: Fib,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) routes: BTreeMap<Prefix, GroupId>,
}

/// Makes `count` groups of one next hop each.
pub(crate) fn groups(writer: &mut Writer, count: usize) -> Vec<GroupId> {
    let next_hop = |writer: &mut Writer| -> NextHopId {
        writer
            .add_next_hop(&NextHopSpec::without_interface(NextHopKind::Local))
            .unwrap()
    };
    (0..count)
        .map(|_| {
            let member = next_hop(writer);
            writer.add_group(&[(member, 1)]).unwrap()
        })
        .collect()
}

impl Both {
    pub(crate) fn new(count: usize) -> Both {
        let mut writer = Writer::new();
        let groups = groups(&mut writer, count);
        let (id, fib) = writer.add_fib();
        Both {
            writer,
            id,
            fib,
            groups,
            routes: BTreeMap::new(),
        }
    }

    pub(crate) fn set(&mut self, prefix: Prefix, group: GroupId) {
        if self.routes.insert(prefix, group).is_some() {
            self.writer.replace(self.id, &prefix, group).unwrap();
        } else {
            self.writer.insert(self.id, &prefix, group).unwrap();
        }
    }

    pub(crate) fn remove(&mut self, prefix: Prefix) {
        if self.routes.remove(&prefix).is_some() {
            let cover = (0..prefix.len())
                .rev()
                .find_map(|len| Some((len, *self.routes.get(&prefix.shortened(len))?)));
            self.writer.remove(self.id, &prefix, cover).unwrap();
        }
    }

    /// Gives all retired memory back: nobody reads.
    pub(crate) fn reclaim(&mut self) {
        if let Some(retired) = self.writer.take_retired() {
            self.writer.reclaim(retired);
        }
    }

    pub(crate) fn expected(&self, address: IpAddr) -> GroupId {
        let host = Prefix::host(address);
        (0..=host.len())
            .rev()
            .find_map(|len| self.routes.get(&host.shortened(len)).copied())
            .unwrap_or(GroupId::NONE)
    }

    pub(crate) fn found(&self, address: IpAddr) -> GroupId {
        match address {
            IpAddr::V4(address) => self.fib.lookup_v4(address.to_bits()),
            IpAddr::V6(address) => self.fib.lookup_v6(address.to_bits()),
        }
    }

    /// Compares addresses at the edges of a prefix, and one inside.
    pub(crate) fn check_around(&self, prefix: &Prefix, inside: u128) {
        let host = if prefix.len() == 128 {
            0
        } else {
            u128::MAX >> prefix.len()
        };
        let first = bits_of(prefix.address());
        let last = first | host;
        for bits in [
            first,
            first.wrapping_sub(1 << step(prefix)),
            last,
            last.wrapping_add(1),
            first | inside & host,
        ] {
            let address = address(prefix.family(), bits);
            assert_eq!(
                self.found(address),
                self.expected(address),
                "{address} near {prefix}"
            );
        }
    }
}

fn step(prefix: &Prefix) -> u32 {
    match prefix.family() {
        Family::V4 => 96,
        Family::V6 => 0,
    }
}

/// Returns the address of left-aligned bits.
pub(crate) fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}
