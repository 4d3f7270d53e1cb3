//! The content of a switch: flow entries, groups and meters by their identity.

use std::collections::BTreeMap;

use millrace_flow::{Bucket, Field, Instructions, Match, MatchError, MatchField};
use millrace_types::{Cookie, GroupId, MeterId, Priority, TableId};

/// A match with its fields in a canonical order, so that equivalent matches are equal. Switches may list
/// fields in any order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Matching(Vec<(Field, u128, Option<u128>)>);

impl Matching {
    /// Returns the match of every packet.
    pub const fn any() -> Matching {
        Matching(Vec::new())
    }

    /// Returns this match with one more field. An existing field of the same type is replaced.
    #[must_use]
    pub fn with(self, field: Field, value: impl Into<u128>) -> Matching {
        self.insert(field, value.into(), None)
    }

    /// Returns this match with one more field. Only the bits of `mask` are compared.
    #[must_use]
    pub fn masked(self, field: Field, value: impl Into<u128>, mask: impl Into<u128>) -> Matching {
        let mask = mask.into();
        self.insert(
            field,
            value.into() & mask,
            Some(mask).filter(|mask| *mask != field.max_value()),
        )
    }

    fn insert(mut self, field: Field, value: u128, mask: Option<u128>) -> Matching {
        self.0.retain(|(other, ..)| *other != field);
        if mask != Some(0) {
            let at = self.0.partition_point(|(other, ..)| *other < field);
            self.0.insert(at, (field, value, mask));
        }
        self
    }

    /// Returns value and mask of a field.
    pub fn field(&self, field: Field) -> Option<(u128, Option<u128>)> {
        let found = self.0.iter().find(|(other, ..)| *other == field);
        found.map(|(_, value, mask)| (*value, *mask))
    }

    /// Returns true if a packet may satisfy both matches.
    pub fn overlaps(&self, other: &Matching) -> bool {
        self.0.iter().all(|(field, value, mask)| {
            other.field(*field).is_none_or(|(other_value, other_mask)| {
                let all = field.max_value();
                (value ^ other_value) & mask.unwrap_or(all) & other_mask.unwrap_or(all) == 0
            })
        })
    }

    /// Returns the match for a message.
    ///
    /// # Errors
    /// [`MatchError`] if a value or prerequisite is wrong. The planner never makes a wrong match.
    pub fn to_match(&self) -> Result<Match, MatchError> {
        let mut builder = Match::builder();
        for (field, value, mask) in &self.0 {
            builder.push(*field, *value, *mask)?;
        }
        builder.finish()
    }
}

impl From<&Match> for Matching {
    fn from(given: &Match) -> Matching {
        given
            .iter()
            .fold(Matching::any(), |matching, MatchField { field, value, mask }| {
                matching.insert(field, value, mask)
            })
    }
}

/// The identity of a flow entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    pub table: TableId,
    pub priority: Priority,
    pub matching: Matching,
}

/// The identity of any entry. The order is a valid order for adding entries: an entry comes after the entries
/// to which it refers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryId {
    Meter(MeterId),
    Group(GroupId),
    /// A flow entry.
    Flow(FlowId),
}

/// A flow entry without its identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    pub cookie: Cookie,
    pub instructions: Instructions,
    /// Seconds without a packet after which the switch removes the entry; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which the switch removes the entry; 0 for never.
    pub hard_timeout: u16,
}

/// The type of a group (OpenFlow 1.3.5, section 5.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupKind {
    /// Each bucket gets a copy.
    All,
    /// One bucket, the same for all packets of a flow.
    Select,
    /// The only bucket.
    Indirect,
    /// The first live bucket.
    FastFailover,
}

/// A group without its number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    pub kind: GroupKind,
    pub buckets: Vec<Bucket>,
}

/// The unit of a meter's rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RateUnit {
    /// Kilobits a second.
    Kbps,
    /// Packets a second.
    Pktps,
}

/// A meter without its number. It has one band, which drops.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Meter {
    pub unit: RateUnit,
    pub rate: u32,
    /// The burst, in kilobits or packets.
    pub burst: u32,
}

/// Any entry without its identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    Meter(Meter),
    Group(Group),
    /// A flow entry.
    Flow(Flow),
}

/// The content of a switch.
pub type SwitchState = BTreeMap<EntryId, Entry>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_fields_is_no_difference() {
        let one: Match = "in_port=3,tcp,tp_dst=80".parse().unwrap();
        let two = Match::exact(&[
            (Field::TcpDst, 80),
            (Field::EthType, 0x800),
            (Field::InPort, 3),
            (Field::IpProto, 6),
        ]);
        let two = two.unwrap();
        assert_ne!(one, two);
        assert_eq!(Matching::from(&one), Matching::from(&two));
        assert_eq!(
            Matching::from(&Matching::from(&two).to_match().unwrap()),
            Matching::from(&one)
        );
    }

    #[test]
    fn matches_overlap_unless_a_common_bit_differs() {
        let base = Matching::any().with(Field::InPort, 3u32);
        assert!(base.overlaps(&Matching::any()) && Matching::any().overlaps(&base));
        assert!(!base.overlaps(&Matching::any().with(Field::InPort, 4u32)));
        let masked = |value: u64, mask: u64| Matching::any().masked(Field::Metadata, value, mask);
        assert!(masked(0x10, 0xf0).overlaps(&masked(0x01, 0x0f)));
        assert!(!masked(0x10, 0xf0).overlaps(&masked(0x20, 0xf0)));
        assert_eq!(masked(7, 0), Matching::any(), "a mask of zero compares nothing");
    }
}
