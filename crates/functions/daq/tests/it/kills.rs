//! A process with a module is killed in the middle of bursts, again and again, under load: packets follow the policy in order,
//! and no buffer is lost.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use millrace_chain::{Class, Environment, HopPlan, HopState, OnFailure};
use millrace_datapath::io::{Backend as _, HeapBackend};
use millrace_wire::Packet as _;

use crate::loader::Daq3;
use crate::testbed::{BOUND, CATALOGUE, TestBed, frame, sequence};
use crate::verdicts::{MARK, PASS, REPLACE};

/// The environment variable with the socket for [`a_process_that_holds_packets`].
const SOCKET: &str = "MILLRACE_DAQ_SOCKET";
/// Kills in the test.
const KILLS: u64 = 5;

/// The process that is killed: it takes packets, gives some back late and out of order, and ends only by a signal.
#[test]
fn a_process_that_holds_packets() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let daq = Daq3::new(socket.as_ref(), &[], 0).unwrap();
    while daq.start().is_err() {}
    let mut held = Vec::new();
    loop {
        held.extend(daq.receive(16).0);
        // The process keeps up to 40 packets. It returns packets from the middle of the list first.
        while held.len() > 40 || held.len() % 2 == 1 {
            let message = held.swap_remove(held.len() / 2);
            message.packet().1[MARK] = 1;
            assert_eq!(daq.finalize(message, REPLACE), 0);
        }
        if held.len() == 40 {
            for message in held.drain(..).rev() {
                assert_eq!(daq.finalize(message, PASS), 0);
            }
        }
    }
}

fn start(socket: &std::path::Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "kills::a_process_that_holds_packets"])
        .env(SOCKET, socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_process_killed_in_the_middle_of_bursts_costs_no_buffer_and_packets_pass_in_order_meanwhile() {
    let backend = Arc::new(HeapBackend::new());
    let memory = Arc::clone(&backend);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("snort.sock");
    let hop = HopPlan {
        class: Class::Isolated,
        on_failure: OnFailure::Open,
        ..HopPlan::new("snort", &format!("attached:{}", socket.display()))
    };
    let environment = Environment {
        catalogue: CATALOGUE,
        workers: 1,
        seed: 1,
        zero_unix_millis: 0,
        program: "none".into(),
    };
    let (mut testbed, one, two) = TestBed::on(
        Arc::clone(&backend),
        |name| memory.memory(name),
        environment,
        1,
        vec![hop],
    );
    let (mut sent, mut came, mut marked) = (0_u32, 0_u32, 0_u32);
    let mut child = start(&socket);
    let mut kills = 0;
    let began = Instant::now();
    // Enough packets that more than half of a hundred are with the process at a time.
    let mut exchange = |testbed: &mut TestBed, limit: u32, came: &mut u32, marked: &mut u32| {
        testbed.chain.tick(testbed.bridge.now());
        for _ in 0..32 {
            if sent - *came < limit && one.send(&frame(1, sent)) {
                sent += 1;
            }
        }
        while let Some(frame) = two.receive() {
            assert_eq!(sequence(frame.head()), *came, "nothing is lost or overtakes");
            *came += 1;
            *marked += u32::from(frame.head()[MARK] == 1);
        }
        assert!(began.elapsed() < 2 * BOUND, "{:?}", testbed.chain.stats());
        sent
    };
    while kills < KILLS {
        let before = marked;
        // The process works: packets come back with its mark.
        while marked < before + 200 {
            exchange(&mut testbed, 256, &mut came, &mut marked);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        while testbed.chain.stats().hops[0].state != HopState::Down {
            exchange(&mut testbed, 256, &mut came, &mut marked);
        }
        child = start(&socket);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let sent = exchange(&mut testbed, 0, &mut came, &mut marked);
    while came < sent {
        exchange(&mut testbed, 0, &mut came, &mut marked);
    }
    let hop = testbed.chain.stats().hops.remove(0);
    assert!(hop.passed > 0, "the policy applied: {hop:?}");
    assert_eq!(hop.packets + hop.passed, u64::from(sent));
    testbed.wait("the buffers to come back", |_| {
        backend.buffers().is_some_and(|buffers| buffers.used == 0)
    });
}
