//! The state of a bridge that a restart keeps: captured in steps of the control thread, and restored all or not at
//! all.

use std::collections::BTreeMap;

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::table_features::TableFeatures;
use millrace_pipeline::{EntryCount, Group};
use millrace_types::{Duration, GroupId, MeterId, TableId, Time};

use super::kept::{Captured, Counted, Kept};
use crate::control::{BridgeControl, BridgeHandle, TaskError};
use crate::handlers::tables;

/// The number of entries that one step of a capture reads: a fraction of a millisecond of the control thread.
const STEP: usize = 1_024;

/// Returns the state of a bridge at one moment. The control thread serves its channels between the steps. One thread may
/// capture a bridge at a time.
///
/// # Errors
/// [`TaskError`] if the bridge was removed.
pub(super) fn capture<B: Backend>(handle: &BridgeHandle<B>) -> Result<Captured, TaskError> {
    handle.call_blocking(BridgeControl::begin_recording)?;
    loop {
        while !handle.call_blocking(|bridge| bridge.record(STEP))? {}
        let ended =
            handle.call_blocking(|bridge| Some((bridge.end_recording()?, without_entries(bridge))))?;
        if let Some((recorded, state)) = ended {
            let flows = recorded.into_iter().flatten().collect();
            return Ok(Captured { flows, ..state });
        }
        // All entries were removed meanwhile, and others added.
    }
}

/// Returns the state of a bridge now, without flow entries.
fn without_entries<B: Backend>(bridge: &BridgeControl<B>) -> Captured {
    let at = bridge.datapath.now();
    let counted = |age: Duration, count: EntryCount, parts: Vec<EntryCount>| Counted {
        age,
        idle: Duration::ZERO,
        count,
        parts,
    };
    let mut state = Captured {
        bridge: bridge.config.name.to_string(),
        dpid: bridge.config.datapath_id(),
        tables: bridge.tables.config().tables,
        at,
        features: features(bridge),
        ..Captured::default()
    };
    bridge.tables.meter_stats(MeterId::ALL, at, |stat| {
        let counted = counted(stat.duration, stat.count, stat.bands);
        state.meters.push((stat.meter.clone(), counted));
    });
    bridge.tables.group_stats(GroupId::ALL, at, |stat| {
        let counted = counted(stat.duration, stat.count, stat.buckets);
        state.groups.push((stat.group.clone(), counted));
    });
    state
}

/// Returns the features and names of tables, if a controller set any.
fn features<B: Backend>(bridge: &BridgeControl<B>) -> Vec<TableFeatures> {
    let tables = &bridge.tables;
    let is_set = |table| !tables.has_table(table) || tables.table_capabilities(table).is_some();
    let mut all = (0..tables.config().tables).map(TableId);
    if bridge.table_names.is_empty() && !all.any(is_set) {
        return Vec::new();
    }
    let named = |features: TableFeatures| TableFeatures {
        // The name that the configuration gives is not kept.
        name: bridge
            .table_names
            .get(&features.table)
            .cloned()
            .unwrap_or_default(),
        ..features
    };
    tables::features(bridge).map(named).collect()
}

/// The numbers of restored items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Restored {
    pub(super) flows: usize,
    pub(super) groups: usize,
    pub(super) meters: usize,
    /// Entries whose hard timeout has passed.
    pub(super) expired: usize,
}

/// Restores the state of a bridge that has no entries, groups and meters yet. `away` is the time since the save.
///
/// # Errors
/// The item that the bridge refuses, and the reason; the bridge is then unchanged.
pub(super) fn restore<B: Backend>(
    bridge: &mut BridgeControl<B>,
    kept: Kept,
    away: Duration,
) -> Result<Restored, String> {
    let dpid = bridge.config.datapath_id();
    if kept.dpid != dpid {
        return Err(format!(
            "it was saved for the datapath id {}: expected {dpid}, that of the bridge",
            kept.dpid
        ));
    }
    // Entries with extensions stay when the configuration refuses new ones.
    let extensions = bridge.config.match_extensions;
    bridge.tables.set_match_extensions(true);
    bridge.tables.begin(&bridge.ops);
    let outcome = restore_all(bridge, kept, away);
    match outcome {
        Ok(_) => bridge.tables.commit(),
        Err(_) => {
            bridge.tables.roll_back(&mut bridge.ops);
            let now = bridge.datapath.now();
            let all = (0..bridge.tables.config().tables).map(|table| (TableId(table), None));
            // All tables with all capabilities, as at the start; that is never refused.
            let _reset = bridge.tables.set_pipeline(all.collect(), now, &mut bridge.ops);
            bridge.table_names.clear();
        }
    }
    bridge.tables.set_match_extensions(extensions);
    bridge.publish();
    outcome
}

fn restore_all<B: Backend>(
    bridge: &mut BridgeControl<B>,
    kept: Kept,
    away: Duration,
) -> Result<Restored, String> {
    let now = bridge.datapath.now();
    let created = |counted: &Counted| now - counted.age - away;
    let tables = bridge.tables.config().tables;
    let fewer_tables = move |error: String| match kept.tables > tables {
        true => format!(
            "{error} (the bridge had {} tables at the save, and now has {tables})",
            kept.tables
        ),
        false => error,
    };
    if !kept.features.is_empty() {
        tables::set_features(bridge, &kept.features)
            .map_err(|code| fewer_tables(format!("the features of its tables are refused: {code}")))?;
        let names = kept
            .features
            .into_iter()
            .map(|features| (features.table, features.name));
        bridge.table_names = names
            .filter(|(_, name)| !name.is_empty())
            .collect::<BTreeMap<_, _>>();
    }
    let mut done = Restored::default();
    for (meter, counted) in &kept.meters {
        let times = (created(counted), now);
        bridge
            .tables
            .restore_meter(meter, times, counted.count, &counted.parts, &mut bridge.ops)
            .map_err(|error| format!("meter {}: {error}", meter.id))?;
        done.meters += 1;
    }
    done.groups = restore_groups(bridge, kept.groups, created)?;
    for (flow, counted) in kept.flows {
        let hard = Duration::from_secs(flow.hard_timeout.into());
        if !hard.is_zero() && counted.age.saturating_add(away) >= hard {
            done.expired += 1;
            continue;
        }
        let count = EntryCount {
            last_used: now - counted.idle,
            ..counted.count
        };
        let entry = format_args!(
            "table={}, priority={}, {}",
            flow.table, flow.priority.0, flow.match_
        )
        .to_string();
        bridge
            .tables
            .restore_entry(flow, created(&counted), count, &mut bridge.ops)
            .map_err(|error| fewer_tables(format!("entry {entry}: {error}")))?;
        done.flows += 1;
    }
    Ok(done)
}

/// Restores groups, those that others forward to or watch first. Returns their number.
fn restore_groups<B: Backend>(
    bridge: &mut BridgeControl<B>,
    mut waiting: Vec<(Group, Counted)>,
    created: impl Fn(&Counted) -> Time,
) -> Result<usize, String> {
    let len = waiting.len();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut refused = None;
        waiting.retain(|(group, counted)| {
            let outcome = bridge.tables.restore_group(
                group,
                created(counted),
                counted.count,
                &counted.parts,
                &mut bridge.ops,
            );
            match outcome {
                Ok(()) => false,
                Err(error) => {
                    refused = Some(format!("group {}: {error}", group.id));
                    true
                }
            }
        });
        if waiting.len() == before {
            return Err(refused.unwrap_or_default());
        }
    }
    Ok(len)
}
