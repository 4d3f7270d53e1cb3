//! The content of a switch as it reports it, in the form that lookups by symbolic execution need.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use millrace_flow::{Bucket, Field, Instructions, Match};
use millrace_types::{GroupId, MeterId, Priority, TableId};

use crate::space::Var;

/// A flow entry as a switch reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowEntry {
    pub table: TableId,
    pub priority: Priority,
    pub matching: Match,
    pub cookie: u64,
    pub instructions: Instructions,
}

/// The type of a group (OpenFlow 1.3.5, section 5.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupType {
    /// Each bucket gets a copy.
    All,
    /// One bucket of several; the verifier follows each of them.
    Select,
    /// The only bucket.
    Indirect,
    /// The first live bucket; the verifier follows each of them, because any may be the first live one.
    FastFailover,
}

/// A group as a switch reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupEntry {
    pub kind: GroupType,
    pub buckets: Vec<Bucket>,
}

/// An entry with its match divided into the parts that an execution knows exactly and those that it knows as sets.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) flow: FlowEntry,
    /// The number of the entry, for sets of entries.
    pub(crate) number: u64,
    /// The match on the outermost tag: value and mask of `vlan_vid`, 13 bits.
    pub(crate) vid: Option<(u16, u16)>,
    pub(crate) pcp: Option<u8>,
    /// The other fields with value and mask.
    pub(crate) fields: Vec<(Field, u128, u128)>,
}

/// Values of the fields that an execution knows exactly, or masks of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Known {
    pub(crate) in_port: u32,
    pub(crate) metadata: u64,
    pub(crate) tunnel: u64,
}

impl Known {
    const fn masked(self, mask: Known) -> Known {
        Known {
            in_port: self.in_port & mask.in_port,
            metadata: self.metadata & mask.metadata,
            tunnel: self.tunnel & mask.tunnel,
        }
    }
}

/// The entries of a table with one value of the known fields, the highest priority first.
type Slot = Vec<Arc<Entry>>;

/// A table: its entries by the masks on known fields, then by their values.
#[derive(Default, Debug)]
struct Table(BTreeMap<Known, HashMap<Known, Slot>>);

/// The content of one switch.
#[derive(Default, Debug)]
pub struct Content {
    tables: BTreeMap<u8, Table>,
    pub(crate) groups: BTreeMap<GroupId, GroupEntry>,
    pub(crate) meters: BTreeSet<MeterId>,
    entries: usize,
    last_number: u64,
}

impl Content {
    /// Returns the number of flow entries.
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Returns true if there is no flow entry.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds a flow entry, in place of one with the same table, priority and match.
    pub fn add_flow(&mut self, flow: FlowEntry) {
        self.remove_flow(flow.table, flow.priority, &flow.matching);
        let (mask, known, mut entry) = divide(flow);
        self.last_number += 1;
        entry.number = self.last_number;
        let table = self.tables.entry(entry.flow.table.0).or_default();
        let slot = table.0.entry(mask).or_default().entry(known).or_default();
        let at = slot.partition_point(|other| other.flow.priority >= entry.flow.priority);
        slot.insert(at, Arc::new(entry));
        self.entries += 1;
    }

    /// Removes a flow entry, if there is one with this table, priority and match.
    pub fn remove_flow(&mut self, table: TableId, priority: Priority, matching: &Match) {
        let (mask, known) = known_of(matching);
        let wanted = canonical(matching);
        let Some(slots) = self
            .tables
            .get_mut(&table.0)
            .and_then(|table| table.0.get_mut(&mask))
        else {
            return;
        };
        let Some(slot) = slots.get_mut(&known) else {
            return;
        };
        let before = slot.len();
        slot.retain(|entry| entry.flow.priority != priority || canonical(&entry.flow.matching) != wanted);
        self.entries -= before - slot.len();
        if slot.is_empty() {
            slots.remove(&known);
        }
    }

    /// Sets or removes a group.
    pub fn set_group(&mut self, number: GroupId, group: Option<GroupEntry>) {
        match group {
            Some(group) => drop(self.groups.insert(number, group)),
            None => drop(self.groups.remove(&number)),
        }
    }

    /// Sets or removes a meter. Rates are not verified.
    pub fn set_meter(&mut self, number: MeterId, exists: bool) {
        if exists {
            self.meters.insert(number);
        } else {
            self.meters.remove(&number);
        }
    }

    /// Returns the entries of a table that a packet with these values may match, the highest priority first.
    pub(crate) fn candidates(&self, table: u8, known: Known) -> Vec<&Arc<Entry>> {
        let Some(table) = self.tables.get(&table) else {
            return Vec::new();
        };
        let slots = table
            .0
            .iter()
            .filter_map(|(mask, slots)| slots.get(&known.masked(*mask)));
        let mut found: Vec<&Arc<Entry>> = slots.flatten().collect();
        found.sort_by_key(|entry| std::cmp::Reverse(entry.flow.priority));
        found
    }

    /// Returns all entries of all tables.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u8, &Arc<Entry>)> {
        let tables = self.tables.iter();
        tables.flat_map(|(number, table)| {
            let slots = table.0.values().flat_map(HashMap::values);
            slots.flatten().map(move |entry| (*number, entry))
        })
    }

    /// Returns the entries of a table that may match a packet that also matches this one, without the entry itself.
    pub(crate) fn neighbours(&self, number: u8, entry: &Entry) -> Vec<&Arc<Entry>> {
        let Some(table) = self.tables.get(&number) else {
            return Vec::new();
        };
        let (own_mask, own) = known_of(&entry.flow.matching);
        let mut found = Vec::new();
        for (mask, slots) in &table.0 {
            let both = Known {
                in_port: mask.in_port & own_mask.in_port,
                metadata: mask.metadata & own_mask.metadata,
                tunnel: mask.tunnel & own_mask.tunnel,
            };
            if both == *mask {
                found.extend(slots.get(&own.masked(*mask)).into_iter().flatten());
            } else {
                // Only foreign entries, and those of a whole switch, have wider masks than others.
                let near = slots
                    .iter()
                    .filter(|(value, _)| value.masked(both) == own.masked(both));
                found.extend(near.flat_map(|(_, slot)| slot));
            }
        }
        found.retain(|other| other.number != entry.number);
        found
    }
}

impl Entry {
    /// Returns true if the entry matches on the outermost tag.
    pub(crate) const fn needs_tag(&self) -> bool {
        self.vid.is_some() || self.pcp.is_some()
    }

    /// Returns the fields of the match as variables of a packet with one tag, for comparisons of two entries.
    pub(crate) fn cube(&self) -> Option<crate::space::Cube> {
        let mut cube = crate::space::Cube::any();
        let known = known_of(&self.flow.matching);
        let exact = [
            (
                Field::InPort,
                u128::from(known.1.in_port),
                u128::from(known.0.in_port),
            ),
            (Field::Metadata, known.1.metadata.into(), known.0.metadata.into()),
            (Field::TunnelId, known.1.tunnel.into(), known.0.tunnel.into()),
        ];
        let vid = self
            .vid
            .map(|(value, mask)| (Field::VlanVid, value.into(), mask.into()));
        let pcp = self.pcp.map(|pcp| (Field::VlanPcp, pcp.into(), 7));
        let all = exact
            .into_iter()
            .chain(vid)
            .chain(pcp)
            .chain(self.fields.iter().copied());
        for (field, value, mask) in all {
            if !cube.constrain(Var::Field(field), value, mask) {
                return None;
            }
        }
        Some(cube)
    }
}

/// Returns the fields of a match in a fixed order, so that equal matches are equal.
fn canonical(matching: &Match) -> Vec<(Field, u128, Option<u128>)> {
    let mut fields: Vec<_> = matching
        .iter()
        .map(|given| (given.field, given.value, given.mask))
        .collect();
    fields.sort_unstable();
    fields
}

/// Returns masks and values of the known fields of a match.
fn known_of(matching: &Match) -> (Known, Known) {
    let (mut mask, mut known) = (Known::default(), Known::default());
    for given in matching.iter() {
        let bits = given.mask.unwrap_or(given.field.max_value());
        match given.field {
            Field::InPort => (mask.in_port, known.in_port) = (bits as u32, given.value as u32),
            Field::Metadata => (mask.metadata, known.metadata) = (bits as u64, given.value as u64),
            Field::TunnelId => (mask.tunnel, known.tunnel) = (bits as u64, given.value as u64),
            _ => {}
        }
    }
    (mask, known)
}

fn divide(flow: FlowEntry) -> (Known, Known, Entry) {
    let (mask, known) = known_of(&flow.matching);
    let (mut vid, mut pcp, mut fields) = (None, None, Vec::new());
    for given in flow.matching.iter() {
        let bits = given.mask.unwrap_or(given.field.max_value());
        match given.field {
            Field::InPort | Field::Metadata | Field::TunnelId => {}
            Field::VlanVid => vid = Some((given.value as u16, bits as u16)),
            Field::VlanPcp => pcp = Some(given.value as u8),
            field => fields.push((field, given.value, bits)),
        }
    }
    let entry = Entry {
        flow,
        number: 0,
        vid,
        pcp,
        fields,
    };
    (mask, known, entry)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn flow(matching: &str, priority: u16) -> FlowEntry {
        FlowEntry {
            table: TableId(0),
            priority: Priority(priority),
            matching: matching.parse().unwrap(),
            cookie: 7,
            instructions: Instructions::default(),
        }
    }

    #[test]
    fn a_lookup_finds_entries_with_and_without_each_known_field_by_priority() {
        let mut content = Content::default();
        for (matching, priority) in [
            ("in_port=3", 10),
            ("in_port=4", 11),
            ("metadata=0x50/0xf0", 12),
            ("in_port=3,metadata=0x5", 13),
            ("", 1),
            ("tun_id=9", 14),
        ] {
            content.add_flow(flow(matching, priority));
        }
        let found = |in_port, metadata, tunnel| -> Vec<u16> {
            let known = Known {
                in_port,
                metadata,
                tunnel,
            };
            let found = content.candidates(0, known);
            found.iter().map(|entry| entry.flow.priority.0).collect()
        };
        assert_eq!(found(3, 5, 0), [13, 10, 1]);
        assert_eq!(found(4, 0x51, 9), [14, 12, 11, 1]);
    }

    #[test]
    fn an_entry_replaces_the_one_with_its_identity_whatever_the_order_of_fields() {
        let mut content = Content::default();
        content.add_flow(flow("in_port=3,tcp,tp_dst=80", 5));
        let other = Match::exact(&[
            (Field::TcpDst, 80),
            (Field::EthType, 0x800),
            (Field::InPort, 3),
            (Field::IpProto, 6),
        ])
        .unwrap();
        content.add_flow(FlowEntry {
            matching: other.clone(),
            cookie: 8,
            ..flow("", 5)
        });
        let cookies: Vec<u64> = content.entries().map(|(_, entry)| entry.flow.cookie).collect();
        assert_eq!((content.len(), cookies), (1, vec![8]));
        content.remove_flow(TableId(0), Priority(5), &other);
        assert!(content.is_empty() && content.entries().next().is_none());
    }
}
