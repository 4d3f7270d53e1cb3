//! Functions behind vhost-user ports: they get frames, and send them back in order.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use millrace_datapath::io::{
    Backend as _, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened, SocketAccess, VnicKind, VnicSpec,
};
use millrace_wire::{Frame, Packet as _};

const BOUND: Duration = Duration::from_secs(60);

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a switch port at a socket.
fn port(path: &Path) -> Opened<Frame> {
    let spec = DeviceSpec::Vnic(VnicSpec {
        kind: VnicKind::Vhost { tso: false },
        path: path.to_owned(),
        access: Some(SocketAccess {
            owner: None,
            group: None,
            mode: 0o600,
        }),
    });
    HeapBackend::default().open(&spec, DeviceOptions::PLAIN).unwrap()
}

struct Process(Child);

impl Process {
    fn start(path: &Path, words: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-nf"));
        command.arg("--vhost").arg(path).args(words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Process(child.unwrap())
    }

    /// Waits until the process has connected.
    fn connected(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("connected to "), "{line:?}");
    }

    /// Waits for the end of the process, and returns its status and its output.
    fn ended(&mut self) -> (ExitStatus, String) {
        let status = wait_for("the end of the process", || self.0.try_wait().unwrap());
        let mut said = String::new();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        (status, said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f1");
    (dir, path)
}

/// Returns a numbered UDP datagram from port 1000 to a port.
fn datagram(to: u16, number: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([[3, 0xe8], to.to_be_bytes(), [0, 26], [0, 0]].concat());
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, 0);
    bytes
}

/// Sends frames, and returns the frames that come back, up to `expected`.
fn exchange(port: &mut Opened<Frame>, frames: &[Vec<u8>], expected: usize) -> Vec<Vec<u8>> {
    let (mut received, mut sent, mut burst) = (Vec::new(), 0, Burst::new());
    wait_for("frames", || {
        let room = frames.len().min(sent + 32);
        let before = room - sent;
        burst.extend(frames[sent..room].iter().map(|bytes| Frame::new(bytes)));
        // The port takes no frame before the function has connected.
        port.tx[0].tx_burst(&mut burst);
        sent += before - burst.len();
        burst.clear();
        port.rx[0].rx_burst(&mut burst);
        received.extend(burst.drain(..).map(|frame| frame.head().to_vec()));
        (sent == frames.len() && received.len() >= expected).then_some(())
    });
    received
}

#[test]
fn a_function_behind_a_port_gets_frames_and_sends_them_back_in_order() {
    let (_dir, path) = folder();
    let mut port = port(&path);
    let mut process = Process::start(&path, &["--function", "macswap", "--core", "0"]);
    process.connected();
    let frames: Vec<Vec<u8>> = (0..50_000).map(|number| datagram(2000, number)).collect();
    let received = exchange(&mut port, &frames, frames.len());
    for (sent, received) in frames.iter().zip(received) {
        assert_eq!([&sent[6..12], &sent[..6], &sent[12..]].concat(), received);
    }
}

#[test]
fn dropped_frames_do_not_come_back() {
    let (_dir, path) = folder();
    let mut port = port(&path);
    let words = ["--function", "firewall", "--setting", "rule=allow udp port 2000"];
    let mut process = Process::start(&path, &words);
    process.connected();
    let frames: Vec<Vec<u8>> = (0..5000)
        .map(|number| datagram(2000 + (number % 2) as u16, number))
        .collect();
    let received = exchange(&mut port, &frames, 2500);
    let allowed: Vec<Vec<u8>> = frames.iter().step_by(2).cloned().collect();
    assert_eq!(received, allowed);
}

#[test]
fn a_function_waits_for_its_switch_and_ends_with_it() {
    let (_dir, path) = folder();
    let mut process = Process::start(&path, &["--function", "macswap", "--descriptors", "64"]);
    let mut line = String::new();
    BufReader::new(process.0.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("waiting for a switch"), "{line}");
    let mut switch = port(&path);
    process.connected();
    assert_eq!(exchange(&mut switch, &[datagram(1, 1)], 1).len(), 1);
    drop(switch);
    let (status, said) = process.ended();
    assert!(
        !status.success() && said.contains("the switch has closed the connection"),
        "{said}"
    );
}

#[test]
fn invalid_options_are_rejected_by_name() {
    let (_dir, path) = folder();
    let _port = port(&path);
    for (words, reason) in [
        (&["--function", "nonsense"][..], "nonsense"),
        (
            &["--function", "macswap", "--descriptors", "48"],
            "ring size 48; expected a power of two",
        ),
        (&["--function", "macswap", "--setting", "a=b"], "a"),
        (&["--function", "macswap", "--core", "900"], "--core 900"),
    ] {
        let (status, said) = Process::start(&path, words).ended();
        assert!(!status.success() && said.contains(reason), "{words:?}: {said}");
    }
}

#[test]
fn errors_of_the_function_are_reported_before_a_switch_listens() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("none.sock");
    for (words, expected) in [
        (&["--function", "firewal"][..], "there is no function `firewal`"),
        (
            &["--function", "firewall", "--setting", "rule=bogus"],
            "function firewall: `rule=bogus`: expected allow or deny",
        ),
        (
            &["--function", "wasm:/nonexistent.wasm"],
            "function wasm:/nonexistent.wasm: No such file",
        ),
    ] {
        let (status, said) = Process::start(&socket, words).ended();
        assert!(!status.success() && said.contains(expected), "{said}");
    }
}

#[test]
fn a_description_can_be_written_to_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_millrace-nf"))
        .args(["--describe", "--function", "firewall"])
        .stdout(file.reopen().unwrap())
        .status();
    assert!(status.unwrap().success());
    let said = std::fs::read_to_string(file.path()).unwrap();
    assert!(said.starts_with("millrace-nf 1\nname firewall\n"), "{said}");
}
