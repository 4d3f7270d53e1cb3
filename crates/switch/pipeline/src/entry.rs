//! Flow entries, in a form compact enough for a table of a million entries.

use core::slice;

use millrace_flow::classify::prefetch;
use millrace_flow::{Action, Instructions, Match, Rule, WriteMetadata};
use millrace_types::{Cookie, GroupId, MeterId, Priority, TableId, Time};

/// The flags of a flow entry (`OFPFF_*`, OpenFlow 1.3.5, section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags(pub u16);

impl FlowFlags {
    /// Send a flow_removed when the entry is removed.
    pub const SEND_FLOW_REM: FlowFlags = FlowFlags(1 << 0);
    /// Refuse an add that overlaps with an entry of equal priority.
    pub const CHECK_OVERLAP: FlowFlags = FlowFlags(1 << 1);
    /// Reset counters on replace and modify.
    pub const RESET_COUNTS: FlowFlags = FlowFlags(1 << 2);
    /// Packets need not be counted.
    pub const NO_PKT_COUNTS: FlowFlags = FlowFlags(1 << 3);
    /// Bytes need not be counted.
    pub const NO_BYT_COUNTS: FlowFlags = FlowFlags(1 << 4);
    /// Every flag that OpenFlow 1.3 defines.
    pub const ALL: FlowFlags = FlowFlags(0x1f);

    /// Returns true if all bits of `other` are set.
    pub const fn contains(self, other: FlowFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for FlowFlags {
    type Output = FlowFlags;

    fn bitor(self, other: FlowFlags) -> FlowFlags {
        FlowFlags(self.0 | other.0)
    }
}

/// The parts of a flow entry.
#[derive(Clone, Debug, Default)]
pub struct FlowEntryParts {
    pub table: TableId,
    pub priority: Priority,
    pub match_: Match,
    pub instructions: Instructions,
    pub cookie: Cookie,
    /// The idle timeout, seconds without a packet; zero for none.
    pub idle_timeout: u16,
    /// The hard timeout, seconds; zero for none.
    pub hard_timeout: u16,
    pub flags: FlowFlags,
    /// The time at which the entry was added.
    pub created: Time,
}

/// A flow entry. Immutable: a change makes a new one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowEntry {
    match_: Match,
    /// The actions to apply, followed by the actions to write.
    actions: Box<[Action]>,
    /// The parts that few entries have.
    rare: Option<Box<Rare>>,
    cookie: Cookie,
    created: Time,
    apply_len: u16,
    idle_timeout: u16,
    hard_timeout: u16,
    flags: FlowFlags,
    priority: Priority,
    table: TableId,
    /// [`TableId::ALL`] for none.
    goto_table: TableId,
    shape: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rare {
    meter: Option<MeterId>,
    write_metadata: Option<WriteMetadata>,
}

const APPLIES: u8 = 1 << 0;
const WRITES: u8 = 1 << 1;
const CLEARS: u8 = 1 << 2;
const IS_TABLE_MISS: u8 = 1 << 3;
const REFERS: u8 = 1 << 4;

impl FlowEntry {
    /// Returns an entry with these parts. The entry keeps at most 65,535 apply_actions, more than a message can hold.
    pub fn new(parts: FlowEntryParts) -> FlowEntry {
        let Instructions {
            meter,
            apply_actions,
            clear_actions,
            write_actions,
            write_metadata,
            goto_table,
        } = parts.instructions;
        let is_table_miss = parts.priority == Priority(0) && parts.match_.is_any();
        let sends_to_group = |list: &Option<Box<[Action]>>| {
            list.iter()
                .flatten()
                .any(|action| matches!(action, Action::Group(_)))
        };
        let refers = meter.is_some() || sends_to_group(&apply_actions) || sends_to_group(&write_actions);
        let shape = [
            (apply_actions.is_some(), APPLIES),
            (write_actions.is_some(), WRITES),
            (clear_actions, CLEARS),
            (is_table_miss, IS_TABLE_MISS),
            (refers, REFERS),
        ];
        let apply = apply_actions.unwrap_or_default();
        let apply = &apply[..apply.len().min(usize::from(u16::MAX))];
        let write = write_actions.unwrap_or_default();
        FlowEntry {
            match_: parts.match_,
            apply_len: apply.len() as u16,
            actions: apply.iter().chain(&write).copied().collect(),
            rare: (meter.is_some() || write_metadata.is_some()).then(|| {
                Box::new(Rare {
                    meter,
                    write_metadata,
                })
            }),
            cookie: parts.cookie,
            created: parts.created,
            idle_timeout: parts.idle_timeout,
            hard_timeout: parts.hard_timeout,
            flags: parts.flags,
            priority: parts.priority,
            table: parts.table,
            goto_table: goto_table.unwrap_or(TableId::ALL),
            shape: shape.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum(),
        }
    }

    /// Sets the time at which this entry, which was made earlier, was added.
    pub(crate) fn begin(&mut self, created: Time) {
        self.created = created;
    }

    /// Returns the parts, equal to those of [`FlowEntry::new`].
    pub fn parts(&self) -> FlowEntryParts {
        FlowEntryParts {
            table: self.table,
            priority: self.priority,
            match_: self.match_.clone(),
            instructions: self.instructions(),
            cookie: self.cookie,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            flags: self.flags,
            created: self.created,
        }
    }

    /// Returns the instructions, equal to those of [`FlowEntry::new`].
    pub fn instructions(&self) -> Instructions {
        Instructions {
            meter: self.meter(),
            apply_actions: self.has(APPLIES).then(|| self.apply_actions().into()),
            clear_actions: self.clears_actions(),
            write_actions: self.has(WRITES).then(|| self.write_actions().into()),
            write_metadata: self.write_metadata(),
            goto_table: self.goto_table(),
        }
    }

    const fn has(&self, bit: u8) -> bool {
        self.shape & bit != 0
    }

    /// Returns the match.
    pub fn match_(&self) -> &Match {
        &self.match_
    }

    /// Returns the compiled match.
    pub fn rule(&self) -> Rule {
        self.match_.rule(self.priority)
    }

    /// Returns the table of the entry.
    #[inline]
    pub const fn table(&self) -> TableId {
        self.table
    }

    /// Returns the priority of the entry.
    #[inline]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the cookie.
    #[inline]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Returns the idle timeout, seconds without a packet; zero for none.
    pub const fn idle_timeout(&self) -> u16 {
        self.idle_timeout
    }

    /// Returns the hard timeout, seconds; zero for none.
    pub const fn hard_timeout(&self) -> u16 {
        self.hard_timeout
    }

    /// Returns the flags of the flow_mod that added the entry.
    pub const fn flags(&self) -> FlowFlags {
        self.flags
    }

    /// Returns the time at which the entry was added.
    pub const fn created(&self) -> Time {
        self.created
    }

    /// Returns true for the table-miss entry of a table, which matches everything with priority zero
    /// (OpenFlow 1.3.5, section 5.4).
    #[inline]
    pub const fn is_table_miss(&self) -> bool {
        self.has(IS_TABLE_MISS)
    }

    /// Returns true if the entry refers to a group or a meter.
    #[inline]
    pub const fn refers(&self) -> bool {
        self.has(REFERS)
    }

    /// Returns the groups to which the entry's actions forward.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        crate::group::targets(&self.actions)
    }

    /// Returns the meter that polices matching packets, if there is one.
    #[inline]
    pub fn meter(&self) -> Option<MeterId> {
        self.rare.as_ref()?.meter
    }

    /// Returns the actions to execute at once (apply_actions).
    #[inline]
    pub fn apply_actions(&self) -> &[Action] {
        &self.actions[..usize::from(self.apply_len)]
    }

    /// Returns the actions to merge into the action set (write_actions).
    #[inline]
    pub fn write_actions(&self) -> &[Action] {
        &self.actions[usize::from(self.apply_len)..]
    }

    /// Returns true if the action set is cleared first.
    #[inline]
    pub const fn clears_actions(&self) -> bool {
        self.has(CLEARS)
    }

    /// Returns the metadata to write: `(value, mask)`.
    #[inline]
    pub fn write_metadata(&self) -> Option<WriteMetadata> {
        self.rare.as_ref()?.write_metadata
    }

    /// Returns the table of goto_table.
    #[inline]
    pub const fn goto_table(&self) -> Option<TableId> {
        if self.goto_table.0 == TableId::ALL.0 {
            None
        } else {
            Some(self.goto_table)
        }
    }

    /// Prefetches the entry, but not its actions.
    #[inline]
    pub(crate) fn prefetch(&self) {
        // The boxed list may lie across two cache lines; these are its beginning and its end.
        prefetch(slice::from_ref(&self.actions), 0);
        prefetch(slice::from_ref(&self.shape), 0);
    }

    /// Prefetches the actions.
    #[inline]
    pub(crate) fn prefetch_actions(&self) {
        prefetch(&self.actions, 0);
        prefetch(&self.actions, self.actions.len().wrapping_sub(1));
    }

    /// Returns the actions to apply, followed by the actions to write.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::Field;
    use millrace_types::PortNo;

    fn entry(instructions: Instructions) -> FlowEntry {
        FlowEntry::new(FlowEntryParts {
            priority: Priority(1),
            instructions,
            ..FlowEntryParts::default()
        })
    }

    #[test]
    fn instructions_read_back_as_they_were_given() {
        let output = Action::output(PortNo::from_raw(3));
        let full = Instructions {
            meter: None,
            apply_actions: Some([Action::PopVlan, output].into()),
            clear_actions: true,
            write_actions: Some([output].into()),
            write_metadata: Some(WriteMetadata { value: 1, mask: 3 }),
            goto_table: Some(TableId(254)),
        };
        let empty_lists = Instructions {
            apply_actions: Some([].into()),
            write_actions: Some([].into()),
            ..Instructions::default()
        };
        for instructions in [full, empty_lists, Instructions::default()] {
            assert_eq!(entry(instructions.clone()).instructions(), instructions);
        }
    }

    #[test]
    fn only_the_match_on_everything_with_priority_zero_is_a_table_miss() {
        let with = |priority, match_| {
            FlowEntry::new(FlowEntryParts {
                priority,
                match_,
                ..FlowEntryParts::default()
            })
        };
        assert!(with(Priority(0), Match::any()).is_table_miss());
        assert!(!with(Priority(1), Match::any()).is_table_miss());
        let port = Match::exact(&[(Field::InPort, 1)]).unwrap();
        assert!(!with(Priority(0), port).is_table_miss());
    }

    #[test]
    fn an_entry_fits_its_share_of_400_bytes() {
        // An allocation of 96 bytes: 72, the two counts of an Arc, and the overhead of the allocator.
        assert!(size_of::<FlowEntry>() <= 72);
    }
}
