//! tshark decodes emitted datagrams without a warning. Without tshark, the test prints one line and is
//! skipped.

use std::fs;
use std::process::Command;

use millrace_sflow::*;
use millrace_testing::udp_capture;

#[test]
fn tshark_reads_every_field_and_finds_nothing_malformed() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: tshark is not installed (apt-get install tshark)");
        return;
    }
    let mut header = vec![2, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0, 6, 0x81, 0, 0, 100, 8, 0, 0x45, 0];
    header.resize(HEADER_SIZE, 0x5a);
    let flow = FlowSample {
        sequence: 11,
        source: 3,
        rate: 1000,
        pool: 12_000,
        drops: 2,
        input: 3,
        output: Output::Dropped(DropCode::ACL),
        frame_size: 1514,
        header,
        switch: Some(SwitchRecord {
            source_vlan: 100,
            source_priority: 1,
            destination_vlan: 200,
            destination_priority: 2,
        }),
        millrace: Some(MillraceRecord {
            metadata: 77,
            cookie: 0x4d,
            drop_reason: "table_miss".to_owned(),
        }),
    };
    let counters = CounterSample {
        sequence: 4,
        source: 3,
        counters: Some(InterfaceCounters {
            interface: 3,
            speed: 10_000_000_000,
            is_admin_up: true,
            is_link_up: true,
            in_octets: 123_456_789_012,
            in_packets: 7,
            ..InterfaceCounters::default()
        }),
        ethernet: Some(EthernetCounters {
            transmit_errors: 5,
            receive_errors: 6,
        }),
        openflow: Some(OpenFlowPort {
            dpid: 0x77,
            number: 3,
        }),
        name: Some("p3".to_owned()),
    };
    let discarded = DiscardedPacket {
        sequence: 1,
        source: 3,
        drops: 0,
        input: 3,
        output: 0,
        reason: DropCode::ACL,
        frame_size: 60,
        header: vec![0; 60],
        millrace: None,
    };
    let datagram = Datagram {
        agent: [192, 0, 2, 1].into(),
        sub_agent: 1,
        sequence: 99,
        uptime_ms: 60_000,
        samples: vec![
            Sample::Flow(flow),
            Sample::Counters(counters),
            Sample::Discarded(discarded),
        ],
        skipped: 0,
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sflow.pcap");
    fs::write(&path, udp_capture(6343, &datagram.emit())).unwrap();
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-V", "-d", "udp.port==6343,sflow"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for expected in [
        "InMon sFlow",
        "Datagram version: 5",
        "Agent address: 192.0.2.1",
        "Sequence number: 99",
        "NumSamples: 3",
        "Sampling rate: 1 out of 1000 packets",
        "Sample pool: 12000 total packets",
        "Input interface (ifIndex): 3",
        "Frame Length: 1518",
        "Incoming 802.1Q VLAN: 100",
        "Outgoing 802.1Q VLAN: 200",
        "Interface Speed: 10000000000",
        "Input Octets: 123456789012",
        "Internal Mac Transmit Errors: 5",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains("Malformed"), "{text}");
}
