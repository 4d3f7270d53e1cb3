//! Connections without HELLO have limits of their own, and take no slots from controllers.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use crate::harness::{Controller, PATIENCE, TestSwitch, config, wait_for};

/// Returns a connection from the loopback address 127.0.0.`host` that sends nothing.
pub(crate) fn silent_from(switch: &TestSwitch, host: u8, to: SocketAddr) -> TcpStream {
    switch.runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        socket.bind(from).unwrap();
        let stream = socket.connect(to).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    })
}

/// Returns how many of these connections the switch has closed.
pub(crate) fn closed(connections: &mut [TcpStream]) -> usize {
    let is_closed = |stream: &mut TcpStream| loop {
        // The switch sends HELLO first.
        match stream.read(&mut [0; 64]) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break error.kind() != ErrorKind::WouldBlock,
        }
    };
    connections
        .iter_mut()
        .map(is_closed)
        .filter(|closed| *closed)
        .count()
}

#[test]
fn a_controller_is_admitted_at_once_beside_hundreds_of_silent_connections() {
    let switch = TestSwitch::start(&config(1, ""));
    let address = switch.address();
    let mut silent: Vec<TcpStream> = (0..300)
        .map(|number| silent_from(&switch, 2 + number as u8 % 100, address))
        .collect();
    let mut controller = switch.controller();
    controller.barrier();
    // The switch closes a connection without HELLO after ten seconds. If all are closed, the controller
    // waited for them.
    assert!(
        closed(&mut silent) < silent.len(),
        "the controller waited for all others"
    );
    // At most 128 connections may be pending, so the switch closes 172 of the 300.
    wait_for("all but 128 to be closed", || {
        (closed(&mut silent) >= 172).then_some(())
    });
    // The remaining pending connections take no slots from controllers, either.
    let mut controllers: Vec<Controller> = (0..20).map(|_| switch.controller()).collect();
    controllers.iter_mut().for_each(Controller::barrier);
    controller.barrier();
}

#[test]
fn silent_connections_of_one_address_make_room_for_each_other_and_for_no_other() {
    let switch = TestSwitch::start(&config(1, ""));
    let address = switch.address();
    let mut others: Vec<TcpStream> = (2..10).map(|host| silent_from(&switch, host, address)).collect();
    let mut many: Vec<TcpStream> = (0..100).map(|_| silent_from(&switch, 1, address)).collect();
    // The controller and the 100 connections have the same source address.
    let mut controller = switch.controller();
    controller.barrier();
    wait_for("all but 16 to be closed", || {
        (closed(&mut many) >= 84).then_some(())
    });
    assert_eq!(closed(&mut others), 0);
}

#[test]
fn a_listener_serves_64_controllers_and_the_next_when_one_disconnects() {
    let switch = TestSwitch::start(&config(1, ""));
    let mut controllers: Vec<Controller> = (0..64).map(|_| switch.controller()).collect();
    let mut refused = Controller::silent(TcpStream::connect(switch.address()).unwrap());
    refused.send(&millrace_openflow::Message::Hello(millrace_openflow::Hello::OURS));
    while refused.receive_bytes().is_some() {}
    controllers.pop();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut next = Controller::silent(TcpStream::connect(switch.address()).unwrap());
        next.send(&millrace_openflow::Message::Hello(millrace_openflow::Hello::OURS));
        next.send(&millrace_openflow::Message::BarrierRequest);
        // The switch sends HELLO. It sends the reply, too, if a slot is free.
        if next.receive_bytes().is_some() && next.receive_bytes().is_some() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "the place of a closed connection is free"
        );
    }
}
