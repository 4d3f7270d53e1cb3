//! Transfers whose ends are killed with SIGKILL at random moments: the tree is complete at the end, and little is sent again.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Kills of one run; `make kill-transfers` has 200, of a larger file.
const KILLS: u64 = 20;
const BYTES: u64 = 24 << 20;
/// The limit of row T11 of docs/gates.md: what may be sent again in all, in addition to a hundredth of the bytes.
const RESENT_MAX: u64 = 64 << 20;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Returns the next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A running `millrace`, whose events come by a channel.
pub(crate) struct Program {
    child: Child,
    events: Receiver<Value>,
}

impl Program {
    pub(crate) fn start(words: &[&str]) -> Program {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg("--json")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        Program { child, events }
    }

    /// Returns the first event with this name.
    pub(crate) fn wait_for(&self, name: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(Duration::from_secs(60)).unwrap();
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Sends SIGINT, and returns the exit status.
    pub(crate) fn interrupt(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops a process with SIGSTOP while the value exists.
pub(crate) struct Stopped(Pid);

impl Stopped {
    pub(crate) fn new(child: &Child) -> Stopped {
        let pid = Pid::from_child(child);
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Returns the key of an identity file, which is made.
fn key(identity: &Path, directory: &Path) -> String {
    let words = [
        "receive",
        path(directory),
        "--listen",
        "127.0.0.1:0",
        "--identity",
        path(identity),
    ];
    let program = Program::start(&words);
    program.wait_for("listening")["key"].as_str().unwrap().to_owned()
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn make_tree(root: &Path, bytes: u64) {
    fs::create_dir_all(root.join("many")).unwrap();
    let mut state = 5;
    let mut random = |len: u64| -> Vec<u8> {
        (0..len.div_ceil(8))
            .flat_map(|_| next(&mut state).to_le_bytes())
            .collect()
    };
    for index in 0..60_u64 {
        fs::write(root.join(format!("many/{index}")), random(index * 97)).unwrap();
    }
    for index in 0..3 {
        fs::write(root.join(format!("large-{index}")), random(bytes / 3)).unwrap();
    }
}

/// Overwrites bytes of each large file in a directory that is in progress, and returns how many there were.
fn damage(directory: &Path) -> usize {
    let temporary = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(".millrace-")
            && !name.contains(".journal")
            && path.metadata().unwrap().len() > 1 << 20
    };
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let victims: Vec<_> = entries.filter(|path| temporary(path)).collect();
    for victim in &victims {
        let file = fs::OpenOptions::new().write(true).open(victim).unwrap();
        file.write_all_at(&[0x55; 90], 70_000).unwrap();
    }
    victims.len()
}

#[test]
fn bytes_that_are_overwritten_while_neither_end_runs_are_sent_again() {
    for interrupted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&to).unwrap();
        make_tree(&from, 24 << 20);
        let (own, peer) = (dir.path().join("sender.key"), dir.path().join("receiver.key"));
        let sender_key = key(&own, &to);
        let receiver = || {
            let words = [
                "receive",
                path(&to),
                "--listen",
                "127.0.0.1:0",
                "--allow",
                &sender_key,
            ];
            let program = Program::start(&[&words[..], &["--once", "--identity", path(&peer)]].concat());
            let listening = program.wait_for("listening");
            let text = |name: &str| listening[name].as_str().unwrap().to_owned();
            let target = format!("{}@{}", text("key"), text("address"));
            (program, target)
        };
        let source = format!("{}/", path(&from));
        let (mut receiving, target) = receiver();
        let words = ["send", &source, &target, "--rate", "40Mbps"];
        let mut sending = Program::start(&[&words[..], &["--identity", path(&own)]].concat());
        // The journal records extents once a second.
        let has_records = || {
            let entries = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap());
            let mut journals =
                entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".journal"));
            journals.any(|journal| journal.metadata().is_ok_and(|found| found.len() > 300))
        };
        while !has_records() {
            sending.wait_for("progress");
        }
        if interrupted {
            sending.interrupt();
            receiving.interrupt();
        } else {
            sending.kill();
            receiving.kill();
        }
        assert!(damage(&to) > 0);
        let (receiving, target) = receiver();
        let words = ["send", &source, &target];
        let mut sending = Program::start(&[&words[..], &["--identity", path(&own)]].concat());
        assert_eq!(sending.wait_for("done")["outcome"], "delivered");
        assert!(sending.child.wait().unwrap().success());
        drop(sending);
        receiving.wait_for("done");
        let is_left = || {
            fs::read_dir(&to)
                .unwrap()
                .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with('.'))
        };
        let until = Instant::now() + Duration::from_secs(60);
        while is_left() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_same(&from, &to);
    }
}

/// Asserts that every file of a tree is in another one with the same bytes, and that nothing else is there.
fn assert_same(from: &Path, to: &Path) {
    let names = |directory: &Path| {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(from), names(to));
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            assert_same(&from, &to);
        } else {
            assert!(
                fs::read(&from).unwrap() == fs::read(&to).unwrap(),
                "{}",
                to.display()
            );
        }
    }
}

#[test]
fn kills_of_either_end_cost_little_and_the_tree_is_complete_at_the_end() {
    let (kills, bytes) = (
        setting("MILLRACE_KILLS", KILLS),
        setting("MILLRACE_KILL_BYTES", BYTES),
    );
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&to).unwrap();
    make_tree(&from, bytes);
    let (own, peer) = (dir.path().join("sender.key"), dir.path().join("receiver.key"));
    let (sender_key, receiver_key) = (key(&own, &to), key(&peer, &to));
    let start_receiver = |listen: &str| {
        let words = [
            "receive",
            path(&to),
            "--listen",
            listen,
            "--allow",
            &sender_key,
            "--silence",
            "300ms",
        ];
        Program::start(&[&words[..], &["--identity", path(&peer)]].concat())
    };
    let mut receiver = start_receiver("127.0.0.1:0");
    let address = receiver.wait_for("listening")["address"]
        .as_str()
        .unwrap()
        .to_owned();
    let source = format!("{}/", path(&from));
    let target = format!("{receiver_key}@{address}");
    // The transfer takes as long as the kills do.
    let rate = format!("{}bps", bytes * 8 * 1_000 / (kills * 300));
    let start_sender = || {
        let words = ["send", &source, &target, "--rate", &rate, "--silence", "300ms"];
        Program::start(&[&words[..], &["--identity", path(&own)]].concat())
    };
    let mut sender = start_sender();
    let (mut state, mut done, mut verified, mut resent) = (11, 0, 0_u64, 0_u64);
    let mut next_kill = Instant::now() + Duration::from_millis(100);
    let end = Instant::now() + Duration::from_secs(60 + 2 * kills);
    loop {
        assert!(Instant::now() < end, "no end after {done} kills");
        match sender
            .events
            .recv_timeout(next_kill.saturating_duration_since(Instant::now()))
        {
            Ok(event) => match event["event"].as_str() {
                Some("accepted") => {
                    let present = event["present"].as_u64().unwrap();
                    resent += verified.saturating_sub(present);
                    verified = present;
                }
                Some("progress") => verified = verified.max(event["verified"].as_u64().unwrap()),
                Some("done") if event["outcome"] == "delivered" => break,
                _ => {}
            },
            Err(RecvTimeoutError::Timeout) if done < kills => {
                done += 1;
                if next(&mut state).is_multiple_of(3) {
                    receiver.kill();
                    receiver = start_receiver(&address);
                } else {
                    sender.kill();
                    sender = start_sender();
                }
                next_kill = Instant::now() + Duration::from_millis(40 + next(&mut state) % 400);
            }
            Err(RecvTimeoutError::Timeout) => next_kill = Instant::now() + Duration::from_secs(1),
            // The sender ended without everything: its receiver was away for the first packet.
            Err(RecvTimeoutError::Disconnected) => sender = start_sender(),
        }
    }
    assert!(sender.child.wait().unwrap().success());
    assert!(
        resent <= bytes / 100 + RESENT_MAX,
        "{resent} bytes were sent again"
    );
    // The journal goes when the receiver learns that the sender has the receipt.
    let until = Instant::now() + Duration::from_secs(60);
    let has_journal = || {
        fs::read_dir(&to)
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with('.'))
    };
    while has_journal() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_same(&from, &to);
    println!("{done} kills, {resent} bytes sent again of {bytes}");
}
