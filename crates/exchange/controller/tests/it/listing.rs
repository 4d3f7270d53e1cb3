//! A listing is complete or ends with an error, however its bytes arrive.

use millrace_controller::assembly::{Assembly, AssemblyError};
use millrace_controller::{DumpError, DumpFilter, Event, Outcome, Progress, Settings, SubmitError};
use millrace_openflow::multipart::{MultipartReply, MultipartType, ReplyBody};
use millrace_openflow::*;
use millrace_types::*;
use proptest::prelude::*;

use crate::script::{Script, listed, port};

fn part(more: bool, numbers: core::ops::Range<u32>) -> MultipartReply {
    MultipartReply {
        more,
        body: ReplyBody::Flow(numbers.map(listed).collect()),
    }
}

fn begin(settings: Settings) -> (Script, Xid) {
    let mut script = Script::ready(settings);
    script.connection.dump(DumpFilter::ALL).unwrap();
    let xid = script.reply_until_flows();
    (script, xid)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_listing_equals_its_entries_however_it_is_split(
        sizes in proptest::collection::vec(0u32..40, 1..12),
        chunk in 1usize..3000,
        asynchronous in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let (mut script, xid) = begin(Settings::default());
        let total: u32 = sizes.iter().sum();
        let mut bytes = Vec::new();
        let mut next = 0;
        for (index, size) in sizes.iter().enumerate() {
            if asynchronous[index] {
                encode(&Message::EchoRequest(Box::default()), Xid(xid.0), &mut bytes).unwrap();
            }
            let reply = part(index + 1 < sizes.len(), next..next + size);
            encode(&Message::MultipartReply(reply), xid, &mut bytes).unwrap();
            next += size;
        }
        let mut outcome = None;
        for chunk in bytes.chunks(chunk) {
            prop_assert_eq!(&outcome, &None);
            script.connection.receive(chunk, script.now);
            outcome = script.outcome();
        }
        let Some(Outcome::Dump(Ok(dump))) = outcome else {
            panic!("{outcome:?}");
        };
        prop_assert_eq!(&dump.flows, &(0..total).map(listed).collect::<Vec<_>>());
        prop_assert_eq!(dump.into_entries().unwrap().len(), total as usize);
    }

    #[test]
    fn a_listing_that_is_cut_off_anywhere_is_an_error_and_never_a_short_listing(
        cut in 0.0f64..1.0,
        eof in any::<bool>(),
    ) {
        let (mut script, xid) = begin(Settings { echo_interval: None, ..Settings::default() });
        let mut bytes = Vec::new();
        for number in 0..10 {
            encode(&Message::MultipartReply(part(number < 9, number * 8..number * 8 + 8)), xid, &mut bytes).unwrap();
        }
        let cut = (bytes.len() as f64 * cut) as usize;
        script.connection.receive(&bytes[..cut], script.now);
        prop_assert_eq!(script.progress(), []);
        let reason = if eof {
            millrace_controller::CloseReason::Eof
        } else {
            script.now = Time::from_secs(60);
            millrace_controller::CloseReason::OperationTimeout { operation: "listing" }
        };
        match eof {
            true => script.connection.close(reason.clone()),
            false => script.connection.tick(script.now),
        }
        let progress = script.progress();
        let expected = Outcome::Dump(Err(DumpError::Closed(reason.clone())));
        prop_assert!(matches!(&progress[..], [Progress::Done(_, outcome), Progress::Closed(closed)]
            if *outcome == expected && *closed == reason), "{:?}", progress);
    }
}

fn failure(script: &mut Script) -> DumpError {
    match script.outcome() {
        Some(Outcome::Dump(Err(error))) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_xid_a_changed_type_too_many_bytes_and_undecodable_items_are_named() {
    let (mut script, xid) = begin(Settings::default());
    script.say(Xid(xid.0 + 1), &Message::MultipartReply(part(false, 0..1)));
    let expected = AssemblyError::UnexpectedXid {
        xid: xid.0 + 1,
        found: MultipartType::Flow,
    };
    assert_eq!(failure(&mut script), DumpError::Assembly(expected));

    let (mut script, xid) = begin(Settings::default());
    script.say(xid, &Message::MultipartReply(part(true, 0..1)));
    let table = MultipartReply::new(ReplyBody::Table(vec![]));
    script.say(xid, &Message::MultipartReply(table));
    let expected = AssemblyError::TypeChanged {
        expected: MultipartType::Flow,
        found: MultipartType::Table,
    };
    assert_eq!(failure(&mut script), DumpError::Assembly(expected));

    let settings = Settings {
        max_dump_size: 5000,
        ..Settings::default()
    };
    let (mut script, xid) = begin(settings);
    for _ in 0..10 {
        script.say(xid, &Message::MultipartReply(part(true, 0..8)));
    }
    let expected = AssemblyError::TooLarge {
        type_: MultipartType::Flow,
        max: 5000,
    };
    assert_eq!(failure(&mut script), DumpError::Assembly(expected));
    assert!(script.connection.counters().late > 0, "later parts are dropped");

    let (mut script, xid) = begin(Settings::default());
    let mut bytes = Vec::new();
    encode(&Message::MultipartReply(part(false, 0..1)), xid, &mut bytes).unwrap();
    // The length field of the entry is less than the size of the entry's header.
    bytes[17] = 4;
    script.connection.receive(&bytes, script.now);
    assert!(matches!(
        failure(&mut script),
        DumpError::Malformed {
            part: MultipartType::Flow,
            ..
        }
    ));
}

#[test]
fn late_parts_of_a_failed_listing_do_not_disturb_the_next_one() {
    let (mut script, xid) = begin(Settings::default());
    let table = MultipartReply::new(ReplyBody::Table(vec![]));
    script.say(xid, &Message::MultipartReply(table));
    failure(&mut script);
    script.connection.dump(DumpFilter::ALL).unwrap();
    let next = script.reply_until_flows();
    script.say(xid, &Message::MultipartReply(part(false, 0..100)));
    assert_eq!(script.progress(), []);
    script.say(next, &Message::MultipartReply(part(false, 0..3)));
    match script.outcome() {
        Some(Outcome::Dump(Ok(dump))) => assert_eq!(dump.flows.len(), 3),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ports_of_a_listing_come_in_order_with_changes_of_ports() {
    let mut script = Script::ready(Settings::default());
    script.connection.dump(DumpFilter::ALL).unwrap();
    let ports = vec![port(PortState::NONE)];
    let reply = MultipartReply::new(ReplyBody::PortDesc(ports.clone()));
    script.reply(MultipartType::PortDesc, vec![reply]);
    let status = PortStatus {
        reason: PortReason::Modify,
        port: port(PortState::LIVE),
    };
    script.say(Xid(0), &Message::PortStatus(status.clone()));
    let meters = MultipartReply::new(ReplyBody::MeterConfig(vec![]));
    script.reply(MultipartType::MeterConfig, vec![meters]);
    let groups = MultipartReply::new(ReplyBody::GroupDesc(vec![]));
    script.reply(MultipartType::GroupDesc, vec![groups]);
    let flows = MultipartReply::new(ReplyBody::Flow(vec![]));
    script.reply(MultipartType::Flow, vec![flows]);
    assert!(matches!(script.outcome(), Some(Outcome::Dump(Ok(_)))));
    let events: Vec<_> = std::iter::from_fn(|| script.connection.poll_event()).collect();
    assert_eq!(events, [Event::PortsListed(ports), Event::PortStatus(status)]);
}

#[test]
fn a_refused_part_fails_the_listing_but_a_switch_may_have_no_meters() {
    let mut script = Script::ready(Settings::default());
    script.connection.dump(DumpFilter::ALL).unwrap();
    let ports = MultipartReply::new(ReplyBody::PortDesc(vec![]));
    script.reply(MultipartType::PortDesc, vec![ports]);
    let meters = script.asked(MultipartType::MeterConfig);
    script.refuse(meters, ErrorCode::OFPBRC_BAD_MULTIPART);
    let groups = script.asked(MultipartType::GroupDesc);
    script.refuse(groups, ErrorCode::OFPBRC_EPERM);
    let expected = DumpError::Refused {
        part: MultipartType::GroupDesc,
        code: ErrorCode::OFPBRC_EPERM,
    };
    assert_eq!(failure(&mut script), expected);
}

#[test]
fn an_entry_that_is_listed_twice_is_named() {
    let (mut script, xid) = begin(Settings::default());
    let twice = MultipartReply::new(ReplyBody::Flow(vec![listed(1), listed(2), listed(1)]));
    script.say(xid, &Message::MultipartReply(twice));
    let Some(Outcome::Dump(Ok(dump))) = script.outcome() else {
        panic!("no listing");
    };
    let error = dump.into_entries().unwrap_err();
    assert_eq!(error.0.matching, listed(1).match_);
    assert!(error.to_string().contains("table 0"), "{error}");
}

#[test]
fn operations_run_in_order_and_only_so_many_wait() {
    let settings = Settings {
        max_operations: 3,
        ..Settings::default()
    };
    let mut script = Script::ready(settings);
    let ids: Vec<_> = (0..3)
        .map(|_| script.connection.request(Message::BarrierRequest).unwrap())
        .collect();
    assert_eq!(
        script.connection.request(Message::BarrierRequest),
        Err(SubmitError::Busy { max: 3 })
    );
    for id in ids {
        assert_eq!(script.progress(), []);
        let (xid, _) = script.sent().remove(0);
        script.say(xid, &Message::BarrierReply);
        let progress = script.progress();
        assert!(matches!(&progress[..], [Progress::Done(done, Outcome::Reply(Ok(_)))] if *done == id));
    }
}

#[test]
fn the_updates_of_a_flow_monitor_are_events() {
    use millrace_openflow::flow_monitor::*;
    use millrace_openflow::multipart::{MultipartRequest, RequestBody, SegmentWriter};

    let mut script = Script::ready(Settings::default());
    let monitor = FlowMonitorRequest {
        id: 3,
        flags: FlowMonitorFlags::ALL,
        out_port: PortNo::ANY,
        table: TableId::ALL,
        match_: listed(1).match_,
    };
    let asked = FlowMonitorRequest::encode_all(std::slice::from_ref(&monitor));
    assert_eq!(FlowMonitorRequest::decode_all(&asked.data), Ok(vec![monitor]));
    let request = MultipartRequest::new(RequestBody::Experimenter(asked));
    script
        .connection
        .request(Message::MultipartRequest(request))
        .unwrap();
    let xid = script.asked(MultipartType::Experimenter);
    let update = |event| {
        FlowUpdate::Full(FlowUpdateFull {
            event,
            table: TableId(3),
            priority: Priority(9),
            idle_timeout: 1,
            hard_timeout: 2,
            cookie: Cookie(5),
            match_: listed(4).match_,
            instructions: Some(listed(4).instructions),
        })
    };
    let mut say = |xid, updates: &[FlowUpdate]| {
        let mut writer = SegmentWriter::flow_updates(xid);
        let mut bytes = Vec::new();
        for update in updates {
            writer.push(update, &mut bytes);
        }
        writer.finish(&mut bytes);
        script.connection.receive(&bytes, Time::ZERO);
        (script.outcome(), script.connection.poll_event())
    };
    let initial = vec![update(FlowUpdateEvent::Added), update(FlowUpdateEvent::Modified)];
    // Updates that arrive before the reply do not end the request.
    let early = vec![FlowUpdate::Abbreviated(Xid(44))];
    assert_eq!(
        say(Xid(0), &early),
        (None, Some(Event::FlowUpdates(early.clone())))
    );
    let (outcome, event) = say(xid, &initial);
    assert!(matches!(outcome, Some(Outcome::Reply(Ok(_)))), "{outcome:?}");
    assert_eq!(event, Some(Event::FlowUpdates(initial)));
    let later = vec![update(FlowUpdateEvent::Deleted(FlowRemovedReason::HardTimeout))];
    assert_eq!(say(Xid(0), &later), (None, Some(Event::FlowUpdates(later))));
}

#[test]
fn an_assembly_has_the_items_of_all_messages_and_nothing_before_the_last() {
    let mut assembly = Assembly::new(Xid(1), MultipartType::Flow, 1000);
    assert_eq!(assembly.add(Xid(1), part(true, 0..2), 100), Ok(None));
    assert_eq!(assembly.add(Xid(1), part(true, 2..2), 16), Ok(None));
    let all = ReplyBody::Flow((0..3).map(listed).collect());
    assert_eq!(assembly.add(Xid(1), part(false, 2..3), 100), Ok(Some(all)));
}
