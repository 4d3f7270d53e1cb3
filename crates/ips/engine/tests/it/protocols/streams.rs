//! The frame `stream` of each protocol, the frames of RFB and the items of EtherNet/IP; frames as events and in traces.

use std::collections::BTreeMap;

use millrace_ips_engine::detect::{TraceOutcome, TracePlace};
use millrace_ips_engine::{Engine, Event, Events, Frame, Mode, Settings};
use millrace_ips_rules::frames;
use millrace_types::Time;

use super::frames::{case, dcerpc, modbus, of, sip, smb, telnet};
use super::{Case, binary, client, http2, records, server, text};
use crate::frames::{RAW, tcp, udp};

/// Returns every case.
pub(super) fn cases() -> Vec<Case> {
    let stream = |case: Case, protocol, hold: &'static str| of(case, protocol, &[hold], &[]);
    let query = b"\0\x1b\0\x09\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x10\0\x01".to_vec();
    vec![
        of(
            text::http_case(),
            "http",
            &[
                "flow:to_server; frame:http1.stream; content:\"GET /dir\"; startswith;",
                "flow:to_client; frame:stream; content:\"%PDF-1.4\"; endswith;",
            ],
            &[
                "frame:http1.stream; content:\"HTTP/1.1 200\"; content:\"GET /dir\";",
                "frame:http1.stream; content:\"absent\";",
            ],
        ),
        stream(
            http2::http2_case(),
            "http2",
            "frame:http2.stream; content:\"name=value\";",
        ),
        stream(
            smb(),
            "smb",
            "frame:smb.stream; content:\"one body\"; content:\"two\";",
        ),
        stream(
            telnet(),
            "telnet",
            "frame:telnet.stream; content:\"user|0d 0a|/sbin/ping\";",
        ),
        stream(
            text::tls_case(),
            "tls",
            "frame:tls.stream; content:\"|16 03|\"; startswith;",
        ),
        stream(
            sip(false),
            "sip",
            "frame:sip.stream; content:\"INVITE\"; startswith;",
        ),
        stream(
            binary::nfs_case(),
            "nfs",
            "frame:nfs.stream; content:\"file.txt\";",
        ),
        case(
            "dns",
            53,
            vec![client(query)],
            &[
                "frame:dns.stream; content:\"|00 1b 00 09|\"; startswith; content:\"|07|example|00|\";",
                "frame:dns.pdu; content:\"|00 09 01|\"; startswith;",
            ],
            &["frame:dns.pdu; content:\"|00 1b|\";"],
        ),
        stream(
            text::ssh_case(),
            "ssh",
            "frame:ssh.stream; content:\"SSH-\"; startswith;",
        ),
        stream(
            text::mail_case(),
            "smtp",
            "frame:smtp.stream; content:\"EHLO\"; startswith; content:\"|0d 0a|.|0d 0a|\";",
        ),
        stream(
            text::ftp_case(),
            "ftp",
            "frame:ftp.stream; content:\"USER\"; startswith;",
        ),
        stream(
            dcerpc(),
            "dcerpc",
            "frame:dcerpc.stream; content:\"stub\"; endswith;",
        ),
        stream(
            modbus(),
            "modbus",
            "frame:modbus.stream; content:\"|00 07|\"; startswith; bsize:24;",
        ),
        stream(
            binary::mqtt_case(),
            "mqtt",
            "frame:mqtt.stream; content:\"mytopic\";",
        ),
        stream(
            records::ldap_case(),
            "ldap",
            "frame:ldap.stream; content:\"|30|\"; startswith;",
        ),
        stream(
            binary::pgsql_case(),
            "pgsql",
            "frame:pgsql.stream; content:\"SELECT 1\";",
        ),
        stream(
            binary::websocket_case(),
            "websocket",
            "frame:websocket.stream; content:\"|81 89 01 02 03 04|\";",
        ),
        of(
            records::enip_case(),
            "enip",
            &[
                "frame:enip.stream; content:\"|65 00|\"; startswith;",
                "frame:enip.cip; content:\"|10 03 20 f6 24 01 30 06|\"; bsize:8;",
                "flow:to_client; frame:cip; content:\"|90 00 08|\"; startswith;",
                "frame:enip.enip.item; content:\"|b2 00 08 00 10 03|\"; startswith; bsize:12;",
                "frame:enip.item; content:\"|00 01|\"; startswith; content:\"Communications\";",
            ],
            &[
                "frame:enip.cip; content:\"|b2 00|\";",
                "frame:enip.cip; content:\"Communications\";",
                "frame:enip.item; content:\"|6f 00|\"; startswith;",
            ],
        ),
        of(
            binary::rfb_case(),
            "rfb",
            &[
                "flow:to_client; frame:rfb.pdu; content:\"RFB 003.008|0a|\"; bsize:12;",
                "flow:to_server; frame:pdu; content:\"RFB 003.008|0a|\"; bsize:12;",
                "flow:to_client; frame:rfb.pdu; content:\"|01 02|\"; bsize:2;",
                "flow:to_server; frame:rfb.pdu; content:\"|02|\"; bsize:1;",
                "flow:to_client; frame:rfb.pdu; content:\"|07 07|\"; startswith; bsize:16;",
                "frame:rfb.pdu; content:\"|00 00 00 00|\"; bsize:4;",
                "frame:rfb.pdu; content:\"Alice's desktop\"; endswith; bsize:39;",
                "frame:rfb.stream; content:\"Alice's desktop\"; endswith;",
            ],
            &[
                "frame:rfb.pdu; content:\"RFB\"; bsize:>12;",
                "flow:to_server; frame:rfb.pdu; content:\"Alice\";",
            ],
        ),
    ]
}

/// Runs packets through an engine, and returns its events.
fn events(settings: Settings, text: &str, packets: &[Vec<u8>]) -> (Engine, Vec<Event>) {
    let rules = crate::bed::ruleset(text);
    let mut engine = Engine::new(settings, [1, 2]);
    if let Some(first) = rules.rules.first().filter(|rule| rule.sid == 7).map(|_| 0) {
        engine.detector().trace(Some(first));
    }
    let mut events = Events::default();
    for (at, packet) in packets.iter().enumerate() {
        let frame = Frame {
            bytes: &mut packet.clone(),
            link: RAW,
            time: Time::from_millis(at as u64),
            number: at as u64 + 1,
        };
        engine.frame(&rules, frame, &mut events);
    }
    engine.finish(&rules, &mut events);
    (engine, events.list)
}

/// The frames of events, by name, side and offset: number, size, completeness and payload.
type Found = BTreeMap<(String, bool, Option<u64>), (u64, Option<u64>, bool, Vec<u8>)>;

fn found(mode: Mode, packets: &[Vec<u8>]) -> Found {
    let settings = Settings {
        mode,
        records: true,
        frames: true,
        ..Settings::default()
    };
    let (_, events) = events(settings, "", packets);
    let mut found = Found::new();
    for event in events {
        let Event::Frame(subject, report) = event else {
            continue;
        };
        let (app, name) = frames::name(report.view.kind).unwrap();
        assert_eq!(app, report.app.name().replace("http", "http1"));
        let is_client = subject.src == std::net::IpAddr::from([10, 0, 0, 1]);
        let view = report.view;
        let before = found.insert(
            (name.to_owned(), is_client, view.begin),
            (view.id, view.size, view.is_complete, report.payload),
        );
        assert_eq!(before, None, "{view:?}");
    }
    found
}

#[test]
fn each_frame_is_an_event_in_both_modes_and_in_any_segmentation() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let messages = [
        client(request),
        server(response),
        client("GET /two HTTP/1.1\r\nHost: a\r\n\r\n"),
        server("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"),
    ];
    let whole = found(Mode::Ids, &tcp(80, &messages, 1000));
    let of = |name: &str, is_client, begin| whole.get(&(name.to_owned(), is_client, Some(begin)));
    // The stream is the first frame of a direction.
    let size = request.len() as u64;
    assert_eq!(
        of("request", true, 0),
        Some(&(2, Some(size), true, request.as_bytes().to_vec()))
    );
    assert_eq!(of("request", true, size).map(|frame| frame.0), Some(3));
    let stream = of("stream", true, 0).unwrap();
    assert_eq!((stream.0, stream.1, stream.2), (1, Some(size + 30), true));
    assert!(stream.3.starts_with(request.as_bytes()));
    let cut = of("response", false, response.len() as u64).unwrap();
    assert!(cut.3.ends_with(b"cut"), "{cut:?}");
    assert_eq!(whole.len(), 6);
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 1, 7] {
            assert_eq!(found(mode, &tcp(80, &messages, size)), whole, "{mode:?} {size}");
        }
    }
}

#[test]
fn a_frame_of_a_datagram_has_no_offset_and_one_with_lost_bytes_is_not_complete() {
    let query = text::dns_case().messages.remove(0).1;
    let found_in = found(Mode::Ids, &[udp(53, false, &query)]);
    let frames: Vec<_> = found_in.iter().collect();
    let size = Some(query.len() as u64);
    assert_eq!(
        frames,
        [(&("pdu".to_owned(), true, None), &(1, size, true, query))]
    );
    let messages = [
        text::tls_case().messages,
        vec![client([&[23, 3, 3, 0x10, 0][..], b"part"].concat())],
    ]
    .concat();
    let lost = found(Mode::Ids, &tcp(443, &messages, 1000));
    let part = lost
        .iter()
        .find(|(key, frame)| key.0 == "pdu" && frame.3.ends_with(b"part"));
    let (_, _, is_complete, _) = part.unwrap().1;
    assert!(!is_complete);
}

#[test]
fn without_the_setting_no_frame_is_an_event() {
    let settings = Settings {
        records: true,
        ..Settings::default()
    };
    let packets = tcp(443, &text::tls_case().messages, 1000);
    let rule = "alert tls any any -> any any (frame:tls.pdu; content:\"|16|\"; startswith; sid:1;)";
    let (_, events) = events(settings, rule, &packets);
    assert!(events.iter().any(|event| matches!(event, Event::Alert(_))));
    assert!(!events.iter().any(|event| matches!(event, Event::Frame(..))));
}

#[test]
fn the_trace_of_a_rule_over_frames_names_each_frame() {
    let rule = "alert telnet any any -> any any (frame:telnet.data; content:\"user\"; startswith; sid:7;)";
    let packets = tcp(23, &telnet().messages, 1000);
    let (mut engine, _) = events(Settings::default(), rule, &packets);
    let records = engine.detector().take_trace();
    let places: Vec<(u64, TraceOutcome)> = records
        .iter()
        .filter_map(|record| match record.place {
            TracePlace::Frame(view) => Some((view.begin?, record.outcome)),
            _ => None,
        })
        .collect();
    assert!(places.contains(&(3, TraceOutcome::Alert)), "{places:?}");
    assert!(places.contains(&(9, TraceOutcome::NoMatch)), "{places:?}");
}
