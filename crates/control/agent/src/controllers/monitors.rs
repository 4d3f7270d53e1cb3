//! The flow monitors of all connections (ONF extension 187), and the changes that a paused connection missed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use millrace_flow::Match;
use millrace_openflow::flow_monitor::FlowMonitorFlags;
use millrace_pipeline::{ChangeKind, EntryChange, FlowEntry, FlowFilter};
use millrace_types::{Priority, TableId, Xid};

use super::id::ConnectionId;

/// A flow monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) id: u32,
    pub(crate) flags: FlowMonitorFlags,
    pub(crate) filter: FlowFilter,
}

impl Monitor {
    fn wants(&self, kind: ChangeKind) -> bool {
        self.flags.contains(match kind {
            ChangeKind::Added => FlowMonitorFlags::ADD,
            ChangeKind::Modified => FlowMonitorFlags::MODIFY,
            ChangeKind::Removed(_) => FlowMonitorFlags::DELETE,
        })
    }
}

/// Identifies a flow entry.
pub(crate) type EntryKey = (TableId, Priority, Match);

/// An entry that changed while updates were paused.
#[derive(Debug)]
pub(crate) struct MissedChange {
    /// The entry after its latest change.
    pub(crate) entry: Arc<FlowEntry>,
    /// True if the first missed change added the entry, or replaced another one.
    pub(crate) was_added: bool,
    /// True if the connection knows no entry with this match and priority.
    is_new: bool,
}

/// The monitors of one connection.
///
/// ```text
///              outbox full                    outbox below the limit of packet-ins
///  following -------------> paused --------------------------------------> following
///                PAUSED     `missed` is `Some`: one record for each entry   the missed changes, RESUMED
/// ```
#[derive(Debug, Default)]
pub(crate) struct MonitorSet {
    pub(crate) monitors: Vec<Monitor>,
    /// `Some` while updates are paused.
    missed: Option<HashMap<EntryKey, MissedChange>>,
}

impl MonitorSet {
    /// Returns the union of the flags of all monitors that select this change; `None` if none does.
    pub(crate) fn flags(&self, kind: ChangeKind, entry: &FlowEntry) -> Option<FlowMonitorFlags> {
        let selects = |monitor: &&Monitor| monitor.wants(kind) && monitor.filter.selects(entry);
        self.monitors
            .iter()
            .filter(selects)
            .map(|monitor| monitor.flags)
            .reduce(FlowMonitorFlags::union)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.missed.is_some()
    }

    /// Pauses updates, if they are not paused, and records changes of selected entries for later. An entry
    /// that was both added and removed meanwhile leaves no record, so the number of records is at most the
    /// number of entries at the beginning of the pause and now together.
    pub(crate) fn record_missed(&mut self, changes: &[EntryChange]) {
        let missed = self.missed.get_or_insert_default();
        for change in changes {
            let entry = &change.entry;
            if !self.monitors.iter().any(|monitor| monitor.filter.selects(entry)) {
                continue;
            }
            let key = (entry.table(), entry.priority(), entry.match_().clone());
            let is_removed = matches!(change.kind, ChangeKind::Removed(_));
            match missed.entry(key) {
                Entry::Occupied(record) if is_removed && record.get().is_new => {
                    record.remove();
                }
                Entry::Occupied(mut record) => record.get_mut().entry = Arc::clone(entry),
                Entry::Vacant(vacant) => {
                    vacant.insert(MissedChange {
                        entry: Arc::clone(entry),
                        was_added: change.kind == ChangeKind::Added,
                        is_new: change.is_new,
                    });
                }
            }
        }
    }

    /// Ends the pause. Returns the recorded changes; `None` if updates were not paused.
    pub(crate) fn take_missed(&mut self) -> Option<HashMap<EntryKey, MissedChange>> {
        self.missed.take()
    }
}

/// The monitors of all connections of a bridge.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    pub(crate) sets: Vec<(ConnectionId, MonitorSet)>,
    /// The request that is being executed, and the connection that sent it.
    pub(crate) origin: Option<(ConnectionId, Xid)>,
}

impl Monitors {
    /// Removes the monitors of a connection.
    pub(crate) fn disconnected(&mut self, id: ConnectionId) {
        self.sets.retain(|(owner, _)| *owner != id);
    }

    /// Sets the request to which changes are attributed from now on.
    pub(crate) fn set_origin(&mut self, origin: Option<(ConnectionId, Xid)>) {
        self.origin = origin;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the monitors of a connection.
    pub(crate) fn of(&self, id: ConnectionId) -> &[Monitor] {
        let mut sets = self.sets.iter();
        let found = sets.find(|(owner, _)| *owner == id);
        found.map_or(&[], |(_, set)| &set.monitors)
    }

    /// Returns the monitors of a connection, to change them; an empty set if it has none.
    pub(crate) fn of_mut(&mut self, id: ConnectionId) -> &mut MonitorSet {
        let at = match self.sets.iter().position(|(owner, _)| *owner == id) {
            Some(at) => at,
            None => {
                self.sets.push((id, MonitorSet::default()));
                self.sets.len() - 1
            }
        };
        &mut self.sets[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::Instructions;
    use millrace_pipeline::{FlowEntryParts, FlowFlags, RemovedReason};
    use millrace_types::{Cookie, Time};

    fn entry(priority: u16, cookie: u64) -> Arc<FlowEntry> {
        Arc::new(FlowEntry::new(FlowEntryParts {
            table: TableId(0),
            priority: Priority(priority),
            match_: Match::any(),
            instructions: Instructions::default(),
            cookie: Cookie(cookie),
            idle_timeout: 0,
            hard_timeout: 0,
            flags: FlowFlags::default(),
            created: Time::ZERO,
        }))
    }

    fn change(kind: ChangeKind, is_new: bool, priority: u16, cookie: u64) -> EntryChange {
        EntryChange {
            kind,
            is_new,
            entry: entry(priority, cookie),
        }
    }

    /// Returns a set with a monitor of entries of table 0 with these cookies.
    fn monitoring(cookie: u64, cookie_mask: u64) -> MonitorSet {
        let filter = FlowFilter {
            cookie: Cookie(cookie),
            cookie_mask,
            ..FlowFilter::all()
        };
        let flags = FlowMonitorFlags::ADD;
        MonitorSet {
            monitors: vec![Monitor { id: 1, flags, filter }],
            missed: None,
        }
    }

    const REMOVED: ChangeKind = ChangeKind::Removed(RemovedReason::Delete);

    #[test]
    fn missed_changes_are_recorded_by_entry() {
        let mut set = monitoring(0, 0);
        for cookie in 0..1000 {
            set.record_missed(&[
                change(ChangeKind::Modified, false, 1, cookie),
                change(REMOVED, false, 1, cookie),
                change(ChangeKind::Added, true, 1, cookie),
            ]);
            set.record_missed(&[change(ChangeKind::Added, false, 2, cookie)]);
        }
        let missed = set.take_missed().unwrap();
        let mut known: Vec<_> = missed
            .iter()
            .map(|((_, priority, _), missed)| (priority.0, missed.was_added, missed.entry.cookie().0))
            .collect();
        known.sort_unstable();
        assert_eq!(known, [(1, false, 999), (2, true, 999)]);
    }

    #[test]
    fn entries_that_come_and_go_or_that_no_monitor_selects_leave_no_record() {
        let mut set = monitoring(0, 1);
        for priority in 0..1000 {
            set.record_missed(&[
                change(ChangeKind::Added, true, priority, 2),
                change(ChangeKind::Modified, false, priority, 2),
                change(REMOVED, false, priority, 2),
                // Another entry with the same match, and an odd cookie: no monitor selects odd cookies.
                change(ChangeKind::Added, true, priority, 3),
            ]);
        }
        // The connection knows the entry that was replaced.
        set.record_missed(&[
            change(ChangeKind::Added, false, 2000, 4),
            change(REMOVED, false, 2000, 4),
        ]);
        let missed = set.take_missed().unwrap();
        let known: Vec<u16> = missed.keys().map(|(_, priority, _)| priority.0).collect();
        assert_eq!(known, [2000]);
    }
}
