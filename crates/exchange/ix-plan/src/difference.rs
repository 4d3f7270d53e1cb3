//! The modifications that make the content of a switch equal to another, in an order in which each is valid.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use millrace_flow::Action;
use millrace_types::GroupId;

use crate::entry::{Entry, EntryId, Group, SwitchState};

/// A modification of one entry. Without `to`, the entry is deleted. With `from` and `to`, the entry is
/// replaced in place, and keeps its counters.
pub type Modification = millrace_ix_engine::Modification<EntryId, Entry>;

/// Returns the modifications from `have` to `want` in a safe order: meters and groups before the flow entries
/// that use them, groups before the groups that forward to them, and deletions last, in the opposite order.
/// Equal entries are left out.
pub fn difference(have: &SwitchState, want: &SwitchState) -> Vec<Modification> {
    let mut modifications: Vec<_> = have
        .iter()
        .filter(|(id, entry)| want.get(id) != Some(entry))
        .map(|(id, entry)| Modification {
            key: id.clone(),
            from: Some(entry.clone()),
            to: want.get(id).cloned(),
        })
        .collect();
    let added = want.iter().filter(|(id, _)| !have.contains_key(id));
    modifications.extend(added.map(|(id, entry)| Modification {
        key: id.clone(),
        from: None,
        to: Some(entry.clone()),
    }));
    in_safe_order(modifications)
}

/// Returns modifications of one switch in the safe order that [`difference`] describes.
pub fn in_safe_order(mut modifications: Vec<Modification>) -> Vec<Modification> {
    let (before, after) = (
        depths(&modifications, |change| change.from.as_ref()),
        depths(&modifications, |change| change.to.as_ref()),
    );
    let stage = |change: &Modification| -> (bool, Reverse<u32>, u32, u32) {
        let is_deletion = change.to.is_none();
        // The order has deletions last. Deletions have the order flow entries, groups, meters; all other
        // modifications have the order meters, groups, flow entries.
        match &change.key {
            EntryId::Meter(_) if is_deletion => (true, Reverse(0), 0, 0),
            EntryId::Group(group) if is_deletion => (
                true,
                Reverse(1),
                u32::MAX - before.get(group).copied().unwrap_or(0),
                group.0,
            ),
            EntryId::Flow(_) if is_deletion => (true, Reverse(2), 0, 0),
            EntryId::Meter(_) => (false, Reverse(2), 0, 0),
            EntryId::Group(group) => (false, Reverse(1), after.get(group).copied().unwrap_or(0), group.0),
            EntryId::Flow(_) => (false, Reverse(0), 0, 0),
        }
    };
    modifications.sort_by_key(stage);
    modifications
}

/// Returns the depth of each group on one side of the modifications: 0 if it forwards to no group, else one more than the
/// deepest group that it forwards to.
fn depths<'a>(
    modifications: &'a [Modification],
    side: impl Fn(&'a Modification) -> Option<&'a Entry>,
) -> BTreeMap<GroupId, u32> {
    let groups: BTreeMap<GroupId, &Group> = modifications
        .iter()
        .filter_map(|change| match (&change.key, side(change)) {
            (EntryId::Group(id), Some(Entry::Group(group))) => Some((*id, group)),
            _ => None,
        })
        .collect();
    let mut depths: BTreeMap<GroupId, u32> = groups.keys().map(|id| (*id, 0)).collect();
    // The planner nests groups two deep; the bound ends the search for any content.
    for _ in 0..16 {
        for (id, group) in &groups {
            let deepest = targets(group).filter_map(|target| depths.get(&target)).max();
            if let Some(deepest) = deepest.copied() {
                depths.insert(*id, deepest + 1);
            }
        }
    }
    depths
}

fn targets(group: &Group) -> impl Iterator<Item = GroupId> + '_ {
    let actions = group.buckets.iter().flat_map(|bucket| bucket.actions.iter());
    actions.filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}
