//! The group table of the control side: what there is, who forwards to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_types::{GroupId, Time};

use crate::group::{Group, ReadyGroup};

/// A group that is there.
#[derive(Clone, Debug)]
pub(super) struct HeldGroup {
    pub(super) ready: Arc<ReadyGroup>,
    pub(super) created: Time,
}

/// All groups of a bridge.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<GroupId, HeldGroup>,
    /// How many buckets forward to each group that some do.
    forwarders: BTreeMap<GroupId, usize>,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn find(&self, id: GroupId) -> Option<&HeldGroup> {
        self.groups.get(&id)
    }

    pub(super) fn contains(&self, id: GroupId) -> bool {
        self.groups.contains_key(&id)
    }

    /// All groups from one on, in order of numbers.
    pub(super) fn from(&self, id: GroupId) -> impl Iterator<Item = &HeldGroup> {
        self.groups.range(id..).map(|(_, held)| held)
    }

    /// Makes the group of this number another one, or none; returns what it was.
    pub(super) fn set(&mut self, id: GroupId, held: Option<HeldGroup>) -> Option<HeldGroup> {
        for target in held.iter().flat_map(|held| held.ready.group().targets()) {
            *self.forwarders.entry(target).or_default() += 1;
        }
        let before = match held {
            Some(held) => self.groups.insert(id, held),
            None => self.groups.remove(&id),
        };
        for target in before.iter().flat_map(|held| held.ready.group().targets()) {
            if let Some(count) = self.forwarders.get_mut(&target) {
                *count -= 1;
                if *count == 0 {
                    self.forwarders.remove(&target);
                }
            }
        }
        before
    }

    /// How many buckets forward to a group.
    pub(super) fn forwarders(&self, id: GroupId) -> usize {
        self.forwarders.get(&id).copied().unwrap_or_default()
    }

    /// Returns true if packets of this group would come to it again, if it were as given and all others as they are.
    pub(super) fn makes_loop(&self, group: &Group) -> bool {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<GroupId> = group.targets().collect();
        while let Some(id) = waiting.pop() {
            if id == group.id {
                return true;
            }
            if seen.insert(id)
                && let Some(held) = self.groups.get(&id)
            {
                waiting.extend(held.ready.group().targets());
            }
        }
        false
    }
}
