//! Groups (OpenFlow 1.3.5, sections 5.6 and 7.3.4.2).
//!
//! A group has two forms. A [`Group`] is the group as the controller sent it; statistics return this form
//! unchanged. The control side compiles it once into a [`CompiledGroup`], the form for workers: the actions
//! of each bucket in the order of execution, the slots of the counters, and for a select group its
//! [`BucketCells`]. Each copy of the tables that workers read has a [`GroupMap`], which finds a
//! [`CompiledGroup`] by its number.

mod cells;
mod hash;
mod map;

use core::fmt;
use core::hash::{Hash, Hasher};
use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_flow::{Action, Bucket};
use millrace_types::GroupId;
use siphasher::sip::SipHasher13;

use crate::action_set::{self, ActionRanks, NO_ACTIONS};

pub(crate) use cells::BucketCells;
pub(crate) use hash::SelectHash;
pub(crate) use map::GroupMap;

/// The type of a group (`ofp_group_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum GroupKind {
    /// `OFPGT_ALL`: each bucket gets a copy.
    All = 0,
    /// `OFPGT_SELECT`: executes one bucket, the same for all packets of a flow.
    Select = 1,
    /// `OFPGT_INDIRECT`: executes the one bucket that the group has.
    Indirect = 2,
    /// `OFPGT_FF`: executes the first live bucket.
    FastFailover = 3,
}

impl GroupKind {
    /// Returns the name that `ovs-ofctl` uses.
    pub const fn name(self) -> &'static str {
        match self {
            GroupKind::All => "all",
            GroupKind::Select => "select",
            GroupKind::Indirect => "indirect",
            GroupKind::FastFailover => "fast_failover",
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Returns the groups to which these actions send packets.
pub(crate) fn targets<'a>(actions: impl IntoIterator<Item = &'a Action>) -> impl Iterator<Item = GroupId> {
    actions.into_iter().filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}

/// A group as a controller has sent it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// The number.
    pub id: GroupId,
    pub kind: GroupKind,
    pub buckets: Box<[Bucket]>,
}

impl Group {
    /// Returns the groups to which the buckets of this group send packets.
    pub(crate) fn targets(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.buckets.iter().flat_map(|bucket| targets(&bucket.actions))
    }
}

/// A bucket in the form for workers.
#[derive(Debug)]
pub(crate) struct CompiledBucket {
    /// The actions in the order of execution, one of each kind.
    pub(crate) actions: Box<[Action]>,
    /// The slot of the bucket's counters.
    pub(crate) slot: Slot,
}

/// A group in the form for workers.
#[derive(Debug)]
pub struct CompiledGroup {
    group: Group,
    slot: Slot,
    buckets: Box<[CompiledBucket]>,
    cells: Option<BucketCells>,
}

impl CompiledGroup {
    /// Compiles a group. `slot` is the slot of its counters, `bucket_slots` are those of its buckets. The
    /// buckets of a select group keep as much of their shares in `before`, the previous form of the group, as
    /// possible.
    pub(crate) fn new(
        group: Group,
        slot: Slot,
        bucket_slots: impl IntoIterator<Item = Slot>,
        before: Option<&CompiledGroup>,
    ) -> CompiledGroup {
        let compiled = |(bucket, slot): (&Bucket, Slot)| CompiledBucket {
            actions: as_set(&bucket.actions),
            slot,
        };
        let cells = (group.kind == GroupKind::Select).then(|| {
            let identities = identities(&group);
            let weights = group.buckets.iter().map(|bucket| bucket.weight);
            BucketCells::new(
                identities.into_iter().zip(weights),
                before.and_then(|held| held.cells.as_ref()),
            )
        });
        CompiledGroup {
            buckets: group.buckets.iter().zip(bucket_slots).map(compiled).collect(),
            group,
            slot,
            cells,
        }
    }

    /// Returns the group as it was sent.
    pub fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn buckets(&self) -> &[CompiledBucket] {
        &self.buckets
    }

    pub(crate) fn cells(&self) -> Option<&BucketCells> {
        self.cells.as_ref()
    }
}

/// Returns actions in the order of an action set, where a later one replaces an earlier one of its kind.
fn as_set(actions: &[Action]) -> Box<[Action]> {
    let (mut present, mut by_rank) = (ActionRanks::NONE, NO_ACTIONS);
    for action in actions {
        action_set::write(&mut present, &mut by_rank, *action);
    }
    action_set::in_order(present, &by_rank).into_iter().collect()
}

/// Returns an identity for each bucket that does not change when other buckets are added or removed. It is a
/// hash of the bucket's actions and of the number of earlier buckets with the same actions.
fn identities(group: &Group) -> Vec<u64> {
    let mut identities: Vec<u64> = Vec::with_capacity(group.buckets.len());
    for (at, bucket) in group.buckets.iter().enumerate() {
        let earlier = group.buckets[..at]
            .iter()
            .filter(|other| other.actions == bucket.actions)
            .count();
        let mut hasher = SipHasher13::new();
        (&bucket.actions, earlier).hash(&mut hasher);
        identities.push(hasher.finish());
    }
    identities
}

/// A compiled group, shared by the copies of the tables that workers read.
pub(crate) type Shared = Arc<CompiledGroup>;
