//! The group table of the control side: the groups, and the number of buckets that forward to each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_types::{GroupId, Time};

use crate::group::{CompiledGroup, Group};

/// A group of the bridge.
#[derive(Clone, Debug)]
pub(super) struct GroupRecord {
    pub(super) compiled: Arc<CompiledGroup>,
    pub(super) created: Time,
}

/// All groups of a bridge.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<GroupId, GroupRecord>,
    /// Number of buckets that forward to a group, for groups that have any.
    forwarders: BTreeMap<GroupId, usize>,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn find(&self, id: GroupId) -> Option<&GroupRecord> {
        self.groups.get(&id)
    }

    pub(super) fn contains(&self, id: GroupId) -> bool {
        self.groups.contains_key(&id)
    }

    /// Returns the groups from `id` on, ordered by number.
    pub(super) fn from(&self, id: GroupId) -> impl Iterator<Item = &GroupRecord> {
        self.groups.range(id..).map(|(_, record)| record)
    }

    /// Adds, replaces or (`None`) removes the group with this number. Returns the previous group.
    pub(super) fn set(&mut self, id: GroupId, record: Option<GroupRecord>) -> Option<GroupRecord> {
        for target in record.iter().flat_map(|record| record.compiled.group().targets()) {
            *self.forwarders.entry(target).or_default() += 1;
        }
        let before = match record {
            Some(record) => self.groups.insert(id, record),
            None => self.groups.remove(&id),
        };
        for target in before.iter().flat_map(|record| record.compiled.group().targets()) {
            if let Some(count) = self.forwarders.get_mut(&target) {
                *count -= 1;
                if *count == 0 {
                    self.forwarders.remove(&target);
                }
            }
        }
        before
    }

    /// Returns the number of buckets that forward to a group.
    pub(super) fn forwarders(&self, id: GroupId) -> usize {
        self.forwarders.get(&id).copied().unwrap_or_default()
    }

    /// Returns true if `group` would close a loop: packets of the group could return to it through the other groups.
    pub(super) fn makes_loop(&self, group: &Group) -> bool {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<GroupId> = group.targets().collect();
        while let Some(id) = waiting.pop() {
            if id == group.id {
                return true;
            }
            if seen.insert(id)
                && let Some(record) = self.groups.get(&id)
            {
                waiting.extend(record.compiled.group().targets());
            }
        }
        false
    }
}
