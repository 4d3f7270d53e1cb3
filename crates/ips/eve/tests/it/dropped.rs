//! The headers of dropped packets.

use core::net::IpAddr;

use millrace_ips_engine::event::{Alert, PacketSource, Subject};
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Action, Event};
use millrace_ips_eve::{Layout, RuleTables, Writer};
use millrace_types::Time;
use serde_json::{Value, json};

/// Returns the object of the event that a packet of IP was dropped.
fn dropped(packet: &[u8]) -> Value {
    let subject = Subject {
        packet: 1,
        time: Time::from_secs(1),
        flow: 0,
        src: IpAddr::from([10, 0, 0, 1]),
        dst: IpAddr::from([10, 0, 0, 2]),
        ports: None,
        protocol: 6,
        icmp: None,
        vlans: Default::default(),
        source: PacketSource::Frame,
    };
    let writer = Writer::new(Layout::default(), RuleTables::default());
    let mut out = Vec::new();
    let event = Event::Drop(subject, DropReason::Rule, None);
    writer.write(&event, Some((packet, 101)), &mut out);
    let line: Value = serde_json::from_slice(&out).unwrap();
    line["drop"].clone()
}

fn with(transport: &[u8], protocol: u8, fragment: u8) -> Vec<u8> {
    let size = 20 + transport.len() as u8;
    let ip = [
        0x45, 8, 0, size, 1, 2, 0, fragment, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    [&ip[..], transport].concat()
}

#[test]
fn a_dropped_packet_has_the_values_of_its_headers() {
    let tcp = [0, 80, 0, 9, 0, 0, 1, 0, 0, 0, 2, 0, 0x50, 0x12, 4, 0, 0, 0, 0, 7];
    let mut expected = json!({
        "len": 40, "tos": 8, "ttl": 64, "ipid": 258, "tcpseq": 256, "tcpack": 512, "tcpwin": 1024, "syn": true,
        "ack": true, "psh": false, "rst": false, "urg": false, "fin": false, "tcpres": 0, "tcpurgp": 7,
        "reason": "rules",
    });
    assert_eq!(dropped(&with(&tcp, 6, 0)), expected);
    // A later fragment has no transport header.
    expected = json!({"len": 40, "tos": 8, "ttl": 64, "ipid": 258, "reason": "rules"});
    assert_eq!(dropped(&with(&tcp, 6, 1)), expected);

    let udp = dropped(&with(&[0, 9, 0, 9, 0, 10, 0, 0, b'a', b'b'], 17, 0));
    assert_eq!((&udp["udplen"], udp.get("tcpseq")), (&json!(10), None));
    let echo = dropped(&with(&[8, 0, 0, 0, 1, 0, 0, 3], 1, 0));
    assert_eq!((&echo["icmp_id"], &echo["icmp_seq"]), (&json!(256), &json!(3)));

    let mut v6 = vec![0x61, 0x20, 0, 5, 0, 8, 17, 63];
    v6.extend([1; 32]);
    v6.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    expected = json!({"len": 8, "tc": 18, "hoplimit": 63, "flowlbl": 5, "udplen": 8, "reason": "rules"});
    assert_eq!(dropped(&v6), expected);
}

#[test]
fn a_packet_that_a_rule_dropped_has_the_object_of_its_alert() {
    let packet = with(&[0, 9, 0, 9, 0, 10, 0, 0, b'a', b'b'], 17, 0);
    let subject = Subject {
        packet: 1,
        time: Time::from_secs(1),
        flow: 7,
        src: IpAddr::from([10, 0, 0, 1]),
        dst: IpAddr::from([10, 0, 0, 2]),
        ports: Some((9, 9)),
        protocol: 17,
        icmp: None,
        vlans: Default::default(),
        source: PacketSource::Frame,
    };
    let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let alert = Alert {
        subject,
        sid: 5,
        gid: 1,
        rev: 2,
        rule: 0,
        action: Action::DropFlow,
        packet_action: Action::DropFlow,
        app: None,
        transaction: None,
        frame: None,
        tunnel: None,
        json: Vec::new(),
        captured: vec![pair("one", b"\xff"), pair("two", b"2"), pair("one", b"again")],
        packet_variables: vec![pair("key", b"value")],
        context: None,
        evidence: None,
    };
    let writer = Writer::new(Layout::default(), RuleTables::default());
    let line = |event: &Event| {
        let mut out = Vec::new();
        writer.write(event, Some((&packet, 101)), &mut out);
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    let dropped = line(&Event::Drop(
        subject,
        DropReason::Rule,
        Some(Box::new(alert.clone())),
    ));
    assert_eq!(dropped["alert"]["signature_id"], 5);
    assert_eq!(dropped["alert"]["action"], "blocked");
    assert_eq!(dropped["drop"]["reason"], "rules");
    let context = json!({"one": "\\xff", "two": "2"});
    assert_eq!(dropped["alert"]["context"], context);
    // The verdict stands beside the packet's headers, with the means of a rejection.
    assert_eq!(dropped.get("verdict"), None);
    let detailed = Writer::new(
        Layout {
            details: true,
            ..Layout::default()
        },
        RuleTables::default(),
    );
    let rejected = Alert {
        packet_action: Action::RejectBoth,
        ..alert.clone()
    };
    for (rule, verdict) in [
        (None, json!({"action": "drop"})),
        (Some(alert.clone()), json!({"action": "drop"})),
        (
            Some(rejected),
            json!({"action": "drop", "reject-target": "both", "reject": ["icmp-prohib"]}),
        ),
    ] {
        let mut out = Vec::new();
        let event = Event::Drop(subject, DropReason::Rule, rule.map(Box::new));
        detailed.write(&event, Some((&packet, 101)), &mut out);
        let line: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["verdict"], verdict);
        assert_eq!(line["drop"].get("verdict"), None);
    }
    // The alert itself has the variables of the packet, too.
    let alert = line(&Event::Alert(alert));
    assert_eq!(
        (&alert["alert"], &alert["metadata"]),
        (&dropped["alert"], &json!({"pktvars": [{"key": "value"}]}))
    );
}
