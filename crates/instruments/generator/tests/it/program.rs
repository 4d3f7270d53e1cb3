//! Tests of the whole program without huge pages: over a ring device, which loops packets back, and over memif to a
//! second process that reflects packets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_generator::report::{End, Ready, Report};

struct Generator {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Generator {
    fn start(args: &[&str]) -> Generator {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace-generator"))
            .args(["--huge-pages", "off", "--interval", "0", "--log", "error"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Generator { child, stdin, stdout }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn next(&mut self) -> Option<Report> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn ready(&mut self) -> Ready {
        match self.next() {
            Some(Report::Ready(ready)) => ready,
            other => panic!("{other:?}"),
        }
    }

    fn wait_for_link(&mut self) {
        while !matches!(self.next().unwrap(), Report::Link { up: true }) {}
    }

    fn end(&mut self) -> End {
        loop {
            match self.next().unwrap() {
                Report::End(end) => return end,
                Report::Error { message } => panic!("{message}"),
                _ => {}
            }
        }
    }

    fn status(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if self.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(500));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn memif(number: u8, role: &str, id: u8, socket: &Path) -> String {
    format!(
        "net_memif{number},role={role},id={id},socket={},socket-abstract=no",
        socket.display()
    )
}

#[test]
fn what_is_sent_into_a_loop_comes_back_whole_and_in_order() {
    let mut generator = Generator::start(&["--tx", "net_ring0", "--flows", "10", "--sizes", "imix"]);
    let ready = generator.ready();
    assert_eq!((ready.flows, ready.stampable), (10, ready.packets));
    generator.wait_for_link();
    generator.say("start 20k 0.5");
    let end = generator.end();
    let counters = end.counters;
    // On a busy machine the generator may pause. It then reports missed packets, and the counters add up.
    let due = counters.sent + counters.refused + counters.missed;
    assert!((9_500..=10_001).contains(&due), "{end:?}");
    assert!(counters.sent > 100, "{end:?}");
    assert_eq!((end.lost, counters.received), (counters.refused, counters.sent));
    assert_eq!(
        (
            counters.duplicated,
            counters.reordered,
            counters.corrupted,
            counters.foreign
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(end.latency.count, counters.received);
    assert!(end.latency.p50_ns > 0 && end.latency.p50_ns <= end.latency.max_ns);
    let bars: u64 = end.histogram.iter().map(|bar| bar.1).sum();
    assert_eq!(bars, counters.received);
    generator.say("quit");
    assert!(generator.status().success());
}

#[test]
fn a_portion_is_sent_once_by_the_device_that_is_named_or_over_and_over_for_a_time() {
    let mut generator = Generator::start(&["--tx", "net_ring0", "--tx", "net_ring1", "--flows", "10"]);
    let ready = generator.ready();
    assert_eq!((ready.tx.as_str(), ready.rx.len()), ("net_ring0", 2));
    generator.wait_for_link();
    for (line, sent, by) in [
        ("start 10k tx=1 packets=3+50", 50, [0, 50]),
        ("start flat packets=0+7", 7, [7, 0]),
    ] {
        generator.say(line);
        let counters = generator.end().counters;
        assert_eq!(
            (counters.sent, &counters.received_by[..2]),
            (sent, &by[..]),
            "{line}"
        );
        assert_eq!((counters.refused, counters.duplicated), (0, 0), "{line}");
    }
    generator.say("start 10k 0.1 packets=3+1");
    let end = generator.end();
    assert!(
        end.counters.sent > 10 && end.lost == end.counters.refused,
        "{end:?}"
    );
    let beyond = format!("start 1k packets={}+2", ready.packets - 1);
    for (line, wanted) in [("start 1k tx=2", "less than 2"), (beyond.as_str(), "there are")] {
        generator.say(line);
        match generator.next() {
            Some(Report::Error { message }) => assert!(message.contains(wanted), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_run_flat_out_sends_what_the_device_takes_and_loses_nothing_in_a_loop() {
    let mut generator = Generator::start(&["--tx", "net_ring0", "--stamp-every", "7", "--no-verify"]);
    generator.ready();
    generator.wait_for_link();
    generator.say("start flat");
    std::thread::sleep(Duration::from_millis(300));
    generator.say("stop");
    let end = generator.end();
    assert_eq!(
        (end.rate, end.lost, end.counters.refused),
        (None, 0, 0),
        "{end:?}"
    );
    assert!(end.counters.sent > 1000, "{end:?}");
    assert!(end.latency.count < end.counters.received / 5, "{end:?}");
}

#[test]
fn a_device_that_swallows_loses_everything() {
    let mut generator = Generator::start(&["--tx", "net_null0,no-rx=1", "--rate", "10k", "--seconds", "0.2"]);
    let end = generator.end();
    assert_eq!(
        (end.lost, end.counters.received),
        (end.counters.sent + end.counters.refused, 0)
    );
    assert!(generator.status().success());
}

#[test]
fn packets_that_nobody_sent_are_counted_apart() {
    // The device sends buffers as they are, some of which still contain our packets.
    let mut generator = Generator::start(&["--tx", "net_null0,size=60", "--rate", "1k", "--seconds", "0.1"]);
    let counters = generator.end().counters;
    assert!(counters.foreign > 0, "{counters:?}");
    assert!(counters.received <= counters.sent, "{counters:?}");
}

#[test]
fn wrong_lines_are_answered_and_change_nothing() {
    let mut generator = Generator::start(&["--tx", "net_ring0"]);
    generator.ready();
    generator.wait_for_link();
    generator.say("start fast");
    match generator.next() {
        Some(Report::Error { message }) => assert!(message.contains("start RATE"), "{message}"),
        other => panic!("{other:?}"),
    }
    generator.say("start 1k 0.1");
    assert!(generator.end().counters.sent > 0);
    // The parent closes standard input.
    drop(generator.stdin.take());
    assert!(generator.status().success());
}

#[test]
fn a_device_that_does_not_exist_is_an_error_with_a_next_step() {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace-generator"))
        .args(["--huge-pages", "off", "--tx", "net_nothing0"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("To fix it: "), "{text}");
}

#[test]
fn two_processes_meet_over_memif_and_what_one_sends_back_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("memif.sock");
    let (to, from) = (memif(0, "server", 1, &socket), memif(1, "server", 0, &socket));
    let mut mirror = Generator::start(&["--reflect", "--tx", &to, "--rx", &from]);
    mirror.ready();
    let (to, from) = (memif(0, "client", 0, &socket), memif(1, "client", 1, &socket));
    let mut generator = Generator::start(&[
        "--tx",
        &to,
        "--rx",
        &from,
        "--flows",
        "100",
        "--proto",
        "tcp",
        "--drain-ms",
        "2000",
    ]);
    generator.ready();
    generator.wait_for_link();
    for run in 1..=2 {
        generator.say("start 5k 0.5");
        let end = generator.end();
        assert_eq!(end.run, run);
        assert!(end.counters.sent > 50, "{end:?}");
        assert_eq!(
            (end.lost, end.counters.corrupted),
            (end.counters.refused, 0),
            "{end:?}"
        );
        assert_eq!(end.counters.received_by[0], end.counters.received);
    }
}

#[test]
fn without_a_far_end_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let mut generator = Generator::start(&["--tx", &memif(0, "server", 0, &dir.path().join("s"))]);
    generator.ready();
    generator.say("start 1k");
    match generator.next() {
        Some(Report::Error { message }) => assert!(message.contains("link is down"), "{message}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reports_are_written_as_the_bench_reads_them() {
    let lines = include_str!("../reports.jsonl");
    assert_eq!(lines.lines().count(), 5);
    for line in lines.lines() {
        let report: Report = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), line);
    }
}
