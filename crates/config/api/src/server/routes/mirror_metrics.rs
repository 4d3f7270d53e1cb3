//! The metrics of mirrors in `/metrics`.

use crate::server::exposition::{Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{Bridge, Mirror};

const MIRROR: &[Metric<Mirror>] = metrics! {
    counter "millrace_mirror_packets_total", "Packets that a mirror selected." =>
        |mirror| mirror.packets;
    counter "millrace_mirror_bytes_total", "Bytes of the packets that a mirror selected." =>
        |mirror| mirror.bytes;
    counter "millrace_mirror_lost_copies_total", "Copies of a mirror that were not sent." =>
        |mirror| mirror.lost;
};

/// Writes the counters of the mirrors of all bridges.
pub(super) fn mirrors(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let of_bridge = |bridge: &Bridge| live.mirrors(&bridge.name).unwrap_or_default();
    let all: Vec<_> = bridges.iter().map(of_bridge).collect();
    let each = bridges.iter().zip(&all).flat_map(|(bridge, mirrors)| {
        let labels = |mirror| [("bridge", bridge.name.as_str()), ("mirror", mirror)];
        mirrors
            .iter()
            .map(move |mirror| (labels(mirror.name.as_str()), mirror))
    });
    write(out, MIRROR, &each.collect::<Vec<_>>());
}
