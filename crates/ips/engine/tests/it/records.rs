//! Of records and alerts: where their packets come from, which end is their source, and the counters of flows.

use millrace_ips_engine::app::record::Record;
use millrace_ips_engine::event::{PacketSource, TcpState};
use millrace_ips_engine::{Event, Mode, Settings};
use millrace_wire::tcp::flags::{ACK, FIN, RST};

use crate::bed::{ATTACK, HOST_A, HOST_B, TestBed, datagram, fragments, geneve, gre, ip, six_in_four, vxlan};
use crate::conversation::Conversation;
use crate::frames::{ipv4, tcp, udp};
use crate::protocols::{cases, http2};

fn recording(rules: &str) -> TestBed {
    let settings = Settings {
        mode: Mode::Ids,
        records: true,
        ..Settings::default()
    };
    TestBed::with(settings, rules)
}

/// Returns the sources of the packets of alerts.
fn sources(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<PacketSource> {
    let mut bed = recording(ATTACK);
    bed.send_all(packets);
    let of = |event: &Event| match event {
        Event::Alert(alert) => Some(alert.subject.source),
        _ => None,
    };
    bed.events().iter().filter_map(of).collect()
}

#[test]
fn the_source_of_a_packet_is_a_frame_fragments_or_the_innermost_tunnel() {
    let plain = || datagram(b"an attack");
    let outer = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let inside = |protocol: u8| ip(outer, millrace_wire::IpProto(protocol), &plain());
    let cases = [
        (vec![plain()], PacketSource::Frame),
        (fragments(&plain(), 8), PacketSource::Fragments),
        (vec![inside(4)], PacketSource::Ipv4),
        (vec![six_in_four(b"an attack")], PacketSource::Ipv6),
        (vec![gre(&plain())], PacketSource::Gre),
        (vec![vxlan(&plain())], PacketSource::Vxlan),
        (vec![geneve((50_000, 6081), &plain())], PacketSource::Geneve),
        (vec![vxlan(&gre(&plain()))], PacketSource::Gre),
        (vec![gre(&vxlan(&plain()))], PacketSource::Vxlan),
        // The packet around it came in fragments.
        (fragments(&gre(&plain()), 16), PacketSource::Fragments),
    ];
    for (packets, expected) in cases {
        assert_eq!(sources(packets)[0], expected);
    }
}

#[test]
fn a_connection_that_ends_has_the_state_of_its_last_segment() {
    let (client, server) = (0, 1);
    let fin = FIN | ACK;
    for (segments, expected) in [
        (&[][..], TcpState::Established),
        (&[(client, fin)], TcpState::CloseWait),
        (&[(client, fin), (server, ACK)], TcpState::CloseWait),
        (&[(client, fin), (server, fin)], TcpState::LastAck),
        (&[(client, fin), (server, fin), (client, ACK)], TcpState::Closed),
        (&[(server, fin)], TcpState::FinWait1),
        (&[(server, fin), (client, ACK)], TcpState::FinWait2),
        (&[(server, fin), (client, fin)], TcpState::TimeWait),
        (&[(server, fin), (client, fin), (server, ACK)], TcpState::Closed),
        (&[(client, fin), (server, RST | ACK)], TcpState::Closed),
    ] {
        let mut bed = recording("");
        let mut conversation = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
        for (from, flags) in segments {
            assert!(!conversation.send(&mut bed, *from, *flags, &[]));
        }
        bed.finish();
        let of = |event: &Event| match event {
            Event::Flow(flow, ..) => flow.tcp.and_then(|tcp| tcp.state),
            _ => None,
        };
        let states: Vec<TcpState> = bed.events().iter().filter_map(of).collect();
        assert_eq!(states, [expected], "{segments:?}");
    }
}

#[test]
fn what_the_end_of_a_flow_reports_comes_from_the_engine() {
    let mut bed = recording("");
    let request = (false, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec());
    bed.send_all(tcp(80, &[request], 1000).into_iter().take(5));
    bed.finish();
    let of = |event: &Event| match event {
        Event::Transaction(transaction) => Some(transaction.subject.source),
        _ => None,
    };
    let found: Vec<_> = bed.events().iter().filter_map(of).collect();
    assert_eq!(found, [PacketSource::FlowEnd]);
}

#[test]
fn the_source_of_a_record_is_the_client_or_the_sender_of_its_last_packet() {
    // True for a record whose source is the server. The records of each message, or those of whole transactions.
    let expected: [(&str, &[bool]); 6] = [
        ("dhcp", &[false, true]),
        ("snmp", &[false, true]),
        ("nfs", &[true]),
        ("dns", &[false]),
        ("ldap", &[false]),
        ("enip", &[false]),
    ];
    let cases = cases();
    for (protocol, expected) in expected {
        let case = cases.iter().find(|case| case.protocol == protocol).unwrap();
        let mut bed = recording("");
        match case.is_udp {
            true => {
                for (is_reply, bytes) in &case.messages {
                    bed.send(udp(case.port, *is_reply, bytes));
                }
            }
            false => {
                bed.send_all(tcp(case.port, &case.messages, 1000));
            }
        }
        let of = |event: &Event| match event {
            Event::Transaction(transaction) => {
                let (source, destination) = transaction.subject.ports.unwrap();
                assert_eq!(source.min(destination), case.port.min(1000), "{protocol}");
                Some(source == case.port)
            }
            _ => None,
        };
        let mut found: Vec<bool> = bed.events().iter().filter_map(of).collect();
        found.dedup();
        assert_eq!(found, expected, "{protocol}");
    }
}

#[test]
fn an_alert_has_the_counters_of_its_flow() {
    let text = "alert udp any any -> any any (content:\"x\"; flowint:seen,+,2; flowint:other,=,7; noalert; sid:1;)\n\
        alert udp any any -> any any (content:\"y\"; sid:2;)\n";
    let mut bed = recording(text);
    for payload in [b"x", b"x", b"y"] {
        bed.send(udp(4000, false, payload));
    }
    let of = |event: &Event| match event {
        Event::Alert(alert) => Some(alert.context.as_ref().unwrap().counters.clone()),
        _ => None,
    };
    let found: Vec<Vec<(u32, u32)>> = bed.events().iter().filter_map(of).collect();
    let values: Vec<Vec<u32>> = found
        .iter()
        .map(|counters| counters.iter().map(|(_, value)| *value).collect())
        .collect();
    assert_eq!(values, [[4, 7]]);
}

#[test]
fn protocols_of_ip_are_protocols_of_rules() {
    let names = [
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("eigrp", 88),
        ("ospf", 89),
        ("pim", 103),
        ("vrrp", 112),
    ];
    let rule = |(at, (name, _)): (usize, &(&str, u8))| {
        format!("alert {name} any any -> any any (sid:{};)\n", at + 1)
    };
    let text: String = names.iter().enumerate().map(rule).collect();
    for (at, (name, number)) in names.iter().enumerate() {
        let mut bed = recording(&text);
        bed.send(ipv4(*number, false, &[0; 32]));
        assert_eq!(
            bed.sids().into_iter().collect::<Vec<_>>(),
            [at as u32 + 1],
            "{name}"
        );
    }
}

#[test]
fn the_request_of_an_upgrade_and_its_answer_are_the_record_of_the_first_stream() {
    // A server may send more than protocol detection waits for, before the preface of the client.
    for size in [20, 40_000] {
        let messages = http2::upgraded(&vec![b'x'; size]);
        for (mode, step) in [
            (Mode::Ids, 1000),
            (Mode::Ips, 1000),
            (Mode::Ids, 1),
            (Mode::Ips, 7),
        ] {
            let settings = Settings {
                mode,
                records: true,
                ..Settings::default()
            };
            let rules = "alert http any any => any any (http.method; content:\"POST\"; http.stat_code; content:\"203\"; sid:1;)";
            let mut bed = TestBed::with(settings, rules);
            bed.send_all(tcp(80, &messages, step));
            bed.finish();
            let of = |event: &Event| match event {
                Event::Transaction(transaction) => match &transaction.record {
                    Record::Http(record) => Some((
                        record.http2_stream,
                        String::from_utf8_lossy(&record.method).into_owned(),
                        record.status,
                        record.length,
                    )),
                    _ => None,
                },
                _ => None,
            };
            let mut found: Vec<_> = bed.events().iter().filter_map(of).collect();
            found.retain(|(stream, ..)| *stream != Some(0));
            found.sort();
            let expected = [
                (None, "POST".to_owned(), Some(101), 0),
                (Some(1), "POST".to_owned(), Some(203), size as u64),
                (Some(3), "GET".to_owned(), Some(404), 0),
            ];
            assert_eq!(found, expected, "{size} {mode:?} {step}");
            assert_eq!((bed.sids().len(), bed.alerts()), (1, 1), "{size} {mode:?} {step}");
        }
    }
}

#[test]
fn a_connection_that_is_followed_without_its_handshake_is_midstream() {
    let rules = "alert http any any -> any any (http.method; content:\"GET\"; sid:1;)";
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec();
    let packets = tcp(80, &[(false, request), (true, response)], 1000);
    for mode in [Mode::Ids, Mode::Ips] {
        for (first, expected) in [(0, false), (3, true)] {
            let settings = Settings {
                mode,
                records: true,
                accepts_midstream: true,
                ..Settings::default()
            };
            let mut bed = TestBed::with(settings, rules);
            bed.send_all(packets[first..].to_vec());
            bed.finish();
            let of = |event: &Event| match event {
                Event::Alert(alert) => alert.context.as_ref().and_then(|context| context.flow.tcp),
                Event::Flow(flow, ..) => flow.tcp,
                _ => None,
            };
            let found = bed.events().iter().filter_map(of).map(|tcp| tcp.is_midstream);
            assert_eq!(found.collect::<Vec<_>>(), [expected; 2], "{mode:?}, {first}");
        }
    }
}
