//! Tests of the MIBs: what REST shows, as objects of SNMP.

use millrace_agentx::tables::Snapshot;
use millrace_agentx::{Numbers, Oid, Value};
use millrace_api::view::{AdminState, Counters, LinkState, MacEntry, Port, Route, RouteKind, RouteNextHop};

fn port(bridge: &str, name: &str, number: u32, link: LinkState) -> Port {
    let counters = Counters {
        packets: 5,
        bytes: (1 << 32) + 7,
        drops: 3,
        errors: 2,
    };
    Port {
        bridge: bridge.to_owned(),
        name: name.to_owned(),
        number,
        device: "kernel:eth1".to_owned(),
        driver: None,
        rx_queues: 1,
        rss: None,
        offload: None,
        spread: vec![],
        mac: "02:00:00:00:00:01".to_owned(),
        admin: AdminState::Up,
        link,
        speed_bps: Some(100_000_000_000),
        mtu: 1500,
        rx: counters,
        tx: counters,
        policer: None,
        offload_status: None,
        oam: None,
        lldp: None,
        rstp: None,
        rates: None,
    }
}

fn snapshot() -> Snapshot {
    Snapshot {
        host: "switch".to_owned(),
        bridge: "br0".to_owned(),
        dpid: "0000020000000009".to_owned(),
        ports: vec![
            port("br0", "p1", 1, LinkState::Up),
            port("br0", "br0", 0xffff_fffe, LinkState::Down),
            port("br1", "p1", 1, LinkState::Up),
        ],
        macs: vec![MacEntry {
            vlan: 7,
            mac: "02:00:00:00:00:0a".to_owned(),
            port: 1,
            age_seconds: 1.0,
        }],
        ageing_s: 300,
        routes: vec![Route {
            prefix: "10.0.0.0/8".to_owned(),
            kind: RouteKind::Unicast,
            protocol: "bgp".to_owned(),
            metric: 20,
            nexthops: vec![RouteNextHop {
                gateway: Some("192.0.2.1".to_owned()),
                interface: Some("p1".to_owned()),
                weight: 1,
                mac: None,
                live: true,
            }],
        }],
        ..Snapshot::default()
    }
}

#[test]
fn a_port_is_an_interface_with_counters_of_64_bits_beside_those_that_wrap() {
    let (objects, index) = (snapshot().objects(), snapshot().numbers().get("br0/p1").unwrap());
    let of = |parts: &[u32]| objects.get(&Oid::new(&[&[1, 3, 6, 1, 2, 1], parts, &[index]].concat()));
    assert_eq!(of(&[2, 2, 1, 10]), Value::Counter32(7));
    assert_eq!(of(&[31, 1, 1, 1, 6]), Value::Counter64((1 << 32) + 7));
    assert_eq!(
        of(&[2, 2, 1, 5]),
        Value::Gauge32(u32::MAX),
        "ifSpeed ends at its maximum"
    );
    assert_eq!(of(&[31, 1, 1, 1, 15]), Value::Gauge32(100_000));
    assert_eq!(
        (of(&[2, 2, 1, 8]), of(&[31, 1, 1, 1, 1])),
        (Value::Integer(1), Value::text("p1"))
    );
    assert_eq!(
        objects.get(&Oid::new(&[1, 3, 6, 1, 2, 1, 2, 1, 0])),
        Value::Integer(3)
    );
}

#[test]
fn the_bridge_has_its_ports_and_the_addresses_that_it_learned() {
    let (objects, numbers) = (snapshot().objects(), snapshot().numbers());
    let of = |parts: &[u32]| objects.get(&Oid::new(&[&[1, 3, 6, 1, 2, 1, 17], parts].concat()));
    assert_eq!(of(&[1, 1, 0]), Value::OctetString(vec![2, 0, 0, 0, 0, 9]));
    assert_eq!(of(&[1, 2, 0]), Value::Integer(2), "those of br0, with LOCAL");
    assert_eq!(
        of(&[1, 4, 1, 2, 1]),
        Value::Integer(numbers.get("br0/p1").unwrap() as i32)
    );
    assert_eq!(of(&[1, 4, 1, 1, 65_534]), Value::Integer(65_534));
    assert_eq!(of(&[4, 3, 1, 2, 2, 0, 0, 0, 0, 10]), Value::Integer(1));
    assert_eq!(of(&[7, 1, 2, 2, 1, 2, 7, 2, 0, 0, 0, 0, 10]), Value::Integer(1));
    assert_eq!(of(&[7, 1, 2, 1, 1, 2, 7]), Value::Gauge32(1));
}

#[test]
fn a_route_is_a_row_by_destination_and_gateway() {
    let objects = snapshot().objects();
    let row = [1, 4, 10, 0, 0, 0, 8, 2, 0, 0, 1, 4, 192, 0, 2, 1];
    let of = |column: u32| {
        objects.get(&Oid::new(
            &[&[1, 3, 6, 1, 2, 1, 4, 24, 7, 1, column], &row[..]].concat(),
        ))
    };
    assert_eq!(
        (of(8), of(9), of(12)),
        (Value::Integer(4), Value::Integer(14), Value::Integer(20))
    );
}

#[test]
fn numbers_follow_from_names_and_not_from_what_else_there_is() {
    let names = |count: u32| (0..count).map(|at| format!("br0/p{at}"));
    let (few, many) = (Numbers::of(names(10)), Numbers::of(names(1000)));
    let of = |numbers: &Numbers, count: u32| -> Vec<u32> {
        names(count).map(|name| numbers.get(&name).unwrap()).collect()
    };
    assert_eq!(of(&few, 10), of(&many, 10));
    let mut all = of(&many, 1000);
    assert!(all.iter().all(|number| (1..=0x7fff_ffff).contains(number)));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1000);
}

#[test]
fn a_link_that_changes_is_linkdown_or_linkup_with_its_states() {
    let before = snapshot();
    let mut after = snapshot();
    after.ports[0].link = LinkState::Down;
    let changes = after.link_changes(&before);
    assert_eq!(changes.len(), 1);
    assert_eq!(
        changes[0][0].1,
        Value::ObjectId(Oid::new(&[1, 3, 6, 1, 6, 3, 1, 1, 5, 3]))
    );
    assert_eq!(changes[0][3].1, Value::Integer(2));
    assert!(before.link_changes(&before).is_empty());
    assert_eq!(
        before.link_changes(&after)[0][0].1,
        Value::ObjectId(Oid::new(&[1, 3, 6, 1, 6, 3, 1, 1, 5, 4]))
    );
}
