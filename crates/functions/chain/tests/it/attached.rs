//! Attached functions: threads take the place of the operator's processes, with the same sockets and windows.
//! The effects equal those of a function in the worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use millrace_chain::{ChainError, Class, HopPlan, HopState, OnFailure};
use millrace_nf::Settings;
use millrace_nf::attach::{AttachError, Attachment};
use millrace_pipeline::DropReason;
use millrace_wire::Packet as _;

use crate::testbed::{BOUND, CATALOGUE, TestBed, answer, flow, frame, hops, marks, no, sequence};

/// Sequence numbers at which the function `guard` acts.
const REJECT: u32 = 700;
const SHUN_PASS: u32 = 701;
const SHUN_DROP: u32 = 702;
const SHUN_SHORT: u32 = 703;

/// A thread with an attached function. It stops when this value is dropped.
struct Attached {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attached {
    /// Runs a function of the testbed in a thread, attached as an instance.
    fn run(socket: &Path, instance: Option<u32>, function: &str) -> Attached {
        let stop = Arc::new(AtomicBool::new(false));
        let kind = CATALOGUE.find(function).unwrap();
        let setup = kind.setup(&Settings::default(), 1, 0);
        let mut function = kind.make_function(&setup).unwrap();
        let (socket, stopped) = (socket.to_owned(), Arc::clone(&stop));
        let body = move || {
            let names: Vec<&str> = setup.counters.read().iter().map(|(name, _)| *name).collect();
            let mut attachment = Attachment::new(&socket, instance, &names, BOUND).unwrap();
            attachment.run(&mut *function, &setup, || !stopped.load(Ordering::Relaxed));
        };
        Attached {
            stop,
            thread: Some(std::thread::spawn(body)),
        }
    }

    /// Waits until the thread ends by itself, because the switch ended the attachment.
    fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// Returns a folder with the path of a socket in it.
fn socket() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("guard.sock");
    (dir, path)
}

fn attached(socket: &Path) -> HopPlan {
    HopPlan {
        class: Class::Isolated,
        ..HopPlan::new("attached", &format!("attached:{}", socket.display()))
    }
}

/// Waits until the first hop has a state.
fn wait_for(testbed: &mut TestBed, state: HopState) {
    testbed.wait("the state", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[0].state == state
    });
}

#[test]
fn packets_that_a_process_returns_pass_a_hop_with_several_instances_that_they_skip() {
    const SKIP_ONE: u32 = 667;
    let (_dir, socket) = socket();
    let mut plan = vec![attached(&socket)];
    plan.extend(hops(&["two", "three"]));
    plan[1].instances = 2;
    let (mut testbed, one, two) = TestBed::new(1, 1, plan);
    let _function = Attached::run(&socket, None, "one");
    wait_for(&mut testbed, HopState::Up);
    assert!(one.send(&frame(1, SKIP_ONE)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 3]);
    // The last hop sends packets to the flow tables.
    let mut edited = testbed.chain.plan().clone();
    edited.hops[2].number = Some(no(110));
    edited.hops[2].steer = true;
    testbed.edit(&edited);
    testbed.output(110, 2);
    testbed.settle();
    testbed.output(101, 1);
    assert!(one.send(&frame(1, SKIP_ONE)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 3]);
    edited.hops.truncate(2);
    testbed.edit(&edited);
    testbed.output(101, 2);
    testbed.settle();
    assert!(one.send(&frame(1, SKIP_ONE)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1]);
}

#[test]
fn the_policy_applies_until_a_process_attaches_and_whenever_it_is_gone() {
    let (_dir, socket) = socket();
    let hop = HopPlan {
        on_failure: OnFailure::Open,
        ..attached(&socket)
    };
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![hop]);
    let failure = format!("no process is attached to {}", socket.display());
    for round in 0..3 {
        wait_for(&mut testbed, HopState::Down);
        assert!(one.send(&frame(1, round)));
        assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [] as [u8; 0]);
        // The hop is down before its reason has been taken over by a tick.
        let expected = match round {
            0 => failure.as_str(),
            _ => "closed its connection",
        };
        testbed.wait(expected, |testbed| {
            testbed.chain.tick(testbed.bridge.now());
            testbed.chain.stats().hops[0].failure.contains(expected)
        });
        assert!(round > 0 || testbed.chain.stats().hops[0].restarts == 0);
        let function = Attached::run(&socket, None, "two");
        wait_for(&mut testbed, HopState::Up);
        assert!(testbed.chain.stats().hops[0].report.contains("process"));
        assert!(one.send(&frame(1, round)));
        assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [2]);
        drop(function);
    }
    testbed.wait("the last detachment", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[0].restarts == 2
    });
}

#[test]
fn each_instance_has_one_process_and_flows_stay_with_theirs() {
    let (_dir, socket) = socket();
    let hop = HopPlan {
        instances: 2,
        ..attached(&socket)
    };
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![hop]);
    let first = Attached::run(&socket, Some(0), "one");
    testbed.wait("the first instance", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.processes().count() == 1
    });
    let second = Attached::run(&socket, None, "two");
    wait_for(&mut testbed, HopState::Up);
    let refusal = |instance: Option<u32>, testbed: &mut TestBed| {
        let path = socket.clone();
        let asked = std::thread::spawn(move || Attachment::new(&path, instance, &[], BOUND));
        while !asked.is_finished() {
            testbed.chain.tick(testbed.bridge.now());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match asked.join().unwrap() {
            Err(AttachError::Refused(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refusal(Some(1), &mut testbed).contains("is attached as this instance"));
    assert!(refusal(Some(2), &mut testbed).contains("expected one from 0 to 1"));
    assert!(refusal(None, &mut testbed).contains("all 2 instances"));
    let mut seen = [0; 3];
    for number in 0..16 {
        let mut instance = None;
        for round in 0..2 {
            assert!(one.send(&frame(number, round)));
            let there = two.receive_within(BOUND).unwrap();
            assert!(two.send(&answer(&frame(number, round))));
            let back = one.receive_within(BOUND).unwrap();
            let (there, back) = (marks(&there)[0], marks(&back)[0] - 100);
            assert_eq!(*instance.get_or_insert(there), there);
            assert_eq!(there, back, "both directions of a flow");
            seen[usize::from(there)] += 1;
        }
    }
    assert!(seen[1] > 0 && seen[2] > 0, "{seen:?}");
    drop((first, second));
}

#[test]
fn what_an_attached_function_sends_traverses_the_hops_behind_it() {
    let (_dir, socket) = socket();
    let plan = [hops(&["one"]), vec![attached(&socket)], hops(&["three"])].concat();
    let plan = plan.into_iter().enumerate().map(|(number, hop)| HopPlan {
        name: format!("h{number}"),
        ..hop
    });
    let (mut testbed, one, two) = TestBed::new(1, 1, plan.collect());
    let _function = Attached::run(&socket, None, "guard");
    testbed.wait("the function", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[1].state == HopState::Up
    });
    assert!(one.send(&frame(0, REJECT)));
    let there = two.receive_within(BOUND).unwrap();
    assert_eq!((flow(&there), marks(&there)), (8, vec![3]));
    let back = one.receive_within(BOUND).unwrap();
    assert_eq!((flow(&back), marks(&back)), (9, vec![101]));
    testbed.wait("both are counted", |testbed| {
        let stats = testbed.chain.stats();
        (stats.hops[1].sent, stats.hops[1].dropped, stats.hops[1].not_sent) == (2, 1, 0)
    });
}

#[test]
fn flows_that_an_attached_function_shuns_pass_it_and_their_counters_come_back() {
    let (_dir, socket) = socket();
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![attached(&socket)]);
    let _function = Attached::run(&socket, None, "guard");
    wait_for(&mut testbed, HopState::Up);
    assert!(one.send(&frame(1, SHUN_PASS)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [50]);
    assert!(one.send(&frame(1, 2)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [] as [u8; 0]);
    assert!(two.send(&answer(&frame(1, 3))));
    assert_eq!(marks(&one.receive_within(BOUND).unwrap()), [] as [u8; 0]);
    assert!(one.send(&frame(3, SHUN_DROP)));
    testbed.wait("the second flow", |testbed| {
        testbed.chain.stats().hops[0].shunned_flows == 2
    });
    assert!(one.send(&frame(3, 4)));
    testbed.wait("its packet is dropped", |testbed| {
        testbed.drops(DropReason::FunctionDrop) == 2
    });
    assert!(one.send(&frame(2, SHUN_SHORT)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [50]);
    testbed.wait("the function knows that the third flow was idle", |testbed| {
        let hop = testbed.chain.stats().hops.remove(0);
        (hop.shunned_flows, hop.shunned_passed, hop.shunned_dropped) == (2, 2, 1)
            && hop.counters == [("ended", 1), ("packets", 0)]
    });
}

#[test]
fn a_flow_that_is_shunned_under_load_keeps_its_order() {
    let (_dir, socket) = socket();
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![attached(&socket)]);
    let _function = Attached::run(&socket, None, "guard");
    wait_for(&mut testbed, HopState::Up);
    const FLOWS: u16 = 4;
    let (mut sent, mut came) = ([0_u32; FLOWS as usize], [0_u32; FLOWS as usize]);
    let (mut number, mut passed) = (0_u32, 0_u32);
    let last = 20_000;
    // Each flow is shunned at another time.
    let sequence_of = |flow: usize, number: u32| match number == 100 + 600 * flow as u32 {
        true => SHUN_PASS,
        false => 10_000 + number,
    };
    let deadline = std::time::Instant::now() + 2 * BOUND;
    while came.iter().sum::<u32>() < last {
        assert!(
            std::time::Instant::now() < deadline,
            "{came:?}: {:?}",
            testbed.chain.stats()
        );
        testbed.chain.tick(testbed.bridge.now());
        for _ in 0..32 {
            let flow = (number % u32::from(FLOWS)) as u16;
            let next = sequence_of(flow.into(), sent[usize::from(flow)]);
            // The number of packets in flight is so low that no ring is ever full.
            let in_flight = number - came.iter().sum::<u32>();
            if number < last && in_flight < 256 && one.send(&frame(flow, next)) {
                sent[usize::from(flow)] += 1;
                number += 1;
            }
        }
        while let Some(frame) = two.receive() {
            let frame = frame.head();
            let flow = usize::from(flow(frame));
            assert_eq!(sequence(frame), sequence_of(flow, came[flow]), "flow {flow}");
            came[flow] += 1;
            passed += u32::from(marks(frame).is_empty());
        }
    }
    assert!(passed > last / 4, "{passed}");
    let hop = testbed.chain.stats().hops.remove(0);
    assert_eq!((hop.packets + hop.shunned_passed, hop.lost), (last.into(), 0));
}

#[test]
fn a_hop_that_is_made_again_detaches_its_process_and_takes_another() {
    let (_dir, socket) = socket();
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![attached(&socket)]);
    let function = Attached::run(&socket, None, "two");
    wait_for(&mut testbed, HopState::Up);
    let now = testbed.bridge.now();
    assert!(testbed.chain.restart("attached", now).unwrap());
    testbed.settle();
    testbed.chain.tick(testbed.bridge.now());
    function.join();
    let _function = Attached::run(&socket, None, "three");
    wait_for(&mut testbed, HopState::Up);
    assert!(one.send(&frame(1, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [3]);
}

#[test]
fn a_hop_that_cannot_have_a_socket_is_refused_with_the_reason() {
    let (dir, socket) = socket();
    let (mut testbed, _one, _two) = TestBed::new(1, 1, Vec::new());
    let now = testbed.bridge.now();
    let mut plan = testbed.chain.plan().clone();
    let mut refusal = |hop: HopPlan| {
        plan.hops = vec![hop];
        match testbed.chain.edit(&plan, now) {
            Err(ChainError::Class { reason, .. }) => reason,
            Err(ChainError::Make { source, .. }) => source.to_string(),
            Ok(_) => panic!("it is accepted"),
        }
    };
    let inline = HopPlan {
        class: Class::Inline,
        ..attached(&socket)
    };
    assert!(refusal(inline).contains("expected class isolated or ring"));
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(refusal(attached(&file)).contains("no socket"));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let with_settings = HopPlan {
        settings: Settings::parse(["rate=1"]).unwrap(),
        ..attached(&socket)
    };
    assert!(refusal(with_settings).contains("rate"));
}
