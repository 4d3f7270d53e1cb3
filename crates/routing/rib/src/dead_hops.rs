//! Next hops that are dead because their link or its addresses are lost, and alive again after that.

use std::collections::HashSet;

use millrace_fib::{Family, Prefix};

use crate::event::{Netns, RouteKind, Source};
use crate::hops::{Set, SetId, Via};
use crate::rib::Rib;
use crate::routes::Record;

/// The reason why the next hops on a link can no longer be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// The link is down. Local routes stay.
    LinkDown,
    /// The link has lost its last IPv4 address. Local routes go, too; IPv6 is not affected.
    LastAddress,
}

/// A set with next hops on a link.
struct SetOnLink {
    id: SetId,
    family: Family,
    /// The marks of the next hops.
    dead: Vec<bool>,
    via: Via,
}

impl Rib {
    /// Marks the next hops on a link dead, and drops the IPv4 routes that have no other. IPv6 routes that have no other are
    /// passed over, until the kernel withdraws them.
    pub(crate) fn hops_die(&mut self, netns: Netns, ifindex: u32, loss: Loss) {
        let mut sets = HashSet::new();
        let mut passed_over = HashSet::new();
        for SetOnLink {
            id,
            family,
            mut dead,
            via,
        } in self.sets_on(netns, ifindex)
        {
            if loss == Loss::LastAddress && family == Family::V6 {
                continue;
            }
            for (dead, hop) in dead.iter_mut().zip(via.hops()) {
                *dead |= hop.ifindex == ifindex;
            }
            let Some(set) = self.hops.set_mut(id) else {
                continue;
            };
            set.dead = dead;
            let is_dead = set.is_dead();
            self.regroup(id);
            match family {
                Family::V4 if is_dead => drop(sets.insert(id)),
                Family::V6 if is_dead => drop(passed_over.insert(id)),
                Family::V4 | Family::V6 => {}
            }
        }
        let of_link = |set: &Set| set.key.netns == netns && set.key.via == Via::Local(ifindex);
        let local: HashSet<SetId> = self
            .hops
            .sets()
            .filter(|(_, set)| of_link(set))
            .map(|(id, _)| id)
            .collect();
        sets.extend(&local);
        self.purge(netns, &sets, |prefix, record| {
            let is_kept =
                local.contains(&record.set) && loss == Loss::LinkDown && record.kind != RouteKind::Broadcast;
            prefix.family() == Family::V4 && !is_kept
        });
        if !passed_over.is_empty() {
            self.sync_routes_of(netns, &passed_over);
        }
    }

    /// Clears the marks of next hops of a family on a link.
    pub(crate) fn hops_revive(&mut self, netns: Netns, ifindex: u32, revived: Family) {
        let mut sets = HashSet::new();
        for SetOnLink {
            id,
            family,
            mut dead,
            via,
        } in self.sets_on(netns, ifindex)
        {
            if family != revived || !dead.iter().any(|dead| *dead) {
                continue;
            }
            for (dead, hop) in dead.iter_mut().zip(via.hops()) {
                *dead &= hop.ifindex != ifindex;
            }
            let Some(set) = self.hops.set_mut(id) else {
                continue;
            };
            if set.is_dead() {
                sets.insert(id);
            }
            set.dead = dead;
            self.regroup(id);
        }
        // Routes that were passed over are taken again.
        if !sets.is_empty() {
            self.sync_routes_of(netns, &sets);
        }
    }

    /// Returns the sets with next hops on a link.
    fn sets_on(&self, netns: Netns, ifindex: u32) -> Vec<SetOnLink> {
        let mut ids: Vec<SetId> = self
            .hops
            .on_link(netns, ifindex)
            .into_iter()
            .filter_map(|id| self.hops.adjacency(id))
            .flat_map(|adjacency| adjacency.sets.iter().copied())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter()
            .filter_map(|id| Some((id, self.hops.set(id)?)))
            .filter(|(_, set)| !set.key.via.hops().is_empty())
            .map(|(id, set)| SetOnLink {
                id,
                family: set.key.family,
                dead: set.dead.clone(),
                via: set.key.via.clone(),
            })
            .collect()
    }

    /// Drops the kernel's routes with these sets for which `is_gone` holds.
    pub(crate) fn purge(
        &mut self,
        netns: Netns,
        sets: &HashSet<SetId>,
        is_gone: impl Fn(&Prefix, &Record) -> bool,
    ) {
        let any_used = sets
            .iter()
            .any(|id| self.hops.set(*id).is_some_and(|set| set.users > 0));
        if any_used {
            let is_gone = |prefix: &Prefix, record: &Record| {
                sets.contains(&record.set)
                    && record.origin.source() == Source::Kernel
                    && is_gone(prefix, record)
            };
            self.counts.purged += self.remove_all(netns, is_gone) as u64;
        }
    }
}
