//! A port over a NIC in software: dispatch, order, frames both ways, and a device that goes, comes back, or breaks a rule.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use millrace_flow::{Field, FlowKey, FlowMask};
use millrace_nic::connection::send_memory;
use millrace_nic::memory::{Layout, Memory};
use millrace_nic::{Capabilities, Command, CommandCompletion, Completion, Config, HashKeys, Status};
use millrace_nic_model::{Fault, SoftwareNic, frames};
use millrace_offload::{Outcome, Refusal};
use millrace_wire::{Depth, Frame, FramePool};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use super::offload::{FENCE_TIMEOUT, Installer};
use super::*;
use crate::io::Burst;
use crate::offload::key::entry_bits;
use crate::offload::{DeviceOperation, DeviceOutcome};

/// Bound on every wait.
const BOUND: Duration = Duration::from_secs(60);

/// The process of a device, as far as a test needs it.
struct Process {
    listener: OwnedFd,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

/// A device with a driver.
struct Attached {
    nic: SoftwareNic,
    memory: Memory,
    _socket: OwnedFd,
}

impl Process {
    fn start() -> Process {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nic.sock");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 1).unwrap();
        Process {
            listener,
            path,
            _folder: folder,
        }
    }

    fn open(&self, queues: u16) -> Opened<Frame> {
        let pool = FramePool::new(4096, 2048);
        let empty: Empty<Frame> =
            Arc::new(move |len, burst| burst.extend((0..len).map_while(|_| pool.take(&[]))));
        let options = DeviceOptions {
            queues,
            only_if_spread: true,
            ..DeviceOptions::PLAIN
        };
        open(&DeviceSpec::Nic(self.path.clone()), &self.path, options, &empty).unwrap()
    }

    /// Attaches a device with four queues to the port that connects, and waits until the port is up.
    fn attach(&self, opened: &Opened<Frame>) -> Attached {
        let layout = Layout {
            capabilities: Capabilities {
                queues: 4,
                ..Capabilities::TEN
            },
            ring_bits: 7,
            buffer_size: 2048,
        };
        let (memory, file) = Memory::create(layout).unwrap();
        let mut nic = SoftwareNic::new(memory.clone()).unwrap();
        let socket = wait_for("a connection", || {
            accept_with(&self.listener, SocketFlags::CLOEXEC).ok()
        });
        send_memory(&socket, &file).unwrap();
        wait_for("the port to be up", || {
            nic.poll();
            opened.device.info().link_up.then_some(())
        });
        Attached {
            nic,
            memory,
            _socket: socket,
        }
    }
}

fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "no sign of {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn receive(rx: &mut dyn RxQueue<Frame>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut burst = Burst::new();
        rx.rx_burst(&mut burst);
        if burst.is_empty() {
            return all;
        }
        all.extend(burst.iter().map(|frame| frame.bytes().to_vec()));
    }
}

/// Returns an MPLS packet of a flow with two labels over UDP, and a number in its payload.
fn labelled(flow: u16, number: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x21, 64]);
    let mut header = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = millrace_wire::checksum::internet(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(flow.to_be_bytes());
    frame.extend([0, 80, 0, 10, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

#[test]
fn flows_that_rss_does_not_see_come_to_all_queues_each_in_order() {
    let process = Process::start();
    let mut opened = process.open(3);
    assert_eq!((opened.rx.len(), opened.device.info().link_up), (3, false));
    let mut attached = process.attach(&opened);
    let mut seen = vec![0; 3];
    let mut queue_of = std::collections::BTreeMap::new();
    for number in 0..20_u16 {
        for flow in 0..40 {
            assert!(attached.nic.receive(0, &labelled(flow, number), 0).is_some());
        }
        for (queue, rx) in opened.rx.iter_mut().enumerate() {
            let received = receive(&mut **rx);
            seen[queue] += received.len();
            for frame in received {
                let flow = u16::from_be_bytes([frame[42], frame[43]]);
                assert_eq!(frame, labelled(flow, number));
                assert_eq!(
                    *queue_of.entry(flow).or_insert(queue),
                    queue,
                    "one flow has one queue"
                );
            }
        }
        attached.nic.poll();
    }
    assert_eq!(seen.iter().sum::<usize>(), 800);
    // The keys of the hash are random: of 40 flows, a queue gets none once in ten million runs.
    assert!(seen.iter().all(|packets| *packets > 0), "{seen:?}");
    assert_eq!(queue_of.len(), 40);
}

#[test]
fn frames_leave_by_the_device_in_order_and_the_rest_waits_for_room() {
    let process = Process::start();
    let mut opened = process.open(1);
    let mut burst: Burst<Frame> = Burst::new();
    burst.push(Frame::new(&[1; 60]));
    opened.tx[0].tx_burst(&mut burst);
    assert_eq!(
        (burst.len(), opened.tx[0].refused(1)),
        (1, 1),
        "packets do not wait for a device"
    );
    burst.clear();
    let mut attached = process.attach(&opened);
    let sent: Vec<Vec<u8>> = (0..400_u32)
        .map(|number| [&number.to_be_bytes()[..], &[7; 60]].concat())
        .collect();
    let mut waiting: Vec<Frame> = sent.iter().map(|bytes| Frame::segmented(bytes, 20)).collect();
    let (mut out, mut buffer, mut has_waited) = (Vec::new(), Vec::new(), false);
    // The ring has 128 entries; the device takes fewer frames at a time than the port sends.
    for _ in 0..40 {
        burst.extend(waiting.drain(..waiting.len().min(64)));
        opened.tx[0].tx_burst(&mut burst);
        has_waited |= !burst.is_empty();
        assert!(burst.is_empty() || opened.tx[0].refused(burst.len()) == 0);
        waiting.splice(0..0, burst.drain(..));
        attached
            .nic
            .transmit(40, &mut buffer, |frame| out.push(frame.to_vec()));
    }
    assert!(has_waited && waiting.is_empty());
    assert_eq!(out, sent);
    burst.push(Frame::new(&[1; 3000]));
    opened.tx[0].tx_burst(&mut burst);
    assert_eq!(opened.tx[0].refused(1), 1, "it is longer than a buffer");
}

/// Returns the outcome of the device, which the test drives meanwhile.
fn outcome(opened: &mut Opened<Frame>, attached: &mut Attached) -> DeviceOutcome {
    let device = &mut opened.device;
    wait_for("an outcome", || {
        attached.nic.poll();
        device.offload()?.poll()
    })
}

fn submit(opened: &mut Opened<Frame>, operation: DeviceOperation) {
    assert!(opened.device.offload().unwrap().submit(operation));
}

/// Returns the marks of the packets of a burst; 0 for none.
fn marks(rx: &mut dyn RxQueue<Frame>) -> Vec<u32> {
    let mut burst = Burst::new();
    rx.rx_burst(&mut burst);
    let column = rx.marks().unwrap();
    (0..burst.len()).map(|i| column.mark(i)).collect()
}

#[test]
fn an_entry_marks_packets_until_it_is_removed_and_the_outcome_waits_for_the_queue() {
    let process = Process::start();
    let mut opened = process.open(1);
    assert_eq!(opened.device.offload().unwrap().capabilities(), None);
    let mut attached = process.attach(&opened);
    let capabilities = opened.device.offload().unwrap().capabilities().unwrap();
    assert_eq!((capabilities.entries, capabilities.is_trusted), (2048, true));
    opened.rx[0].keep_marks(true);
    let mut mask = FlowMask::default();
    mask.0.put(Field::MplsLabel, Field::MplsLabel.max_value());
    let mask = entry_bits(&mask);
    submit(&mut opened, DeviceOperation::Reset { number: 5, mask });
    assert_eq!(
        outcome(&mut opened, &mut attached),
        DeviceOutcome::Reset { number: 5 }
    );
    let frame = labelled(1, 0);
    let mut key = FlowKey::default();
    key.read(&frame, frame.len(), Depth::All);
    let slot_outcome = |outcome| DeviceOutcome::Slot {
        reset: 5,
        slot: 3,
        outcome,
    };
    let install = DeviceOperation::Install {
        slot: 3,
        mark: 0x103,
        key: key.masked(&mask),
    };
    submit(&mut opened, install);
    assert_eq!(
        outcome(&mut opened, &mut attached),
        slot_outcome(Outcome::Installed)
    );
    let mut other = labelled(1, 0);
    other[15] = 9;
    for frame in [&frame, &other, &frame] {
        attached.nic.receive(0, frame, 0);
    }
    assert_eq!(marks(&mut *opened.rx[0]), [0x103, 0, 0x103]);
    attached.nic.poll();
    attached.nic.receive(0, &frame, 0);
    let before = attached.nic.model().unwrap().generation();
    submit(&mut opened, DeviceOperation::Remove { slot: 3 });
    wait_for("the entry to be removed", || {
        attached.nic.poll();
        (attached.nic.model()?.generation() != before).then_some(())
    });
    (0..50).for_each(|_| {
        attached.nic.poll();
    });
    let early = opened.device.offload().unwrap().poll();
    assert_eq!(early, None, "a packet with the mark is still in the queue");
    assert_eq!(marks(&mut *opened.rx[0]), [0x103]);
    // The fence is behind it.
    let device = &mut opened.device;
    let rx = &mut opened.rx[0];
    let removed = wait_for("the outcome", || {
        attached.nic.poll();
        assert!(marks(&mut **rx).is_empty());
        device.offload()?.poll()
    });
    assert_eq!(removed, slot_outcome(Outcome::Removed));
    attached.nic.receive(0, &frame, 0);
    assert_eq!(marks(&mut *opened.rx[0]), [0]);
}

#[test]
fn a_device_that_refuses_rows_or_loses_fences_has_outcomes_that_say_so() {
    let process = Process::start();
    let mut opened = process.open(2);
    let mut attached = process.attach(&opened);
    let mask = entry_bits(&FlowMask::default());
    submit(&mut opened, DeviceOperation::Reset { number: 1, mask });
    outcome(&mut opened, &mut attached);
    attached.nic.set_fault(Some(Fault::RefusedRows));
    let install = |slot: u32| DeviceOperation::Install {
        slot,
        mark: 0x100 + slot,
        key: {
            let mut key = FlowKey::default();
            key.put(Field::IpProto, slot.into());
            key.masked(&mask)
        },
    };
    submit(&mut opened, install(1));
    let refused = DeviceOutcome::Slot {
        reset: 1,
        slot: 1,
        outcome: Outcome::Refused(Refusal::Shape),
    };
    assert_eq!(outcome(&mut opened, &mut attached), refused);
    attached.nic.set_fault(None);
    for slot in 2..40 {
        submit(&mut opened, install(slot));
        let installed = DeviceOutcome::Slot {
            reset: 1,
            slot,
            outcome: Outcome::Installed,
        };
        assert_eq!(outcome(&mut opened, &mut attached), installed);
    }
    submit(&mut opened, DeviceOperation::Remove { slot: 77 });
    let unknown = DeviceOutcome::Slot {
        reset: 1,
        slot: 77,
        outcome: Outcome::Leaked,
    };
    assert_eq!(outcome(&mut opened, &mut attached), unknown);
    // A reset after the failure begins anew.
    submit(&mut opened, DeviceOperation::Reset { number: 2, mask });
    assert_eq!(
        outcome(&mut opened, &mut attached),
        DeviceOutcome::Reset { number: 2 }
    );
}

#[test]
fn a_removal_whose_fence_does_not_come_is_a_leak_after_a_time() {
    let wake = Arc::new(WakeEvent::new().unwrap());
    let nic = Nic::new("nic:test".to_owned(), 1, wake);
    nic.queues_in_use.store(1, Ordering::Relaxed);
    let mut installer = Installer::new(&Config::new(HashKeys::new(1)), Capabilities::TEN.row_bits);
    let mask = entry_bits(&FlowMask::default());
    let operations = [
        DeviceOperation::Reset { number: 9, mask },
        DeviceOperation::Install {
            slot: 3,
            mark: 0x103,
            key: FlowKey::default(),
        },
        DeviceOperation::Remove { slot: 3 },
    ];
    for operation in operations {
        nic.operations.push(operation).unwrap();
    }
    let start = Instant::now();
    let mut run = |after: Duration| {
        let done = CommandCompletion {
            tag: 0,
            status: Status::Ok,
            phase: false,
            value: 0,
        };
        let all_done = |commands: &[Command]| Ok::<_, Status>(vec![done; commands.len()]);
        installer.run(&nic, None, (10, start + after), all_done).unwrap();
        let outcomes: Vec<_> = core::iter::from_fn(|| nic.outcomes.pop()).collect();
        (outcomes, installer.is_waiting())
    };
    let of_slot = |outcome| DeviceOutcome::Slot {
        reset: 9,
        slot: 3,
        outcome,
    };
    let first = vec![DeviceOutcome::Reset { number: 9 }, of_slot(Outcome::Installed)];
    assert_eq!(run(Duration::ZERO), (first, true));
    assert_eq!(run(FENCE_TIMEOUT - Duration::from_millis(1)), (vec![], true));
    assert_eq!(run(FENCE_TIMEOUT), (vec![of_slot(Outcome::Leaked)], false));
    assert_eq!(run(2 * FENCE_TIMEOUT), (vec![], false));
}

#[test]
fn a_device_that_ends_takes_the_link_down_and_another_brings_it_back() {
    let process = Process::start();
    let mut opened = process.open(2);
    for _ in 0..3 {
        let mut attached = process.attach(&opened);
        let frame = frames::chains().remove(1).1;
        assert!(attached.nic.receive(0, &frame, 0).is_some());
        let received: usize = opened.rx.iter_mut().map(|rx| receive(&mut **rx).len()).sum();
        assert_eq!(received, 1);
        drop(attached);
        wait_for("the link to be down", || {
            (!opened.device.info().link_up).then_some(())
        });
    }
}

#[test]
fn a_device_that_breaks_a_rule_is_detached_and_no_packet_of_it_is_taken() {
    let process = Process::start();
    let mut opened = process.open(1);
    let attached = process.attach(&opened);
    let mut device = millrace_nic::device::Device::new(attached.memory.clone()).unwrap();
    let invalid = Completion {
        buffer: 7,
        length: 60_000,
        ..Completion::default()
    };
    device.complete(0, &invalid, &[]);
    assert!(receive(&mut *opened.rx[0]).is_empty());
    wait_for("the link to be down", || {
        (!opened.device.info().link_up).then_some(())
    });
    assert_eq!(opened.device.stats().rx_errors, 1);
    drop(attached);
    // The next device is used as if nothing had been.
    process.attach(&opened);
}
