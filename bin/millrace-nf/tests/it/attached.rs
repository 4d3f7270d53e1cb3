//! Attached functions in processes that are killed at random under load: a hop is up again as soon as the supervisor has restarted
//! its process, packets follow the policy in order, and no buffer is lost.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::switch::{environment, shared_memory};
use crate::testbed::kills::{back_within, hops, kill_at_random};
use crate::testbed::{BOUND, TestBed, frame};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, HopPlan, HopState};
use millrace_datapath::io::{Backend, HeapBackend, MemoryPeer};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Starts a process that attaches the built-in function of a hop to `socket`.
fn start(hop: &HopPlan, socket: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-nf"));
    command
        .arg("--attach")
        .arg(socket)
        .args(["--function", &hop.function]);
    for setting in hop.settings.texts() {
        command.args(["--setting", &setting]);
    }
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// A supervisor that restarts a function each time its process ends.
struct Supervisor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    fn of(hop: HopPlan, socket: PathBuf) -> Supervisor {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut child = start(&hop, &socket);
                while child.try_wait().unwrap().is_none() {
                    if stopped.load(Ordering::Relaxed) {
                        child.kill().unwrap();
                    }
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        };
        Supervisor {
            stop,
            thread: Some(std::thread::spawn(body)),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Replaces the functions of `ring` and `isolated` hops by attached ones. Returns the hops, and the supervisors of the functions.
fn attach(dir: &Path, hops: Vec<HopPlan>) -> (Vec<HopPlan>, Vec<Supervisor>) {
    let mut supervisors = Vec::new();
    let attached = |hop: HopPlan| {
        if hop.class == Class::Inline {
            return hop;
        }
        let socket = dir.join(&hop.name);
        supervisors.push(Supervisor::of(hop.clone(), socket.clone()));
        HopPlan {
            function: format!("attached:{}", socket.display()),
            settings: millrace_nf::Settings::default(),
            ..hop
        }
    };
    (hops.into_iter().map(attached).collect(), supervisors)
}

fn kills<B: Backend>(backend: &Arc<B>, memory: impl Fn(&str) -> MemoryPeer<B::Packet>, class: Class) {
    let dir = tempfile::tempdir().unwrap();
    let before = backend.buffers();
    let (hops, _supervisors) = attach(dir.path(), hops(class));
    let (mut testbed, one, two) =
        TestBed::on(Arc::clone(backend), &memory, environment(CATALOGUE, 1), 1, hops);
    testbed.wait("all functions", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed
            .chain
            .stats()
            .hops
            .iter()
            .all(|hop| hop.state == HopState::Up)
    });
    let peers = [&one, &two];
    let sigkill = |pid: u32| kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    let longest = kill_at_random(
        &mut testbed,
        peers,
        &memory,
        environment(CATALOGUE, 1),
        class,
        sigkill,
    );
    testbed.wait("the buffers to come back", |_| backend.buffers() == before);
    assert!(longest < back_within(), "{longest:?}");
}

#[test]
fn attached_functions_killed_at_random_under_load_come_back_and_cost_no_buffer() {
    let backend = Arc::new(HeapBackend::new());
    let memory = Arc::clone(&backend);
    kills(&backend, move |name| memory.memory(name), Class::Isolated);
}

#[test]
fn attached_functions_that_map_packet_memory_may_be_killed_at_random() {
    millrace_testing::own_process!();
    let Some(backend) = shared_memory("attached") else {
        return;
    };
    let memory = Arc::clone(&backend);
    kills(&backend, move |name| memory.memory(name), Class::Ring);
}

#[test]
fn a_process_that_hangs_is_detached_after_its_silence_and_one_that_waits_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("swap");
    let plan = HopPlan {
        class: Class::Isolated,
        ..HopPlan::new("swap", &format!("attached:{}", socket.display()))
    };
    let (mut testbed, one, two) = TestBed::environment(environment(CATALOGUE, 1), 1, vec![plan]);
    let swap = HopPlan::new("swap", "macswap");
    let mut first = start(&swap, &socket);
    let up = |testbed: &mut TestBed, pid: u32| {
        testbed.wait("the process", |testbed| {
            testbed.chain.tick(testbed.bridge.now());
            let state = testbed.chain.stats().hops[0].state;
            state == HopState::Up && testbed.chain.processes().next() == Some(pid)
        });
    };
    up(&mut testbed, first.id());
    kill(Pid::from_raw(first.id() as i32), Signal::SIGSTOP).unwrap();
    let mut second = start(&swap, &socket);
    up(&mut testbed, second.id());
    assert!(one.send(&frame(1, 1)));
    assert_ne!(two.receive_within(BOUND), Some(frame(1, 1)));
    // The switch does not kill an operator's process. The stopped process exits by itself when it continues.
    kill(Pid::from_raw(first.id() as i32), Signal::SIGCONT).unwrap();
    assert!(first.wait().unwrap().success());
    drop(testbed);
    assert!(second.wait().unwrap().success());
}
