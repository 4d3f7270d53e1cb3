//! The emulated path of the fake switch.

use crate::view::{WanDelay, WanDirection, WanDrop, WanPath};

/// Returns a path with a drop in one direction.
pub(super) fn wans() -> Vec<WanPath> {
    let delay = WanDelay {
        count: 900,
        mean_us: 250_000.0,
        p50_us: 250_000.0,
        p90_us: 251_000.0,
        p99_us: 252_000.0,
        p999_us: 253_000.0,
        max_us: 254_000.0,
    };
    let direction = |name: &str, lost: u64| WanDirection {
        direction: name.to_owned(),
        settings: [("delay".to_owned(), "250ms".to_owned())].into(),
        offered: 1000,
        bypassed: 0,
        duplicated: 0,
        reordered: 0,
        corrupted: 0,
        released: 900,
        released_bytes: 90_000,
        late: 0,
        icmp_errors_sent: 0,
        icmp_errors_rate_limited: 0,
        in_flight: 100 - lost,
        memory_size: 1 << 20,
        memory_used: 9_600,
        memory_high: 9_600,
        drops: vec![WanDrop {
            reason: "loss_bernoulli".to_owned(),
            frames: lost,
        }],
        delay_asked: delay,
        delay_given: delay,
        lateness: WanDelay::default(),
        warnings: Vec::new(),
    };
    vec![WanPath {
        name: "geo".to_owned(),
        ends: vec!["br0/p1".to_owned(), "unused".to_owned()],
        seed: 1,
        directions: vec![direction("a_to_b", 10), direction("b_to_a", 0)],
        interfaces: Vec::new(),
    }]
}
