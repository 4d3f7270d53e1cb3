//! flow_removed (OpenFlow 1.3.5, section 7.4.2).

use millrace_openflow::{FlowRemoved, FlowRemovedReason, Message};
use millrace_pipeline as pipeline;

use super::send::report;
use crate::controllers::Controllers;

/// Returns the reason as in `ofp_flow_removed_reason`.
pub(super) fn reason_of(reason: pipeline::RemovedReason) -> FlowRemovedReason {
    match reason {
        pipeline::RemovedReason::IdleTimeout => FlowRemovedReason::IdleTimeout,
        pipeline::RemovedReason::HardTimeout => FlowRemovedReason::HardTimeout,
        pipeline::RemovedReason::Delete => FlowRemovedReason::Delete,
        pipeline::RemovedReason::GroupDelete => FlowRemovedReason::GroupDelete,
    }
}

/// Reports the removal of a flow entry to the controllers that want it for this reason.
pub(crate) fn flow_removed(controllers: &Controllers, removed: &pipeline::FlowRemoved) {
    let reason = reason_of(removed.reason);
    // The match is cloned only for a message that is sent.
    if !controllers
        .iter()
        .any(|connected| connected.peer.wants_flow_removed(reason))
    {
        return;
    }
    let entry = &removed.entry;
    let message = Message::FlowRemoved(FlowRemoved {
        cookie: entry.cookie(),
        priority: entry.priority(),
        reason,
        table: entry.table(),
        duration: removed.duration,
        idle_timeout: entry.idle_timeout(),
        hard_timeout: entry.hard_timeout(),
        packets: removed.count.packets,
        bytes: removed.count.bytes,
        match_: entry.match_().clone(),
    });
    report(controllers, &message, |connected| {
        connected.peer.wants_flow_removed(reason)
    });
}
