//! `millrace show workers` and `millrace show drops`.

use millrace_api::view;

use crate::human::or_dash;
use crate::table::Table;

pub(crate) fn workers(list: &[view::Worker]) -> Table {
    let headings = [
        ">WORKER",
        ">CORE",
        ">BUSY",
        ">PACKETS",
        ">PER BURST",
        ">CYCLES/PACKET",
        ">HANDED OFF",
        ">SLEEPS",
        "POLLS",
    ];
    let mut table = Table::new(&headings, "no worker runs");
    for given in list {
        let per_burst =
            (given.bursts > 0).then(|| format!("{:.1}", given.packets as f64 / given.bursts as f64));
        let queue = |queue: &view::Queue| format!("{}:{}/{}", queue.bridge, queue.port, queue.queue);
        table.row([
            given.id.to_string(),
            or_dash(given.core),
            format!("{:.0} %", 100.0 * given.busy),
            given.packets.to_string(),
            or_dash(per_burst),
            or_dash(given.cycles_per_packet.map(|cycles| format!("{cycles:.0}"))),
            given.handed_off.to_string(),
            given.sleeps.to_string(),
            given.queues.iter().map(queue).collect::<Vec<_>>().join(" "),
        ]);
    }
    table
}

pub(crate) fn dropped(list: &[view::Drop]) -> Table {
    let mut table = Table::new(
        &["BRIDGE", ">PACKETS", "REASON", "MEANING"],
        "no packet was dropped",
    );
    for given in list {
        table.row([
            or_dash(given.bridge.as_ref()),
            given.packets.to_string(),
            given.reason.clone(),
            given.description.clone(),
        ]);
    }
    table
}
