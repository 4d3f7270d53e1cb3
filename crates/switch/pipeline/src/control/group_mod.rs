//! group_mod (OpenFlow 1.3.5, sections 6.5 and 7.3.4.2) and the statistics of groups.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_flow::{Action, Bucket};
use millrace_types::{Duration, GroupId, PortNo, Time};

use super::error::{ActionError, GroupModError};
use super::groups::GroupRecord;
use super::journal::Undo;
use super::request::RemovedReason;
use super::validate;
use super::writer::Control;
use crate::counters::EntryCount;
use crate::group::{CompiledGroup, Group, GroupKind};
use crate::{FlowEntry, Op};

/// Maximum number of groups.
const GROUPS_MAX: usize = 262_144;

/// A group_mod (`ofp_group_mod_command`; OpenFlow 1.3.5, section 7.3.4.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupMod {
    /// `OFPGC_ADD`: adds a group.
    Add(Group),
    /// `OFPGC_MODIFY`: replaces the type and the buckets of a group.
    Modify(Group),
    /// `OFPGC_DELETE`: deletes a group and the flow entries that forward to it; all groups for [`GroupId::ALL`].
    Delete(GroupId),
}

/// A group and its counters (OpenFlow 1.3.5, section 7.3.5.9).
#[derive(Clone, Debug)]
pub struct GroupStat<'a> {
    pub group: &'a Group,
    /// Number of flow entries and of other groups' buckets that forward to the group.
    pub references: u32,
    /// Packets and bytes that the group processed.
    pub count: EntryCount,
    /// Time since the group was added.
    pub duration: Duration,
    /// Packets and bytes that each bucket processed.
    pub buckets: Vec<EntryCount>,
}

impl Control {
    /// Maximum number of groups.
    pub const GROUPS_MAX: u32 = GROUPS_MAX as u32;

    /// Executes a group_mod and appends its changes for the readers to `ops`. Returns the number of flow entries that
    /// were deleted because they forwarded to a deleted group.
    ///
    /// # Errors
    /// [`GroupModError`]; nothing has changed.
    pub fn group_mod(
        &mut self,
        request: &GroupMod,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<usize, GroupModError> {
        match request {
            GroupMod::Add(group) => {
                if self.groups.contains(group.id) {
                    return Err(GroupModError::Exists { group: group.id });
                }
                if self.groups.len() >= GROUPS_MAX {
                    return Err(GroupModError::TooMany { max: GROUPS_MAX });
                }
                self.set_group(group, now, ops)?;
                Ok(0)
            }
            GroupMod::Modify(group) => {
                if !self.groups.contains(group.id) {
                    return Err(GroupModError::Unknown { group: group.id });
                }
                self.set_group(group, now, ops)?;
                Ok(0)
            }
            GroupMod::Delete(GroupId::ALL) => {
                let all: Vec<GroupId> = self
                    .groups
                    .from(GroupId(0))
                    .map(|held| held.compiled.group().id)
                    .collect();
                for id in &all {
                    self.remove_group(*id, ops);
                }
                if all.is_empty() {
                    return Ok(0);
                }
                let sends_to_any = |entry: &FlowEntry| entry.groups().next().is_some();
                Ok(self.remove_users(sends_to_any, RemovedReason::GroupDelete, now, ops))
            }
            GroupMod::Delete(id) => {
                if self.groups.forwarders(*id) > 0 {
                    return Err(GroupModError::Chained { group: *id });
                }
                if !self.groups.contains(*id) {
                    return Ok(0);
                }
                self.remove_group(*id, ops);
                let sends_there = |entry: &FlowEntry| entry.groups().any(|group| group == *id);
                Ok(self.remove_users(sends_there, RemovedReason::GroupDelete, now, ops))
            }
        }
    }

    /// Adds or replaces a group, if it is valid.
    pub(super) fn set_group(
        &mut self,
        group: &Group,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<(), GroupModError> {
        self.check_group(group)?;
        let held = self.groups.find(group.id).cloned();
        let needed = group.buckets.len() + usize::from(held.is_none());
        if needed > self.free_slots() {
            return Err(GroupModError::TooManyBuckets {
                buckets: group.buckets.len(),
            });
        }
        // A modified group keeps its counters; its buckets start with zero.
        let (slot, created) = match &held {
            Some(held) => (held.compiled.slot(), held.created),
            None => (self.allocate_counters(), now),
        };
        let buckets: Vec<Slot> = group.buckets.iter().map(|_| self.allocate_counters()).collect();
        let before = held.as_ref().map(|held| &*held.compiled);
        let compiled = Arc::new(CompiledGroup::new(group.clone(), slot, buckets, before));
        self.removed_counters
            .extend(before.into_iter().flat_map(bucket_slots));
        ops.push(Op::Group(Arc::clone(&compiled)));
        self.groups.set(group.id, Some(GroupRecord { compiled, created }));
        self.record_undo(|| Undo::Group(group.id, held.map(Box::new)));
        Ok(())
    }

    fn remove_group(&mut self, id: GroupId, ops: &mut Vec<Op>) {
        if let Some(held) = self.groups.set(id, None) {
            self.removed_counters.extend(bucket_slots(&held.compiled));
            self.removed_counters.push(held.compiled.slot());
            ops.push(Op::RemoveGroup(id));
            self.record_undo(|| Undo::Group(id, Some(Box::new(held))));
        }
    }

    /// Restores the state of a group before its latest change.
    pub(super) fn undo_group(&mut self, id: GroupId, before: Option<GroupRecord>) {
        let kept = before.as_ref().map(|held| held.compiled.slot());
        if let Some(held) = self.groups.set(id, before) {
            self.free.extend(bucket_slots(&held.compiled));
            self.free
                .extend(Some(held.compiled.slot()).filter(|slot| Some(*slot) != kept));
        }
    }

    fn check_group(&self, group: &Group) -> Result<(), GroupModError> {
        if group.id > GroupId::MAX {
            return Err(GroupModError::BadNumber { group: group.id });
        }
        if group.kind == GroupKind::Indirect && group.buckets.len() != 1 {
            return Err(GroupModError::NotOneBucket {
                buckets: group.buckets.len(),
            });
        }
        for bucket in &group.buckets {
            self.check_bucket(group, bucket)?;
        }
        if self.groups.makes_loop(group) {
            return Err(GroupModError::Loop { group: group.id });
        }
        for bucket in &group.buckets {
            self.check_targets(&bucket.actions)?;
        }
        Ok(())
    }

    fn check_bucket(&self, group: &Group, bucket: &Bucket) -> Result<(), GroupModError> {
        let kind = group.kind;
        if bucket.weight != 0 && kind != GroupKind::Select {
            return Err(GroupModError::Weight { kind });
        }
        match kind {
            GroupKind::All | GroupKind::Indirect if bucket.watches() => {
                return Err(GroupModError::WatchUnsupported { kind });
            }
            GroupKind::FastFailover if !bucket.watches() => return Err(GroupModError::WatchMissing),
            _ => {}
        }
        let port = bucket.watch_port;
        if port != PortNo::ANY && !port.is_ordinary() && port != PortNo::LOCAL {
            return Err(GroupModError::BadWatchPort { port });
        }
        let watched = bucket.watch_group;
        if watched != GroupId::ANY && (watched == group.id || !self.groups.contains(watched)) {
            return Err(GroupModError::BadWatchGroup { group: watched });
        }
        Ok(validate::bucket(&bucket.actions)?)
    }

    /// Refuses actions that forward to groups that do not exist.
    pub(super) fn check_targets<'a>(
        &self,
        actions: impl IntoIterator<Item = &'a Action>,
    ) -> Result<(), ActionError> {
        match crate::group::targets(actions).find(|target| !self.groups.contains(*target)) {
            Some(group) => Err(ActionError::BadOutGroup { group }),
            None => Ok(()),
        }
    }

    /// Removes the flow entries that refer to a deleted group or meter.
    pub(super) fn remove_users(
        &mut self,
        is_user: impl Fn(&FlowEntry) -> bool,
        reason: RemovedReason,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> usize {
        let users: Vec<Slot> = self
            .referrers()
            .filter(|(_, entry)| is_user(entry))
            .map(|(slot, _)| slot)
            .collect();
        for slot in &users {
            self.remove(*slot, Some(reason), now, ops);
        }
        users.len()
    }

    /// Returns the flow entries that refer to groups or meters. Visits all records, but reads no other entry.
    pub(super) fn referrers(&self) -> impl Iterator<Item = (Slot, &Arc<FlowEntry>)> {
        self.entries()
            .filter(|(_, record)| record.refers)
            .map(|(slot, record)| (slot, &record.entry))
    }

    /// Returns the number of groups.
    pub fn group_len(&self) -> usize {
        self.groups.len()
    }

    /// Returns all groups, ordered by number.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.from(GroupId(0)).map(|held| held.compiled.group())
    }

    /// Calls `visit` for a group and its counters, or for all groups for [`GroupId::ALL`].
    pub fn group_stats(&self, id: GroupId, now: Time, mut visit: impl FnMut(GroupStat<'_>)) {
        let mut users: HashMap<GroupId, u32> = HashMap::new();
        for (_, entry) in self.referrers() {
            // An entry that forwards to a group twice counts once.
            let mut groups: Vec<GroupId> = entry.groups().collect();
            groups.sort_unstable();
            groups.dedup();
            for group in groups {
                *users.entry(group).or_default() += 1;
            }
        }
        let one = self.groups.find(id).into_iter();
        let all = self.groups.from(GroupId(0)).filter(|_| id == GroupId::ALL);
        for held in one.chain(all) {
            let (compiled, id) = (&held.compiled, held.compiled.group().id);
            let forwarders = u32::try_from(self.groups.forwarders(id)).unwrap_or(u32::MAX);
            visit(GroupStat {
                group: compiled.group(),
                references: users
                    .get(&id)
                    .map_or(0, |users| *users)
                    .saturating_add(forwarders),
                count: self.banks.entry(compiled.slot()),
                duration: now.since(held.created),
                buckets: bucket_slots(compiled)
                    .map(|slot| self.banks.entry(slot))
                    .collect(),
            });
        }
    }
}

fn bucket_slots(compiled: &CompiledGroup) -> impl Iterator<Item = Slot> + '_ {
    compiled.buckets().iter().map(|bucket| bucket.slot)
}
