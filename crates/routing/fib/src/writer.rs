//! The single writer of all FIBs.

use std::sync::Arc;

use crate::arena::{Allocator, Block, Full};
use crate::groups::{self, GroupId, Groups, NextHopId, NextHops, Shared};
use crate::reader::{Fib, Tables};
use crate::table::{self, Change, Means};
use crate::{Family, NextHop, NextHopSpec, Prefix};

/// The number of a VRF in its [`Writer`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FibId(u32);

/// Memory and numbers that readers may still use. After a grace period, in which each reader has finished the burst that it
/// was in, the caller gives it back by [`Writer::reclaim`]. If it is dropped, the memory stays unused.
#[derive(Debug, Default)]
#[must_use]
pub struct Retired {
    blocks: Vec<Block>,
    groups: Vec<GroupId>,
    next_hops: Vec<NextHopId>,
}

impl Retired {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.groups.is_empty() && self.next_hops.is_empty()
    }
}

#[derive(Debug)]
struct Vrf {
    tables: Arc<Tables>,
    /// The number of routes, by family.
    routes: [usize; 2],
}

/// Numbers of objects and bytes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub routes_v4: usize,
    pub routes_v6: usize,
    pub groups: u32,
    pub next_hops: u32,
    /// Memory that is allocated, in bytes.
    pub size: usize,
    /// The part of it that nodes and cells use, in bytes.
    pub nodes_size: usize,
}

/// The single writer of the FIBs of all VRFs. Workers read while it writes.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    allocator: Allocator,
    groups: Groups,
    vrfs: Vec<Option<Vrf>>,
    retired: Retired,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// Returns a writer without VRFs.
    pub fn new() -> Writer {
        Writer {
            shared: Arc::new(Shared::new()),
            allocator: Allocator::new(),
            groups: Groups::new(),
            vrfs: Vec::new(),
            retired: Retired::default(),
        }
    }

    /// Returns the reader of all next hops.
    pub fn next_hops(&self) -> NextHops {
        NextHops {
            shared: self.shared.clone(),
        }
    }

    /// Makes a VRF without routes; returns its number, and the reader of its routes.
    pub fn add_fib(&mut self) -> (FibId, Fib) {
        let tables = Arc::new(Tables::new());
        let vrf = Some(Vrf {
            tables: tables.clone(),
            routes: [0; 2],
        });
        let at = match self.vrfs.iter().position(Option::is_none) {
            Some(at) => {
                self.vrfs[at] = vrf;
                at
            }
            None => {
                self.vrfs.push(vrf);
                self.vrfs.len() - 1
            }
        };
        (FibId(at as u32), Fib::new(self.shared.clone(), tables))
    }

    /// Removes a VRF. Its readers must be dropped before the next [`Writer::reclaim`]: its routes' memory is used again.
    pub fn remove_fib(&mut self, fib: FibId) {
        if let Some(vrf) = self.vrfs.get_mut(fib.0 as usize).and_then(Option::take) {
            let mut means = Means {
                memory: &self.shared.lines,
                allocator: &mut self.allocator,
                retired: &mut self.retired.blocks,
            };
            for family in [Family::V4, Family::V6] {
                table::retire(vrf.tables.of(family), &mut means);
            }
        }
    }

    /// Adds a route that the VRF does not have.
    ///
    /// # Errors
    /// If the memory of the FIB is full; some addresses of the prefix may have the new route then.
    pub fn insert(&mut self, fib: FibId, prefix: &Prefix, group: GroupId) -> Result<(), Full> {
        self.change(fib, prefix, Change::Set(group.0), 1)
    }

    /// Gives a route of the VRF another group. Each address of the prefix has the old or the new group at any time.
    ///
    /// # Errors
    /// As [`Writer::insert`].
    pub fn replace(&mut self, fib: FibId, prefix: &Prefix, group: GroupId) -> Result<(), Full> {
        self.change(fib, prefix, Change::Set(group.0), 0)
    }

    /// Removes a route. `cover` is the longest other route of the VRF that covers the prefix: its length and its group.
    ///
    /// # Errors
    /// If the memory of the FIB is full: a node that changes needs a copy.
    pub fn remove(&mut self, fib: FibId, prefix: &Prefix, cover: Option<(u8, GroupId)>) -> Result<(), Full> {
        let (cover_len, cover_group) = cover.map_or((0, 0), |(len, group)| (len, group.0));
        self.change(
            fib,
            prefix,
            Change::Clear {
                cover_len,
                cover_group,
            },
            -1,
        )
    }

    fn change(&mut self, fib: FibId, prefix: &Prefix, change: Change, more: isize) -> Result<(), Full> {
        let Some(vrf) = self.vrfs.get_mut(fib.0 as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        let routes = &mut vrf.routes[prefix.family() as usize];
        *routes = routes.saturating_add_signed(more);
        let mut means = Means {
            memory: &self.shared.lines,
            allocator: &mut self.allocator,
            retired: &mut self.retired.blocks,
        };
        table::change(
            vrf.tables.of(prefix.family()),
            &mut means,
            prefix,
            change,
            *routes,
        )
    }

    /// Makes a next hop.
    ///
    /// # Errors
    /// If there are 2^24 next hops.
    pub fn add_next_hop(&mut self, spec: &NextHopSpec) -> Result<NextHopId, Full> {
        self.groups.add_next_hop(&self.shared, spec)
    }

    /// Changes a next hop. Its interface and its gateway must stay as they are.
    pub fn set_next_hop(&mut self, id: NextHopId, spec: &NextHopSpec) {
        if let Some(line) = self.next_hop(id) {
            line.store(spec);
        }
    }

    /// Returns a next hop; `None` if there never was one of this number.
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.shared.next_hop(id)
    }

    /// Retires a next hop that no group has.
    pub fn retire_next_hop(&mut self, id: NextHopId) {
        self.retired.next_hops.push(id);
    }

    /// Makes a group of next hops and weights, from 1. Members behind the first 256 are left out.
    ///
    /// # Errors
    /// If there are 2^24 groups, or the memory of the FIB is full.
    pub fn add_group(&mut self, members: &[(NextHopId, u32)]) -> Result<GroupId, Full> {
        let group = self.groups.add_group(&self.shared)?;
        self.set_group(group, members)?;
        Ok(group)
    }

    /// Replaces the members of a group. Only flows of members that go, or whose share shrinks, move.
    ///
    /// # Errors
    /// If the memory of the FIB is full: the group keeps its members.
    pub fn set_group(&mut self, group: GroupId, members: &[(NextHopId, u32)]) -> Result<(), Full> {
        let before = groups::set_members(&self.shared, &mut self.allocator, group, members)?;
        self.retired.blocks.extend(before);
        Ok(())
    }

    /// Retires a group that no route has.
    pub fn retire_group(&mut self, group: GroupId) {
        self.retired.groups.push(group);
    }

    /// Returns what readers can no longer reach, unless they are in a burst now; `None` if there is nothing.
    pub fn take_retired(&mut self) -> Option<Retired> {
        (!self.retired.is_empty()).then(|| core::mem::take(&mut self.retired))
    }

    /// Takes back what [`Writer::take_retired`] returned, after a grace period.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what is reclaimed once must not be reclaimed again"
    )]
    pub fn reclaim(&mut self, retired: Retired) {
        for block in &retired.blocks {
            self.allocator.free(*block);
        }
        for group in &retired.groups {
            // Cells that the group had are free at once: no reader can reach the group.
            if let Ok(Some(block)) = groups::set_members(&self.shared, &mut self.allocator, *group, &[]) {
                self.allocator.free(block);
            }
            self.groups.free_group(*group);
        }
        for next_hop in &retired.next_hops {
            self.groups.free_next_hop(*next_hop);
        }
    }

    /// Returns the numbers of objects and the memory.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage {
            groups: self.groups.group_count(),
            next_hops: self.groups.next_hop_count(),
            size: self.shared.size(),
            nodes_size: self.allocator.used_size(),
            ..Usage::default()
        };
        for vrf in self.vrfs.iter().flatten() {
            usage.routes_v4 += vrf.routes[Family::V4 as usize];
            usage.routes_v6 += vrf.routes[Family::V6 as usize];
            usage.size += table::size(vrf.tables.of(Family::V4)) + table::size(vrf.tables.of(Family::V6));
        }
        usage
    }
}
