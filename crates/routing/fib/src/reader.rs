//! Lookups of bursts.
//!
//! A burst is looked up level by level: the loads of one level do not depend on each other, so that the processor has as
//! many cache misses in flight as it can.

use std::sync::Arc;

use crate::Family;
use crate::groups::{GroupId, Shared};
use crate::node::{self, Entry, Form};
use crate::table::Table;

/// The number of addresses that are looked up side by side.
const BURST: usize = 32;

/// The tables of a VRF.
#[derive(Debug)]
pub(crate) struct Tables {
    v4: Table,
    v6: Table,
}

impl Tables {
    pub(crate) fn new() -> Tables {
        Tables {
            v4: Table::new(),
            v6: Table::new(),
        }
    }

    pub(crate) fn of(&self, family: Family) -> &Table {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

/// The routes of one VRF, as workers read them. Cloning is cheap; clones see the same routes.
#[derive(Clone, Debug)]
pub struct Fib {
    shared: Arc<Shared>,
    tables: Arc<Tables>,
}

/// An address that nodes are looked up by.
trait Address: Copy {
    /// The number of bits.
    const BITS: u32;

    /// True if nodes may decide by the rest of a segment.
    const HAS_SEGMENTS: bool;

    /// Returns eight bits that follow the first `base` ones.
    fn byte(self, base: u32) -> u8;

    /// Returns the segment of bit `base`.
    fn segment(self, base: u8) -> u32;
}

impl Address for u32 {
    const BITS: u32 = 32;
    const HAS_SEGMENTS: bool = false;

    #[inline(always)]
    fn byte(self, base: u32) -> u8 {
        (self >> (24u32.wrapping_sub(base) & 31)) as u8
    }

    #[inline(always)]
    fn segment(self, _: u8) -> u32 {
        0
    }
}

impl Address for u128 {
    const BITS: u32 = 128;
    const HAS_SEGMENTS: bool = true;

    #[inline(always)]
    fn byte(self, base: u32) -> u8 {
        (self >> (120u32.wrapping_sub(base) & 127)) as u8
    }

    #[inline(always)]
    fn segment(self, base: u8) -> u32 {
        (self << (node::segment_start(base) & 127) >> 96) as u32
    }
}

impl Fib {
    pub(crate) fn new(shared: Arc<Shared>, tables: Arc<Tables>) -> Fib {
        Fib { shared, tables }
    }

    /// Looks up IPv4 addresses (in host order: 10.0.0.1 is `0x0a00_0001`); `groups[i]` becomes the group of `addresses[i]`,
    /// or [`GroupId::NONE`]. Only the shorter length of the two slices is looked up.
    pub fn lookup_v4_burst(&self, addresses: &[u32], groups: &mut [GroupId]) {
        for (addresses, groups) in addresses.chunks(BURST).zip(groups.chunks_mut(BURST)) {
            let mut entries = [Entry::NO_ROUTE; BURST];
            match self.tables.v4.direct() {
                Some(direct) => {
                    for (entry, address) in entries.iter_mut().zip(addresses) {
                        *entry = direct.entry((*address >> 8) as usize);
                    }
                    self.descend::<u32, false>(addresses, &mut entries, [24; BURST]);
                }
                None => {
                    entries.fill(self.tables.v4.root());
                    self.descend::<u32, true>(addresses, &mut entries, [0; BURST]);
                }
            }
            for (group, entry) in groups.iter_mut().zip(&entries) {
                *group = GroupId(entry.group());
            }
        }
    }

    /// Looks up IPv6 addresses ([`std::net::Ipv6Addr::to_bits`]) as [`Fib::lookup_v4_burst`] does IPv4 addresses.
    pub fn lookup_v6_burst(&self, addresses: &[u128], groups: &mut [GroupId]) {
        for (addresses, groups) in addresses.chunks(BURST).zip(groups.chunks_mut(BURST)) {
            let mut entries = [Entry::NO_ROUTE; BURST];
            let mut bases = [0; BURST];
            match self.tables.v6.direct() {
                Some(direct) => {
                    for (at, address) in addresses.iter().enumerate() {
                        // 2000::/3: the three high bits are 001.
                        let high = (address >> 104) as usize;
                        if high >> 21 == 1 {
                            entries[at] = direct.entry(high & 0x1f_ffff);
                            bases[at] = 24;
                        } else {
                            entries[at] = direct.rest();
                        }
                    }
                }
                None => entries.fill(self.tables.v6.root()),
            }
            self.descend::<u128, true>(addresses, &mut entries, bases);
            for (group, entry) in groups.iter_mut().zip(&entries) {
                *group = GroupId(entry.group());
            }
        }
    }

    /// Follows links until all entries are leaves. `bases` are the numbers of address bits that lead to the entries. With
    /// `DEEP` false, no node below those of the entries is visited.
    #[inline(always)]
    fn descend<A: Address, const DEEP: bool>(
        &self,
        addresses: &[A],
        entries: &mut [Entry; BURST],
        mut bases: [u8; BURST],
    ) {
        // A link of the last level cannot exist; the number of levels bounds the loop all the same.
        for _ in 0..A::BITS / 8 {
            let mut links = [0u8; BURST];
            let mut len = 0;
            #[expect(clippy::needless_range_loop, reason = "the positions are what is kept")]
            for at in 0..addresses.len().min(BURST) {
                links[len & (BURST - 1)] = at as u8;
                len += usize::from(entries[at].is_link());
            }
            if len == 0 {
                return;
            }
            // Loads that nothing depends on bring the first lines of all nodes, and then those with the entries of segments. The
            // loops are short, so that the processor sees the loads of many packets at once.
            let mut touched = 0;
            for at in &links[..len.min(BURST)] {
                let at = usize::from(*at) & (BURST - 1);
                touched |= node::touch(&self.shared.lines, entries[at].line());
            }
            let (mut lines, mut keys, mut segments) = ([0u32; BURST], [0u32; BURST], [0u8; BURST]);
            let mut segments_len = 0;
            for at in &links[..len.min(BURST)] {
                let at = usize::from(*at) & (BURST - 1);
                let (link, base) = (entries[at], bases[at]);
                if A::HAS_SEGMENTS && link.form() != Form::Byte {
                    let key = addresses[at].segment(base);
                    let slot = segments_len & (BURST - 1);
                    lines[slot] = node::line_of(&self.shared.lines, link, key);
                    keys[slot] = key;
                    segments[slot] = at as u8;
                    segments_len += 1;
                } else {
                    let byte = addresses[at].byte(u32::from(base));
                    entries[at] = node::entry(&self.shared.lines, link.line(), byte);
                    bases[at] = base + node::STRIDE;
                }
            }
            let segments_len = segments_len.min(BURST);
            for line in &lines[..segments_len] {
                touched |= node::touch(&self.shared.lines, *line);
            }
            std::hint::black_box(touched);
            for ((line, key), at) in lines.iter().zip(&keys).zip(&segments[..segments_len]) {
                let at = usize::from(*at) & (BURST - 1);
                entries[at] = node::entry_in_line(&self.shared.lines, *line, *key);
                bases[at] = node::segment_end(bases[at]);
            }
            if !DEEP {
                return;
            }
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
