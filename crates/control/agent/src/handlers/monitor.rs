//! Flow monitors (ONF extension 187): controllers that hear of every change of the entries that they name.
//!
//! What a request changed is told right after it, what time did, before it is published. A controller that does not
//! keep up is told that its updates pause; what changes meanwhile is remembered by entry, not by change, and told when
//! it has caught up.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_flow::{Instructions, Match};
use millrace_openflow::flow_monitor::{
    FlowMonitorFlags, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent, FlowUpdateFull, decode_cancel, pause,
};
use millrace_openflow::multipart::SegmentWriter;
use millrace_openflow::{ErrorCode, Experimenter, FlowRemovedReason, Message};
use millrace_pipeline::{ChangeKind, EntryChange, FlowEntry, FlowFilter, RemovedReason};
use millrace_types::{Cookie, GroupId, Priority, TableId, Xid};

use super::{UNASKED, encoded, error_code};
use crate::channel::{ConnectionId, outbox_room};
use crate::control::BridgeControl;

/// Monitors that a connection may have.
const MONITORS_LEN: usize = 64;

/// One monitor of a connection.
#[derive(Debug)]
struct Monitor {
    id: u32,
    flags: FlowMonitorFlags,
    filter: FlowFilter,
}

/// What tells entries apart.
type Key = (TableId, Priority, Match);

/// An entry that changed while updates paused.
#[derive(Debug)]
struct Missed {
    /// As it was last.
    entry: Arc<FlowEntry>,
    /// True if it, or one in its place, came first.
    was_added: bool,
}

/// The monitors of one connection.
#[derive(Debug, Default)]
struct Watch {
    monitors: Vec<Monitor>,
    /// While updates pause.
    missed: Option<HashMap<Key, Missed>>,
}

/// The monitors of all connections of a bridge.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    watches: Vec<(ConnectionId, Watch)>,
    /// The request that is being carried out.
    origin: Option<(ConnectionId, Xid)>,
}

impl Monitors {
    /// Forgets a connection.
    pub(crate) fn disconnected(&mut self, id: ConnectionId) {
        self.watches.retain(|(owner, _)| *owner != id);
    }

    /// Says whose request is carried out from now on.
    pub(crate) fn set_origin(&mut self, origin: Option<(ConnectionId, Xid)>) {
        self.origin = origin;
    }

    fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Returns the monitors of a connection.
    fn held(&self, id: ConnectionId) -> &[Monitor] {
        let mut watches = self.watches.iter();
        let found = watches.find(|(owner, _)| *owner == id);
        found.map_or(&[], |(_, watch)| &watch.monitors)
    }

    /// What a connection watches, from now on.
    fn watch(&mut self, id: ConnectionId) -> &mut Watch {
        let at = match self.watches.iter().position(|(owner, _)| *owner == id) {
            Some(at) => at,
            None => {
                self.watches.push((id, Watch::default()));
                self.watches.len() - 1
            }
        };
        &mut self.watches[at].1
    }
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

fn event(kind: ChangeKind) -> FlowUpdateEvent {
    match kind {
        ChangeKind::Added => FlowUpdateEvent::Added,
        ChangeKind::Modified => FlowUpdateEvent::Modified,
        ChangeKind::Removed(reason) => FlowUpdateEvent::Deleted(match reason {
            RemovedReason::IdleTimeout => FlowRemovedReason::IdleTimeout,
            RemovedReason::HardTimeout => FlowRemovedReason::HardTimeout,
            RemovedReason::Delete => FlowRemovedReason::Delete,
            RemovedReason::GroupDelete => FlowRemovedReason::GroupDelete,
        }),
    }
}

fn update(
    entry: &FlowEntry,
    event: FlowUpdateEvent,
    with_instructions: bool,
) -> FlowUpdate<&Match, Instructions> {
    FlowUpdate::Full(FlowUpdateFull {
        event,
        table: entry.table(),
        priority: entry.priority(),
        idle_timeout: entry.idle_timeout(),
        hard_timeout: entry.hard_timeout(),
        cookie: entry.cookie(),
        match_: entry.match_(),
        instructions: with_instructions.then(|| entry.instructions()),
    })
}

impl Watch {
    /// The flags of all monitors together that are about this change.
    fn flags(&self, kind: ChangeKind, entry: &FlowEntry) -> Option<FlowMonitorFlags> {
        let about = |monitor: &&Monitor| monitor.wants(kind) && monitor.filter.selects(entry);
        self.monitors
            .iter()
            .filter(about)
            .map(|monitor| monitor.flags)
            .reduce(FlowMonitorFlags::union)
    }

    /// Writes what became of entries; what the connection itself asked for by `own` is abbreviated unless a monitor
    /// wants it in full.
    fn write(&self, changes: &[EntryChange], own: Option<Xid>, out: &mut Vec<u8>) {
        let mut writer = None;
        let mut is_abbreviated = false;
        for change in changes {
            let Some(flags) = self.flags(change.kind, &change.entry) else {
                continue;
            };
            if own.is_some() && !flags.contains(FlowMonitorFlags::OWN) {
                is_abbreviated = true;
                continue;
            }
            let with_instructions = flags.contains(FlowMonitorFlags::INSTRUCTIONS);
            let update = update(&change.entry, event(change.kind), with_instructions);
            writer
                .get_or_insert_with(|| SegmentWriter::flow_updates(UNASKED))
                .push(&update, out);
        }
        if let Some(xid) = own.filter(|_| is_abbreviated) {
            let update: FlowUpdate = FlowUpdate::Abbreviated(xid);
            writer
                .get_or_insert_with(|| SegmentWriter::flow_updates(UNASKED))
                .push(&update, out);
        }
        if let Some(writer) = writer {
            writer.finish(out);
        }
    }

    /// Remembers changes for later.
    fn miss(&mut self, changes: &[EntryChange]) {
        let missed = self.missed.get_or_insert_default();
        for change in changes {
            let entry = &change.entry;
            let key = (entry.table(), entry.priority(), entry.match_().clone());
            missed
                .entry(key)
                .and_modify(|missed| missed.entry = Arc::clone(entry))
                .or_insert_with(|| Missed {
                    entry: Arc::clone(entry),
                    was_added: change.kind == ChangeKind::Added,
                });
        }
    }
}

/// The initial entries of monitors, told in steps.
pub(super) struct Initial(Vec<(FlowMonitorFlags, FlowFilter)>);

impl Initial {
    /// The update that the entry is told by, if it is to be told.
    pub(super) fn update<'a>(&self, entry: &'a FlowEntry) -> Option<FlowUpdate<&'a Match, Instructions>> {
        let flags = self
            .0
            .iter()
            .filter(|(_, filter)| filter.selects(entry))
            .map(|(flags, _)| *flags)
            .reduce(FlowMonitorFlags::union)?;
        let with_instructions = flags.contains(FlowMonitorFlags::INSTRUCTIONS);
        Some(update(entry, FlowUpdateEvent::Added, with_instructions))
    }
}

/// Begins monitors; returns those that are to hear of what there is already.
pub(super) fn begin<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    body: &[u8],
) -> Result<Initial, ErrorCode> {
    let asked = FlowMonitorRequest::decode_all(body).map_err(|error| error.error_code())?;
    let held = bridge.channels.monitors.held(id);
    let is_taken = |asked: &FlowMonitorRequest| held.iter().any(|held| held.id == asked.id);
    let has_twice = asked
        .iter()
        .enumerate()
        .any(|(at, one)| asked[..at].iter().any(|before| before.id == one.id));
    // The extension names no error for it.
    if has_twice || asked.iter().any(is_taken) || held.len() + asked.len() > MONITORS_LEN {
        return Err(ErrorCode::OFPBRC_EPERM);
    }
    if asked
        .iter()
        .any(|one| one.table != TableId::ALL && !bridge.tables.has_table(one.table))
    {
        return Err(ErrorCode::OFPBRC_BAD_TABLE_ID);
    }
    for one in &asked {
        let checked = bridge.tables.check_extensions(&one.match_);
        checked.map_err(|error| error_code(error.code()))?;
    }
    // Nobody hears now of what happened before.
    tell(bridge);
    let watch = bridge.channels.monitors.watch(id);
    let mut initial = Vec::new();
    for one in asked {
        let filter = FlowFilter {
            table: one.table,
            out_port: one.out_port,
            out_group: GroupId::ANY,
            cookie: Cookie(0),
            cookie_mask: 0,
            match_: one.match_,
        };
        if one.flags.contains(FlowMonitorFlags::INITIAL) {
            initial.push((one.flags, filter.clone()));
        }
        watch.monitors.push(Monitor {
            id: one.id,
            flags: one.flags,
            filter,
        });
    }
    bridge.tables.set_watched(true);
    Ok(Initial(initial))
}

/// Ends a monitor.
pub(super) fn cancel<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    body: &Experimenter,
) -> Result<(), ErrorCode> {
    let number = decode_cancel(&body.data).map_err(|error| error.error_code())?;
    let held = bridge.channels.monitors.held(id);
    if !held.iter().any(|monitor| monitor.id == number) {
        return Err(ErrorCode::OFPBRC_EPERM);
    }
    let watch = bridge.channels.monitors.watch(id);
    watch.monitors.retain(|monitor| monitor.id != number);
    if watch.monitors.is_empty() {
        bridge.channels.monitors.disconnected(id);
        settle(bridge);
    }
    Ok(())
}

/// Notes changes only while somebody wants to hear of them.
pub(super) fn settle<B: Backend>(bridge: &mut BridgeControl<B>) {
    let is_watched = !bridge.channels.monitors.is_empty();
    bridge.tables.set_watched(is_watched);
}

/// Tells what became of entries.
pub(crate) fn tell<B: Backend>(bridge: &mut BridgeControl<B>) {
    if bridge.channels.monitors.is_empty() {
        return;
    }
    let changes = bridge.tables.take_changes();
    if changes.is_empty() {
        return;
    }
    let mut monitors = core::mem::take(&mut bridge.channels.monitors);
    for (owner, watch) in &mut monitors.watches {
        let Some(outbox) = bridge.channels.outbox(*owner) else {
            continue;
        };
        if watch.missed.is_some() {
            watch.miss(&changes);
            continue;
        }
        let own = monitors.origin.filter(|(id, _)| id == owner).map(|(_, xid)| xid);
        let mut bytes = Vec::new();
        watch.write(&changes, own, &mut bytes);
        if !outbox.offer(bytes, outbox_room::REPORT) {
            watch.miss(&changes);
            outbox.reply(encoded(&Message::Experimenter(pause(true))).unwrap_or_default());
        }
    }
    bridge.channels.monitors = monitors;
}

/// Tells those who have caught up what they missed.
pub(crate) fn resume<B: Backend>(bridge: &mut BridgeControl<B>) {
    let is_paused = |(_, watch): &(ConnectionId, Watch)| watch.missed.is_some();
    if !bridge.channels.monitors.watches.iter().any(is_paused) {
        return;
    }
    let mut monitors = core::mem::take(&mut bridge.channels.monitors);
    for (owner, watch) in &mut monitors.watches {
        let Some(outbox) = bridge.channels.outbox(*owner) else {
            continue;
        };
        if !outbox.has_room(outbox_room::PACKET_IN) {
            continue;
        }
        let Some(missed) = watch.missed.take() else {
            continue;
        };
        let changes: Vec<EntryChange> = missed
            .into_iter()
            .map(|((table, priority, match_), missed)| {
                let now = bridge.tables.find_entry(table, &match_, priority);
                let kind = match (now, missed.was_added) {
                    (Some(_), true) => ChangeKind::Added,
                    (Some(_), false) => ChangeKind::Modified,
                    // One that came and went again is told, too: an add may have replaced an entry.
                    (None, _) => ChangeKind::Removed(RemovedReason::Delete),
                };
                let entry = Arc::clone(now.unwrap_or(&missed.entry));
                EntryChange { kind, entry }
            })
            .collect();
        let mut bytes = Vec::new();
        watch.write(&changes, None, &mut bytes);
        outbox.reply(bytes);
        outbox.reply(encoded(&Message::Experimenter(pause(false))).unwrap_or_default());
    }
    bridge.channels.monitors = monitors;
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_pipeline::{FlowEntryParts, FlowFlags};
    use millrace_types::Time;

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

    #[test]
    fn what_is_missed_is_remembered_by_entry() {
        let mut watch = Watch::default();
        for cookie in 0..1000 {
            let kinds = [
                ChangeKind::Modified,
                ChangeKind::Removed(RemovedReason::Delete),
                ChangeKind::Added,
            ];
            watch.miss(&kinds.map(|kind| EntryChange {
                kind,
                entry: entry(1, cookie),
            }));
            watch.miss(&[EntryChange {
                kind: ChangeKind::Added,
                entry: entry(2, cookie),
            }]);
        }
        let missed = watch.missed.unwrap();
        let mut known: Vec<_> = missed
            .iter()
            .map(|((_, priority, _), missed)| (priority.0, missed.was_added, missed.entry.cookie().0))
            .collect();
        known.sort_unstable();
        assert_eq!(known, [(1, false, 999), (2, true, 999)]);
    }
}
