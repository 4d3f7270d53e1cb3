//! Requests to the control side, and their results.

use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_flow::{Action, Instructions, Match};
use millrace_types::{Cookie, Duration, GroupId, PortNo, Priority, TableId};

use crate::{EntryCount, FlowEntry, FlowFlags};

/// The command of a flow_mod (`ofp_flow_mod_command`; OpenFlow 1.3.5, section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowModCommand {
    /// `OFPFC_ADD`: adds an entry, which replaces the entry with the same match and priority.
    Add,
    /// `OFPFC_MODIFY`: replaces the instructions of all entries that the match covers.
    Modify,
    /// `OFPFC_MODIFY_STRICT`: replaces the instructions of the entry with this match and priority.
    ModifyStrict,
    /// `OFPFC_DELETE`: deletes all entries that the match covers.
    Delete,
    /// `OFPFC_DELETE_STRICT`: deletes the entry with this match and priority.
    DeleteStrict,
}

impl FlowModCommand {
    /// Returns true if the table must exist; a delete from a missing table deletes nothing.
    pub(super) const fn needs_table(self) -> bool {
        !matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
}

/// A flow_mod (OpenFlow 1.3.5, section 7.3.4.1), without its buffer.
#[derive(Clone, Debug)]
pub struct FlowMod {
    pub command: FlowModCommand,
    /// The table; [`TableId::ALL`] in deletes is every table.
    pub table: TableId,
    /// Priority; modify and delete ignore it unless they are strict.
    pub priority: Priority,
    /// The cookie of a new entry; with `cookie_mask`, selects the entries of modify and delete.
    pub cookie: Cookie,
    /// The bits of the cookie that modify and delete compare; zero is no restriction.
    pub cookie_mask: u64,
    /// Seconds without a packet after which a new entry expires; zero is never.
    pub idle_timeout: u16,
    /// Seconds after which a new entry expires; zero is never.
    pub hard_timeout: u16,
    /// Deletes only entries that output to this port; [`PortNo::ANY`] is no restriction.
    pub out_port: PortNo,
    /// Deletes only entries that forward to this group; [`GroupId::ANY`] is no restriction.
    pub out_group: GroupId,
    /// Flags of a new entry.
    pub flags: FlowFlags,
    pub match_: Match,
    pub instructions: Instructions,
}

impl FlowMod {
    /// Returns a command without restrictions, time-outs and flags.
    pub fn new(command: FlowModCommand, table: TableId, priority: Priority, match_: Match) -> FlowMod {
        FlowMod {
            command,
            table,
            priority,
            cookie: Cookie(0),
            cookie_mask: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            flags: FlowFlags::default(),
            match_,
            instructions: Instructions::default(),
        }
    }
}

/// Selects flow entries (OpenFlow 1.3.5, sections 7.3.4.1 and 7.3.5.2).
#[derive(Clone, Debug)]
pub struct FlowFilter {
    /// Entries of this table; [`TableId::ALL`] is every table.
    pub table: TableId,
    /// Entries that output to this port; [`PortNo::ANY`] is no restriction.
    pub out_port: PortNo,
    /// Entries that forward to this group; [`GroupId::ANY`] is no restriction.
    pub out_group: GroupId,
    /// Entries with this cookie, in the bits of `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie that are compared; zero is no restriction.
    pub cookie_mask: u64,
    /// Entries whose match this match covers.
    pub match_: Match,
}

impl FlowFilter {
    /// Returns a filter that selects every entry of every table.
    pub fn all() -> FlowFilter {
        FlowFilter {
            table: TableId::ALL,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            cookie: Cookie(0),
            cookie_mask: 0,
            match_: Match::any(),
        }
    }

    /// Returns the filter of a delete or modify; a modify ignores out_port and out_group.
    pub(super) fn of(request: &FlowMod) -> FlowFilter {
        let modifies = matches!(
            request.command,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict
        );
        FlowFilter {
            table: request.table,
            out_port: if modifies { PortNo::ANY } else { request.out_port },
            out_group: if modifies { GroupId::ANY } else { request.out_group },
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            match_: request.match_.clone(),
        }
    }

    /// Returns true if the filter selects the entry.
    pub fn selects(&self, entry: &FlowEntry) -> bool {
        (self.table == TableId::ALL || self.table == entry.table()) && self.accepts(entry)
    }

    /// Returns true if the filter selects every entry of every table.
    pub(super) fn is_everything(&self) -> bool {
        self.table == TableId::ALL && self.match_.is_any() && !self.restricts()
    }

    fn restricts(&self) -> bool {
        self.cookie_mask != 0 || self.out_port != PortNo::ANY || self.out_group != GroupId::ANY
    }

    /// Returns true if the filter selects an entry, without a comparison of the table.
    pub(super) fn accepts(&self, entry: &FlowEntry) -> bool {
        self.accepts_but_for_match(entry) && self.covers(entry.match_())
    }

    /// Compares cookie, port and group only.
    pub(super) fn accepts_but_for_match(&self, entry: &FlowEntry) -> bool {
        if !self.restricts() {
            return true;
        }
        let uses = |wanted: &dyn Fn(&Action) -> bool| entry.actions().iter().any(wanted);
        (entry.cookie().0 ^ self.cookie.0) & self.cookie_mask == 0
            && (self.out_port == PortNo::ANY
                || uses(&|action| matches!(action, Action::Output { port, .. } if *port == self.out_port)))
            && (self.out_group == GroupId::ANY || uses(&|action| *action == Action::Group(self.out_group)))
    }

    /// Returns true if every packet that `narrow` matches matches the filter, too.
    fn covers(&self, narrow: &Match) -> bool {
        self.match_.iter().all(|wide| {
            narrow.field(wide.field).is_some_and(|given| {
                let wide_mask = wide.mask.unwrap_or(wide.field.max_value());
                let mask = given.mask.unwrap_or(given.field.max_value());
                wide_mask & !mask == 0 && (given.value ^ wide.value) & wide_mask == 0
            })
        })
    }
}

/// The number of entries that a flow_mod changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ModOutcome {
    /// Entries added.
    pub added: usize,
    /// Entries that were modified, or replaced by an add.
    pub modified: usize,
    /// Entries deleted.
    pub removed: usize,
}

/// The reason why an entry was removed (`ofp_flow_removed_reason`; OpenFlow 1.3.5, section 7.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RemovedReason {
    /// `OFPRR_IDLE_TIMEOUT`.
    IdleTimeout = 0,
    /// `OFPRR_HARD_TIMEOUT`.
    HardTimeout = 1,
    /// `OFPRR_DELETE`.
    Delete = 2,
    /// `OFPRR_GROUP_DELETE`.
    GroupDelete = 3,
}

/// A removed entry that no worker uses any more, with its final counters.
#[derive(Clone, Debug)]
pub struct FlowRemoved {
    pub entry: Arc<FlowEntry>,
    pub reason: RemovedReason,
    /// Time from the addition of the entry to its removal.
    pub duration: Duration,
    /// Packets and bytes that the entry matched.
    pub count: EntryCount,
}

/// An entry and its counters.
#[derive(Clone, Copy, Debug)]
pub struct FlowStat<'a> {
    /// The index of the entry, which it has until it is removed: [`Cursor::at`] of it visits the entry first.
    pub slot: Slot,
    pub entry: &'a Arc<FlowEntry>,
    /// Time since the entry was added.
    pub duration: Duration,
    /// Packets and bytes that the entry matched.
    pub count: EntryCount,
}

/// Sums over entries (OpenFlow 1.3.5, section 7.3.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aggregate {
    pub packets: u64,
    pub bytes: u64,
    /// Number of entries.
    pub flows: u64,
}

/// The statistics of a table (OpenFlow 1.3.5, section 7.3.5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStat {
    pub table: TableId,
    /// Number of entries in the table.
    pub active: u32,
    /// Maximum number of entries in the table.
    pub max_entries: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched.
    pub matches: u64,
}

/// The position at which a listing continues. Entries that are added or removed meanwhile may or may not be visited;
/// all others are visited once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub(super) usize);

impl Cursor {
    /// Returns the cursor with an index from [`Cursor::index`]; any number is valid.
    pub const fn at(index: usize) -> Cursor {
        Cursor(index)
    }

    /// Returns the cursor as a number, for a client that continues later.
    pub const fn index(self) -> usize {
        self.0
    }
}
