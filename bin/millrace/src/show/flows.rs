//! `millrace show flows`: flow entries, selected and sorted.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use anyhow::Result;
use millrace_api::client::{Client, ClientError, FlowOptions};
use millrace_api::view::Flow;

use crate::bridges::bridge_names;
use crate::cli::{FlowSort, Flows};
use crate::human::span;
use crate::output::{Session, say};

/// The number of flow entries in one request.
const PAGE_LEN: usize = 1000;

/// Prints flow entries. Unsorted entries are printed page by page, because there may be a million; sorted entries and
/// JSON (an object by bridge) are printed after the last page.
pub(super) fn show(session: &Session, wanted: &Flows) -> Result<()> {
    let client = session.client()?;
    let mut lists = BTreeMap::new();
    let names = bridge_names(client, &wanted.of)?;
    // The headings are printed with the first page, so that an unknown bridge gets none.
    let mut headings = format!(
        "{:>5} {:>5} {:>12} {:>14} {:>7}  {}\n",
        "TABLE", "PRIO", "PACKETS", "BYTES", "AGE", "FLOW"
    );
    for name in &names {
        if names.len() > 1 {
            headings += &format!("bridge {name}\n");
        }
        let mut print = |flows: &[Flow]| {
            say(&std::mem::take(&mut headings))?;
            say(&flows.iter().map(line).collect::<String>())
        };
        let list: &mut Vec<Flow> = lists.entry(name.clone()).or_default();
        if let Some(key) = wanted.sort {
            *list = sorted(client, name, wanted, key)?;
            if !session.json() {
                print(list)?;
            }
            continue;
        }
        for page in pages(client, name, wanted, wanted.limit.unwrap_or(usize::MAX)) {
            let page = page?;
            if session.json() {
                list.extend(page);
            } else {
                print(&page)?;
            }
        }
    }
    if session.json() {
        session.print(&lists, |_| String::new())
    } else {
        Ok(())
    }
}

/// Returns the pages of the selected entries, `limit` entries at most.
fn pages<'a>(
    client: &'a Client,
    bridge: &'a str,
    wanted: &'a Flows,
    limit: usize,
) -> impl Iterator<Item = Result<Vec<Flow>, ClientError>> + 'a {
    // The cursor of the next page: `Some(None)` for the first page, `None` after the last.
    let mut next = Some(None);
    let mut left = limit;
    std::iter::from_fn(move || {
        let after = next.take().filter(|_| left > 0)?;
        let options = FlowOptions {
            table: wanted.table,
            matching: wanted.matching.clone(),
            cookie: wanted.cookie.clone(),
            after,
            limit: Some(left.min(PAGE_LEN)),
        };
        Some(client.flows(bridge, &options).map(|page| {
            left = left.saturating_sub(page.flows.len());
            next = page.next.map(Some);
            page.flows
        }))
    })
}

/// Returns the selected entries in order, `wanted.limit` at most. The function holds at most twice that
/// number, plus one page, in memory.
fn sorted(client: &Client, bridge: &str, wanted: &Flows, key: FlowSort) -> Result<Vec<Flow>> {
    let limit = wanted.limit.unwrap_or(usize::MAX);
    let order = |one: &Flow, other: &Flow| {
        let order = compare(key, one, other);
        if wanted.reverse { order.reverse() } else { order }
    };
    let mut list = Vec::new();
    for page in pages(client, bridge, wanted, usize::MAX) {
        list.extend(page?);
        if list.len() > limit.saturating_mul(2) {
            list.sort_by(order);
            list.truncate(limit);
        }
    }
    list.sort_by(order);
    list.truncate(limit);
    Ok(list)
}

/// Compares two entries: the largest first, except for tables, which are in the order of the pipeline.
fn compare(key: FlowSort, one: &Flow, other: &Flow) -> Ordering {
    let by = |flow: &Flow| match key {
        FlowSort::Priority | FlowSort::Table => u64::from(flow.priority),
        FlowSort::Packets => flow.packets,
        FlowSort::Bytes => flow.bytes,
        FlowSort::Age => (flow.duration_seconds * 1e6) as u64,
    };
    let table = |flow: &Flow| if key == FlowSort::Table { flow.table } else { 0 };
    (table(one), Reverse(by(one))).cmp(&(table(other), Reverse(by(other))))
}

/// Returns an entry as a line of the table.
fn line(flow: &Flow) -> String {
    let mut notes = String::new();
    for (name, seconds) in [
        ("idle_timeout", flow.idle_timeout),
        ("hard_timeout", flow.hard_timeout),
    ] {
        if seconds > 0 {
            notes += &format!("{name}={seconds},");
        }
    }
    if !matches!(flow.cookie.as_str(), "0x0" | "0") {
        notes += &format!("cookie={},", flow.cookie);
    }
    let matching = format!("{notes}{}", flow.matching);
    let matching = matching.trim_end_matches(',');
    let space = if matching.is_empty() { "" } else { " " };
    let (packets, bytes, age) = (flow.packets, flow.bytes, span(flow.duration_seconds));
    format!(
        "{:>5} {:>5} {packets:>12} {bytes:>14} {age:>7}  {matching}{space}actions={}\n",
        flow.table, flow.priority, flow.actions
    )
}
