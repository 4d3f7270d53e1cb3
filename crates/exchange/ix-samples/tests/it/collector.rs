//! Conversion of a switch's samples into rates of members, and the receiver on a real socket.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use millrace_ix_model::Timestamp;
use millrace_ix_plan::layout::Metadata;
use millrace_ix_samples::{Ends, Observation, Receiver, Settings, Shared};
use millrace_sflow::{Datagram, FlowSample, MillraceRecord, Output, Sample};
use millrace_types::Mac;
use millrace_wire::Builder;

/// Returns a sample of a UDP packet with this metadata.
fn sample(metadata: Metadata, output: Output) -> FlowSample {
    let header = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([198, 51, 100, 7], [192, 0, 2, 80])
        .udp(53, 4242)
        .payload(&[0; 400])
        .build();
    FlowSample {
        sequence: 1,
        source: 3,
        rate: 1000,
        pool: 1000,
        drops: 0,
        input: 3,
        output,
        frame_size: header.len() as u32,
        header: header[..128].to_vec(),
        switch: None,
        millrace: Some(MillraceRecord {
            metadata: metadata.word(),
            cookie: 0,
            drop_reason: String::new(),
        }),
    }
}

const METADATA: Metadata = Metadata {
    service: 77,
    by_trunk: false,
    ingress_end: 5,
    egress_end: 6,
};

fn datagram(samples: Vec<FlowSample>) -> Datagram {
    Datagram {
        agent: [192, 0, 2, 1].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 1,
        samples: samples.into_iter().map(Sample::Flow).collect(),
        skipped: 0,
    }
}

#[test]
fn a_truncated_header_is_read_and_weighted_by_the_rate() {
    let at = Timestamp::from_secs(9);
    let seen = Observation::of(&sample(METADATA, Output::Interface(2)), at).unwrap();
    assert_eq!(
        seen.ends,
        Ends {
            service: 77,
            ingress_end: 5,
            egress_end: 6
        }
    );
    assert_eq!((seen.packets, seen.bytes), (1_000.0, 442_000.0));
    assert_eq!(
        (seen.source.to_string(), seen.protocol),
        ("198.51.100.7".to_owned(), 17)
    );
    assert_eq!(
        (seen.source_port, seen.destination_port, seen.is_dropped),
        (53, 4242, false)
    );
    // A peering LAN keeps the priority of a frame in the place of its end, until the end is known.
    let priority = Metadata {
        egress_end: Metadata::COPIES | 6,
        ..METADATA
    };
    let dropped = Observation::of(
        &sample(priority, Output::Dropped(millrace_sflow::DropCode(256))),
        at,
    )
    .unwrap();
    assert_eq!((dropped.ends.ingress_end, dropped.ends.egress_end), (5, 0));
    let by_trunk = Metadata {
        by_trunk: true,
        ..METADATA
    };
    assert_eq!(Observation::of(&sample(by_trunk, Output::Interface(2)), at), None);
    let foreign = FlowSample {
        millrace: None,
        ..sample(METADATA, Output::Interface(2))
    };
    assert_eq!(Observation::of(&foreign, at), None);
}

#[test]
fn datagrams_are_taken_from_switches_only_and_what_is_no_datagram_is_counted() {
    let shared = Shared::new(1);
    let start = |switches: &[&str]| {
        let settings = Settings {
            listen: "127.0.0.1:0".parse().unwrap(),
            switches: switches
                .iter()
                .map(|one| one.parse().unwrap())
                .collect::<BTreeSet<_>>(),
        };
        Receiver::start(&settings, shared.clone()).unwrap()
    };
    let wait = |what: &str, is_done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_done() {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let switch = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bytes = datagram(vec![sample(METADATA, Output::Interface(2)); 3]).emit();
    let receiver = start(&["127.0.0.1"]);
    switch.send_to(&bytes, receiver.address()).unwrap();
    switch.send_to(&bytes[..50], receiver.address()).unwrap();
    wait("the samples", &|| {
        shared.samples() == 3 && shared.malformed() == 1
    });
    assert_eq!(shared.revision(), 1);
    let other = start(&["192.0.2.1"]);
    switch.send_to(&bytes, other.address()).unwrap();
    wait("the refusal", &|| shared.refused() == 1);
    assert_eq!(shared.samples(), 3);
}

#[test]
fn a_flood_of_other_hosts_and_of_malformed_datagrams_keeps_no_state_and_stops_no_switch() {
    let shared = Shared::new(1);
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        switches: BTreeSet::from(["127.0.0.1".parse().unwrap()]),
    };
    let receiver = Receiver::start(&settings, shared.clone()).unwrap();
    let switch = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bytes = datagram(vec![sample(METADATA, Output::Interface(2)); 3]).emit();
    let (mut refused, mut malformed) = (0, 0);
    for number in 0..4_000_u32 {
        let [.., high, low] = number.to_be_bytes();
        let host = UdpSocket::bind((Ipv4Addr::new(127, 9, high, low), 0)).unwrap();
        host.send_to(&bytes, receiver.address()).unwrap();
        switch
            .send_to(&bytes[..number as usize % bytes.len()], receiver.address())
            .unwrap();
        (refused, malformed) = (refused + 1, malformed + 1);
        // The queue of the socket has room for twenty datagrams, so that each one is counted.
        let deadline = Instant::now() + Duration::from_secs(60);
        while number % 10 == 0 && (shared.refused(), shared.malformed()) != (refused, malformed) {
            assert!(Instant::now() < deadline, "{number}: the thread reads nothing");
            std::thread::yield_now();
        }
    }
    switch.send_to(&bytes, receiver.address()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while shared.samples() != 3 {
        assert!(
            Instant::now() < deadline,
            "the datagram of the switch was not read"
        );
        std::thread::yield_now();
    }
    assert_eq!((shared.refused(), shared.malformed()), (4_000, 4_000));
}
