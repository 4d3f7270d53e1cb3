//! Metrics of emulated paths, by path and direction.

use crate::server::exposition::{Family, Metric, metrics, write};
use crate::server::live::Live;
use crate::view::WanDirection;

const DIRECTION: &[Metric<WanDirection>] = metrics! {
    counter "millrace_wan_offered_packets_total", "Frames that entered a path." =>
        |direction| direction.offered;
    counter "millrace_wan_released_packets_total", "Frames that left a path." =>
        |direction| direction.released;
    counter "millrace_wan_released_bytes_total", "Bytes of frames that left a path." =>
        |direction| direction.released_bytes;
    counter "millrace_wan_duplicated_packets_total", "Further copies of frames." =>
        |direction| direction.duplicated;
    counter "millrace_wan_reordered_packets_total", "Frames that were reordered." =>
        |direction| direction.reordered;
    counter "millrace_wan_corrupted_packets_total", "Frames with flipped bits." =>
        |direction| direction.corrupted;
    counter "millrace_wan_late_packets_total", "Frames that left more than 1 ms after they were due." =>
        |direction| direction.late;
    counter "millrace_wan_icmp_errors_sent_total", "ICMP errors sent in answer to packets over the MTU." =>
        |direction| direction.icmp_errors_sent;
    counter "millrace_wan_icmp_errors_rate_limited_total",
        "Packets over the MTU that got no ICMP error because of the rate limit." =>
        |direction| direction.icmp_errors_rate_limited;
    gauge "millrace_wan_in_flight_packets", "Frames that are on their way." =>
        |direction| direction.in_flight;
    gauge "millrace_wan_memory_used_bytes", "Memory of frames that are on their way." =>
        |direction| direction.memory_used;
};

pub(super) fn wans(out: &mut String, live: &dyn Live) {
    let wans = live.wans();
    if wans.is_empty() {
        return;
    }
    let directions = wans.iter().flat_map(|wan| {
        let labels = |of| [("wan", wan.name.as_str()), ("direction", of)];
        let directions = wan.directions.iter();
        directions.map(move |direction| (labels(direction.direction.as_str()), direction))
    });
    let directions: Vec<_> = directions.collect();
    write(out, DIRECTION, &directions);
    let help = "Frames that a path dropped, by reason.";
    let mut drops = Family::counter(out, "millrace_wan_dropped_packets_total", help);
    for ([wan, of], direction) in directions {
        for drop in &direction.drops {
            drops.sample(&[wan, of, ("reason", &drop.reason)], drop.frames);
        }
    }
}
