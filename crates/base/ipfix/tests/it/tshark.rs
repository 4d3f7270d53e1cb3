//! tshark decodes messages without a warning. Without tshark, the test prints one line and is skipped.

use std::process::Command;

use millrace_ipfix::element::*;
use millrace_ipfix::{Builder, Header, Template, Values};
use millrace_testing::udp_capture;

const EVERY: Template = Template {
    id: 300,
    scopes: 0,
    elements: &[
        FLOW_START_MILLISECONDS,
        PACKET_DELTA_COUNT,
        SOURCE_MAC_ADDRESS,
        SOURCE_IPV4_ADDRESS,
        DESTINATION_IPV6_ADDRESS,
        FORWARDING_STATUS,
        DATA_LINK_FRAME_SECTION,
    ],
};
const SELECTOR: Template = Template {
    id: 301,
    scopes: 1,
    elements: &[
        SELECTOR_ID,
        SELECTOR_ALGORITHM,
        SAMPLING_PACKET_INTERVAL,
        SAMPLING_PACKET_SPACE,
        SAMPLING_PROBABILITY,
    ],
};

#[test]
fn tshark_reads_every_field_and_finds_nothing_malformed() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: tshark is not installed (apt-get install tshark)");
        return;
    }
    let mut builder = Builder::new(1400);
    assert!(builder.template(&EVERY) && builder.template(&SELECTOR));
    let values = Values::new()
        .u64(1_700_000_000_123)
        .u64(77)
        .mac([2, 0, 0, 0, 0, 9])
        .ipv4([192, 0, 2, 9].into())
        .ipv6("2001:db8::9".parse().unwrap())
        .u8(64)
        .bytes(&[0x5a; 300]);
    assert!(builder.record(&EVERY, &values));
    assert!(
        builder.record(
            &SELECTOR,
            &Values::new()
                .u32(1)
                .u16(UNIFORM_PROBABILISTIC)
                .u32(1)
                .u32(999)
                .f64(0.001)
        )
    );
    let message = builder.take().emit(Header {
        export_time: 1_700_000_001,
        sequence: 11,
        domain: 5,
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ipfix.pcap");
    std::fs::write(&file, udp_capture(4739, &message)).unwrap();
    let shown = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-V", "-d", "udp.port==4739,cflow"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    for wanted in [
        "Version: 10",
        "FlowSequence: 11",
        "Observation Domain Id: 5",
        "Packets: 77",
        "SrcAddr: 192.0.2.9",
        "DstAddr: 2001:db8::9",
        "Source Mac Address: 02:00:00:00:00:09",
        "Sampling Packet Space: 999",
        "Sampling Probability: 0.001",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(
        !text.contains("Malformed") && !text.contains("Expert Info (Error"),
        "{text}"
    );
}
