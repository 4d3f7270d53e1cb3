//! Pages of flow entries.

use millrace_agent::BridgeControl;
use millrace_api::server::{FlowQuery, Flows, LiveError};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_flow::Match;
use millrace_pipeline::{Cursor, FlowEntry, FlowFilter, FlowFlags, FlowStat};
use millrace_types::TableId;

/// The maximum number of entries that one page inspects, which bounds the time on the control thread.
const LOOKED_AT: usize = 20_000;

pub(super) fn page<B: Backend>(
    control: &BridgeControl<B>,
    bridge: &str,
    query: &FlowQuery,
) -> Result<Flows, LiveError> {
    let tables = control.datapath.forwarding().table_len();
    if let Some(table) = query.table.filter(|table| usize::from(table.0) >= tables) {
        let last = TableId((tables - 1) as u8);
        return Err(LiveError::NoTable {
            bridge: bridge.to_owned(),
            table,
            last,
        });
    }
    let filter = FlowFilter {
        table: query.table.unwrap_or(TableId::ALL),
        match_: query.within.clone().unwrap_or_else(Match::any),
        ..FlowFilter::all()
    };
    let now = control.datapath.now();
    let mut flows = Vec::new();
    let mut next = Some(Cursor::at(query.after.map_or(0, |after| after.place as usize)));
    // One entry per call, so that the page ends exactly at its limit.
    for _ in 0..LOOKED_AT {
        let Some(cursor) = next.filter(|_| flows.len() < query.limit) else {
            break;
        };
        next = control
            .tables
            .flow_stats(&filter, cursor, 1, now, |stat| flows.push(shown(&stat)));
    }
    let next = next.map(|cursor| view::FlowCursor {
        table: 0,
        place: cursor.place() as u64,
    });
    Ok(Flows { flows, next })
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
