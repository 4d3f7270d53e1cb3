//! A switch and its controllers over real sockets: requests, asynchronous messages, and connections.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::net::TcpListener;

use crate::harness::{
    Controller, PATIENCE, SILENCE, TestSwitch, config, flow, output, packet, patch, wait_for, without_echo,
};
use millrace_agent::channel::ChannelKind;
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_openflow::multipart::desc::Desc;
use millrace_openflow::multipart::flow::{FlowStats, FlowStatsRequest};
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::*;
use millrace_types::*;

fn multipart(controller: &mut Controller, body: RequestBody) -> Vec<ReplyBody> {
    let xid = controller.send(&Message::MultipartRequest(MultipartRequest::new(body)));
    let mut parts = Vec::new();
    loop {
        match controller.receive().unwrap() {
            (header, Message::MultipartReply(MultipartReply { more, body })) if header.xid == xid => {
                parts.push(body);
                if !more {
                    return parts;
                }
            }
            (_, Message::Error(error)) => panic!("{}", error.code),
            _ => {}
        }
    }
}

pub(crate) fn flows(controller: &mut Controller) -> Vec<FlowStats> {
    let mut flows = Vec::new();
    for part in multipart(controller, RequestBody::Flow(FlowStatsRequest::all())) {
        let ReplyBody::Flow(mut part) = part else {
            panic!("{part:?}")
        };
        flows.append(&mut part);
    }
    flows
}

fn packet_in(controller: &mut Controller) -> PacketIn {
    match controller.receive().unwrap().1 {
        Message::PacketIn(packet) => packet,
        other => panic!("{other}"),
    }
}

const TO_CONTROLLER: Action = Action::output(PortNo::CONTROLLER);

#[test]
fn a_switch_says_who_it_is() {
    let switch = TestSwitch::start(&config(2, "dpid = \"2a\"\ntables = 3"));
    let mut controller = switch.controller();
    let Message::FeaturesReply(features) = controller.ask(&Message::FeaturesRequest) else {
        panic!()
    };
    assert_eq!((features.dpid, features.tables), (Dpid(0x2a), 3));
    let desc = multipart(&mut controller, RequestBody::Desc);
    let expected = Desc {
        manufacturer: "Millrace".to_owned(),
        hardware: "x86-64 server".to_owned(),
        software: format!("Millrace {}", env!("CARGO_PKG_VERSION")),
        serial: "None".to_owned(),
        datapath: "br0".to_owned(),
    };
    assert_eq!(desc, [ReplyBody::Desc(Box::new(expected))]);
    let [ReplyBody::PortDesc(ports)] = &multipart(&mut controller, RequestBody::PortDesc)[..] else {
        panic!()
    };
    let names: Vec<_> = ports
        .iter()
        .map(|port| (port.number.raw(), &port.name[..]))
        .collect();
    assert_eq!(names, [(1, "p1"), (2, "p2")]);
    let [ReplyBody::TableFeatures(tables)] =
        &multipart(&mut controller, RequestBody::TableFeatures(Vec::new()))[..]
    else {
        panic!()
    };
    assert_eq!(tables.len(), 3);
}

#[test]
fn flow_entries_forward_are_counted_listed_and_deleted() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    controller.add([patch(1, 2)]);
    let frame = packet(100);
    for _ in 0..5 {
        assert!(switch.peer(1).send(&frame));
        assert_eq!(switch.peer(2).receive_within(PATIENCE), Some(frame.clone()));
    }
    let counted = wait_for("the counters", || {
        let entry = flows(&mut controller).remove(0);
        (entry.packets == 5).then_some(entry)
    });
    assert_eq!((counted.bytes, counted.priority), (500, Priority(10)));
    let aggregate = multipart(&mut controller, RequestBody::Aggregate(FlowStatsRequest::all()));
    let [ReplyBody::Aggregate(sum)] = aggregate[..] else {
        panic!()
    };
    assert_eq!((sum.packets, sum.bytes, sum.flows), (5, 500, 1));
    controller.add([FlowMod::delete(TableId::ALL, Match::any())]);
    assert_eq!(flows(&mut controller), []);
    assert!(switch.peer(1).send(&frame));
    assert_eq!(switch.peer(2).receive_within(SILENCE), None);
}

#[test]
fn a_table_miss_asks_the_controller_whose_packet_out_answers() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    controller.add([flow(0, &[], &[TO_CONTROLLER])]);
    let frame = packet(200);
    switch.peer(1).send(&frame);
    let asked = packet_in(&mut controller);
    assert_eq!(asked.reason, PacketInReason::NoMatch);
    assert_eq!(asked.buffer, BufferId::NONE);
    assert_eq!(asked.match_, Match::exact(&[(Field::InPort, 1)]).unwrap());
    assert_eq!((&asked.data[..], asked.total_len), (&frame[..], 200));
    controller.send(&Message::PacketOut(PacketOut {
        buffer: BufferId::NONE,
        in_port: PortNo::from_raw(1),
        actions: [Action::output(PortNo::FLOOD)].into(),
        data: asked.data,
    }));
    assert_eq!(switch.peer(2).receive_within(PATIENCE), Some(frame));
    assert_eq!(switch.peer(1).receive_within(SILENCE), None);
}

#[test]
fn a_controller_that_asks_for_the_head_sends_the_rest_by_its_number() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    let head = Action::Output {
        port: PortNo::CONTROLLER,
        max_len: 64,
    };
    controller.add([flow(0, &[], &[head])]);
    let frame = packet(300);
    switch.peer(1).send(&frame);
    let asked = packet_in(&mut controller);
    assert_eq!((asked.data.len(), asked.total_len), (64, 300));
    // A flow_mod that names the buffer sends the packet through the tables.
    let mut entry = patch(1, 2);
    entry.buffer = asked.buffer;
    controller.add([entry]);
    assert_eq!(switch.peer(2).receive_within(PATIENCE), Some(frame));
    let again = Message::PacketOut(PacketOut {
        buffer: asked.buffer,
        in_port: PortNo::from_raw(1),
        actions: [output(2)].into(),
        data: Box::default(),
    });
    assert_eq!(controller.error_of(&again), ErrorCode::OFPBRC_BUFFER_EMPTY);
}

#[test]
fn a_refused_request_is_answered_with_its_error_and_its_first_bytes() {
    let switch = TestSwitch::start(&config(1, "tables = 4"));
    let mut controller = switch.controller();
    let mut goto_back = flow(1, &[], &[]);
    goto_back.table = TableId(2);
    goto_back.instructions = Instructions::goto(TableId(2));
    let mut no_table = flow(1, &[], &[]);
    no_table.table = TableId(4);
    let set_without_ip = flow(
        1,
        &[],
        &[Action::SetField(
            millrace_flow::SetField::new(Field::Ipv4Src, 1).unwrap(),
        )],
    );
    let group = flow(1, &[], &[Action::Group(GroupId(1))]);
    let mut meter = flow(1, &[], &[]);
    meter.instructions.meter = Some(MeterId(1));
    let to_table = flow(1, &[], &[Action::output(PortNo::TABLE)]);
    for (request, code) in [
        (goto_back, ErrorCode::OFPBIC_BAD_TABLE_ID),
        (no_table, ErrorCode::OFPFMFC_BAD_TABLE_ID),
        (set_without_ip, ErrorCode::OFPBAC_MATCH_INCONSISTENT),
        (group, ErrorCode::OFPBAC_BAD_OUT_GROUP),
        (meter, ErrorCode::OFPMMFC_INVALID_METER),
        (to_table, ErrorCode::OFPBAC_BAD_OUT_PORT),
    ] {
        let request = Message::FlowMod(request);
        assert_eq!(controller.error_of(&request), code);
    }
    let request = Message::PacketOut(PacketOut {
        buffer: BufferId::NONE,
        in_port: PortNo::CONTROLLER,
        actions: [output(1)].into(),
        data: [1, 2, 3].into(),
    });
    let Message::Error(error) = controller.ask(&request) else {
        panic!()
    };
    assert_eq!(error.code, ErrorCode::OFPBRC_BAD_PACKET);
    let mut bytes = Vec::new();
    encode(&request, Xid(0), &mut bytes).unwrap();
    assert_eq!(error.data[8..], bytes[8..]);
    let group = Message::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        type_: GroupType::Indirect,
        group: GroupId(1),
        buckets: Box::default(),
    });
    assert_eq!(controller.error_of(&group), ErrorCode::OFPGMFC_INVALID_GROUP);
    let unknown = Message::Experimenter(Experimenter {
        experimenter: 0x2320,
        exp_type: 1,
        data: Box::default(),
    });
    assert_eq!(controller.error_of(&unknown), ErrorCode::OFPBRC_BAD_EXPERIMENTER);
}

#[test]
fn a_slave_is_refused_writes_until_it_is_master_and_a_stale_election_is_refused() {
    let switch = TestSwitch::start(&config(2, ""));
    let (mut one, mut two) = (switch.controller(), switch.controller());
    let ask = |controller: &mut Controller, role, generation_id| {
        controller.ask(&Message::RoleRequest(RoleMessage { role, generation_id }))
    };
    let reply = ask(&mut one, RequestedRole::Master, 1);
    assert!(matches!(
        reply,
        Message::RoleReply(RoleMessage {
            role: RequestedRole::Master,
            ..
        })
    ));
    ask(&mut two, RequestedRole::Master, 2);
    // The first controller was demoted.
    let write = Message::FlowMod(patch(1, 2));
    assert_eq!(one.error_of(&write), ErrorCode::OFPBRC_IS_SLAVE);
    two.add([patch(1, 2)]);
    assert_eq!(flows(&mut one).len(), 1);
    // The handling of fragments belongs to the switch.
    let fragments = |controller: &mut Controller| match controller.ask(&Message::GetConfigRequest) {
        Message::GetConfigReply(config) => config.fragments,
        other => panic!("{other}"),
    };
    for (controller, handling) in [
        (&mut two, FragmentHandling::Drop),
        (&mut one, FragmentHandling::Normal),
    ] {
        controller.send(&Message::SetConfig(SwitchConfig {
            fragments: handling,
            miss_send_len: 128,
        }));
        controller.barrier();
    }
    assert_eq!(fragments(&mut two), FragmentHandling::Drop);
    let stale = Message::RoleRequest(RoleMessage {
        role: RequestedRole::Master,
        generation_id: 1,
    });
    assert_eq!(one.error_of(&stale), ErrorCode::OFPRRFC_STALE);
    // A slave gets port_status only, a master gets packet_in, too.
    two.add([flow(0, &[], &[TO_CONTROLLER])]);
    switch.peer(2).send(&packet(60));
    packet_in(&mut two);
    assert_eq!(one.unasked(), None);
    let roles: Vec<_> = switch
        .channels()
        .iter()
        .filter_map(|status| status.role)
        .collect();
    assert_eq!(roles, [roles::Role::Slave, roles::Role::Master]);
}

#[test]
fn a_controller_gets_the_asynchronous_messages_that_it_asked_for() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    let Message::GetAsyncReply(mut wanted) = controller.ask(&Message::GetAsyncRequest) else {
        panic!()
    };
    assert_eq!(wanted, AsyncConfig::default());
    wanted.master.packet_in = 0;
    wanted.master.flow_removed = 1 << FlowRemovedReason::HardTimeout.raw();
    controller.send(&Message::SetAsync(wanted));
    let mut deleted = patch(1, 2);
    deleted.flags = FlowModFlags::SEND_FLOW_REM;
    let mut timed = patch(2, 1);
    timed.flags = FlowModFlags::SEND_FLOW_REM;
    timed.hard_timeout = 1;
    timed.cookie = Cookie(77);
    controller.add([deleted, timed, flow(0, &[], &[TO_CONTROLLER])]);
    let mut delete = FlowMod::delete(TableId(0), Match::exact(&[(Field::InPort, 1)]).unwrap());
    delete.command = FlowModCommand::Delete;
    controller.add([delete]);
    switch.peer(1).send(&packet(60));
    match controller.receive().unwrap().1 {
        Message::FlowRemoved(removed) => {
            assert_eq!(removed.cookie, Cookie(77));
            assert_eq!(removed.reason, FlowRemovedReason::HardTimeout);
            assert!(removed.duration >= Duration::from_secs(1));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_controller_reads_back_its_own_configuration() {
    let switch = TestSwitch::start(&config(1, "miss_send_len = 99"));
    let (mut one, mut two) = (switch.controller(), switch.controller());
    let wanted = SwitchConfig {
        fragments: FragmentHandling::Normal,
        miss_send_len: 0xffff,
    };
    one.send(&Message::SetConfig(wanted));
    assert_eq!(
        one.ask(&Message::GetConfigRequest),
        Message::GetConfigReply(wanted)
    );
    let Message::GetConfigReply(other) = two.ask(&Message::GetConfigRequest) else {
        panic!()
    };
    assert_eq!(other.miss_send_len, 99);
    let reassemble = SwitchConfig {
        fragments: FragmentHandling::Reassemble,
        ..wanted
    };
    two.send(&Message::SetConfig(reassemble));
    two.barrier();
    // The handling of fragments belongs to the switch.
    assert_eq!(
        one.ask(&Message::GetConfigRequest),
        Message::GetConfigReply(reassemble)
    );
}

#[test]
fn a_controller_that_does_not_read_loses_packet_ins_and_nobody_else_does() {
    let switch = TestSwitch::start(&without_echo(&config(1, "packet_in_rate = 0")));
    let (deaf, mut reading) = (switch.controller_with_small_buffer(), switch.controller());
    reading.add([flow(0, &[], &[TO_CONTROLLER])]);
    let frame = packet(1400);
    let dropped = || -> Vec<u64> {
        let channels = switch.channels().into_iter();
        channels
            .map(|status| status.dropped)
            .filter(|dropped| *dropped > 0)
            .collect()
    };
    let mut sent = 0;
    let mut exchange = |packets: u64| {
        for _ in 0..packets {
            assert!(switch.peer(1).send(&frame));
            let received = packet_in(&mut reading);
            assert_eq!(received.data.len(), 1400, "packet {sent}");
            sent += 1;
        }
        sent
    };
    // The outbox takes 1 MiB, the connection 1 MiB, and the socket of the sender 4 MiB by default.
    while dropped().is_empty() {
        assert!(exchange(100) < 100_000, "no packet-in is dropped");
    }
    let sent = exchange(100);
    let dropped = dropped();
    assert!(
        matches!(dropped[..], [dropped] if dropped < sent),
        "{dropped:?} of {sent}"
    );
    drop(deaf);
    reading.barrier();
}

#[test]
fn ports_that_come_go_and_change_are_reported() {
    let mut switch = TestSwitch::start(&config(1, ""));
    let mut controller = switch.controller();
    let status = |controller: &mut Controller| match controller.receive().unwrap().1 {
        Message::PortStatus(status) => status,
        other => panic!("{other}"),
    };
    switch.apply(&config(2, ""));
    let added = status(&mut controller);
    assert_eq!((added.reason, added.port.number.raw()), (PortReason::Add, 2));
    let mut change = PortMod {
        number: PortNo::from_raw(2),
        mac: added.port.mac,
        config: PortConfig::NO_FWD,
        mask: PortConfig::NO_FWD,
        advertise: PortFeatures::NONE,
    };
    controller.send(&Message::PortMod(change));
    let changed = status(&mut controller);
    assert_eq!(
        (changed.reason, changed.port.config),
        (PortReason::Modify, PortConfig::NO_FWD)
    );
    controller.add([patch(1, 2)]);
    switch.peer(1).send(&packet(60));
    assert_eq!(switch.peer(2).receive_within(SILENCE), None);
    change.mac = Mac([9; 6]);
    assert_eq!(
        controller.error_of(&Message::PortMod(change)),
        ErrorCode::OFPPMFC_BAD_HW_ADDR
    );
    change.number = PortNo::from_raw(9);
    assert_eq!(
        controller.error_of(&Message::PortMod(change)),
        ErrorCode::OFPPMFC_BAD_PORT
    );
    switch.apply(&config(1, ""));
    let gone = status(&mut controller);
    assert_eq!((gone.reason, gone.port.number.raw()), (PortReason::Delete, 2));
}

#[test]
fn packet_ins_beyond_the_limit_are_dropped_by_name() {
    let switch = TestSwitch::start(&config(1, "packet_in_rate = 1\npacket_in_burst = 3"));
    let mut controller = switch.controller();
    controller.add([flow(0, &[], &[TO_CONTROLLER])]);
    for _ in 0..50 {
        switch.peer(1).send(&packet(60));
    }
    for _ in 0..3 {
        packet_in(&mut controller);
    }
    let limited = wait_for("the drops", || {
        let drops = switch
            .switch
            .bridge("br0")
            .unwrap()
            .call_blocking(|bridge| {
                bridge
                    .tables()
                    .drops(millrace_pipeline::DropReason::PacketInLimit)
            })
            .unwrap();
        (drops >= 45).then_some(drops)
    });
    assert!(limited <= 47, "{limited}");
}

#[test]
fn a_configured_controller_is_called_again_and_a_standalone_bridge_learns_meanwhile() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap());
    let settings = format!("fail_mode = \"standalone\"\ncontrollers = [\"{target}\"]");
    let switch = TestSwitch::start(&config(2, &settings));
    let mut controller = Controller::on(listener.accept().unwrap().0);
    let frame = packet(80);
    switch.peer(1).send(&frame);
    assert_eq!(
        switch.peer(2).receive_within(SILENCE),
        None,
        "under a controller, nothing matches"
    );
    controller.add([flow(5, &[(Field::InPort, 2)], &[output(1)])]);
    drop(controller);
    wait_for("the learning bridge", || {
        switch.peer(1).send(&frame);
        switch.peer(2).receive_within(SILENCE)
    });
    // The switch may already connect again.
    wait_for("the reason of the end", || {
        let mut channels = switch.channels().into_iter();
        let status = channels.find(|status| status.kind == ChannelKind::Active)?;
        (status.last_error.as_deref() == Some("the controller closed the connection")).then_some(())
    });
    let mut controller = Controller::on(listener.accept().unwrap().0);
    assert_eq!(
        flows(&mut controller).len(),
        1,
        "flow entries outlive the connection"
    );
    while switch.peer(2).receive().is_some() {}
    switch.peer(1).send(&frame);
    assert_eq!(switch.peer(2).receive_within(SILENCE), None);
}

#[test]
fn channels_follow_the_configuration_while_the_switch_runs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("controllers = [\"tcp:{}\"]", listener.local_addr().unwrap());
    let mut switch = TestSwitch::start(&config(1, ""));
    let mut beside = switch.controller();
    switch.apply(&config(1, &target));
    let mut controller = Controller::on(listener.accept().unwrap().0);
    controller.barrier();
    switch.apply(&config(1, ""));
    assert_eq!(controller.receive(), None, "the connection is closed");
    beside.barrier();
    let two = format!("{}[[bridge]]\nname = \"br1\"\n", config(1, ""));
    switch.apply(&two);
    assert_eq!(switch.switch.bridge_names(), ["br0", "br1"]);
    beside.barrier();
}

#[test]
fn a_listener_that_cannot_be_bound_is_a_problem_with_its_next_step_and_is_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let with = |port| config(1, "").replace("ptcp:0", &format!("ptcp:{port}"));
    let mut switch = TestSwitch::start(&config(1, ""));
    let status = switch.apply(&with(port));
    let [problem] = &status.problems[..] else {
        panic!("{status:?}")
    };
    assert_eq!(
        problem.object,
        format!("bridge br0, listener ptcp:{port}:127.0.0.1")
    );
    assert!(
        problem.reason.contains("end that, or choose another port"),
        "{}",
        problem.reason
    );
    drop(taken);
    assert_eq!(switch.apply(&with(port)).problems, []);
    switch.controller().barrier();
    // The new listener has the same address and other settings. The old listener releases the address.
    let changed = with(port).replace(
        &format!("listen = [\"ptcp:{port}\"]"),
        &format!("listen = [{{ target = \"ptcp:{port}\", echo_interval_s = 1 }}]"),
    );
    assert_eq!(switch.apply(&changed).problems, []);
    switch.controller().barrier();
}

#[test]
fn a_silent_controller_is_disconnected_and_one_that_answers_is_kept() {
    let text = config(1, "").replace("\"ptcp:0\"", "{ target = \"ptcp:0\", echo_interval_s = 1 }");
    let switch = TestSwitch::start(&text);
    // On a busy machine, the answering controller may itself be silent for too long. The test then tries
    // again.
    let is_kept = (0..5).any(|_| {
        let start = std::time::Instant::now();
        let (mut silent, mut answering) = (switch.controller(), switch.controller());
        let kept = std::thread::spawn(move || {
            let (mut last, mut longest) = (start, core::time::Duration::ZERO);
            let mut outcome = Ok(None);
            while matches!(outcome, Ok(None)) && start.elapsed() < Duration::from_secs(4) {
                outcome = answering.poll();
                longest = longest.max(last.elapsed());
                last = std::time::Instant::now();
            }
            (outcome, longest)
        });
        // The switch sends an echo request, and then closes the connection.
        assert!(silent.receive_bytes().is_some());
        assert_eq!(silent.receive_bytes(), None);
        let (outcome, longest) = kept.join().unwrap();
        if outcome.is_err() && longest > core::time::Duration::from_millis(800) {
            return false;
        }
        assert_eq!(
            outcome.unwrap(),
            None,
            "it is connected, and was only asked for echoes"
        );
        true
    });
    assert!(
        is_kept,
        "each time, the thread that answers could not run for a second"
    );
}
