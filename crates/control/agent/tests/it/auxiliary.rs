//! Auxiliary connections: their life cycle, their common role and settings, and the messages on each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use crate::harness::{Controller, PATIENCE, SILENCE, TestSwitch, config, flow, patch, wait_for};
use millrace_agent::channel::ChannelKind;
use millrace_flow::Action;
use millrace_openflow::*;
use millrace_types::*;
use millrace_wire::Builder;

const TO_CONTROLLER: Action = Action::output(PortNo::CONTROLLER);

fn start(listener: &TcpListener, settings: &str) -> TestSwitch {
    let target = listener.local_addr().unwrap();
    let controllers = format!("controllers = [{{ target = \"tcp:{target}\", {settings} }}]");
    TestSwitch::start(&config(2, &format!("dpid = \"2a\"\n{controllers}")))
}

fn accept(listener: &TcpListener) -> Controller {
    Controller::on(listener.accept().unwrap().0)
}

fn auxiliary_id(controller: &mut Controller) -> u8 {
    match controller.ask(&Message::FeaturesRequest) {
        Message::FeaturesReply(features) => {
            assert_eq!(features.dpid, Dpid(0x2a));
            features.auxiliary_id
        }
        other => panic!("{other}"),
    }
}

/// Returns a packet of the flow with this number.
fn packet_of(flow: u16) -> Vec<u8> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(flow, 2000)
        .payload(&[0; 40])
        .build()
}

#[test]
fn auxiliary_connections_come_after_the_main_one_and_go_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let switch = start(&listener, "auxiliary = 2");
    let (stream, _) = listener.accept().unwrap();
    // The switch opens no auxiliary connection before the HELLO exchange of the main connection.
    listener.set_nonblocking(true).unwrap();
    std::thread::sleep(SILENCE);
    assert!(listener.accept().is_err());
    listener.set_nonblocking(false).unwrap();
    let mut main = Controller::on(stream);
    let mut auxiliaries = [accept(&listener), accept(&listener)];
    assert_eq!(auxiliary_id(&mut main), 0);
    let mut ids: Vec<u8> = auxiliaries.iter_mut().map(auxiliary_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    let is_auxiliary = |kind| kind == ChannelKind::Auxiliary;
    assert_eq!(
        switch
            .channels()
            .iter()
            .filter(|line| is_auxiliary(line.kind))
            .count(),
        2
    );

    // A lost connection is opened again, and the others stay.
    let [lost, mut kept] = auxiliaries;
    drop(lost);
    let mut again = accept(&listener);
    assert_ne!(auxiliary_id(&mut again), auxiliary_id(&mut kept));
    assert_eq!(auxiliary_id(&mut main), 0);

    drop(main);
    for auxiliary in [&mut again, &mut kept] {
        while auxiliary.receive().is_some() {}
    }
    // The next main connection has auxiliary connections of its own.
    let mut main = accept(&listener);
    assert_eq!(auxiliary_id(&mut main), 0);
    assert_ne!(auxiliary_id(&mut accept(&listener)), 0);
}

#[test]
fn role_and_settings_are_one_for_all_connections_and_replies_go_back_where_the_request_came_from() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let switch = start(&listener, "auxiliary = 1");
    let (mut main, mut auxiliary) = (accept(&listener), accept(&listener));
    // Requests are executed on both connections; a barrier is answered on its own connection.
    auxiliary.add([patch(1, 2)]);
    let slave = Message::RoleRequest(RoleMessage {
        role: RequestedRole::Slave,
        generation_id: 1,
    });
    assert!(matches!(auxiliary.ask(&slave), Message::RoleReply(_)));
    for connection in [&mut main, &mut auxiliary] {
        let code = connection.error_of(&Message::FlowMod(patch(2, 1)));
        assert_eq!(code, ErrorCode::OFPBRC_IS_SLAVE);
    }
    let set = SwitchConfig {
        miss_send_len: 77,
        ..SwitchConfig::DEFAULT
    };
    auxiliary.send(&Message::SetConfig(set));
    auxiliary.barrier();
    assert_eq!(main.ask(&Message::GetConfigRequest), Message::GetConfigReply(set));
    assert!(main.unasked().is_none() && auxiliary.unasked().is_none());
    drop(switch);
}

#[test]
fn packet_ins_are_spread_over_auxiliary_connections_flow_by_flow() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let switch = start(&listener, "auxiliary = 2");
    let mut main = accept(&listener);
    let mut auxiliaries = [accept(&listener), accept(&listener)];
    main.add([flow(0, &[], &[TO_CONTROLLER])]);
    const FLOWS: u16 = 40;
    for _ in 0..3 {
        for number in 0..FLOWS {
            switch.peer(1).send(&packet_of(number));
        }
    }
    let mut connections: HashMap<Box<[u8]>, Vec<usize>> = HashMap::new();
    let mut left = 3 * usize::from(FLOWS);
    while left > 0 {
        for (at, auxiliary) in auxiliaries.iter_mut().enumerate() {
            while let Some(Message::PacketIn(packet)) = auxiliary.unasked() {
                connections.entry(packet.data).or_default().push(at);
                left -= 1;
            }
        }
    }
    assert!(main.unasked().is_none());
    assert_eq!(connections.len(), usize::from(FLOWS));
    assert!(
        connections
            .values()
            .all(|used| used.len() == 3 && used.iter().all(|at| *at == used[0]))
    );
    let first = connections.values().filter(|used| used[0] == 0).count();
    assert!((5..=35).contains(&first), "{first} of {FLOWS} flows on the first");
}

/// The controller's end of an auxiliary connection over UDP.
struct Datagrams {
    socket: UdpSocket,
    switch: SocketAddr,
}

impl Datagrams {
    fn accept(socket: UdpSocket) -> Datagrams {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut hello = [0; 100];
        let (size, switch) = socket.recv_from(&mut hello).unwrap();
        assert_eq!(decode(&hello[..size]).unwrap().1, Message::Hello(Hello::OURS));
        Datagrams { socket, switch }
    }

    fn send(&self, messages: &[(&Message, u32)]) {
        let mut bytes = Vec::new();
        for (message, xid) in messages {
            encode(message, Xid(*xid), &mut bytes).unwrap();
        }
        self.socket.send_to(&bytes, self.switch).unwrap();
    }

    /// Returns the next message other than HELLO and echo requests.
    fn receive(&self) -> (Xid, Message) {
        loop {
            let mut bytes = vec![0; 65_536];
            let (size, _) = self.socket.recv_from(&mut bytes).unwrap();
            let (header, message) = decode(&bytes[..size]).unwrap();
            assert_eq!(usize::from(header.length), size, "one message in each datagram");
            match message {
                Message::Hello(_) | Message::EchoRequest(_) => {}
                message => return (header.xid, message),
            }
        }
    }
}

#[test]
fn an_auxiliary_connection_over_udp_carries_packets_both_ways_and_nothing_that_must_not_be_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind(listener.local_addr().unwrap()).unwrap();
    let switch = start(&listener, "auxiliary = 1, auxiliary_transport = \"udp\"");
    let mut main = accept(&listener);
    let auxiliary = Datagrams::accept(socket);
    // A datagram may have several messages, and the HELLO before it may have been lost.
    auxiliary.send(&[(&Message::FeaturesRequest, 7), (&Message::FeaturesRequest, 8)]);
    for xid in [7, 8] {
        let (answered, Message::FeaturesReply(features)) = auxiliary.receive() else {
            panic!()
        };
        assert_eq!(
            (answered, features.auxiliary_id, features.dpid),
            (Xid(xid), 1, Dpid(0x2a))
        );
    }
    main.add([flow(0, &[], &[TO_CONTROLLER])]);
    let frame = packet_of(5);
    switch.peer(1).send(&frame);
    let (_, Message::PacketIn(packet)) = auxiliary.receive() else {
        panic!()
    };
    assert_eq!(&packet.data[..], &frame[..]);
    let out = Message::PacketOut(PacketOut {
        buffer: BufferId::NONE,
        in_port: PortNo::CONTROLLER,
        actions: [crate::harness::output(2)].into(),
        data: packet.data,
    });
    auxiliary.send(&[(&out, 9)]);
    assert_eq!(switch.peer(2).receive_within(PATIENCE), Some(frame));
    auxiliary.send(&[(&Message::FlowMod(patch(1, 2)), 10)]);
    let (xid, Message::Error(error)) = auxiliary.receive() else {
        panic!()
    };
    assert_eq!((xid, error.code), (Xid(10), ErrorCode::OFPBRC_BAD_TYPE));
    // Nor is a bundle, or the end of a flow monitor.
    let flags = BundleFlags::ATOMIC;
    let add = Message::BundleAdd(BundleAdd {
        bundle: 1,
        flags,
        message: Box::new(Message::FlowMod(patch(1, 2))),
    });
    let commit = Message::BundleControl(BundleControl {
        bundle: 1,
        command: BundleCommand::Commit,
        flags,
    });
    let cancel = Message::Experimenter(Experimenter {
        experimenter: Experimenter::ONF,
        exp_type: flow_monitor::FLOW_MONITOR_CANCEL,
        data: [0; 4].into(),
    });
    auxiliary.send(&[(&add, 11), (&commit, 12), (&cancel, 13)]);
    for expected in 11..=13 {
        let (xid, Message::Error(error)) = auxiliary.receive() else {
            panic!()
        };
        assert_eq!((xid, error.code), (Xid(expected), ErrorCode::OFPBRC_BAD_TYPE));
    }

    drop(main);
    wait_for("the end of the auxiliary connection", || {
        let is_auxiliary = |kind| kind == ChannelKind::Auxiliary;
        (!switch.channels().iter().any(|line| is_auxiliary(line.kind))).then_some(())
    });
}
