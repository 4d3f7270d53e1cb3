//! The memory of a full table: `make exchange-check` announces 1,000,000 routes, `make test` 100,000.

use millrace_bgp::{Limits, Peer, PeerSettings};
use millrace_types::Time;

use crate::speaker::{connect, counts, settings, update};

/// The number of routes that share one set of attributes. A full table has about a million prefixes and
/// 200,000 different sets.
const SHARED: usize = 5;

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Returns the attributes of one group of routes: a path of five, three communities, one large community.
fn attributes(group: u32) -> Vec<u8> {
    let mut bytes = vec![0x40, 1, 1, 0, 0x40, 2, 22, 2, 5];
    for asn in [
        64_501,
        174 + group % 50,
        3356 + group % 700,
        100_000 + group % 9000,
        200_000 + group,
    ] {
        bytes.extend(asn.to_be_bytes());
    }
    bytes.extend([0x40, 3, 4, 192, 0, 2, 2, 0xc0, 8, 12]);
    for community in [
        group % 1000,
        (65_000 << 16) | (group % 500),
        (3356 << 16) | (group % 90),
    ] {
        bytes.extend(community.to_be_bytes());
    }
    bytes.extend([0xc0, 32, 12]);
    for part in [64_501, group % 30, group] {
        bytes.extend(part.to_be_bytes());
    }
    bytes
}

#[test]
fn a_full_table_of_unicast_routes_fits_into_300_bytes_a_route() {
    // The test measures the memory of the whole process.
    millrace_testing::own_process!();
    let count = if std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some() {
        1_000_000
    } else {
        100_000
    };
    let mut peer = Peer::new(
        PeerSettings {
            limits: Limits {
                unicast: count,
                flowspec: 0,
                bytes: usize::MAX,
            },
            ..settings()
        },
        Time::ZERO,
    );
    connect(&mut peer, Time::ZERO, &[]);
    let before = resident();
    for group in 0..count / SHARED {
        let routes = (0..SHARED).flat_map(|at| {
            let [_, b, c, d] = ((group * SHARED + at) as u32 + 0x01_0000).to_be_bytes();
            [24, b, c, d]
        });
        let routes: Vec<u8> = routes.collect();
        peer.receive(&update(&[], &attributes(group as u32), &routes), Time::ZERO);
        assert_eq!(peer.take_changes().len(), SHARED);
    }
    assert!(peer.is_open());
    assert_eq!(peer.rib().counts(), counts(count, 0));
    let used = resident() - before;
    println!(
        "{count} routes, {} different attributes: {} MB, {} bytes a route; the estimate is {} MB",
        count / SHARED,
        used / 1_000_000,
        used / count,
        peer.rib().bytes() / 1_000_000
    );
    assert!(used <= 300 * count, "{used} bytes");
}
