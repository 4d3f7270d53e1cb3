//! Tests of the encoding of events.

use millrace_ips_engine::event::FILE_PART;
use millrace_types::Time;
use proptest::prelude::*;

use super::*;

fn subject() -> Subject {
    Subject {
        packet: 7,
        time: Time::from_secs(1_700_000_000),
        flow: 9,
        src: "10.0.0.1".parse().unwrap(),
        dst: "2001:db8::1".parse().unwrap(),
        ports: Some((40_000, 80)),
        protocol: 6,
        icmp: Some((3, 1)),
        vlans: [5, 7, 0],
        source: PacketSource::Vxlan,
    }
}

fn flow() -> FlowSummary {
    FlowSummary {
        id: 9,
        key: FlowKey {
            client: "10.0.0.1".parse().unwrap(),
            server: "10.0.0.2".parse().unwrap(),
            client_port: 40_000,
            server_port: 80,
            protocol: 6,
            vlans: [5, 0, 0],
            tunnel_depth: 1,
        },
        start: Time::from_secs(1),
        last: Time::from_secs(2),
        state: FlowState::Established,
        counters: [DirectionCounters {
            packets: 3,
            bytes: 4,
            min_ttl: 5,
            max_ttl: 6,
        }; 2],
        app: Some(AppProtocol::Http),
        apps: [Some(AppProtocol::Http), None],
        original_app: None,
        icmp: [None, Some((0, 0))],
        verdict: FlowVerdict::Drop,
        is_alerted: true,
        has_parser_error: true,
        transactions: 2,
        tcp: Some(TcpSummary {
            flags: [0x1b, 0x12],
            state: Some(TcpState::TimeWait),
            has_gaps: [false, true],
            is_midstream: true,
        }),
    }
}

/// Returns records of protocols whose fields have types of their own, and one with each kind of value.
fn records() -> Vec<Record> {
    let mut soa = DnsResource::default();
    soa.fields.text("mname", b"ns").number("serial", 7_u32);
    let mut fields = Fields::default();
    let inner = |fields: &mut Fields| {
        fields.text("text", b"value");
    };
    fields
        .number("number", 1_u64)
        .signed("signed", -1)
        .float("float", 1.5)
        .flag("flag", true)
        .texts("texts", [&b"a"[..], b"b"])
        .object("object", inner)
        .objects("objects", vec![Fields::default(), soa.fields.clone()]);
    vec![
        Record::Dns(Box::new(DnsRecord {
            questions: vec![(b"name".to_vec(), 1, 1)],
            answers: vec![DnsResource::default(), soa],
            ..DnsRecord::default()
        })),
        Record::Modbus(Box::new(ModbusRecord {
            identifier: 7,
            messages: [
                None,
                Some(ModbusMessage {
                    protocol: 1,
                    unit: 2,
                    function: 3,
                    data: vec![4; 252],
                }),
            ],
        })),
        Record::Dnp3(Box::new(Dnp3Record {
            indications: Some(0x9000),
            objects: vec![Dnp3Objects {
                group: 1,
                stop: 9,
                count: 10,
                data: vec![1, 2],
                ..Dnp3Objects::default()
            }],
            is_complete: true,
            ..Dnp3Record::default()
        })),
        Record::Smtp(Box::new(SmtpRecord {
            status: Some(MailStatus::InBody),
            ..SmtpRecord::default()
        })),
        Record::Fields(Box::new(fields)),
    ]
}

fn transaction(record: Record, files: Vec<FileSummary>) -> Event {
    Event::Transaction(Box::new(TransactionEvent {
        subject: subject(),
        id: 3,
        app: AppProtocol::Dns,
        record,
        files,
        anomalies: vec!["dns.malformed_data"],
    }))
}

fn frame() -> FrameView {
    FrameView {
        id: 7,
        kind: Buffer::FrameTlsPdu,
        direction: Direction::ToClient,
        begin: Some(5),
        size: None,
        is_complete: false,
    }
}

fn events() -> Vec<Event> {
    let record = Record::Http(Box::new(HttpRecord {
        hostname: b"host".to_vec(),
        url: b"/x".to_vec(),
        user_agent: Some(b"agent".to_vec()),
        status: Some(404),
        ..HttpRecord::default()
    }));
    let file = FileSummary {
        direction: Direction::ToClient,
        name: b"file".to_vec(),
        size: 5,
        state: FileState::Closed,
        has_gaps: false,
        magic: Some("PDF document"),
        hashes: Some(FileHashes {
            md5: [1; 16],
            sha1: [2; 20],
            sha256: [3; 32],
        }),
        is_stored: true,
        is_joined: true,
    };
    let alert = Alert {
        subject: subject(),
        sid: 1,
        gid: 2,
        rev: 3,
        rule: 4,
        action: Action::RejectBoth,
        packet_action: Action::DropPacket,
        app: None,
        transaction: Some(1),
        frame: Some(Box::new(frame())),
        tunnel: Some(Box::new(Tunnel {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            ports: Some((1, 4789)),
            protocol: 17,
            depth: 2,
        })),
        json: vec![FoundJson {
            is_extra: true,
            key: b"key".to_vec(),
            json: b"{}".to_vec(),
        }],
        captured: vec![(b"name".to_vec(), b"value".to_vec())],
        packet_variables: vec![(b"other".to_vec(), Vec::new())],
        evidence: Some(Box::new(Evidence {
            stream: Some(vec![8; 100]),
            packet: Some(vec![9; 100]),
            has_link: true,
        })),
        context: Some(Box::new(AlertContext {
            flow: flow(),
            direction: Direction::ToServer,
            record: record.clone(),
            files: vec![file.clone()],
            bits: vec![0, 70],
            counters: vec![(3, 9)],
            variables: vec![(b"name".to_vec(), b"value".to_vec())],
        })),
    };
    let mut events = vec![
        Event::Drop(
            subject(),
            DropReason::Rule,
            Some(Box::new(Alert {
                context: None,
                ..alert.clone()
            })),
        ),
        Event::Alert(alert),
        transaction(Record::None, vec![file]),
        Event::Flow(Box::new(flow()), FlowEnd::Evicted, FlowVariables::default()),
        Event::Flow(
            Box::new(flow()),
            FlowEnd::Reused,
            FlowVariables {
                bits: vec![1, 9],
                counters: vec![(2, 3)],
                variables: vec![(b"name".to_vec(), b"value".to_vec())],
            },
        ),
        Event::Frame(
            subject(),
            Box::new(FrameReport {
                view: frame(),
                app: AppProtocol::Tls,
                payload: vec![7; 1024],
            }),
        ),
        Event::Drop(subject(), DropReason::Policy(Cause::Midstream), None),
        Event::Anomaly(subject(), AppProtocol::Tls, vec!["tls.invalid_record_type"]),
        Event::File(FilePart {
            sha256: [4; 32],
            size: 3000,
            offset: 1024,
            bytes: vec![5; FILE_PART],
        }),
        Event::Packet(subject(), PacketEvents::from_bits([1, 0, 4, 0])),
        Event::Arp(
            subject(),
            ArpPacket {
                operation: 2,
                sender_mac: [1; 6],
                sender: [192, 0, 2, 1].into(),
                target_mac: [2; 6],
                target: [192, 0, 2, 2].into(),
            },
        ),
        Event::Set(SetChange {
            set: "seen".into(),
            value: b"value".to_vec(),
            is_added: true,
        }),
        Event::Exception(subject(), Cause::Overload, Policy::Bypass, None),
        Event::Exception(
            subject(),
            Cause::MatchLimit,
            Policy::DropFlow,
            Some(RuleId { gid: 1, sid: 2 }),
        ),
    ];
    events.extend(
        records()
            .into_iter()
            .map(|record| transaction(record, Vec::new())),
    );
    events
}

#[test]
fn events_come_out_as_they_went_in_and_cut_ones_not_at_all() {
    for event in events() {
        let mut bytes = Vec::new();
        let mut out = Output::new(&mut bytes, 4096);
        event.encode(&mut out);
        assert!(out.is_complete());
        let mut input = bytes.as_slice();
        assert_eq!(Event::decode(&mut input), Some(event.clone()));
        assert!(input.is_empty());
        for size in 0..bytes.len() {
            assert_eq!(Event::decode(&mut &bytes[..size]), None);
            let mut short = Vec::new();
            let mut out = Output::new(&mut short, size);
            event.encode(&mut out);
            assert!(!out.is_complete() && short.len() <= size);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_event_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _event = Event::decode(&mut bytes.as_slice());
    }
}

#[test]
fn a_usual_subject_has_the_encoding_of_its_fields() {
    let subject = Subject {
        packet: 1 << 40 | 7,
        time: millrace_types::Time::from_nanos(1_700_000_000_123_456_789),
        flow: 1 << 52 | 9,
        src: IpAddr::from([10, 0, 0, 1]),
        dst: IpAddr::from([192, 0, 2, 200]),
        ports: Some((50_000, 443)),
        protocol: 6,
        icmp: None,
        vlans: [7, 4094, 0],
        source: PacketSource::Gre,
    };
    let encoded = |value: &dyn Encode| {
        let mut bytes = Vec::new();
        value.write(&mut Output::new(&mut bytes, 1024));
        bytes
    };
    let parts = [
        encoded(&(subject.packet, subject.time, subject.flow)),
        encoded(&(subject.src, subject.dst, subject.ports)),
        encoded(&(subject.protocol, subject.icmp, subject.vlans)),
        encoded(&subject.source),
    ];
    assert_eq!(usual_subject(&subject).map(Vec::from), Some(parts.concat()));
    assert_eq!(encoded(&subject), parts.concat());
    assert_eq!(Subject::decode(&mut &parts.concat()[..]), Some(subject));
    let others = [
        Subject {
            ports: None,
            icmp: Some((8, 0)),
            ..subject
        },
        Subject {
            src: "2001:db8::1".parse().unwrap(),
            ..subject
        },
    ];
    for other in others {
        assert_eq!(usual_subject(&other), None);
        assert_eq!(Subject::decode(&mut &encoded(&other)[..]), Some(other));
    }
}
