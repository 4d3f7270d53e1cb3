//! The packet and the payload of alerts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Settings};
use millrace_ips_eve::{Layout, RuleTables, Writer};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_types::Time;
use serde_json::{Value, json};

const ETHERNET: u32 = 1;

/// Returns the alerts on frames of Ethernet, with packets.
fn alerts(rules: &str, frames: &[Vec<u8>]) -> Vec<Value> {
    let mut set = RuleSet::default();
    let file = files::parse(Syntax::Suricata, "test", rules.as_bytes());
    set.add("test", file, &Variables::usual());
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    assert!(refusals.is_empty(), "{refusals:?}");
    let settings = Settings {
        records: true,
        evidence: true,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    let layout = Layout {
        packets: true,
        ..Layout::default()
    };
    let writer = Writer::new(layout, RuleTables::default());
    let mut out = Vec::new();
    let mut write = |events: &Events, frame: Option<&[u8]>| {
        let is_alert = |event: &&Event| matches!(event, Event::Alert(_));
        for event in events.list.iter().filter(is_alert) {
            writer.write(event, frame.map(|bytes| (bytes, ETHERNET)), &mut out);
        }
    };
    for (number, bytes) in (1..).zip(frames) {
        let mut events = Events::default();
        let frame = Frame {
            bytes: &mut bytes.clone(),
            link: LinkType(ETHERNET),
            time: Time::from_secs(number),
            number,
        };
        engine.frame(&rules, frame, &mut events);
        write(&events, Some(bytes));
    }
    let mut events = Events::default();
    engine.finish(&rules, &mut events);
    write(&events, None);
    let lines = String::from_utf8(out).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// An Ethernet header with a VLAN.
const LINK: [u8; 18] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0];

/// Returns an IPv4 packet in a frame; `fragment` is the field with the flags and the offset.
fn frame(protocol: u8, is_reply: bool, fragment: u16, data: &[u8]) -> Vec<u8> {
    let mut header = [
        0x45, 0, 0, 0, 0, 9, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    header[2..4].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    if is_reply {
        (header[15], header[19]) = (2, 1);
    }
    [&LINK[..], &header, data].concat()
}

#[test]
fn the_packet_of_an_alert_on_fragments_is_the_whole_one_with_its_link_header() {
    let payload: Vec<u8> = (0..1005u32).map(|at| b'a' + (at % 26) as u8).collect();
    let mut datagram = vec![0, 9, 0, 9];
    datagram.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(&payload);
    let frames = [
        frame(17, false, 0x2000, &datagram[..400]),
        frame(17, false, 0x2000 | 50, &datagram[400..800]),
        frame(17, false, 100, &datagram[800..]),
    ];
    let found = alerts(
        "alert udp any any -> any any (content:\"wxyzabc\"; sid:1;)\n",
        &frames,
    );
    let [alert] = &found[..] else {
        panic!("one alert is expected: {found:?}");
    };
    assert_eq!(alert["pkt_src"], "defrag");
    assert_eq!(bytes(&alert["payload"]), payload);
    assert_eq!(
        (&alert["payload_length"], &alert["stream"]),
        (&json!(1005), &json!(0))
    );
    let packet = bytes(&alert["packet"]);
    // The checksum of the header is that of the engine, the identification may be kept.
    assert_eq!(packet.len(), LINK.len() + 20 + datagram.len());
    assert_eq!(packet[..LINK.len()], LINK);
    assert_eq!(
        packet[LINK.len() + 2..LINK.len() + 4],
        (20 + datagram.len() as u16).to_be_bytes()
    );
    assert_eq!(packet[LINK.len() + 20..], datagram);
    assert_eq!(
        alert["packet_info"],
        json!({"linktype": 1, "linktype_name": "EN10MB"})
    );
}

/// Returns a segment of TCP between two ports in a frame.
fn segment(is_reply: bool, seq: u32, ack: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let ports: [u16; 2] = if is_reply { [80, 4000] } else { [4000, 80] };
    let mut bytes = ports.map(u16::to_be_bytes).concat();
    bytes.extend_from_slice(&seq.to_be_bytes());
    bytes.extend_from_slice(&ack.to_be_bytes());
    bytes.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend_from_slice(data);
    frame(6, is_reply, 0, &bytes)
}

#[test]
fn the_payload_of_an_alert_over_a_transaction_is_that_of_the_stream() {
    let request = b"GET /evidence HTTP/1.1\r\nHost: a\r\n\r\n";
    let end = 1 + request.len() as u32;
    let frames = [
        segment(false, 0, 0, 2, b""),
        segment(true, 0, 1, 0x12, b""),
        segment(false, 1, 1, 0x10, b""),
        segment(false, 1, 1, 0x18, request),
        segment(true, 1, end, 0x10, b""),
        segment(false, end, 1, 0x11, b""),
        segment(true, 1, end + 1, 0x11, b""),
        segment(false, end + 1, 2, 0x10, b""),
    ];
    let rules = "alert http any any -> any any (http.method; content:\"GET\"; sid:1;)\n\
        alert tcp any any -> any any (flags:S; sid:2;)\n";
    let found = alerts(rules, &frames);
    let of = |sid: u32| {
        let mut list = found.iter();
        list.find(|alert| alert["alert"]["signature_id"] == sid).unwrap()
    };
    let alert = of(1);
    assert_eq!(bytes(&alert["payload"]), request);
    assert_eq!(
        alert["payload_printable"],
        "GET /evidence HTTP/1.1\r\nHost: a\r\n\r\n"
    );
    assert_eq!(
        (&alert["payload_length"], &alert["stream"]),
        (&json!(request.len()), &json!(1))
    );
    // The packet is the frame that raised the alert.
    let number = alert["pcap_cnt"].as_u64().unwrap() as usize;
    assert_eq!(bytes(&alert["packet"]), frames[number - 1]);
    let alert = of(2);
    assert_eq!(bytes(&alert["packet"]), frames[0]);
    assert!(
        alert.get("payload").is_none() && alert.get("stream").is_none(),
        "{alert}"
    );
}
