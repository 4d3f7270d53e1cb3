//! Random scenarios with bytes: whatever paths and receivers do, files are equal, nothing stalls, and bounds hold.

use crate::budget;
use crate::paths::link;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::random::Random;
use millrace_transport::receiver::Discard;
use millrace_transport_simulator::session::{Change, Session, SessionSpec, Site};
use millrace_types::{Duration, Time};
use millrace_wan_emulator::PathConfig;

const BYTES: u64 = (3 << 20) + 12_345;

fn path(settings: &[(&str, &str)]) -> PathConfig {
    link(settings).path
}

fn site(forward: PathConfig, delay: &str) -> Site {
    Site {
        forward,
        return_path: path(&[("delay", delay)]),
        handshake_rtt: None,
        joins: Time::ZERO,
        pool: 1 << 20,
        disk: 1 << 30,
        crashes: None,
        forges_acks_from: None,
    }
}

fn session(seed: u64, sites: Vec<Site>, changes: Vec<Change>) -> Session {
    // Half the senders have an interface for jumbo frames.
    let mtu = if seed.is_multiple_of(2) { 1_500 } else { 9_000 };
    session_with(seed, mtu, sites, changes)
}

fn session_with(seed: u64, mtu: u16, sites: Vec<Site>, changes: Vec<Change>) -> Session {
    Session::new(SessionSpec {
        seed,
        layout: Layout::new(BYTES, ExtentSize::Small).unwrap(),
        payload: 1_424,
        mtu,
        cache: 1 << 20,
        uplink: None,
        sites,
        changes,
    })
    .unwrap()
}

/// Draws a site and changes of its path from a seed.
fn random_site(random: &mut Random, index: usize, changes: &mut Vec<Change>) -> Site {
    let rate = format!("{}Mbps", 5 + random.below(95));
    let delay_ms = [1, 10, 50, 150][random.below(4) as usize];
    let delay = format!("{delay_ms}ms");
    let mut forward = path(&[("rate", &rate), ("delay", &delay), ("queue", "50ms")]);
    let loss = match random.below(5) {
        0 => "none".to_owned(),
        1 => "ge:3%,burst=8".to_owned(),
        _ => format!("{}%", random.below(31)),
    };
    forward.set("loss", &loss).unwrap();
    if random.below(3) == 0 {
        forward.set("jitter", &format!("{}us", delay_ms * 100)).unwrap();
        forward.set("order", "reordering").unwrap();
    }
    if random.below(3) == 0 {
        forward.set("duplicate", "1%").unwrap();
    }
    if random.below(3) == 0 {
        forward.set("corrupt", "1%,bits=3,deliver").unwrap();
    }
    let mut site = site(forward.clone(), &delay);
    if random.below(3) == 0 {
        site.return_path.set("loss", "50%").unwrap();
    }
    if random.below(4) == 0 {
        site.joins = Time::from_millis(random.below(3_000));
    }
    if random.below(4) == 0 {
        let at = Time::from_millis(200 + random.below(3_000));
        site.crashes = Some((at, Duration::from_millis(500 + random.below(3_000))));
    }
    if random.below(4) == 0 {
        // A disk slower than the path.
        site.disk = 400_000;
    }
    let at = Time::from_millis(300 + random.below(2_000));
    let mut changed = forward.clone();
    match random.below(5) {
        0 => {
            changed.set("loss", "100%").unwrap();
            let at = at + Duration::from_secs(60);
            changes.push(Change {
                at,
                site: index,
                forward,
            });
        }
        1 => changed.set("mtu", "1300").unwrap(),
        2 => changed.set("delay", &format!("{}ms", 10 * delay_ms)).unwrap(),
        _ => return site,
    }
    changes.push(Change {
        at,
        site: index,
        forward: changed,
    });
    site
}

/// Runs a scenario for each seed; returns the packets.
fn run(seeds: std::ops::Range<u64>) -> u64 {
    let mut packets = 0;
    for seed in seeds {
        let mut random = Random::new(seed);
        let mut changes = Vec::new();
        let sites = (0..1 + random.below(3))
            .map(|index| random_site(&mut random, index as usize, &mut changes))
            .collect();
        let mut session = session(seed, sites, changes.clone());
        let complete = session.run_until(Time::from_secs(3_600));
        if let Err(problem) = session.check() {
            panic!("seed {seed}: {problem}; changes {changes:?}");
        }
        assert!(complete, "seed {seed}");
        packets += session.packets();
    }
    println!("{packets} packets");
    packets
}

#[test]
fn random_paths_and_receivers_never_stall_a_session_or_change_a_byte() {
    budget::spend(run(0..40));
}

#[test]
#[ignore = "minutes: make simulate"]
fn a_thousand_random_scenarios() {
    run(0..1_000);
}

#[test]
fn a_receiver_that_acknowledges_what_was_never_sent_is_ended_and_the_others_finish() {
    let clean = path(&[("rate", "20Mbps"), ("delay", "20ms")]);
    let mut forger = site(
        path(&[("rate", "20Mbps"), ("delay", "20ms"), ("loss", "5%")]),
        "20ms",
    );
    forger.forges_acks_from = Some(Time::from_millis(300));
    let mut session = session(
        1,
        vec![site(clean.clone(), "20ms"), forger, site(clean, "20ms")],
        vec![],
    );
    assert!(session.run_until(Time::from_secs(60)));
    session.check().unwrap();
    let (done, ended) = session.outcome(1);
    assert!(done.is_none() && ended.unwrap().contains("acknowledges packet"));
    assert!(session.outcome(0).0.is_some() && session.outcome(2).0.is_some());
}

#[test]
fn three_receivers_share_the_seals_of_one() {
    let seals = |count: usize| {
        let sites = (0..count)
            .map(|_| {
                site(
                    path(&[("rate", "50Mbps"), ("delay", "20ms"), ("loss", "1%")]),
                    "20ms",
                )
            })
            .collect();
        let mut session = session(2, sites, vec![]);
        assert!(session.run_until(Time::from_secs(60)));
        session.check().unwrap();
        session.seals() as f64 / (BYTES as f64 / 1_424.0)
    };
    let (one, three) = (seals(1), seals(3));
    println!("seals / unique packets: {one:.3} for one receiver, {three:.3} for three");
    assert!(three <= 1.05, "{three}");
}

#[test]
fn a_slow_receiver_slows_nobody() {
    let clean = path(&[("rate", "50Mbps"), ("delay", "20ms")]);
    let finish = |slow: bool| {
        let mut sites = vec![site(clean.clone(), "20ms"), site(clean.clone(), "20ms")];
        if slow {
            sites.push(Site {
                disk: 50_000,
                ..site(clean.clone(), "20ms")
            });
        }
        let mut session = session(3, sites, vec![]);
        session.run_until(Time::from_secs(120));
        session.check().unwrap();
        session
            .outcome(0)
            .0
            .unwrap()
            .nanos()
            .max(session.outcome(1).0.unwrap().nanos()) as f64
    };
    let ratio = finish(true) / finish(false);
    println!("time beside a slow receiver / without it: {ratio:.3}");
    assert!(ratio <= 1.03, "{ratio}");
}

#[test]
fn corrupted_packets_are_discarded_by_name_and_no_wrong_byte_is_written() {
    let forward = path(&[
        ("rate", "50Mbps"),
        ("delay", "5ms"),
        ("corrupt", "5%,bits=2,deliver"),
    ]);
    let mut session = session(4, vec![site(forward, "5ms")], vec![]);
    assert!(session.run_until(Time::from_secs(60)));
    session.check().unwrap();
    let discarded = session.stats(0).discarded;
    let count = |reason: Discard| discarded[reason as usize];
    assert!(count(Discard::Forged) > 20, "{discarded:?}");
    assert!(count(Discard::Mac) > 0, "{discarded:?}");
}
