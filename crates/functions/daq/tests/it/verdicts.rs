//! Verdicts of both interfaces, their effects on packets and flows, and reconnection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_chain::{Class, HopPlan, HopState};
use millrace_datapath::io::MemoryPeer;
use millrace_pipeline::DropReason;
use millrace_wire::Frame;

use crate::loader::{Daq2, Daq3, Decision};
use crate::testbed::{BOUND, TestBed, flow, frame, marks, sequence};

pub(crate) const PASS: i32 = 0;
pub(crate) const BLOCK: i32 = 1;
pub(crate) const REPLACE: i32 = 2;
const WHITELIST: i32 = 3;
const BLACKLIST: i32 = 4;
const IGNORE: i32 = 5;
const RETRY: i32 = 6;

/// The offset of a byte that tests change.
pub(crate) const MARK: usize = 46;

/// A folder with a socket in it, and a chain with a hop that is attached to it.
pub(crate) struct Bed {
    _dir: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    pub(crate) testbed: TestBed,
    pub(crate) one: MemoryPeer<Frame>,
    pub(crate) two: MemoryPeer<Frame>,
}

impl Bed {
    pub(crate) fn new(instances: u16) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("snort.sock");
        let hop = HopPlan {
            class: Class::Isolated,
            instances,
            ..HopPlan::new("snort", &format!("attached:{}", socket.display()))
        };
        let (testbed, one, two) = TestBed::new(1, 1, vec![hop]);
        Bed {
            _dir: dir,
            socket,
            testbed,
            one,
            two,
        }
    }

    pub(crate) fn wait_for(&mut self, state: HopState) {
        self.testbed.wait("the state", |testbed| {
            testbed.chain.tick(testbed.bridge.now());
            testbed.chain.stats().hops[0].state == state
        });
    }

    /// Returns the next frame at port 2, while the control side works.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let began = Instant::now();
        loop {
            self.testbed.chain.tick(self.testbed.bridge.now());
            if let Some(frame) = self.two.receive_within(Duration::from_millis(5)) {
                return frame;
            }
            assert!(began.elapsed() < BOUND, "{:?}", self.testbed.chain.stats());
        }
    }
}

/// A thread of Snort.
pub(crate) struct Snort {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Snort {
    /// Runs `body`, which returns when the flag is set.
    fn run(body: impl FnOnce(&AtomicBool) + Send + 'static) -> Snort {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Snort {
            stop,
            thread: Some(std::thread::spawn(move || body(&stopped))),
        }
    }
}

impl Drop for Snort {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Decides by the sequence number: the hundreds are the verdict; 700 injects a packet against the direction.
fn decide(ingress: i32, bytes: &mut [u8]) -> Decision {
    assert_eq!(ingress, 0);
    let verdict = match sequence(bytes) / 100 {
        7 => {
            return Decision {
                verdict: BLOCK,
                inject: Some(frame(9, 77)),
            };
        }
        number => number.try_into().unwrap(),
    };
    if verdict == REPLACE {
        bytes[MARK] = 42;
    }
    Decision {
        verdict,
        inject: None,
    }
}

fn snort2(socket: &Path) -> Snort {
    let daq = Daq2::new(socket, &[], 50).unwrap();
    Snort::run(move |stop| {
        daq.start().unwrap();
        while !stop.load(Ordering::Relaxed) {
            assert_eq!(daq.acquire(0, &mut decide), 0);
        }
        let stats = daq.stats();
        // The packet that is retried is counted once it is decided.
        assert_eq!(stats.verdicts, [4, 2, 1, 1, 1, 1, 1]);
        assert_eq!((stats.packets_received, stats.packets_injected), (11, 1));
    })
}

/// Messages are given back in reverse order.
fn snort3(socket: &Path) -> Snort {
    let daq = Daq3::new(socket, &[], 0).unwrap();
    Snort::run(move |stop| {
        daq.start().unwrap();
        while !stop.load(Ordering::Relaxed) {
            let (messages, _) = daq.receive(16);
            for message in messages.into_iter().rev() {
                let (ingress, bytes) = message.packet();
                let decision = decide(ingress, bytes);
                if let Some(frame) = decision.inject {
                    assert_eq!(daq.inject(message, &frame, true), 0);
                }
                assert_eq!(daq.finalize(message, decision.verdict), 0);
                assert_ne!(daq.finalize(message, BLOCK), 0, "it is not out any more");
            }
        }
        let stats = daq.stats();
        assert_eq!(stats.verdicts, [4, 2, 1, 1, 1, 1]);
        assert_eq!((stats.packets_injected, stats.packets_outstanding), (1, 0));
        assert_eq!(daq.pool(), (64, 64));
    })
}

/// Sends packets with all verdicts, and checks what becomes of them.
pub(crate) fn check_verdicts(bed: &mut Bed, has_retry: bool) {
    let pass = |bed: &mut Bed, flow: u16, number: u32| {
        assert!(bed.one.send(&frame(flow, number)));
        let came = bed.receive();
        assert_eq!(sequence(&came), number);
        marks(&came).first().copied()
    };
    assert_eq!(pass(bed, 0, 1), None);
    assert_eq!(pass(bed, 0, 200), Some(42));
    assert_eq!(pass(bed, 1, 300), None);
    assert_eq!(pass(bed, 2, 500), None);
    // Snort would block these packets, but it does not see them.
    assert_eq!(pass(bed, 1, 101), None);
    assert_eq!(pass(bed, 2, 102), None);
    // A blocked packet, a blacklisted flow, one that is retried in vain, and an answer.
    assert!(bed.one.send(&frame(3, 103)));
    assert!(bed.one.send(&frame(4, 400)));
    let stats = |bed: &mut Bed| bed.testbed.chain.stats().hops.remove(0);
    bed.testbed.wait("the blacklisted flow", |testbed| {
        testbed.chain.stats().hops[0].shunned_flows == 3
    });
    assert!(bed.one.send(&frame(4, 2)));
    if has_retry {
        assert!(bed.one.send(&frame(5, 600)));
    }
    assert!(bed.one.send(&frame(6, 700)));
    let back = bed.one.receive_within(BOUND).unwrap();
    assert_eq!((flow(&back), sequence(&back)), (9, 77));
    for number in 3..6 {
        assert_eq!(pass(bed, 7, number), None);
    }
    let retried = u64::from(has_retry);
    let hop = stats(bed);
    assert_eq!(
        (hop.dropped, hop.shunned_passed, hop.shunned_dropped),
        (3 + retried, 2, 1)
    );
    assert_eq!((hop.sent, hop.not_sent), (1, 0));
    bed.testbed.wait("the counters", |testbed| {
        let hop = testbed.chain.stats().hops.remove(0);
        let value = |name: &str| hop.counters.iter().find(|(known, _)| *known == name).unwrap().1;
        [
            "received",
            "passed",
            "blocked",
            "blacklisted",
            "retried",
            "injected",
        ]
        .map(value)
            == [10 + retried, 4, 2, 1, retried, 1]
    });
}

#[test]
fn verdicts_through_the_interface_of_libdaq_2_have_their_effects() {
    let mut bed = Bed::new(1);
    let _snort = snort2(&bed.socket.clone());
    bed.wait_for(HopState::Up);
    check_verdicts(&mut bed, true);
}

#[test]
fn verdicts_through_the_interface_of_libdaq_3_have_their_effects_in_any_order() {
    let mut bed = Bed::new(1);
    let _snort = snort3(&bed.socket.clone());
    bed.wait_for(HopState::Up);
    check_verdicts(&mut bed, false);
}

#[test]
fn a_packet_with_bytes_replaced_behind_its_first_segment_is_dropped() {
    const HEAD: usize = 60;
    let mut bed = Bed::new(1);
    let daq = Daq3::new(&bed.socket, &[], 0).unwrap();
    let _snort = Snort::run(move |stop| {
        daq.start().unwrap();
        while !stop.load(Ordering::Relaxed) {
            for message in daq.receive(16).0 {
                let (_, bytes) = message.packet();
                match sequence(bytes) {
                    1 => bytes[HEAD] = 42,
                    _ => bytes[MARK] = 42,
                }
                assert_eq!(daq.finalize(message, REPLACE), 0);
            }
        }
    });
    bed.wait_for(HopState::Up);
    for number in [1, 2] {
        let packet = Frame::segmented(&frame(0, number), HEAD);
        assert!(bed.one.send_packet(packet));
    }
    let came = bed.receive();
    assert_eq!((sequence(&came), came[MARK]), (2, 42));
    bed.testbed
        .wait("the drop", |testbed| testbed.drops(DropReason::FunctionDrop) == 1);
}

#[test]
fn a_packet_that_is_retried_comes_again_after_ten_milliseconds() {
    let mut bed = Bed::new(1);
    let daq = Daq2::new(&bed.socket, &[("retry", "pass")], 50).unwrap();
    let times = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&times);
    let _snort = Snort::run(move |stop| {
        daq.start().unwrap();
        let mut decide = |_: i32, bytes: &mut [u8]| {
            let mut seen = seen.lock();
            seen.push((sequence(bytes), Instant::now()));
            let is_first = seen.iter().filter(|(number, _)| *number == 1).count() == 1;
            Decision {
                verdict: if sequence(bytes) == 1 && is_first {
                    RETRY
                } else {
                    PASS
                },
                inject: None,
            }
        };
        while !stop.load(Ordering::Relaxed) {
            daq.acquire(0, &mut decide);
        }
    });
    bed.wait_for(HopState::Up);
    assert!(bed.one.send(&frame(1, 1)));
    assert!(bed.one.send(&frame(2, 2)));
    // The order of packets is kept.
    assert_eq!(
        [bed.receive(), bed.receive()].map(|frame| sequence(&frame)),
        [1, 2]
    );
    let times = times.lock();
    let numbers: Vec<u32> = times.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 1]);
    assert!(times[2].1 - times[0].1 >= Duration::from_millis(10));
}

#[test]
fn a_module_attaches_again_when_the_switch_has_detached_it_and_keeps_what_snort_holds_valid() {
    let mut bed = Bed::new(1);
    let daq = Daq3::new(&bed.socket, &[], 0).unwrap();
    let started = std::thread::spawn(move || {
        daq.start().unwrap();
        daq
    });
    bed.wait_for(HopState::Up);
    let daq = started.join().unwrap();
    assert!(bed.one.send(&frame(1, 1)));
    let held = loop {
        let (messages, _) = daq.receive(4);
        if let Some(message) = messages.first() {
            break *message;
        }
    };
    // Snort is silent for more than two seconds: the switch detaches it, and the policy drops the packet that it holds.
    bed.wait_for(HopState::Down);
    // The lane counts the packet when it next looks at the hop.
    bed.testbed.wait("the packet counts as lost", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[0].lost == 1
    });
    let _snort = Snort::run(move |stop| {
        while !stop.load(Ordering::Relaxed) {
            for message in daq.receive(4).0 {
                assert_eq!(daq.finalize(message, PASS), 0);
            }
        }
        // The bytes of the old window are still there, and the verdict on them changes nothing.
        assert_eq!(sequence(held.packet().1), 1);
        assert_eq!(daq.finalize(held, PASS), 0);
        assert_eq!(daq.pool(), (64, 64));
    });
    bed.wait_for(HopState::Up);
    assert!(bed.one.send(&frame(1, 2)));
    assert_eq!(sequence(&bed.receive()), 2);
    assert_eq!(bed.testbed.chain.stats().hops[0].restarts, 1);
}

#[test]
fn two_instances_of_libdaq_3_have_windows_of_their_own() {
    let mut bed = Bed::new(2);
    let snorts: Vec<Snort> = [1, 2]
        .map(|instance| {
            let daq = Daq3::new(&bed.socket, &[], instance).unwrap();
            Snort::run(move |stop| {
                daq.start().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    for message in daq.receive(16).0 {
                        message.packet().1[MARK] = instance as u8;
                        assert_eq!(daq.finalize(message, REPLACE), 0);
                    }
                }
            })
        })
        .into();
    bed.wait_for(HopState::Up);
    let mut seen = [0; 3];
    for flow in 0..16 {
        let mut first = None;
        for number in 0..2 {
            assert!(bed.one.send(&frame(flow, number)));
            let mark = marks(&bed.receive())[0];
            assert_eq!(*first.get_or_insert(mark), mark, "a flow stays with its instance");
            seen[usize::from(mark)] += 1;
        }
    }
    assert!(seen[1] > 0 && seen[2] > 0, "{seen:?}");
    drop(snorts);
}

#[test]
fn breakloop_ends_a_call_from_another_thread_and_errors_have_texts() {
    let bed = Bed::new(1);
    let error = Daq2::new(Path::new("eth0"), &[], 0).err().unwrap();
    assert!(error.contains("expected the socket of a hop"), "{error}");
    let error = Daq3::new(Path::new("/x"), &[("retry", "often")], 0)
        .err()
        .unwrap();
    assert!(error.contains("expected pass or drop"), "{error}");
    let nowhere = Daq2::new(Path::new("/nowhere/snort.sock"), &[], 0).unwrap();
    let error = nowhere.start().unwrap_err();
    assert!(error.contains("/nowhere/snort.sock"), "{error}");
    // Without a time limit, only `breakloop` ends the call.
    let daq = Daq2::new(&bed.socket, &[], 0).unwrap();
    let end = daq.breaker();
    let acquiring = std::thread::spawn(move || daq.acquire(0, &mut decide));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!acquiring.is_finished());
    end();
    assert_eq!(acquiring.join().unwrap(), 0);
    let _ = (WHITELIST, BLACKLIST, IGNORE);
}
