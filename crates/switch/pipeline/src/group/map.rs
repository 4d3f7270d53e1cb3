//! The groups of a readers' copy, found by number, and their liveness.

use std::collections::HashMap;

use hashbrown::HashTable;
use millrace_types::{GroupId, PortNo};

use millrace_flow::Bucket;

use super::{CompiledGroup, Shared};
use crate::Port;
use crate::port::PortMap;

/// The groups of a readers' copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupMap {
    groups: HashTable<GroupSlot>,
    /// The number of groups with a bucket that watches a group.
    watchers: usize,
    /// True if the liveness of groups must be computed again.
    is_stale: bool,
}

#[derive(Clone, Debug)]
struct GroupSlot {
    compiled: Shared,
    /// True if a bucket of the group is live. Kept up to date only while a bucket of any group watches a
    /// group.
    is_live: bool,
}

impl GroupMap {
    /// Returns the hash of a group number. The hash has no key: controllers choose the numbers, and collisions
    /// would slow down only their own groups.
    #[inline]
    fn hash(id: GroupId) -> u64 {
        let product = u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    }

    #[inline]
    fn slot(&self, id: GroupId) -> Option<&GroupSlot> {
        self.groups
            .find(Self::hash(id), |slot| slot.compiled.group().id == id)
    }

    /// Returns a group.
    #[inline]
    pub(crate) fn group(&self, id: GroupId) -> Option<&CompiledGroup> {
        self.slot(id).map(|slot| &*slot.compiled)
    }

    /// Adds or replaces a group. The caller then calls [`Self::settle`].
    pub(crate) fn insert(&mut self, compiled: Shared) {
        self.take(compiled.group().id);
        self.watchers += usize::from(watches_groups(&compiled));
        let hash = |slot: &GroupSlot| Self::hash(slot.compiled.group().id);
        let slot = GroupSlot {
            compiled,
            is_live: false,
        };
        self.groups.insert_unique(hash(&slot), slot, hash);
        self.is_stale = true;
    }

    /// Removes a group. The caller then calls [`Self::settle`].
    pub(crate) fn remove(&mut self, id: GroupId) {
        self.take(id);
        self.is_stale = true;
    }

    /// Records that the state of a port changed. The caller then calls [`Self::settle`].
    pub(crate) fn note_port(&mut self) {
        self.is_stale = true;
    }

    fn take(&mut self, id: GroupId) {
        let is_it = |slot: &GroupSlot| slot.compiled.group().id == id;
        if let Ok(found) = self.groups.find_entry(Self::hash(id), is_it) {
            let (slot, _) = found.remove();
            self.watchers -= usize::from(watches_groups(&slot.compiled));
        }
    }

    /// Updates the liveness of groups after changes, if some bucket watches a group. Reads each bucket of
    /// each group once, and visits a group again for each live group that it watches.
    pub(crate) fn settle(&mut self, ports: &PortMap) {
        if !core::mem::take(&mut self.is_stale) || self.watchers == 0 {
            return;
        }
        // A group is live if one of its buckets is live; a bucket that watches a group is live if that group is live.
        // The search begins at the groups that are live by themselves, so groups that only watch each other are never
        // live.
        self.groups.iter_mut().for_each(|slot| slot.is_live = false);
        let mut watched_by: HashMap<GroupId, Vec<GroupId>> = HashMap::new();
        let mut live = Vec::new();
        for slot in &self.groups {
            let group = slot.compiled.group();
            // No group is marked live yet, so this finds only buckets that watch a live port or nothing.
            if self.has_live_bucket(&slot.compiled, ports) {
                live.push(group.id);
            }
            for bucket in &group.buckets {
                if bucket.watch_group != GroupId::ANY {
                    watched_by.entry(bucket.watch_group).or_default().push(group.id);
                }
            }
        }
        while let Some(id) = live.pop() {
            let is_it = |slot: &GroupSlot| slot.compiled.group().id == id;
            if let Some(slot) = self.groups.find_mut(Self::hash(id), is_it)
                && !core::mem::replace(&mut slot.is_live, true)
            {
                live.extend(watched_by.get(&id).into_iter().flatten());
            }
        }
    }

    fn has_live_bucket(&self, compiled: &CompiledGroup, ports: &PortMap) -> bool {
        let mut buckets = compiled.group().buckets.iter();
        buckets.any(|bucket| self.is_live(bucket, ports))
    }

    /// Returns true if a bucket can be selected: it watches nothing, or a port or group that it watches is live.
    #[inline]
    pub(crate) fn is_live(&self, bucket: &Bucket, ports: &PortMap) -> bool {
        if !bucket.watches() {
            return true;
        }
        let by_port =
            bucket.watch_port != PortNo::ANY && ports.port(bucket.watch_port).is_some_and(Port::is_live);
        by_port
            || bucket.watch_group != GroupId::ANY
                && self.slot(bucket.watch_group).is_some_and(|slot| slot.is_live)
    }
}

fn watches_groups(compiled: &CompiledGroup) -> bool {
    let mut buckets = compiled.group().buckets.iter();
    buckets.any(|bucket| bucket.watch_group != GroupId::ANY)
}
