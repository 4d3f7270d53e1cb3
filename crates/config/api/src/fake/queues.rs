//! The queues and the policer of the fake switch.

use crate::view::{
    BfdSession, Colored, Damping, EgressQueue, Ipfix, IpfixCollector, Lldp, LldpNeighbour, MacEntry, Mirror,
    Oam, Offload, OffloadRefusal, Policer, Sflow, SflowCollector, SflowPort,
};

/// Returns a default queue, and a queue with every setting.
pub(super) fn queues() -> Vec<EgressQueue> {
    let plain = EgressQueue {
        port: "h2".to_owned(),
        id: 0,
        min_bps: None,
        max_bps: None,
        priority: 0,
        weight: 1,
        length: 1000,
        packets: 5,
        bytes: 500,
        drops: 0,
        waiting_packets: 0,
        waiting_bytes: 0,
        duration_seconds: 90.0,
    };
    let full = EgressQueue {
        id: 7,
        min_bps: Some(10_000_000),
        max_bps: Some(2_500_000_000),
        priority: 7,
        weight: 3,
        packets: 1_000_000,
        bytes: 64_000_000,
        drops: 42,
        waiting_packets: 17,
        waiting_bytes: 25_738,
        ..plain.clone()
    };
    vec![plain, full]
}

/// Returns the LLDP of a port with one neighbour.
pub(super) fn lldp() -> Lldp {
    Lldp {
        neighbours: vec![LldpNeighbour {
            mac: "02:00:00:00:00:09".to_owned(),
            chassis: "02:00:00:00:00:09".to_owned(),
            port: "eth7".to_owned(),
            port_description: None,
            system_name: Some("core1".to_owned()),
            system_description: None,
            capabilities: vec!["bridge".to_owned(), "router".to_owned()],
            management: vec!["192.0.2.9".to_owned()],
            port_vlan: Some(10),
            max_frame_size: Some(1522),
            expires_in_s: 97,
        }],
        rx_frames: 12,
        rx_discarded: 0,
        rx_too_many_neighbours: 0,
        rx_unread_tlvs: 3,
        aged_out: 0,
        tx_frames: 13,
    }
}

/// Returns the OAM of a port that waits to be restored.
pub(super) fn oam() -> Oam {
    Oam {
        live: false,
        restores_in_s: Some(42.0),
        bfd: Some(BfdSession {
            state: "up".to_owned(),
            remote_state: "up".to_owned(),
            diagnostic: "none".to_owned(),
            local_discriminator: 7,
            remote_discriminator: 8,
            tx_interval_ms: Some(50.0),
            detection_time_ms: 150.0,
            rx_packets: 1000,
            rx_discarded: 0,
            tx_packets: 1001,
            flaps: 3,
        }),
        ccm: None,
        damping: Some(Damping {
            remaining_s: None,
            times: 1,
        }),
    }
}

/// Returns the offload of a port whose device lied once.
pub(super) fn offload() -> Offload {
    Offload {
        mode: "auto".to_owned(),
        level: "verify".to_owned(),
        by: "audit".to_owned(),
        distrusted: true,
        entries: 1200,
        pending: 2,
        leaked: 0,
        limit: 1843,
        operations: 1500,
        operations_per_second: 12,
        packets: 1_000_000,
        marked: 900_000,
        used: 890_000,
        verified: 2000,
        mismatches: 1,
        unknown: 0,
        samples: 390,
        samples_lost: 0,
        drops: 3,
        dropped: 40_000,
        refusals: vec![OffloadRefusal {
            reason: "fragment".to_owned(),
            count: 3,
        }],
        saved_nanos: Some(17.5),
    }
}

/// Returns a policer with every setting.
pub(super) fn policer() -> Policer {
    let colored = |action: &str, packets| Colored {
        action: action.to_owned(),
        packets,
        bytes: packets * 100,
    };
    Policer {
        kind: "trtcm".to_owned(),
        cir_bps: 10_000_000,
        second_bps: Some(25_000_000),
        green: colored("pass", 900),
        yellow: colored("mark", 90),
        red: colored("drop", 9),
    }
}

/// Returns IPFIX with a collector over UDP, and one over TCP that is not connected.
pub(super) fn ipfix() -> Ipfix {
    let collector = |target: &str, connected, not_sent, last_error: Option<&str>| IpfixCollector {
        target: target.to_owned(),
        connected,
        messages: 70,
        records: 600,
        bytes: 54_000,
        not_sent,
        last_error: last_error.map(str::to_owned),
    };
    Ipfix {
        domain: 7,
        content: "flows".to_owned(),
        collectors: vec![
            collector("udp:192.0.2.9:4739", true, 0, None),
            collector(
                "tcp:192.0.2.10:4739",
                false,
                12,
                Some("Connection refused (os error 111)"),
            ),
        ],
        flows: 31,
        samples: 1234,
        pool: 1_234_567,
        lost: 2,
        records: 590,
        evicted: 3,
    }
}

/// Returns a learned MAC address.
pub(super) fn mac() -> MacEntry {
    MacEntry {
        vlan: 100,
        mac: "02:00:00:00:00:aa".to_owned(),
        port: 1,
        age_seconds: 12.0,
    }
}

/// Returns a mirror of the packets that a port receives.
pub(super) fn mirror() -> Mirror {
    Mirror {
        name: "span".to_owned(),
        select_all: false,
        select_received: vec!["p1".to_owned()],
        select_sent: Vec::new(),
        select_vlans: vec![10, 20],
        output_port: Some("p2".to_owned()),
        output_vlan: None,
        snaplen: Some(128),
        packets: 42,
        bytes: 4200,
        lost: 1,
    }
}

/// Returns sFlow with one collector and one port.
pub(super) fn sflow() -> Sflow {
    Sflow {
        agent: "192.0.2.1".to_owned(),
        sub_agent: 0,
        collectors: vec![SflowCollector {
            address: "192.0.2.9:6343".to_owned(),
            datagrams: 77,
            errors: 1,
            last_error: None,
        }],
        ports: vec![SflowPort {
            port: "p1".to_owned(),
            number: 1,
            rate: 1000,
            samples: 123,
            pool: 123_456,
            lost: 2,
            counter_samples: 9,
        }],
        discards: 5,
        discards_lost: 6,
    }
}
