//! Links and liveness of ports: the states that users see and the paths of circuits. A failover changes no
//! entry of a switch.

use millrace_ix_model::state::Realisation;
use millrace_ix_model::{PortId, SwitchId, TrunkId};
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_ix_service::{EventKind, PortReport, Snapshot};
use millrace_types::{Cookie, Duration, PortNo};
use serde_json::json;

use crate::world::World;

/// Returns the number of circuits; `make exchange-check` sets 2,000.
fn circuits() -> usize {
    let is_long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    if is_long { 2000 } else { 200 }
}

impl World {
    pub(crate) fn ids(&mut self) -> (SwitchId, SwitchId) {
        let ids: Vec<SwitchId> = self.core().exchange().switches.keys().copied().collect();
        (ids[0], ids[1])
    }

    /// Reports the state of a port as the switch's connection does.
    pub(crate) fn report(&mut self, switch: SwitchId, number: u32, link: bool, live: bool) {
        let now = self.now();
        let session = self.switches[&switch].session.unwrap();
        let number = PortNo::from_raw(number);
        let report = PortReport { number, link, live };
        self.core()
            .port_changed(switch.0, session, number, Some(report), now);
        self.deliver();
    }

    pub(crate) fn list_ports(&mut self) {
        let now = self.now();
        let (one, two) = self.ids();
        for switch in [one, two] {
            let session = self.switches[&switch].session.unwrap();
            let report = |number| PortReport {
                number: PortNo::from_raw(number),
                link: true,
                live: true,
            };
            let reports = [1, 2, 100, 101].map(report);
            self.core().ports_listed(switch.0, session, &reports, now);
        }
        self.deliver();
    }

    /// Adds a trunk parallel to the first one.
    fn second_trunk(&mut self, capacity_mbps: u32) -> TrunkId {
        let (one, two) = self.ids();
        let ports = json!([1, 2, 100, 101].map(|number| json!({"number": number, "speed_mbps": 10000})));
        self.order(&[
            json!({"operation": "set_ports", "switch": one, "ports": ports}),
            json!({"operation": "set_ports", "switch": two, "ports": ports}),
        ]);
        let ordered = self.order(&[json!({
            "operation": "create_trunk", "name": "t2", "kind": "vxlan", "ends": [format!("{one}:101"), format!("{two}:101")],
            "cost": 20, "capacity_mbps": capacity_mbps, "mtu": 1700,
        })]);
        ordered.applied.first().unwrap()
    }

    /// Adds a switch that a trunk joins to each of the other two.
    pub(crate) fn third_switch(&mut self) -> SwitchId {
        let (one, two) = self.ids();
        let ports = json!([1, 2, 100, 101].map(|number| json!({"number": number, "speed_mbps": 10000})));
        self.order(&[
            json!({"operation": "set_ports", "switch": one, "ports": ports}),
            json!({"operation": "set_ports", "switch": two, "ports": ports}),
            json!({"operation": "create_site", "name": "Saitama"}),
            json!({"operation": "create_switch", "name": "sai-1", "site": "st-0", "dpid": "0000000000000003", "ports": ports}),
        ]);
        let third = *self.core().exchange().switches.keys().last().unwrap();
        self.connect(third);
        for (name, from, to) in [("t2", one, 100), ("t3", two, 101)] {
            self.order(&[json!({
                "operation": "create_trunk", "name": name, "kind": "vxlan", "ends": [format!("{from}:101"), format!("{third}:{to}")],
                "capacity_mbps": 10000, "mtu": 1700,
            })]);
        }
        third
    }

    fn snapshot(&mut self) -> Snapshot {
        Snapshot::of(self.core())
    }

    fn commits(&self) -> u32 {
        self.switches.values().map(|switch| switch.commits).sum()
    }

    fn notices(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Notice { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_trunk_that_fails_over_causes_no_modification_and_one_notice() {
    let mut world = World::new();
    let second = world.second_trunk(10_000);
    let first = *world.core().exchange().trunks.keys().next().unwrap();
    // The circuits have no rate, so that any number of them fits.
    let account = *world.core().exchange().accounts.keys().next().unwrap();
    let connections = world.connections();
    let count = circuits();
    let mut operations = Vec::new();
    for at in 0..count {
        let (vlan, [a, b]) = (2 + at / 2, [[0, 2], [1, 3]][at % 2]);
        let end = |connection: usize| {
            json!({"operation": "configure_end", "service": "sv-0", "connection": connections[connection],
                   "vlan": {"type": "dot1q", "vlan": vlan}})
        };
        operations.extend([
            json!({"operation": "create_service", "account": account, "kind": "p2p_vc", "name": format!("c{at}")}),
            end(a),
            end(b),
        ]);
    }
    operations.chunks(1500).for_each(|part| drop(world.order(part)));
    world.run(Duration::from_secs(5));
    assert!(world.is_settled());
    world.list_ports();
    let snapshot = world.snapshot();
    assert_eq!(
        (snapshot.trunk_up(first), snapshot.trunk_up(second)),
        (Some(true), Some(true))
    );
    let (one, _) = world.ids();
    let (commits, started) = (world.commits(), std::time::Instant::now());
    world.events.clear();
    // BFD detects a failure of the first trunk: the link stays up, and the live bit is cleared.
    world.report(one, 100, true, false);
    world.run(Duration::from_secs(5));
    assert_eq!(
        world.commits(),
        commits,
        "{count} circuits move without a modification"
    );
    let took = started.elapsed();
    let snapshot = world.snapshot();
    assert_eq!(
        (snapshot.trunk_up(first), snapshot.trunk_up(second)),
        (Some(false), Some(true))
    );
    assert_eq!(
        snapshot.is_up(PortId {
            switch: one,
            port: PortNo::from_raw(100)
        }),
        Some(false)
    );
    let notices = world.notices();
    assert_eq!(
        notices.len(),
        1,
        "one notice, and not one for each circuit: {notices:?}"
    );
    assert!(
        notices[0].contains("another one carries its traffic"),
        "{notices:?}"
    );
    let in_place = world
        .services()
        .iter()
        .all(|service| matches!(snapshot.realisation(*service), Realisation::InPlace { .. }));
    assert!(in_place);
    println!("{count} circuits, a trunk fails over: 0 modifications, 1 notice, {took:.1?} of the engine");
    // The second trunk fails as well: the circuits are degraded, and say why.
    world.events.clear();
    world.report(one, 101, false, false);
    let snapshot = world.snapshot();
    let service = world.services()[0];
    match snapshot.realisation(service) {
        Realisation::Degraded(reason) => assert_eq!(reason.text, "no trunk between mak-1 and ote-1 is up"),
        other => panic!("{other:?}"),
    }
    assert!(world.notices()[0].contains("are interrupted"));
    assert_eq!(world.commits(), commits);
    // A switch that is not connected reports nothing about its ports.
    world.report(one, 100, true, true);
    assert_eq!(world.snapshot().trunk_up(first), Some(true));
    world.disconnect(one);
    assert_eq!(world.snapshot().trunk_up(first), None);
}

#[test]
fn contracts_above_the_trunk_that_is_left_are_shown_as_degraded() {
    let mut world = World::new();
    world.second_trunk(150);
    world.list_ports();
    let (first, _) = world.circuit("first", [(0, 10), (2, 10)]);
    world.run(Duration::from_secs(2));
    let (one, _) = world.ids();
    world.report(one, 100, false, false);
    let is_in_place = |world: &mut World, service| {
        matches!(world.snapshot().realisation(service), Realisation::InPlace { .. })
    };
    assert!(is_in_place(&mut world, first), "100 of 150 Mbit/s");
    world.report(one, 100, true, true);
    world.circuit("second", [(0, 11), (2, 11)]);
    world.run(Duration::from_secs(2));
    assert!(is_in_place(&mut world, first));
    world.report(one, 100, false, false);
    match world.snapshot().realisation(first) {
        Realisation::Degraded(reason) => {
            assert!(
                reason.text.contains("admits 150 Mbit/s") && reason.text.contains("200 Mbit/s"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn circuits_take_the_way_over_a_third_switch_when_their_trunk_is_down() {
    let mut world = World::new();
    let (one, _) = world.ids();
    let (service, _) = world.circuit("first", [(0, 10), (2, 10)]);
    let third = world.third_switch();
    world.run(Duration::from_secs(3));
    world.list_ports();
    let before = world.core().exchange().services[&service].clone();
    world.report(one, 100, false, false);
    world.run(Duration::from_secs(3));
    let after = world.core().exchange().services[&service].clone();
    assert_eq!(
        (before.via.as_slice(), after.via.as_slice()),
        (&[][..], &[third][..])
    );
    assert_ne!(before.wire_id, after.wire_id);
    assert!(world.is_settled());
    let snapshot = world.snapshot();
    assert!(matches!(
        snapshot.realisation(service),
        Realisation::InPlace { .. }
    ));
    // The trunk comes back: the circuit stays where it is.
    let commits = world.commits();
    world.report(one, 100, true, true);
    world.run(Duration::from_secs(3));
    assert_eq!(world.commits(), commits);
}

#[test]
fn neither_a_drain_nor_a_new_circuit_takes_a_trunk_that_is_down() {
    let mut world = World::new();
    let (one, _) = world.ids();
    let direct = *world.core().exchange().trunks.keys().next().unwrap();
    let (service, _) = world.circuit("first", [(0, 10), (2, 10)]);
    let third = world.third_switch();
    world.run(Duration::from_secs(3));
    world.list_ports();
    let via = |world: &mut World, service| world.core().exchange().services[&service].via.clone();
    // The way over the third switch is down: a drain leaves the circuit where it is.
    world.report(one, 101, false, false);
    world.order(&[json!({"operation": "drain_trunk", "trunk": direct, "drained": true})]);
    assert_eq!(via(&mut world, service), []);
    world.order(&[json!({"operation": "drain_trunk", "trunk": direct, "drained": false})]);
    world.report(one, 101, true, true);
    world.report(one, 100, false, false);
    let (new, _) = world.circuit("second", [(1, 10), (3, 10)]);
    assert_eq!(
        (via(&mut world, service), via(&mut world, new)),
        (vec![third], vec![third])
    );
    // Without any way, a circuit is accepted and waits for the direct trunk.
    world.report(one, 101, false, false);
    let (waits, _) = world.circuit("third", [(0, 11), (2, 11)]);
    assert_eq!(via(&mut world, waits), []);
}

#[test]
fn a_circuit_that_kept_its_broken_path_takes_another_one_when_wire_ids_become_free() {
    let mut world = World::new();
    let (one, two) = world.ids();
    let (service, _) = world.circuit("first", [(0, 10), (2, 10)]);
    let (other, _) = world.circuit("other", [(1, 10), (3, 10)]);
    let ports = json!([1, 2, 100, 101].map(|number| json!({"number": number, "speed_mbps": 10000})));
    world.order(&[
        json!({"operation": "set_ports", "switch": one, "ports": ports}),
        json!({"operation": "set_ports", "switch": two, "ports": ports}),
        json!({"operation": "create_site", "name": "Saitama"}),
        json!({"operation": "create_switch", "name": "sai-1", "site": "st-0", "dpid": "0000000000000003", "ports": ports}),
    ]);
    let third = *world.core().exchange().switches.keys().last().unwrap();
    world.connect(third);
    world.run(Duration::from_secs(3));
    world.list_ports();
    world.report(one, 100, false, false);
    for (name, from, to) in [("t2", one, 100), ("t3", two, 101)] {
        world.order(&[json!({
            "operation": "create_trunk", "name": name, "kind": "vxlan", "ends": [format!("{from}:101"), format!("{third}:{to}")],
            "capacity_mbps": 10000, "mtu": 1700,
        })]);
    }
    world.delete(other);
    world.run(Duration::from_secs(3));
    let via = |world: &mut World| world.core().exchange().services[&service].via.clone();
    let expire = |world: &mut World| {
        let now = world.now();
        world.core().expire(now);
        world.deliver();
    };
    expire(&mut world);
    assert_eq!(via(&mut world), [], "the number of the other circuit rests");
    world.run(Duration::from_secs(61));
    expire(&mut world);
    assert_eq!(via(&mut world), [third]);
}

/// Returns the cookie of the entry that sends to the engine the probes that arrive at an end of a trunk.
fn probe_cookie(trunk: TrunkId, side: u32) -> Cookie {
    CookieFields {
        kind: CookieKind::Probe,
        object: trunk.0,
        generation: side,
    }
    .cookie()
}

#[test]
fn probes_measure_the_drain_and_find_wrong_cabling() {
    let mut world = World::new();
    let second = world.second_trunk(10_000);
    let first = *world.core().exchange().trunks.keys().next().unwrap();
    world.list_ports();
    let (one, two) = world.ids();
    let probes = |world: &mut World| {
        world.frames.clear();
        world.time = world.time + Duration::from_secs(6);
        let now = world.now();
        world.core().expire(now);
        world.deliver();
        std::mem::take(&mut world.frames)
    };
    let arrive = |world: &mut World, switch: SwitchId, cookie: Cookie, frame: &[u8]| {
        let now = world.now();
        let session = world.switches[&switch].session.unwrap();
        world.core().packet_in(switch.0, session, cookie, frame, now);
        world.deliver();
    };
    let sent = probes(&mut world);
    let ports: Vec<_> = sent
        .iter()
        .map(|(switch, port, _)| (*switch, port.raw()))
        .collect();
    assert_eq!(ports, [(one, 100), (two, 100), (one, 101), (two, 101)]);
    // The probe of the first trunk takes 300 ms: a change then waits for 600 ms before it removes old entries.
    world.time = world.time + Duration::from_millis(300);
    arrive(&mut world, two, probe_cookie(first, 1), &sent[0].2);
    // A second arrival of the same probe is a replay.
    world.time = world.time + Duration::from_secs(1);
    arrive(&mut world, two, probe_cookie(first, 1), &sent[0].2);
    let (service, _) = world.circuit("first", [(0, 10), (2, 10)]);
    world.run(Duration::from_secs(2));
    let end = world
        .core()
        .exchange()
        .ends(service)
        .next()
        .map(|(end, _)| end)
        .unwrap();
    let connections = world.connections();
    let started = world.time;
    world.order(&[json!({
        "operation": "move_end", "config": end, "connection": connections[1], "vlan": {"type": "dot1q", "vlan": 10},
    })]);
    while !world.is_settled() {
        assert!(world.step(started + Duration::from_secs(5)));
    }
    let took = world.time.since(started);
    assert!(
        took >= Duration::from_millis(600) && took < Duration::from_millis(700),
        "{took:?}"
    );
    // A probe of the first trunk arrives at the second one.
    world.events.clear();
    let sent = probes(&mut world);
    arrive(&mut world, two, probe_cookie(second, 1), &sent[0].2);
    let wrong = world
        .notices()
        .iter()
        .any(|text| text.starts_with("wrong cabling") && text.contains("t1") && text.contains("t2"));
    assert!(wrong, "{:?}", world.notices());
    // A trunk that passes nothing although its ports are up is reported once.
    world.events.clear();
    for _ in 0..6 {
        let sent = probes(&mut world);
        arrive(&mut world, two, probe_cookie(first, 1), &sent[0].2);
        arrive(&mut world, one, probe_cookie(first, 0), &sent[1].2);
        arrive(&mut world, one, probe_cookie(second, 0), &sent[3].2);
    }
    let silent: Vec<_> = world
        .notices()
        .into_iter()
        .filter(|text| text.contains("passes no probe"))
        .collect();
    assert_eq!(silent.len(), 1, "{silent:?}");
    assert!(silent[0].contains("t2"));
}
