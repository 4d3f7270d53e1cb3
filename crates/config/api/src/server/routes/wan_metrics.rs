//! Metrics of emulated paths, by path and direction.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{WanDirection, WanPath};

/// Reads one counter of a direction.
type Number = fn(&WanDirection) -> u64;

const COUNTERS: [(&str, &str, Number); 9] = [
    (
        "millrace_wan_offered_packets_total",
        "Frames that entered a path.",
        |direction| direction.offered,
    ),
    (
        "millrace_wan_released_packets_total",
        "Frames that left a path.",
        |direction| direction.released,
    ),
    (
        "millrace_wan_released_bytes_total",
        "Bytes of frames that left a path.",
        |direction| direction.released_bytes,
    ),
    (
        "millrace_wan_duplicated_packets_total",
        "Further copies of frames.",
        |direction| direction.duplicated,
    ),
    (
        "millrace_wan_reordered_packets_total",
        "Frames that were reordered.",
        |direction| direction.reordered,
    ),
    (
        "millrace_wan_corrupted_packets_total",
        "Frames with flipped bits.",
        |direction| direction.corrupted,
    ),
    (
        "millrace_wan_late_packets_total",
        "Frames that left more than 1 ms after they were due.",
        |direction| direction.late,
    ),
    (
        "millrace_wan_icmp_errors_sent_total",
        "ICMP errors sent in answer to packets over the MTU.",
        |direction| direction.icmp_errors_sent,
    ),
    (
        "millrace_wan_icmp_errors_rate_limited_total",
        "Packets over the MTU that got no ICMP error because of the rate limit.",
        |direction| direction.icmp_errors_rate_limited,
    ),
];

const GAUGES: [(&str, &str, Number); 2] = [
    (
        "millrace_wan_in_flight_packets",
        "Frames that are on their way.",
        |direction| direction.in_flight,
    ),
    (
        "millrace_wan_memory_used_bytes",
        "Memory of frames that are on their way.",
        |direction| direction.memory_used,
    ),
];

pub(super) fn wans(out: &mut String, live: &dyn Live) {
    let wans = live.wans();
    if wans.is_empty() {
        return;
    }
    let each = |mut family: Family<'_>, number: Number| {
        for (wan, direction) in directions(&wans) {
            let labels = [("wan", wan), ("direction", direction.direction.as_str())];
            family.sample(&labels, number(direction));
        }
    };
    for (name, help, number) in COUNTERS {
        each(Family::counter(out, name, help), number);
    }
    for (name, help, number) in GAUGES {
        each(Family::gauge(out, name, help), number);
    }
    let help = "Frames that a path dropped, by reason.";
    let mut drops = Family::counter(out, "millrace_wan_dropped_packets_total", help);
    for (wan, direction) in directions(&wans) {
        for drop in &direction.drops {
            let labels = [
                ("wan", wan),
                ("direction", direction.direction.as_str()),
                ("reason", drop.reason.as_str()),
            ];
            drops.sample(&labels, drop.frames);
        }
    }
}

fn directions(wans: &[WanPath]) -> impl Iterator<Item = (&str, &WanDirection)> {
    wans.iter().flat_map(|wan| {
        wan.directions
            .iter()
            .map(|direction| (wan.name.as_str(), direction))
    })
}
