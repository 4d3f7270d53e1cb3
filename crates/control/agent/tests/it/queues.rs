//! Queues of ports: configuration, forwarding, and statistics for controllers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;

use crate::harness::{PATIENCE, TestSwitch, config, flow, output, packet, wait_for};
use millrace_flow::{Action, Field};
use millrace_openflow::multipart::queue::{QueueStats, QueueStatsRequest};
use millrace_openflow::multipart::{MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::{ErrorCode, Message, PacketQueue, QueueGetConfigRequest};
use millrace_types::{PortNo, QueueId};

const QUEUES: &str = r#"rate = "1Gbps"
[[bridge.port.queue]]
id = 1
min_rate = "10Mbps"
max_rate = "50Mbps"
[[bridge.port.queue]]
id = 7
priority = 7
length = 3
"#;

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

fn stats_request(port: PortNo, queue: QueueId) -> Message {
    Message::MultipartRequest(MultipartRequest::new(RequestBody::Queue(QueueStatsRequest {
        port,
        queue,
    })))
}

fn stats(controller: &mut crate::harness::Controller, port: PortNo, queue: QueueId) -> Vec<QueueStats> {
    match controller.ask(&stats_request(port, queue)) {
        Message::MultipartReply(reply) => match reply.body {
            ReplyBody::Queue(list) => list,
            other => panic!("{other:?}"),
        },
        other => panic!("{other}"),
    }
}

fn queues(controller: &mut crate::harness::Controller, port: PortNo) -> Vec<PacketQueue> {
    match controller.ask(&Message::QueueGetConfigRequest(QueueGetConfigRequest { port })) {
        Message::QueueGetConfigReply(reply) => {
            assert_eq!(reply.port, port);
            reply.queues.into_vec()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn queues_are_read_back_and_count_what_goes_through_them() {
    let switch = TestSwitch::start(&(config(3, "") + QUEUES));
    let mut controller = switch.controller();
    let ids: Vec<_> = queues(&mut controller, PortNo::ANY)
        .iter()
        .map(|queue| (queue.port.raw(), queue.queue.0))
        .collect();
    assert_eq!(ids, [(3, 0), (3, 1), (3, 7)], "queue 0 is always there");
    // The speed of a memory device is unknown, so rates are not given as shares of it.
    let known = queues(&mut controller, port(3));
    assert!(
        known
            .iter()
            .all(|queue| (queue.min_rate, queue.max_rate) == (Some(0xffff), Some(0xffff)))
    );
    assert_eq!(queues(&mut controller, port(1)), []);
    let through = |from: u32, queue, to| {
        flow(
            10,
            &[(Field::InPort, from.into())],
            &[Action::SetQueue(QueueId(queue)), output(to)],
        )
    };
    // Queue 5 does not exist at the port.
    controller.add([through(1, 1, 3), through(2, 5, 3)]);
    for (from, size) in [(1, 100), (1, 200), (2, 300)] {
        assert!(switch.peer(from).send(&packet(size)));
        assert_eq!(switch.peer(3).receive_within(PATIENCE).unwrap().len(), size);
    }
    let counts = wait_for("the packets to be counted", || {
        let stats = stats(&mut controller, PortNo::ANY, QueueId::ALL);
        let counts: Vec<_> = stats
            .iter()
            .map(|queue| (queue.queue.0, queue.tx_packets, queue.tx_bytes, queue.tx_errors))
            .collect();
        (counts.iter().map(|count| count.1).sum::<u64>() == 3).then_some(counts)
    });
    assert_eq!(counts, [(0, 1, 300, 0), (1, 2, 300, 0), (7, 0, 0, 0)]);
    let one = stats(&mut controller, port(3), QueueId(1));
    assert!(one.len() == 1 && one[0].tx_packets == 2 && !one[0].duration.is_zero());
    assert_eq!(stats(&mut controller, PortNo::ANY, QueueId(7)).len(), 1);
    assert_eq!(stats(&mut controller, port(2), QueueId::ALL), []);
}

#[test]
fn a_missing_port_or_queue_is_refused_with_its_error() {
    let switch = TestSwitch::start(&(config(2, "") + QUEUES));
    let mut controller = switch.controller();
    for (port, queue, code) in [
        (port(9), QueueId::ALL, ErrorCode::OFPQOFC_BAD_PORT),
        (port(2), QueueId(2), ErrorCode::OFPQOFC_BAD_QUEUE),
        (port(1), QueueId(1), ErrorCode::OFPQOFC_BAD_QUEUE),
        (PortNo::ANY, QueueId(2), ErrorCode::OFPQOFC_BAD_QUEUE),
    ] {
        assert_eq!(
            controller.error_of(&stats_request(port, queue)),
            code,
            "{port} {queue}"
        );
    }
    let unknown = Message::QueueGetConfigRequest(QueueGetConfigRequest { port: port(9) });
    assert_eq!(controller.error_of(&unknown), ErrorCode::OFPQOFC_BAD_PORT);
}

#[test]
fn queues_change_while_the_port_stays_open() {
    let mut switch = TestSwitch::start(&(config(2, "") + QUEUES));
    let mut controller = switch.controller();
    controller.add([flow(
        10,
        &[(Field::InPort, 1)],
        &[Action::SetQueue(QueueId(1)), output(2)],
    )]);
    let pass = |switch: &TestSwitch| {
        assert!(switch.peer(1).send(&packet(100)));
        assert!(switch.peer(2).receive_within(PATIENCE).is_some());
    };
    let count = |controller: &mut crate::harness::Controller| {
        stats(controller, port(2), QueueId::ALL)
            .iter()
            .map(|queue| queue.tx_packets)
            .collect::<Vec<_>>()
    };
    pass(&switch);
    wait_for("the first packet", || {
        (count(&mut controller) == [0, 1, 0]).then_some(())
    });
    assert_eq!(
        switch
            .apply(&(config(2, "") + &QUEUES.replace("50Mbps", "60Mbps")))
            .problems,
        []
    );
    pass(&switch);
    wait_for("the second: counters stay", || {
        (count(&mut controller) == [0, 2, 0]).then_some(())
    });
    switch.apply(&config(2, ""));
    pass(&switch);
    assert_eq!(queues(&mut controller, PortNo::ANY), []);
    switch.apply(&(config(2, "") + "rate = \"1Gbps\"\n"));
    pass(&switch);
    wait_for("queue 0", || (count(&mut controller) == [1]).then_some(()));
    // The port was not closed and opened again: that would have caused port_status messages.
    assert_eq!(controller.unasked(), None);
}

#[test]
fn ovs_ofctl_reads_queues() {
    if Command::new("ovs-ofctl").arg("--version").output().is_err() {
        eprintln!("skipped: ovs-ofctl is not installed (apt-get install openvswitch-common)");
        return;
    }
    let switch = TestSwitch::start(&(config(2, "") + QUEUES));
    let target = format!("tcp:{}", switch.address());
    let run = |command: &str, args: &[&str]| {
        let output = Command::new("timeout")
            .args(["20", "ovs-ofctl", "-O", "OpenFlow13", command, &target])
            .args(args)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let stats = run("queue-stats", &["2", "7"]);
    assert!(
        stats.contains("port 2 queue 7: bytes=0, pkts=0, errors=0, duration="),
        "{stats}"
    );
    assert_eq!(run("queue-stats", &[]).matches("queue ").count(), 3);
    assert!(run("queue-stats", &["2", "8"]).contains("OFPQOFC_BAD_QUEUE"));
    assert!(run("queue-stats", &["8"]).contains("OFPQOFC_BAD_PORT"));
    let queues = run("queue-get-config", &["2"]);
    assert!(
        queues.contains("queue 0:") && queues.contains("queue 7:"),
        "{queues}"
    );
    assert!(run("queue-get-config", &["8"]).contains("OFPQOFC_BAD_PORT"));
}
