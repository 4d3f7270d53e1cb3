//! `millrace show queues`.

use millrace_api::view::EgressQueue;
use millrace_types::BitRate;

use crate::human::span;
use crate::table::Table;

/// A line for each queue.
pub(super) fn table(list: &[EgressQueue]) -> Table {
    let headings = [
        "PORT", ">QUEUE", ">PRIO", ">WEIGHT", ">MIN", ">MAX", ">PACKETS", ">BYTES", ">DROPS", ">WAITING",
        ">AGE",
    ];
    let rate =
        |bps: Option<u64>| bps.map_or_else(|| "-".to_owned(), |bps| BitRate::from_bps(bps).to_string());
    let mut table = Table::new(&headings, "no port has queues");
    for queue in list {
        table.row([
            queue.port.clone(),
            queue.id.to_string(),
            queue.priority.to_string(),
            queue.weight.to_string(),
            rate(queue.min_bps),
            rate(queue.max_bps),
            queue.packets.to_string(),
            queue.bytes.to_string(),
            queue.drops.to_string(),
            format!("{}/{}", queue.waiting_packets, queue.length),
            span(queue.duration_seconds),
        ]);
    }
    table
}
