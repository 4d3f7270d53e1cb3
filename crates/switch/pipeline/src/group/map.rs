//! The groups of a readers' copy, found by number, and their liveness.

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
}

#[derive(Clone, Debug)]
struct GroupSlot {
    compiled: Shared,
    /// True if a bucket is live. Kept up to date only while a bucket watches a group.
    is_live: bool,
}

impl GroupMap {
    /// Returns the hash of a number. It is not keyed: controllers choose the numbers, and collisions would slow down
    /// only themselves.
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

    /// Adds or replaces a group.
    pub(crate) fn insert(&mut self, compiled: Shared, ports: &PortMap) {
        self.take(compiled.group().id);
        self.watchers += usize::from(watches_groups(&compiled));
        let hash = |slot: &GroupSlot| Self::hash(slot.compiled.group().id);
        let slot = GroupSlot {
            compiled,
            is_live: false,
        };
        self.groups.insert_unique(hash(&slot), slot, hash);
        self.refresh(ports);
    }

    pub(crate) fn remove(&mut self, id: GroupId, ports: &PortMap) {
        self.take(id);
        self.refresh(ports);
    }

    fn take(&mut self, id: GroupId) {
        let is_it = |slot: &GroupSlot| slot.compiled.group().id == id;
        if let Ok(found) = self.groups.find_entry(Self::hash(id), is_it) {
            let (slot, _) = found.remove();
            self.watchers -= usize::from(watches_groups(&slot.compiled));
        }
    }

    /// Updates the liveness of groups, if some bucket watches a group. Reads all buckets of all groups.
    pub(crate) fn refresh(&mut self, ports: &PortMap) {
        if self.watchers == 0 {
            return;
        }
        // A group is live if one of its buckets is live; a bucket that watches a group is live if that group is live.
        // The iteration begins with no live group and ends when nothing changes, so groups that only watch each other
        // are never live.
        self.groups.iter_mut().for_each(|slot| slot.is_live = false);
        loop {
            let risen: Vec<GroupId> = self
                .groups
                .iter()
                .filter(|slot| !slot.is_live && self.has_live_bucket(&slot.compiled, ports))
                .map(|slot| slot.compiled.group().id)
                .collect();
            if risen.is_empty() {
                return;
            }
            for id in risen {
                if let Some(slot) = self
                    .groups
                    .find_mut(Self::hash(id), |slot| slot.compiled.group().id == id)
                {
                    slot.is_live = true;
                }
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
