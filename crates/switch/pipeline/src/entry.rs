//! A flow entry: what a controller asked for, in the form that a table of a million of them can afford.

use core::slice;

use millrace_flow::classify::prefetch;
use millrace_flow::{Action, Instructions, Match, Rule};
use millrace_types::{Cookie, GroupId, MeterId, Priority, TableId, Time};

/// Flags of a flow entry (`OFPFF_*`, section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags(pub u16);

impl FlowFlags {
    /// Send a flow_removed when the entry goes.
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

    /// Whether all bits of `other` are set.
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

/// What an entry is made from.
#[derive(Clone, Debug, Default)]
pub struct FlowEntryParts {
    /// Its table.
    pub table: TableId,
    /// Its priority.
    pub priority: Priority,
    /// Which packets.
    pub match_: Match,
    /// What to do with them.
    pub instructions: Instructions,
    /// The controller's mark.
    pub cookie: Cookie,
    /// Seconds without a packet after which it goes; zero is never.
    pub idle_timeout: u16,
    /// Seconds after which it goes; zero is never.
    pub hard_timeout: u16,
    /// Flags.
    pub flags: FlowFlags,
    /// When it was added.
    pub created: Time,
}

/// A flow entry. Immutable: a change makes a new one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowEntry {
    match_: Match,
    /// Those to apply, then those to write.
    actions: Box<[Action]>,
    /// What few entries have.
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
    write_metadata: Option<(u64, u64)>,
}

const APPLIES: u8 = 1 << 0;
const WRITES: u8 = 1 << 1;
const CLEARS: u8 = 1 << 2;
const IS_TABLE_MISS: u8 = 1 << 3;
const REFERS: u8 = 1 << 4;

impl FlowEntry {
    /// An entry of these parts. Of `apply_actions`, at most 65,535 are kept, which is more than a message
    /// can hold.
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

    /// Dates an entry that was made before it was added.
    pub(crate) fn begin(&mut self, created: Time) {
        self.created = created;
    }

    /// The parts again, equal to those it was made from.
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

    /// The instructions, as they were given.
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

    /// Which packets.
    pub fn match_(&self) -> &Match {
        &self.match_
    }

    /// The compiled match.
    pub fn rule(&self) -> Rule {
        self.match_.rule(self.priority)
    }

    /// Its table.
    #[inline]
    pub const fn table(&self) -> TableId {
        self.table
    }

    /// Its priority.
    #[inline]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// The controller's mark.
    #[inline]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Seconds without a packet after which it goes; zero is never.
    pub const fn idle_timeout(&self) -> u16 {
        self.idle_timeout
    }

    /// Seconds after which it goes; zero is never.
    pub const fn hard_timeout(&self) -> u16 {
        self.hard_timeout
    }

    /// Flags.
    pub const fn flags(&self) -> FlowFlags {
        self.flags
    }

    /// When it was added.
    pub const fn created(&self) -> Time {
        self.created
    }

    /// Whether it is the table-miss entry of its table: it matches everything with priority zero (section
    /// 5.4).
    #[inline]
    pub const fn is_table_miss(&self) -> bool {
        self.has(IS_TABLE_MISS)
    }

    /// Whether it names a group or a meter.
    #[inline]
    pub const fn refers(&self) -> bool {
        self.has(REFERS)
    }

    /// The groups that it sends to.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        crate::group::targets(&self.actions)
    }

    /// The meter to pass.
    #[inline]
    pub fn meter(&self) -> Option<MeterId> {
        self.rare.as_ref()?.meter
    }

    /// Actions to execute at once.
    #[inline]
    pub fn apply_actions(&self) -> &[Action] {
        &self.actions[..usize::from(self.apply_len)]
    }

    /// Actions to merge into the action set.
    #[inline]
    pub fn write_actions(&self) -> &[Action] {
        &self.actions[usize::from(self.apply_len)..]
    }

    /// Whether the action set is emptied first.
    #[inline]
    pub const fn clears_actions(&self) -> bool {
        self.has(CLEARS)
    }

    /// The metadata to write: `(value, mask)`.
    #[inline]
    pub fn write_metadata(&self) -> Option<(u64, u64)> {
        self.rare.as_ref()?.write_metadata
    }

    /// Where to continue.
    #[inline]
    pub const fn goto_table(&self) -> Option<TableId> {
        if self.goto_table.0 == TableId::ALL.0 {
            None
        } else {
            Some(self.goto_table)
        }
    }

    /// Asks for the entry to be brought near, but not yet its actions.
    #[inline]
    pub(crate) fn prefetch(&self) {
        // It may lie across two cache lines; these are parts of its beginning and of its end.
        prefetch(slice::from_ref(&self.actions), 0);
        prefetch(slice::from_ref(&self.shape), 0);
    }

    /// Asks for its actions to be brought near.
    #[inline]
    pub(crate) fn prefetch_actions(&self) {
        prefetch(&self.actions, 0);
        prefetch(&self.actions, self.actions.len().wrapping_sub(1));
    }

    /// Every action of either list.
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
            write_metadata: Some((1, 3)),
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
        // With the two counts of an Arc, and what the allocator adds: 96.
        assert!(size_of::<FlowEntry>() <= 72);
    }
}
