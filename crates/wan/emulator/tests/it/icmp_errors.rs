//! Packets over the MTU are dropped, and their senders get ICMP errors at the end where they sent.

use millrace_types::{Mac, Time};
use millrace_wan_emulator::{
    ClassConfig, DirectionConfig, DirectionId, DropReason, Halves, IcmpErrors, NoSources, Plan, Seed,
    heap_memory,
};
use millrace_wire::{Builder, icmpv4, ipv4};

use crate::{config, nanos};

/// The size of the headers before the payload of [`packet`].
const HEADERS: usize = 14 + 20 + 8;

/// Returns a UDP packet of `size` bytes of layer 3, with the flag DF.
pub(crate) fn packet(size: usize) -> Vec<u8> {
    let payload = vec![7; 14 + size - HEADERS];
    let builder = Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let mut frame = builder
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1, 2)
        .payload(&payload)
        .build();
    frame[14 + 6] |= 0x40;
    frame
}

fn too_big(mtu: &str) -> DirectionConfig {
    DirectionConfig {
        path: config(&[("mtu", mtu), ("over-mtu", "too-big"), ("delay", "50ms")]),
        memory: Some("4MiB".parse().unwrap()),
        ..DirectionConfig::default()
    }
}

fn start(config: &DirectionConfig) -> Halves<Box<[std::sync::atomic::AtomicU64]>> {
    let plan = Plan::new(config, Seed::new(1), DirectionId::Forward, &NoSources).unwrap();
    let memory = heap_memory(plan.memory_size());
    plan.start(memory, Time::ZERO).unwrap()
}

/// Returns the MTUs in the waiting errors.
fn mtus(errors: &mut IcmpErrors) -> Vec<u16> {
    let mut found = Vec::new();
    while let Some(error) = errors.take() {
        let mut bytes = vec![0; error.len()];
        error.copy_to(&mut bytes);
        let ip = ipv4::View::new(&bytes[14..]).unwrap();
        let message = icmpv4::View::new(ip.payload()).unwrap();
        assert_eq!((message.kind(), message.code()), (3, 4));
        let [_, _, high, low] = message.rest_of_header();
        found.push(u16::from_be_bytes([high, low]));
    }
    errors.free();
    found
}

#[test]
fn a_packet_over_the_mtu_is_dropped_and_answered_at_once_and_one_of_the_mtu_passes() {
    let mut halves = start(&too_big("1400"));
    halves.sender.offer(nanos(1000), 0, &packet(1400));
    halves.sender.publish();
    assert!(halves.icmp_errors.is_empty());
    halves.sender.offer(nanos(2000), 0, &packet(1401));
    halves.sender.publish();
    assert_eq!(mtus(&mut halves.icmp_errors), [1400]);
    let stats = halves.controller.stats();
    assert_eq!((stats.in_flight, stats.icmp_errors_sent), (1, 1));
    assert_eq!(stats.dropped(DropReason::OverMtu), 1);
}

#[test]
fn each_class_has_an_mtu_of_its_own_and_a_change_applies_to_the_next_packet() {
    let mut wanted = too_big("1400");
    wanted.class.push(ClassConfig {
        name: "tunnel".to_owned(),
        filter: "ip".to_owned(),
        path: config(&[("mtu", "1300"), ("over-mtu", "too-big")]),
    });
    let mut halves = start(&wanted);
    for class in [0, 1, 9] {
        halves.sender.offer(nanos(1000), class, &packet(1500));
    }
    assert_eq!(mtus(&mut halves.icmp_errors), [1400, 1300, 1400]);
    wanted.path.set("over-mtu", "drop").unwrap();
    halves.controller.set(&wanted, &NoSources).unwrap();
    halves.sender.publish();
    halves.sender.offer(nanos(2000), 0, &packet(1500));
    assert!(halves.icmp_errors.is_empty());
    assert_eq!(halves.controller.stats().dropped(DropReason::OverMtu), 4);
}

#[test]
fn errors_are_limited_to_a_burst_of_50_and_1000_a_second_and_the_rest_is_counted() {
    let mut halves = start(&too_big("1280"));
    for number in 0..20_000 {
        halves.sender.offer(nanos(number * 100_000), 0, &packet(1500));
        if number % 10 == 0 {
            mtus(&mut halves.icmp_errors);
        }
    }
    let stats = halves.controller.stats();
    // The test lasts two seconds.
    assert_eq!(stats.icmp_errors_sent, 2000 + 49);
    assert_eq!(stats.icmp_errors_sent + stats.icmp_errors_rate_limited, 20_000);
}

#[test]
fn errors_that_nobody_takes_fill_a_small_memory_and_stop_nothing() {
    let mut halves = start(&too_big("1280"));
    for number in 0..2000 {
        halves.sender.offer(nanos(number * 1_000_000), 0, &packet(1500));
    }
    let stats = halves.controller.stats();
    assert!((50..1000).contains(&stats.icmp_errors_sent), "{stats:?}");
    assert_eq!(stats.icmp_errors_sent + stats.icmp_errors_rate_limited, 2000);
    let waiting = stats.icmp_errors_sent as usize;
    assert_eq!(mtus(&mut halves.icmp_errors).len(), waiting);
}
