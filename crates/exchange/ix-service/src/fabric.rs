//! The entries of OpenFlow switches, as the engine handles them.

use millrace_flow::{Action, Instructions};
use millrace_ix_engine::Entries;
use millrace_ix_plan::layout::{OWNER, TABLES_END};
use millrace_ix_plan::{EntryId, Flow, FlowId, Matching};
use millrace_types::{Cookie, MeterId, Priority, TableId};

pub use millrace_ix_plan::Entry;
/// The identity of an entry.
pub type FabricKey = EntryId;

/// Flow entries, groups and meters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fabric {}

/// The kind of the marker's cookie; the planner uses lower ones.
const MARKER_KIND: u64 = 0xf;
/// The bits of the marker's cookie that hold the revision.
const REVISION_MASK: u64 = (1 << 52) - 1;

fn marker_key() -> FabricKey {
    EntryId::Flow(FlowId {
        table: TableId(TABLES_END),
        priority: Priority(0),
        matching: Matching::any(),
    })
}

impl Entries for Fabric {
    type Key = FabricKey;
    type Value = Entry;

    /// Returns the marker: an entry with the revision in its cookie. No instruction leads to its table, table
    /// 7.
    fn marker(revision: u64) -> (FabricKey, Entry) {
        let cookie = u64::from(OWNER) << 56 | MARKER_KIND << 52 | revision & REVISION_MASK;
        let flow = Flow {
            cookie: Cookie(cookie),
            instructions: Instructions::default(),
            idle_timeout: 0,
            hard_timeout: 0,
        };
        (marker_key(), Entry::Flow(flow))
    }

    fn revision(key: &FabricKey, value: &Entry) -> Option<u64> {
        match value {
            Entry::Flow(Flow {
                cookie: Cookie(word), ..
            }) if *key == marker_key() => {
                let is_marker = word >> 52 == u64::from(OWNER) << 4 | MARKER_KIND;
                is_marker.then_some(word & REVISION_MASK)
            }
            _ => None,
        }
    }

    fn is_ours(_: &FabricKey, value: &Entry) -> bool {
        matches!(value, Entry::Flow(Flow { cookie: Cookie(word), .. }) if word >> 56 == u64::from(OWNER))
    }

    fn references(value: &Entry) -> Vec<FabricKey> {
        let (meter, actions): (Option<MeterId>, Vec<&Action>) = match value {
            Entry::Meter(_) => (None, Vec::new()),
            Entry::Group(group) => {
                let actions = group.buckets.iter().flat_map(|bucket| bucket.actions.iter());
                (None, actions.collect())
            }
            Entry::Flow(flow) => {
                let Instructions {
                    meter,
                    apply_actions,
                    write_actions,
                    ..
                } = &flow.instructions;
                let lists = apply_actions.iter().chain(write_actions);
                (*meter, lists.flat_map(|actions| actions.iter()).collect())
            }
        };
        let groups = actions.into_iter().filter_map(|action| match action {
            Action::Group(group) => Some(EntryId::Group(*group)),
            _ => None,
        });
        meter.map(EntryId::Meter).into_iter().chain(groups).collect()
    }
}

#[cfg(test)]
mod tests {
    use millrace_types::GroupId;

    use super::*;

    #[test]
    fn a_flow_entry_refers_to_its_meter_and_to_the_groups_of_both_action_lists() {
        let instructions = Instructions {
            meter: Some(MeterId(3)),
            write_actions: Some([Action::Group(GroupId(7))].into()),
            ..Instructions::apply([Action::Group(GroupId(5))])
        };
        let flow = Flow {
            cookie: Cookie(0),
            instructions,
            idle_timeout: 0,
            hard_timeout: 0,
        };
        let expected = [
            EntryId::Meter(MeterId(3)),
            EntryId::Group(GroupId(5)),
            EntryId::Group(GroupId(7)),
        ];
        assert_eq!(Fabric::references(&Entry::Flow(flow)), expected);
    }
}
