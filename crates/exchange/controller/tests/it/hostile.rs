//! Switches that violate the protocol, send too much, or send nothing.

use millrace_controller::{CloseReason, Connection, Event, Progress, Settings};
use millrace_openflow::*;
use millrace_types::*;

use crate::script::{Script, features, port};

fn closed(script: &mut Script) -> CloseReason {
    match script.progress().pop() {
        Some(Progress::Closed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn fresh() -> Script {
    Script {
        connection: Connection::new(Settings::default(), Time::ZERO),
        now: Time::ZERO,
    }
}

#[test]
fn the_handshake_ends_with_a_reason() {
    let mut script = fresh();
    let mut bytes = Vec::new();
    encode(
        &Message::Hello(Hello {
            versions: Some(1 << 1),
        }),
        Xid(1),
        &mut bytes,
    )
    .unwrap();
    bytes[0] = 1;
    script.connection.receive(&bytes, Time::ZERO);
    assert_eq!(closed(&mut script), CloseReason::Incompatible { version: 1 });
    let sent = script.sent();
    assert!(
        sent.iter().any(|(_, message)| matches!(message, Message::Error(error) if error.code == ErrorCode::OFPHFC_INCOMPATIBLE)),
        "{sent:?}"
    );

    let mut script = fresh();
    script.say(Xid(1), &Message::BarrierReply);
    assert_eq!(closed(&mut script), CloseReason::NotHello { type_: 21 });

    let mut script = fresh();
    script.connection.receive(&[4, 0, 0, 7, 0, 0, 0, 0], Time::ZERO);
    assert_eq!(closed(&mut script), CloseReason::Framing { length: 7 });

    let mut script = fresh();
    script.say(Xid(1), &Message::Hello(Hello::OURS));
    assert_eq!(script.progress(), []);
    let (xid, _) = script.sent().pop().unwrap();
    let auxiliary = SwitchFeatures {
        auxiliary_id: 2,
        ..features()
    };
    script.say(xid, &Message::FeaturesReply(auxiliary));
    assert_eq!(closed(&mut script), CloseReason::Auxiliary { id: 2 });

    // Repeated HELLO messages alone do not complete the handshake.
    let mut script = fresh();
    for second in 0..10 {
        script.now = Time::from_secs(second);
        script.say(Xid(1), &Message::Hello(Hello::OURS));
        script.connection.tick(script.now);
        assert_eq!(script.progress(), []);
    }
    script.connection.tick(Time::from_secs(10));
    assert_eq!(closed(&mut script), CloseReason::HandshakeTimeout);
}

#[test]
fn a_silent_switch_is_asked_and_then_given_up() {
    let mut script = Script::ready(Settings::default());
    let mut asked = 0;
    loop {
        script.now = script.connection.deadline().unwrap();
        script.connection.tick(script.now);
        let sent = script.connection.output().len();
        if sent == 0 {
            break;
        }
        assert!(matches!(script.sent()[..], [(_, Message::EchoRequest(_))]));
        asked += 1;
    }
    assert_eq!(closed(&mut script), CloseReason::EchoTimeout);
    assert_eq!((asked, script.now), (2, Time::from_secs(15)));
}

#[test]
fn echo_requests_are_answered_and_a_flood_without_a_reader_ends_the_connection() {
    let mut script = Script::ready(Settings::default());
    script.say(Xid(9), &Message::EchoRequest([1, 2, 3].into()));
    assert_eq!(script.progress(), []);
    assert_eq!(script.sent(), [(Xid(9), Message::EchoReply([1, 2, 3].into()))]);
    let data: Box<[u8]> = vec![0; 60_000].into();
    for _ in 0..30 {
        script.say(Xid(9), &Message::EchoRequest(data.clone()));
        if let Some(Progress::Closed(reason)) = script.progress().pop() {
            assert_eq!(reason, CloseReason::NotReading);
            assert!(script.connection.output().len() < 1_200_000);
            return;
        }
    }
    panic!("the connection is open");
}

#[test]
fn events_that_nobody_takes_are_counted_and_packets_do_not_displace_ports() {
    let settings = Settings {
        max_events_size: 100_000,
        ..Settings::default()
    };
    let mut script = Script::ready(settings);
    let packet = Message::PacketIn(PacketIn {
        buffer: BufferId::NONE,
        total_len: 1000,
        reason: PacketInReason::Action,
        table: TableId(0),
        cookie: Cookie(0),
        match_: millrace_flow::Match::exact(&[(millrace_flow::Field::InPort, 1)]).unwrap(),
        data: vec![0; 1000].into(),
    });
    for _ in 0..1000 {
        script.say(Xid(0), &packet);
    }
    let status = Message::PortStatus(PortStatus {
        reason: PortReason::Modify,
        port: port(PortState::LIVE),
    });
    script.say(Xid(0), &status);
    assert_eq!(script.progress(), []);
    let mut packets = 0;
    let mut ports = 0;
    let mut lost = 0;
    while let Some(event) = script.connection.poll_event() {
        match event {
            Event::PacketIn(_) => packets += 1,
            Event::PortStatus(_) => ports += 1,
            Event::Lost(counts) => {
                assert_eq!(counts.state, 0);
                lost += counts.packet_in;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(packets > 10 && packets < 60, "{packets}");
    assert_eq!((packets + lost, ports), (1000, 1));
}

#[test]
fn messages_that_answer_nothing_are_counted_and_ignored() {
    let mut script = Script::ready(Settings::default());
    script.say(Xid(3), &Message::BarrierReply);
    script.say(Xid(3), &crate::script::add(1));
    script.connection.receive(&[4, 99, 0, 8, 0, 0, 0, 3], script.now);
    script.refuse(Xid(3), ErrorCode::OFPBRC_EPERM);
    assert_eq!(script.progress(), []);
    let counters = script.connection.counters();
    assert_eq!((counters.unexpected, counters.undecodable), (2, 1));
    assert!(matches!(
        script.connection.poll_event(),
        Some(Event::Error { xid: Xid(3), .. })
    ));
}

#[test]
fn an_operation_that_is_never_answered_ends_the_connection_though_the_switch_is_alive() {
    let mut script = Script::ready(Settings::default());
    script.connection.request(Message::BarrierRequest).unwrap();
    assert_eq!(script.progress(), []);
    for second in 1..=30 {
        script.now = Time::from_secs(second);
        script.say(Xid(1), &Message::EchoRequest(Box::default()));
        script.connection.tick(script.now);
        if second < 30 {
            assert_eq!(script.progress(), []);
        }
    }
    assert_eq!(
        closed(&mut script),
        CloseReason::OperationTimeout { operation: "request" }
    );
}
