//! Flow entries: listed page by page, changed by an operator, counters set to zero.

use millrace_agent::BridgeControl;
use millrace_agent::control::RefusedFlowMod;
use millrace_api::server::{FlowQuery, Flows, LiveError};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_flow::Match;
use millrace_flow::text::{FlowCommand, FlowModText};
use millrace_openflow::ErrorCode;
use millrace_pipeline::{Cursor, FlowEntry, FlowFilter, FlowFlags, FlowMod, FlowModCommand, FlowStat};
use millrace_types::{Cookie, TableId};

/// The maximum number of entries that one page inspects, which bounds the time on the control thread.
const LOOKED_AT: usize = 20_000;

/// Returns the filter of a query.
fn filter<B: Backend>(
    control: &BridgeControl<B>,
    bridge: &str,
    query: &FlowQuery,
) -> Result<FlowFilter, LiveError> {
    let tables = control.datapath().forwarding().table_len();
    if let Some(table) = query.table.filter(|table| usize::from(table.0) >= tables) {
        let last = TableId((tables - 1) as u8);
        return Err(LiveError::NoTable {
            bridge: bridge.to_owned(),
            table,
            last,
        });
    }
    Ok(FlowFilter {
        table: query.table.unwrap_or(TableId::ALL),
        match_: query.within.clone().unwrap_or_else(Match::any),
        cookie: query.cookie.map_or(Cookie(0), |cookie| cookie.value),
        cookie_mask: query.cookie.map_or(0, |cookie| cookie.mask),
        ..FlowFilter::all()
    })
}

pub(super) fn page<B: Backend>(
    control: &BridgeControl<B>,
    bridge: &str,
    query: &FlowQuery,
) -> Result<Flows, LiveError> {
    let filter = filter(control, bridge, query)?;
    let now = control.datapath().now();
    let mut flows = Vec::new();
    let mut next = Some(Cursor::at(query.after.map_or(0, |after| after.position as usize)));
    // Each call reads one entry, so that the page ends exactly at its limit.
    for _ in 0..LOOKED_AT {
        let Some(cursor) = next.filter(|_| flows.len() < query.limit) else {
            break;
        };
        next = control
            .tables()
            .flow_stats(&filter, cursor, 1, now, |stat| flows.push(shown(&stat)));
    }
    let next = next.map(|cursor| view::FlowCursor {
        table: 0,
        position: cursor.index() as u64,
    });
    Ok(Flows { flows, next })
}

/// Applies flow_mods of an operator.
pub(super) fn change<B: Backend>(
    control: &mut BridgeControl<B>,
    mods: Vec<FlowModText>,
) -> Result<view::FlowModsDone, LiveError> {
    let outcome = control.flow_mods(mods.into_iter().map(request).collect());
    let outcome = outcome.map_err(|RefusedFlowMod { index, error }| {
        let millrace_pipeline::ErrorCode { type_, code } = error.code();
        LiveError::FlowMod {
            index,
            code: ErrorCode { type_, code }.to_string(),
            message: error.to_string(),
        }
    })?;
    Ok(view::FlowModsDone {
        added: outcome.added as u64,
        modified: outcome.modified as u64,
        removed: outcome.removed as u64,
    })
}

fn request(given: FlowModText) -> FlowMod {
    let command = match given.command {
        FlowCommand::Add => FlowModCommand::Add,
        FlowCommand::Modify => FlowModCommand::Modify,
        FlowCommand::ModifyStrict => FlowModCommand::ModifyStrict,
        FlowCommand::Delete => FlowModCommand::Delete,
        FlowCommand::DeleteStrict => FlowModCommand::DeleteStrict,
    };
    // The cookie of a new entry has no mask.
    let adds = command == FlowModCommand::Add;
    FlowMod {
        cookie: given.cookie.map_or(Cookie(0), |cookie| cookie.value),
        cookie_mask: given.cookie.filter(|_| !adds).map_or(0, |cookie| cookie.mask),
        idle_timeout: given.idle_timeout,
        hard_timeout: given.hard_timeout,
        out_port: given.out_port,
        out_group: given.out_group,
        flags: FlowFlags(given.flags),
        instructions: given.instructions,
        ..FlowMod::new(command, given.table, given.priority, given.matching)
    }
}

/// Sets counters of flow entries to zero.
pub(super) fn reset<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    query: &FlowQuery,
) -> Result<u64, LiveError> {
    let filter = filter(control, bridge, query)?;
    let reset = control.reset_flow_counters(&filter);
    reset
        .map(|reset| reset as u64)
        .map_err(|error| LiveError::Unavailable {
            message: error.to_string(),
            next_step: "reset fewer entries at a time: give a match or a cookie".to_owned(),
        })
}

fn shown(stat: &FlowStat<'_>) -> view::Flow {
    let entry = stat.entry;
    let instructions = entry.instructions();
    view::Flow {
        table: entry.table().0,
        priority: entry.priority().0,
        cookie: entry.cookie().to_string(),
        matching: entry.match_().to_string(),
        fields: view::MatchField::all(entry.match_()),
        actions: instructions.to_string(),
        instructions: view::Instructions::from(&instructions),
        packets: stat.count.packets,
        bytes: stat.count.bytes,
        duration_seconds: stat.duration.as_secs_f64(),
        idle_timeout: entry.idle_timeout(),
        hard_timeout: entry.hard_timeout(),
        flags: flags(entry),
    }
}

fn flags(entry: &FlowEntry) -> Vec<String> {
    let names = [
        (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
        (FlowFlags::CHECK_OVERLAP, "check_overlap"),
        (FlowFlags::RESET_COUNTS, "reset_counts"),
        (FlowFlags::NO_PKT_COUNTS, "no_pkt_counts"),
        (FlowFlags::NO_BYT_COUNTS, "no_byt_counts"),
    ];
    let set = names.iter().filter(|(flag, _)| entry.flags().contains(*flag));
    set.map(|(_, name)| (*name).to_owned()).collect()
}
