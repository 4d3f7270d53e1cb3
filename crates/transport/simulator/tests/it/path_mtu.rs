//! The path MTU of sessions with bytes (RFC 8899): the largest size that passes is found, held, and found again. No path here sends
//! ICMP: every MTU is that of a black hole.

use crate::budget;
use crate::paths::link;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport_simulator::session::{Change, Session, SessionSpec, Site};
use millrace_types::{Duration, Time};
use millrace_wan_emulator::PathConfig;

const SETTINGS: [(&str, &str); 3] = [("rate", "50Mbps"), ("delay", "10ms"), ("queue", "50ms")];

fn path(mtu: u16, settings: &[(&str, &str)]) -> PathConfig {
    let mut path = link(&SETTINGS).path;
    path.set("mtu", &mtu.to_string()).unwrap();
    for (key, value) in settings {
        path.set(key, value).unwrap();
    }
    path
}

fn site(forward: PathConfig) -> Site {
    Site {
        forward,
        return_path: link(&[("delay", "10ms")]).path,
        handshake_rtt: Some(Duration::from_millis(21)),
        joins: Time::ZERO,
        pool: 4 << 20,
        disk: 1 << 30,
        crashes: None,
        forges_acks_from: None,
    }
}

/// Returns a session whose sender has an interface for jumbo frames.
fn session(bytes: u64, sites: Vec<Site>, changes: Vec<Change>) -> Session {
    session_from(9_000, bytes, sites, changes)
}

fn session_from(mtu: u16, bytes: u64, sites: Vec<Site>, changes: Vec<Change>) -> Session {
    Session::new(SessionSpec {
        seed: 8_899,
        layout: Layout::new(bytes, ExtentSize::Small).unwrap(),
        payload: 1_424,
        mtu,
        cache: 16 << 20,
        uplink: None,
        sites,
        changes,
    })
    .unwrap()
}

fn finish(session: &mut Session) -> f64 {
    assert!(session.run_until(Time::from_secs(60)));
    session.check().unwrap();
    budget::spend(session.packets());
    session.outcome(0).0.unwrap().nanos() as f64 / 1e9
}

#[test]
fn the_largest_size_that_passes_is_found_in_a_few_round_trips() {
    for (mtu, loss, found) in [
        (9_000, "none", 9_000),
        (9_000, "5%", 9_000),
        (8_960, "none", 8_936),
        (1_500, "none", 1_496),
        (1_500, "5%", 1_496),
        (1_450, "2%", 1_448),
        (1_400, "none", 1_400),
        (1_300, "none", 1_272),
        (1_200, "none", 1_192),
    ] {
        let mut session = session(8 << 20, vec![site(path(mtu, &[("loss", loss)]))], vec![]);
        let seconds = finish(&mut session);
        let (reached, lost) = session.path_mtu(0);
        println!("MTU {mtu}, loss {loss}: packets of {reached} bytes, {lost} probes lost, {seconds:.2} s");
        assert_eq!(reached, found, "{mtu} {loss}");
        // 1.4 s at the rate of the path, and half a second until the sender knows; a black hole costs three probe timeouts.
        assert!(seconds < 2.8, "{mtu} {loss}: {seconds}");
    }
}

#[test]
fn an_mtu_that_shrinks_and_grows_under_way_stops_nothing() {
    let at = |seconds, mtu| Change {
        at: Time::from_secs(seconds),
        site: 0,
        forward: path(mtu, &[]),
    };
    // The MTU is 9,000, then that of Ethernet, then that of a tunnel, and then 9,000 again.
    let changes = vec![at(1, 1_500), at(2, 1_400), at(3, 9_000)];
    let mut session = session(30 << 20, vec![site(path(9_000, &[]))], changes);
    let mut reached = Vec::new();
    for millis in [900, 1_900, 2_900] {
        assert!(!session.run_until(Time::from_millis(millis)));
        reached.push(session.path_mtu(0).0);
    }
    assert_eq!(reached, [9_000, 1_496, 1_400]);
    let seconds = finish(&mut session);
    assert_eq!(session.path_mtu(0).0, 9_000);
    println!("{seconds:.2} s for 30 MiB at 50 Mbit/s, with two black holes");
    assert!(seconds < 5.03 / 0.95 + 0.5 + 1.0, "{seconds}");
}

#[test]
fn a_probe_that_is_lost_slows_nothing_down() {
    let time = |interface| {
        let mut session = session_from(interface, 8 << 20, vec![site(path(1_500, &[]))], vec![]);
        let seconds = finish(&mut session);
        (seconds, session.path_mtu(0).1)
    };
    let ((without, none), (with, lost)) = (time(1_500), time(9_000));
    println!("{with:.3} s with {lost} lost probes, {without:.3} s without");
    assert!(none == 0 && lost >= 9, "{lost} probes of larger sizes");
    assert!(with < without * 1.03, "{with} beside {without}");
}

#[test]
fn receivers_behind_equal_paths_share_packets_and_each_has_the_largest_that_pass() {
    let sites = [9_000, 9_000, 1_500]
        .map(|mtu| site(path(mtu, &[("loss", "1%")])))
        .into();
    let mut session = session(8 << 20, sites, vec![]);
    finish(&mut session);
    let reached = [0, 1, 2].map(|site| session.path_mtu(site).0);
    assert_eq!(reached, [9_000, 9_000, 1_496]);
    let alone = f64::from(8 << 20) * (1.0 / 8_928.0 + 1.0 / 1_424.0);
    let seals = session.seals() as f64 / alone;
    println!("seals / those of one receiver of each size: {seals:.3}");
    assert!(seals < 1.1, "{seals}");
}
