//! Rates of trunks from counter samples of the switches at their ends.

use std::collections::BTreeSet;

use millrace_ix_model::{
    Actor, Exchange, Key, Operation, PortId, SwitchId, SwitchPort, Timestamp, TrunkId, TrunkKind,
};
use millrace_ix_samples::Collector;
use millrace_sflow::{CounterSample, Datagram, InterfaceCounters, OpenFlowPort, Sample};
use millrace_types::{Dpid, PortNo};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(1_795_470_000 + seconds)
}

fn create<K: Key>(exchange: &mut Exchange, operation: Operation) -> K {
    let applied = exchange.apply(&Actor::system(), at(0), operation).unwrap();
    applied.first().unwrap()
}

/// Returns two switches with the datapath ids 1 and 2, and a trunk between port 100 of each.
fn world() -> (Exchange, TrunkId) {
    let mut exchange = Exchange::default();
    let ends = [1, 2].map(|dpid| {
        let name = format!("site {dpid}");
        let site = create(&mut exchange, Operation::CreateSite { name });
        let operation = Operation::CreateSwitch {
            name: format!("switch {dpid}"),
            site,
            dpid: Dpid(dpid),
            ports: vec![SwitchPort {
                number: PortNo::from_raw(100),
                speed_mbps: 10_000,
            }],
        };
        PortId {
            switch: create::<SwitchId>(&mut exchange, operation),
            port: PortNo::from_raw(100),
        }
    });
    let operation = Operation::CreateTrunk {
        name: "east".to_owned(),
        kind: TrunkKind::Vxlan,
        ends,
        cost: 10,
        capacity_mbps: 10_000,
        mtu: 9000,
        risk_group: None,
        contract_percent: 100,
    };
    let trunk = create(&mut exchange, operation);
    (exchange, trunk)
}

/// Returns the counters of port 100 of a switch, `seconds` after the start of its agent.
fn counters(dpid: u64, seconds: u32, in_octets: u64, out_octets: u64) -> Datagram {
    Datagram {
        agent: [192, 0, 2, dpid as u8].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: seconds.wrapping_mul(1000),
        samples: vec![Sample::Counters(CounterSample {
            sequence: 1,
            source: 7,
            counters: Some(InterfaceCounters {
                in_octets,
                out_octets,
                ..InterfaceCounters::default()
            }),
            ethernet: None,
            openflow: Some(OpenFlowPort { dpid, number: 100 }),
            name: None,
        })],
        skipped: 0,
    }
}

#[test]
fn a_trunk_has_the_rates_of_the_port_at_its_first_end() {
    let (exchange, trunk) = world();
    let mut collector = Collector::new(1);
    let read = |collector: &Collector, now| collector.trunks(&exchange, at(now)).get(&trunk).copied();
    collector.take(&counters(1, 10, 1_000_000, 5_000_000), at(10));
    assert_eq!(read(&collector, 11), None, "one reading is no rate");
    // 20 MB received and 40 MB sent in 20 s are 8 and 16 Mbit/s.
    collector.take(&counters(1, 30, 21_000_000, 45_000_000), at(30));
    assert_eq!(read(&collector, 31), Some([16e6, 8e6]));
    // The second end confirms nothing and changes nothing.
    collector.take(&counters(2, 10, 0, 0), at(10));
    collector.take(&counters(2, 30, 1, 1), at(30));
    assert_eq!(read(&collector, 31), Some([16e6, 8e6]));
    assert_eq!(read(&collector, 130), None, "an old rate is not the present one");
}

#[test]
fn the_second_end_stands_in_for_a_first_end_that_sends_no_counters() {
    let (exchange, trunk) = world();
    let mut collector = Collector::new(1);
    // The uptime of the agent wraps between the readings.
    let wrap = u32::MAX / 1000;
    collector.take(&counters(2, wrap, 0, 0), at(10));
    collector.take(&counters(2, wrap + 10, 10_000_000, 5_000_000), at(20));
    let rates = collector.trunks(&exchange, at(21))[&trunk];
    assert_eq!(rates, [8e6, 4e6]);
}

#[test]
fn counters_of_a_restarted_switch_give_no_rate_until_their_second_reading() {
    let (exchange, trunk) = world();
    let mut collector = Collector::new(1);
    collector.take(&counters(1, 1_000, 50, 60), at(10));
    collector.take(&counters(1, 1_010, 9_000, 9_000), at(20));
    collector.take(&counters(1, 5, 100, 100), at(30));
    assert_eq!(collector.trunks(&exchange, at(31)).len(), 0);
    collector.take(&counters(1, 15, 1_250_100, 100), at(40));
    assert_eq!(collector.trunks(&exchange, at(41))[&trunk], [0.0, 1e6]);
    let known: BTreeSet<_> = collector.trunks(&exchange, at(41)).into_keys().collect();
    assert_eq!(known, BTreeSet::from([trunk]));
}
