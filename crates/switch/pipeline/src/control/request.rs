//! What the control side is asked, and what it answers.

use std::sync::Arc;

use millrace_flow::{Action, Instructions, Match};
use millrace_types::{Cookie, Duration, GroupId, PortNo, Priority, TableId};

use crate::{EntryCount, FlowEntry, FlowFlags};

/// What to do with flow entries (`ofp_flow_mod_command`, section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowModCommand {
    /// `OFPFC_ADD`: a new entry, or one that replaces the entry with the same match and priority.
    Add,
    /// `OFPFC_MODIFY`: new instructions for all entries that the match covers.
    Modify,
    /// `OFPFC_MODIFY_STRICT`: new instructions for the entry with this match and priority.
    ModifyStrict,
    /// `OFPFC_DELETE`: all entries that the match covers.
    Delete,
    /// `OFPFC_DELETE_STRICT`: the entry with this match and priority.
    DeleteStrict,
}

impl FlowModCommand {
    /// Returns true if the table must be there: it need not to have nothing deleted from it.
    pub(super) const fn needs_table(self) -> bool {
        !matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
}

/// A flow_mod (section 7.3.4.1), without its buffer.
#[derive(Clone, Debug)]
pub struct FlowMod {
    /// What to do.
    pub command: FlowModCommand,
    /// In which table; [`TableId::ALL`] in deletes is every table.
    pub table: TableId,
    /// Priority; ignored by the commands that are not strict, add excepted.
    pub priority: Priority,
    /// Mark of a new entry; which entries to modify or delete, with `cookie_mask`.
    pub cookie: Cookie,
    /// Which bits of the cookie must be equal in modify and delete; zero is no restriction.
    pub cookie_mask: u64,
    /// Seconds without a packet after which a new entry goes; zero is never.
    pub idle_timeout: u16,
    /// Seconds after which a new entry goes; zero is never.
    pub hard_timeout: u16,
    /// Deletes only what outputs to this port; [`PortNo::ANY`] is no restriction.
    pub out_port: PortNo,
    /// Deletes only what sends to this group; [`GroupId::ANY`] is no restriction.
    pub out_group: GroupId,
    /// Flags of a new entry.
    pub flags: FlowFlags,
    /// Which packets.
    pub match_: Match,
    /// What to do with them.
    pub instructions: Instructions,
}

impl FlowMod {
    /// Returns a command without restrictions, timeouts and flags.
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

/// Which entries a request is about (sections 7.3.4.1 and 7.3.5.2).
#[derive(Clone, Debug)]
pub struct FlowFilter {
    /// In which table; [`TableId::ALL`] is every table.
    pub table: TableId,
    /// Only what outputs to this port; [`PortNo::ANY`] is no restriction.
    pub out_port: PortNo,
    /// Only what sends to this group; [`GroupId::ANY`] is no restriction.
    pub out_group: GroupId,
    /// With `cookie_mask`.
    pub cookie: Cookie,
    /// Which bits of the cookie must be equal; zero is no restriction.
    pub cookie_mask: u64,
    /// Covers the matches of the entries.
    pub match_: Match,
}

impl FlowFilter {
    /// Every entry of every table.
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

    /// Returns the entries of a delete; for a modify, out_port and out_group do not count.
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

    /// Returns true if it names no table and restricts nothing.
    pub(super) fn is_everything(&self) -> bool {
        self.table == TableId::ALL && self.match_.is_any() && !self.restricts()
    }

    fn restricts(&self) -> bool {
        self.cookie_mask != 0 || self.out_port != PortNo::ANY || self.out_group != GroupId::ANY
    }

    /// Returns true if the entry, which is in the table, is meant.
    pub(super) fn accepts(&self, entry: &FlowEntry) -> bool {
        self.accepts_but_for_match(entry) && self.covers(entry.match_())
    }

    /// Cookie, port and group only.
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

    /// Returns true if every packet of `narrow` satisfies the match, too.
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

/// What a flow_mod changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ModOutcome {
    /// Entries added.
    pub added: usize,
    /// Entries that were modified, or replaced by an add.
    pub modified: usize,
    /// Entries deleted.
    pub removed: usize,
}

/// Why an entry went (`ofp_flow_removed_reason`, section 7.4.2).
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

/// An entry that is gone for every worker, with its final counters.
#[derive(Clone, Debug)]
pub struct FlowRemoved {
    /// The entry.
    pub entry: Arc<FlowEntry>,
    /// Why.
    pub reason: RemovedReason,
    /// How long it was there.
    pub duration: Duration,
    /// What it saw.
    pub count: EntryCount,
}

/// An entry and its counters.
#[derive(Clone, Copy, Debug)]
pub struct FlowStat<'a> {
    /// The entry.
    pub entry: &'a Arc<FlowEntry>,
    /// How long it has been there.
    pub duration: Duration,
    /// What it saw.
    pub count: EntryCount,
}

/// Sums over entries (section 7.3.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aggregate {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Entries.
    pub flows: u64,
}

/// What is to be said of a table (section 7.3.5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStat {
    /// Which.
    pub table: TableId,
    /// Entries in it.
    pub active: u32,
    /// Entries that fit.
    pub max_entries: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched.
    pub matches: u64,
}

/// Where a listing goes on. Entries that are added or removed meanwhile may or may not be seen; all others
/// are seen once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub(super) usize);

impl Cursor {
    /// Where a listing that stopped at [`Cursor::place`] goes on; any number is legal.
    pub const fn at(place: usize) -> Cursor {
        Cursor(place)
    }

    /// The place as a number, for a client that comes back later.
    pub const fn place(self) -> usize {
        self.0
    }
}
