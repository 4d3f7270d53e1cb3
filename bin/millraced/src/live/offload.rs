//! Offload of ports, from the data plane's values to those of REST.

use millrace_api::view;
use millrace_datapath::offload::{OffloadBy, OffloadMode, OffloadStatus};
use millrace_pipeline::MarkLevel;

/// Returns the offload of a port.
pub(super) fn view(status: &OffloadStatus) -> view::Offload {
    let planner = status.planner;
    let device = [
        ("shape", planner.refused_shape),
        ("capacity", planner.refused_capacity),
        ("transient", planner.refused_transient),
        ("drop", status.drops_refused),
    ];
    let refusals = device
        .iter()
        .chain(&status.unsuitable)
        .filter(|(_, count)| *count != 0)
        .map(|(reason, count)| view::OffloadRefusal {
            reason: (*reason).to_owned(),
            count: *count,
        });
    view::Offload {
        mode: mode(status.settings.mode).to_owned(),
        level: level(status.level).to_owned(),
        by: match status.by {
            OffloadBy::Device => "device",
            OffloadBy::Operator => "operator",
            OffloadBy::Auto => "auto",
            OffloadBy::Governor => "governor",
            OffloadBy::Audit => "audit",
            OffloadBy::Obstacle(setting) => setting,
        }
        .to_owned(),
        distrusted: status.is_distrusted,
        entries: planner.installed as u64,
        pending: planner.pending as u64,
        leaked: planner.leaked as u64,
        limit: planner.limit as u64,
        operations: planner.operations,
        operations_per_second: status.operations_per_second,
        packets: status.packets,
        marked: status.marked,
        used: status.used,
        verified: status.verified,
        mismatches: status.mismatches,
        unknown: status.unknown,
        samples: planner.samples,
        samples_lost: status.samples_lost,
        drops: status.drops as u64,
        dropped: status.dropped,
        refusals: refusals.collect(),
        saved_nanos: status.saved_nanos,
    }
}

fn mode(mode: OffloadMode) -> &'static str {
    match mode {
        OffloadMode::Auto => "auto",
        OffloadMode::Dispatch => "dispatch",
        OffloadMode::Verify => "verify",
        OffloadMode::Trust => "trust",
    }
}

/// Returns the word for a level.
pub(super) fn level(level: MarkLevel) -> &'static str {
    match level {
        MarkLevel::Dispatch => "dispatch",
        MarkLevel::Verify => "verify",
        MarkLevel::Trust => "trust",
    }
}
