//! Metrics of mirrors.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{Bridge, Mirror};

/// Reads a number of a mirror.
type MirrorNumber = fn(&Mirror) -> u64;

/// Writes the counters of the mirrors of all bridges.
pub(super) fn mirrors(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let of_bridge = |bridge: &Bridge| {
        (
            bridge.name.clone(),
            live.mirrors(&bridge.name).unwrap_or_default(),
        )
    };
    let all: Vec<_> = bridges.iter().map(of_bridge).collect();
    let numbers: [(&str, &str, MirrorNumber); 3] = [
        (
            "millrace_mirror_packets_total",
            "Packets that a mirror selected.",
            |mirror| mirror.packets,
        ),
        (
            "millrace_mirror_bytes_total",
            "Bytes of the packets that a mirror selected.",
            |mirror| mirror.bytes,
        ),
        (
            "millrace_mirror_lost_copies_total",
            "Copies of a mirror that were not sent.",
            |mirror| mirror.lost,
        ),
    ];
    for (name, help, number) in numbers {
        let mut family = Family::counter(out, name, help);
        for (bridge, mirrors) in &all {
            for mirror in mirrors {
                family.sample(&[("bridge", bridge), ("mirror", &mirror.name)], number(mirror));
            }
        }
    }
}
