//! The values of an interval: which are known, and what they are.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_ix_model::{Actor, ConfigId, Operation};
use millrace_sflow::Datagram;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_795_470_000);

fn apply(exchange: &mut Exchange, operation: Value) {
    let operation: Operation = serde_json::from_value(operation).unwrap();
    exchange.apply(&Actor::system(), NOW, operation).unwrap();
}

/// Returns the identifier of the newest object, as text.
fn newest<K: ToString>(mut keys: impl DoubleEndedIterator<Item = K>) -> String {
    keys.next_back().unwrap().to_string()
}

/// Returns an exchange of two sites with two trunks, a connection at each, and a third one without services; a circuit joins
/// the first two.
fn exchange() -> Exchange {
    let mut world = Exchange::default();
    let mut switches = Vec::new();
    for (number, name) in [(1, "Otemachi"), (2, "Makuhari")] {
        apply(&mut world, json!({"operation": "create_site", "name": name}));
        let site = newest(world.sites.keys());
        let ports: Vec<Value> = [1, 2, 100, 101]
            .map(|number| json!({"number": number, "speed_mbps": 10000}))
            .to_vec();
        apply(
            &mut world,
            json!({"operation": "create_switch", "name": format!("sw-{name}"), "site": site,
                "dpid": format!("{number:016x}"), "ports": ports}),
        );
        switches.push(newest(world.switches.keys()));
    }
    for port in [100, 101] {
        let ends: Vec<String> = switches.iter().map(|switch| format!("{switch}:{port}")).collect();
        apply(
            &mut world,
            json!({"operation": "create_trunk", "name": format!("t{port}"), "kind": "vxlan", "ends": ends,
                "capacity_mbps": 10000, "mtu": 1700}),
        );
    }
    apply(
        &mut world,
        json!({"operation": "create_account", "name": "A", "kind": "member"}),
    );
    let account = newest(world.accounts.keys());
    let mut connections = Vec::new();
    for (name, switch, port) in [("a1", 0, 1), ("a2", 1, 1), ("a3", 0, 2)] {
        apply(
            &mut world,
            json!({"operation": "create_connection", "account": account, "name": name, "kind": "standalone",
                "ports": [format!("{}:{port}", switches[switch])]}),
        );
        connections.push(newest(world.connections.keys()));
    }
    apply(
        &mut world,
        json!({"operation": "create_service", "account": account, "kind": "p2p_vc", "name": "path"}),
    );
    let service = newest(world.services.keys());
    for connection in &connections[..2] {
        apply(
            &mut world,
            json!({"operation": "configure_end", "service": service, "connection": connection,
                "vlan": {"type": "dot1q", "vlan": 5}}),
        );
    }
    world
}

/// Returns the value of a series.
fn value(values: &[(Key, u64)], subject: Subject, measure: Measure) -> Option<u64> {
    let key = Key::new(subject, measure);
    values
        .iter()
        .find(|(other, _)| *other == key)
        .map(|(_, value)| *value)
}

#[test]
fn a_connection_is_known_if_its_switch_was_read() {
    let exchange = exchange();
    let switches: Vec<SwitchId> = exchange.switches.keys().copied().collect();
    let ends: Vec<ConfigId> = exchange.configs.keys().copied().collect();
    let connections = exchange.connections.keys().map(|id| Subject::Connection(id.0));
    let subjects: Vec<Subject> = connections.chain([Subject::Exchange]).collect();
    let both = [(ends[0], [100, 20]), (ends[1], [30, 90])];
    let read = |rates: &[(ConfigId, [u64; 2])], switches: &[SwitchId]| Counted {
        rates: rates.iter().copied().collect(),
        switches: switches.iter().copied().collect(),
        ..Counted::default()
    };
    let entered = |read: &Counted| -> Vec<Option<u64>> {
        let values = counted(&exchange, read);
        let of = subjects
            .iter()
            .map(|subject| value(&values, *subject, Measure::In));
        of.collect()
    };
    let all = read(&both, &switches);
    assert_eq!(
        entered(&all),
        [Some(100), Some(30), Some(0), Some(130)],
        "a connection without a service carries nothing, and that is known"
    );
    let values = counted(&exchange, &all);
    assert_eq!(value(&values, Subject::End(ends[0].0), Measure::Out), Some(20));
    assert_eq!(value(&values, Subject::Exchange, Measure::Out), Some(110));
    assert_eq!(
        entered(&read(&both[..1], &switches)),
        [Some(100), Some(0), Some(0), Some(100)],
        "the other end has no entries"
    );
    assert_eq!(
        entered(&read(&both[..1], &switches[..1])),
        [Some(100), None, Some(0), None],
        "the other switch did not answer"
    );
    assert_eq!(entered(&read(&[], &[])), [None, None, None, None]);
}

#[test]
fn the_round_trip_of_two_sites_is_that_of_the_quickest_trunk_less_the_echoes() {
    let exchange = exchange();
    let switches: Vec<SwitchId> = exchange.switches.keys().copied().collect();
    let trunks: Vec<TrunkId> = exchange.trunks.keys().copied().collect();
    let sites: Vec<u32> = exchange.sites.keys().map(|id| id.0).collect();
    let probes: BTreeMap<_, _> = [
        (trunks[0], Duration::from_micros(3_000)),
        (trunks[1], Duration::from_micros(2_600)),
    ]
    .into();
    let echoes = |micros: &[u64]| -> BTreeMap<SwitchId, Duration> {
        let echoes = micros.iter().map(|micros| Duration::from_micros(*micros));
        switches.iter().copied().zip(echoes).collect()
    };
    let of = |echoes: &BTreeMap<SwitchId, Duration>| {
        value(
            &round_trips(&exchange, &probes, echoes),
            Subject::Sites(sites[0], sites[1]),
            Measure::RoundTrip,
        )
    };
    assert_eq!(of(&echoes(&[500, 700])), Some(1_400));
    assert_eq!(of(&echoes(&[2_000, 700])), Some(0), "never below zero");
    assert_eq!(of(&echoes(&[500])), None, "a switch does not answer");
}

#[test]
fn sampled_rates_are_zero_without_packets_and_unknown_while_no_switch_sends() {
    let exchange = exchange();
    let connection = Subject::Connection(exchange.connections.keys().next().unwrap().0);
    let samples = Samples::new(7);
    let later = |millis: u64| Timestamp::from_millis(NOW.millis() + millis);
    let of = |now| {
        let secs = Duration::from_secs(10);
        sampled(&exchange, &samples, &mut Pairs::new(), secs, now)
    };
    assert_eq!(of(NOW), []);
    let datagram = Datagram {
        agent: [192, 0, 2, 1].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 1,
        samples: Vec::new(),
        skipped: 0,
    };
    samples.take(&datagram, NOW);
    let values = of(later(10_000));
    for measure in FAMILIES {
        assert_eq!(value(&values, connection, measure), Some(0));
        assert_eq!(value(&values, Subject::Exchange, measure), Some(0));
    }
    assert_eq!(of(later(61_000)), []);
}
