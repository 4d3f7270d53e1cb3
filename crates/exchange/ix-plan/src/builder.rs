//! Functions that make parts of entries, and the states of all switches during the construction of a plan.

use std::collections::BTreeMap;

use millrace_flow::{Action, Bucket, Field, Instructions, SetField, WriteMetadata};
use millrace_ix_model::{ObjectId, SwitchId};
use millrace_types::{GroupId, MeterId, PortNo, Priority, TableId};
use millrace_wire::EtherType;

use crate::entry::{Entry, EntryId, Flow, FlowId, Group, GroupKind, Matching, Meter, RateUnit, SwitchState};
use crate::layout::{CookieFields, Metadata};

/// The burst that a meter admits, as a duration at the contracted rate in milliseconds: that of the switch's meters
/// without burst size, with which TCP gets the contracted rate (ADR 37).
const BURST_MILLIS: u64 = 200;
/// The smallest burst in kilobits: two frames of 1,522 bytes.
const BURST_KBIT_MIN: u32 = 25;

/// The priority of entries of table 0 for all ports.
pub(crate) const RESERVED_PRIORITY: u16 = 60_000;

/// An object that cannot be installed in the switches as ordered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    pub object: ObjectId,
    /// The reason in words.
    pub message: String,
}

/// The states of all switches under construction.
#[derive(Default, Debug)]
pub(crate) struct Builder {
    pub(crate) switches: BTreeMap<SwitchId, SwitchState>,
    pub(crate) problems: Vec<Problem>,
}

impl Builder {
    pub(crate) fn flow(&mut self, switch: SwitchId, line: FlowBuilder) {
        let id = EntryId::Flow(FlowId {
            table: line.table,
            priority: Priority(line.priority),
            matching: line.matching,
        });
        let flow = Flow {
            cookie: line.cookie.cookie(),
            instructions: line.instructions,
            idle_timeout: 0,
            hard_timeout: 0,
        };
        self.switches
            .entry(switch)
            .or_default()
            .insert(id, Entry::Flow(flow));
    }

    pub(crate) fn group(&mut self, switch: SwitchId, group: GroupId, kind: GroupKind, buckets: Vec<Bucket>) {
        let entry = Entry::Group(Group { kind, buckets });
        self.switches
            .entry(switch)
            .or_default()
            .insert(EntryId::Group(group), entry);
    }

    /// Adds a meter for a rate in kbit/s, with a burst of 200 ms at that rate.
    pub(crate) fn rate_meter(&mut self, switch: SwitchId, meter: MeterId, rate_kbps: u32) {
        let burst = u64::from(rate_kbps) * BURST_MILLIS / 1000;
        let entry = Meter {
            unit: RateUnit::Kbps,
            rate: rate_kbps,
            burst: u32::try_from(burst).unwrap_or(u32::MAX).max(BURST_KBIT_MIN),
        };
        self.switches
            .entry(switch)
            .or_default()
            .insert(EntryId::Meter(meter), Entry::Meter(entry));
    }

    /// Adds a meter for a rate in packets per second, with a burst of one second at that rate.
    pub(crate) fn packet_meter(&mut self, switch: SwitchId, meter: MeterId, rate: u32) {
        let entry = Meter {
            unit: RateUnit::Pktps,
            rate,
            burst: rate,
        };
        self.switches
            .entry(switch)
            .or_default()
            .insert(EntryId::Meter(meter), Entry::Meter(entry));
    }

    pub(crate) fn problem(&mut self, object: impl Into<ObjectId>, message: impl Into<String>) {
        self.problems.push(Problem {
            object: object.into(),
            message: message.into(),
        });
    }
}

/// A flow entry under construction.
#[derive(Clone, Debug)]
pub(crate) struct FlowBuilder {
    table: TableId,
    priority: u16,
    matching: Matching,
    cookie: CookieFields,
    instructions: Instructions,
}

impl FlowBuilder {
    /// Returns an entry that drops.
    pub(crate) fn new(
        table: TableId,
        priority: u16,
        matching: Matching,
        cookie: CookieFields,
    ) -> FlowBuilder {
        FlowBuilder {
            table,
            priority,
            matching,
            cookie,
            instructions: Instructions::default(),
        }
    }

    pub(crate) fn meter(mut self, meter: MeterId) -> FlowBuilder {
        self.instructions.meter = Some(meter);
        self
    }

    pub(crate) fn apply(mut self, actions: Vec<Action>) -> FlowBuilder {
        self.instructions.apply_actions =
            Some(actions.into_boxed_slice()).filter(|actions| !actions.is_empty());
        self
    }

    /// Writes all bits of the metadata.
    pub(crate) fn metadata(mut self, metadata: Metadata) -> FlowBuilder {
        self.instructions.write_metadata = Some(WriteMetadata {
            value: metadata.word(),
            mask: u64::MAX,
        });
        self
    }

    /// Writes the index of the end by which the frame leaves to the metadata.
    pub(crate) fn egress_end(mut self, end: u32) -> FlowBuilder {
        self.instructions.write_metadata = Some(WriteMetadata {
            value: end.into(),
            mask: Metadata::EGRESS_END,
        });
        self
    }

    pub(crate) fn goto(mut self, table: TableId) -> FlowBuilder {
        self.instructions.goto_table = Some(table);
        self
    }
}

/// Returns a match on parts of the metadata.
pub(crate) fn metadata(fields: Metadata, mask: u64) -> Matching {
    Matching::any().masked(Field::Metadata, fields.word(), mask)
}

/// Returns the action that sets a field. Values of the model fit their fields, so that the result is never
/// `None`.
pub(crate) fn set(field: Field, value: impl Into<u128>) -> Option<Action> {
    SetField::new(field, value.into() & field.max_value())
        .ok()
        .map(Action::SetField)
}

/// Returns the value that matches a VID: the VID with the bit OFPVID_PRESENT.
pub(crate) const fn present(vid: u16) -> u16 {
    vid | 0x1000
}

/// Returns the action that sets the VID of the outermost tag.
pub(crate) fn set_vid(vid: u16) -> Option<Action> {
    set(Field::VlanVid, present(vid))
}

pub(crate) fn set_pcp(pcp: u8) -> Option<Action> {
    set(Field::VlanPcp, pcp)
}

pub(crate) const fn push_tag(ethertype: u16) -> Option<Action> {
    Some(Action::PushVlan(EtherType(ethertype)))
}

/// Returns the list of the actions that are present.
pub(crate) fn actions<const N: usize>(list: [Option<Action>; N]) -> Vec<Action> {
    list.into_iter().flatten().collect()
}

/// Returns a bucket of a select or all group.
pub(crate) fn bucket(actions: Vec<Action>) -> Bucket {
    Bucket::new(actions)
}

/// Returns a bucket that is live while its port is live.
pub(crate) fn watching(port: PortNo, weight: u16, actions: Vec<Action>) -> Bucket {
    Bucket {
        weight,
        watch_port: port,
        ..Bucket::new(actions)
    }
}

/// Returns the match of addresses that bridges do not forward: STP, LACP, LLDP, pause frames (IEEE 802.1Q-2018, table 8-1).
pub(crate) fn reserved_addresses() -> Matching {
    Matching::any().masked(Field::EthDst, 0x0180_c200_0000_u64, 0xffff_ffff_fff0_u64)
}
