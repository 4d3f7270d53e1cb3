//! The program between capture files and a port `nic:` of the switch's devices.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_datapath::io::{Backend as _, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened};
use millrace_nic_model::frames;
use millrace_wire::Frame;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};

/// Bound on every wait.
const BOUND: Duration = Duration::from_secs(60);

/// A running `millrace-nic`, which ends with the test.
struct Program(Child);

impl Program {
    fn start(folder: &Path, wire: &str) -> Program {
        let child = Command::new(env!("CARGO_BIN_EXE_millrace-nic"))
            .args(["--wire", wire, "--queues", "4", "--socket"])
            .arg(folder.join("nic.sock"))
            .stderr(Stdio::null())
            .spawn();
        Program(child.unwrap())
    }
}

impl Program {
    /// Ends the program with SIGTERM, and waits for its end.
    fn end(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        self.0.wait().unwrap();
    }
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_there() {
        assert!(Instant::now() < deadline, "no sign of {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for frame in frames {
        let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, frame);
        writer.write_packet(&packet).unwrap();
    }
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(Ok(packet)) = reader.next_packet() {
        frames.push(packet.data.into_owned());
    }
    frames
}

fn port(folder: &Path, queues: u16) -> Opened<Frame> {
    let options = DeviceOptions {
        queues,
        ..DeviceOptions::PLAIN
    };
    HeapBackend::new()
        .open(&DeviceSpec::Nic(folder.join("nic.sock")), options)
        .unwrap()
}

/// Returns frames of 40 flows under two labels, ten of each, numbered.
fn labelled() -> Vec<Vec<u8>> {
    let chains = frames::chains();
    let (_, inside) = chains.iter().find(|(name, _)| *name == "UDP over IPv4").unwrap();
    let frame = |number: u8, flow: u8| {
        let mut frame = inside.clone();
        // The source port, and a byte of the payload.
        frame[35] = flow;
        *frame.last_mut().unwrap() = number;
        frame.splice(12..14, [0x88, 0x47, 0, 1, 0, 64, 0, 1, 0x11, 64]);
        frame
    };
    (0..10)
        .flat_map(|number| (0..40).map(move |flow| frame(number, flow)))
        .collect()
}

#[test]
fn flows_under_labels_come_to_both_queues_in_order_and_frames_leave_by_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let (path_in, path_back) = (folder.path().join("in.pcap"), folder.path().join("back.pcap"));
    let sent = labelled();
    write(&path_in, &sent);
    let wire = format!("pcap:rx={},tx={}", path_in.display(), path_back.display());
    let mut port = port(folder.path(), 2);
    assert!(!port.device.info().link_up);
    let program = Program::start(folder.path(), &wire);
    wait_for("the link", || port.device.info().link_up);
    let mut received = [Vec::new(), Vec::new()];
    wait_for("all frames", || {
        for (rx, received) in port.rx.iter_mut().zip(&mut received) {
            let mut burst = Burst::new();
            rx.rx_burst(&mut burst);
            received.extend(burst.iter().map(|frame| frame.bytes().to_vec()));
        }
        received.iter().map(Vec::len).sum::<usize>() == sent.len()
    });
    let flow_of = |frame: &[u8]| frame[43];
    let mut queue_of = BTreeMap::new();
    for (queue, frames) in received.iter().enumerate() {
        assert!(
            frames.len() > sent.len() / 10,
            "queue {queue} has {} frames",
            frames.len()
        );
        for frame in frames {
            assert_eq!(
                *queue_of.entry(flow_of(frame)).or_insert(queue),
                queue,
                "one flow has one queue"
            );
        }
        let mut expected = sent.clone();
        expected.retain(|frame| queue_of.get(&flow_of(frame)) == Some(&queue));
        assert_eq!(*frames, expected, "queue {queue}");
    }
    let mut burst: Burst<Frame> = Burst::new();
    let mut waiting = sent.iter();
    wait_for("room for all frames", || {
        let room = 64 - burst.len();
        burst.extend(waiting.by_ref().take(room).map(|bytes| Frame::new(bytes)));
        port.tx[0].tx_burst(&mut burst);
        burst.is_empty() && waiting.len() == 0
    });
    program.end();
    assert_eq!(read(&path_back), sent);
    wait_for("the link to be down", || !port.device.info().link_up);
}

#[test]
fn a_program_that_is_killed_and_started_again_serves_the_same_port() {
    let folder = tempfile::tempdir().unwrap();
    let path_in = folder.path().join("in.pcap");
    write(&path_in, &labelled()[..8]);
    let mut port = port(folder.path(), 1);
    for _ in 0..5 {
        let program = Program::start(folder.path(), &format!("pcap:rx={}", path_in.display()));
        let mut received = 0;
        wait_for("its frames", || {
            let mut burst = Burst::new();
            port.rx[0].rx_burst(&mut burst);
            received += burst.len();
            received == 8
        });
        drop(program);
        wait_for("the link to be down", || !port.device.info().link_up);
    }
}
