//! Flow updates (ONF extension 187): every change of the entries that flow monitors select.
//!
//! Changes by a request are sent directly after the request; changes by time-outs are sent before they are
//! published. A controller that does not keep up gets `OFPFMC_PAUSED`. Later changes are recorded by entry,
//! so that memory is bounded by the number of entries. They are sent with `OFPFMC_RESUMED` when the outbox of
//! the controller has drained.

use std::sync::Arc;

use millrace_flow::{Instructions, Match};
use millrace_openflow::Message;
use millrace_openflow::flow_monitor::{FlowMonitorFlags, FlowUpdate, FlowUpdateEvent, FlowUpdateFull, pause};
use millrace_openflow::multipart::SegmentWriter;
use millrace_pipeline::{ChangeKind, Control, EntryChange, FlowEntry, RemovedReason};
use millrace_types::Xid;

use super::flow_removed::reason_of;
use super::send::{ASYNCHRONOUS, encoded};
use crate::controllers::{ConnectionId, Controllers, MonitorSet, outbox_limit};

fn event(kind: ChangeKind) -> FlowUpdateEvent {
    match kind {
        ChangeKind::Added => FlowUpdateEvent::Added,
        ChangeKind::Modified => FlowUpdateEvent::Modified,
        ChangeKind::Removed(reason) => FlowUpdateEvent::Deleted(reason_of(reason)),
    }
}

/// Returns the update that reports an entry to monitors with these flags.
pub(crate) fn flow_update(
    entry: &FlowEntry,
    event: FlowUpdateEvent,
    flags: FlowMonitorFlags,
) -> FlowUpdate<&Match, Instructions> {
    FlowUpdate::Full(FlowUpdateFull {
        event,
        table: entry.table(),
        priority: entry.priority(),
        idle_timeout: entry.idle_timeout(),
        hard_timeout: entry.hard_timeout(),
        cookie: entry.cookie(),
        match_: entry.match_(),
        instructions: flags
            .contains(FlowMonitorFlags::INSTRUCTIONS)
            .then(|| entry.instructions()),
    })
}

/// Encodes the updates of one connection. If a request of the same connection caused the changes (`own`), the
/// update contains only the xid of the request, unless a monitor has the flag `OWN`.
fn encode_updates(set: &MonitorSet, changes: &[EntryChange], own: Option<Xid>, out: &mut Vec<u8>) {
    let mut writer = None;
    let mut is_abbreviated = false;
    for change in changes {
        let Some(flags) = set.flags(change.kind, &change.entry) else {
            continue;
        };
        if own.is_some() && !flags.contains(FlowMonitorFlags::OWN) {
            is_abbreviated = true;
            continue;
        }
        let update = flow_update(&change.entry, event(change.kind), flags);
        writer
            .get_or_insert_with(|| SegmentWriter::flow_updates(ASYNCHRONOUS))
            .push(&update, out);
    }
    if let Some(xid) = own.filter(|_| is_abbreviated) {
        let update: FlowUpdate = FlowUpdate::Abbreviated(xid);
        writer
            .get_or_insert_with(|| SegmentWriter::flow_updates(ASYNCHRONOUS))
            .push(&update, out);
    }
    if let Some(writer) = writer {
        writer.finish(out);
    }
}

/// Sends the changes of entries since the last call, or records them for connections whose updates are paused.
pub(crate) fn send_flow_updates(controllers: &mut Controllers, tables: &mut Control) {
    if controllers.monitors.is_empty() {
        return;
    }
    let changes = tables.take_changes();
    if changes.is_empty() {
        return;
    }
    let mut monitors = core::mem::take(&mut controllers.monitors);
    for (owner, set) in &mut monitors.sets {
        let Some(outbox) = controllers.outbox(*owner) else {
            continue;
        };
        if set.is_paused() {
            set.record_missed(&changes);
            continue;
        }
        let own = monitors.origin.filter(|(id, _)| id == owner).map(|(_, xid)| xid);
        let mut bytes = Vec::new();
        encode_updates(set, &changes, own, &mut bytes);
        if !outbox.offer(bytes, outbox_limit::REPORT) {
            set.record_missed(&changes);
            outbox.reply(encoded(&Message::Experimenter(pause(true))).unwrap_or_default());
        }
    }
    controllers.monitors = monitors;
}

/// Sends the recorded changes to connections whose outbox has drained, and ends their pause.
pub(crate) fn resume_flow_updates(controllers: &mut Controllers, tables: &Control) {
    let is_paused = |(_, set): &(ConnectionId, MonitorSet)| set.is_paused();
    if !controllers.monitors.sets.iter().any(is_paused) {
        return;
    }
    let mut monitors = core::mem::take(&mut controllers.monitors);
    for (owner, set) in &mut monitors.sets {
        let Some(outbox) = controllers.outbox(*owner) else {
            continue;
        };
        if !outbox.has_room(outbox_limit::PACKET_IN) {
            continue;
        }
        let Some(missed) = set.take_missed() else {
            continue;
        };
        let changes: Vec<EntryChange> = missed
            .into_iter()
            .map(|((table, priority, match_), missed)| {
                let now = tables.find_entry(table, &match_, priority);
                let kind = match (now, missed.was_added) {
                    (Some(_), true) => ChangeKind::Added,
                    (Some(_), false) => ChangeKind::Modified,
                    // This includes an entry that was added: the add replaced an entry that the connection
                    // knew. A new entry would have no record after its removal.
                    (None, _) => ChangeKind::Removed(RemovedReason::Delete),
                };
                let entry = Arc::clone(now.unwrap_or(&missed.entry));
                EntryChange {
                    kind,
                    is_new: false,
                    entry,
                }
            })
            .collect();
        let mut bytes = Vec::new();
        encode_updates(set, &changes, None, &mut bytes);
        outbox.reply(bytes);
        outbox.reply(encoded(&Message::Experimenter(pause(false))).unwrap_or_default());
    }
    controllers.monitors = monitors;
}
