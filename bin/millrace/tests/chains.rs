//! `millrace nf` and `millrace chain`, against a server of a fake switch.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::process::{Command, Stdio};

use millrace_api::fake::FakeServer;
use serde_json::Value;

/// The exit status, standard output and standard error.
fn run(server: &FakeServer, line: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(line.split_whitespace())
        .env_clear()
        .env("MILLRACE_API", server.url())
        .env("USER", "tester")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn functions_are_listed_counted_and_explained() {
    let server = FakeServer::start().unwrap();
    let (code, text, _) = run(&server, "nf list");
    assert_eq!(code, Some(0));
    assert!(
        text.contains("fw") && text.contains("isolated") && text.contains("down"),
        "{text}"
    );
    let (_, text, _) = run(&server, "nf stats br0");
    assert!(text.contains("999958"), "{text}");
    assert!(
        text.contains("edge/fw: denied 42") && text.contains("edge/watch: 10.0.0.1 64000"),
        "{text}"
    );
    let (_, text, _) = run(&server, "nf stats --json");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json[0]["chains"][0]["hops"][0]["dropped"], 42);
    let (_, text, _) = run(&server, "nf functions");
    assert!(text.contains("firewall: lets connections through"), "{text}");
}

#[test]
fn a_hop_is_restarted_by_name_and_one_that_is_not_there_is_named() {
    let server = FakeServer::start().unwrap();
    let (code, text, _) = run(&server, "nf restart br0 edge fw");
    assert_eq!((code, text.as_str()), (Some(0), "edge/fw: functions made anew\n"));
    let (code, _, error) = run(&server, "nf restart br0 edge nobody");
    assert_eq!(code, Some(1));
    assert!(
        error.contains("has no hop edge/nobody: expected one of edge/fw"),
        "{error}"
    );
    let (code, _, error) = run(&server, "nf scale br0 edge nobody 2");
    assert_eq!(code, Some(1));
    assert!(error.contains("no such hop is configured"), "{error}");
}

#[test]
fn a_plan_says_how_many_workers_a_rate_takes() {
    let server = FakeServer::start().unwrap();
    // 61.5 ns a packet at 14.88 million a second.
    let (_, text, _) = run(&server, "chain plan --rate 10Gbps --frame 60");
    assert!(
        text.contains("edge: 62 ns a packet, 14.88 Mpps: 0.92 cores; lanes = 2 (now 1)"),
        "{text}"
    );
    assert!(text.contains("watch: not measured yet"), "{text}");
    assert!(text.contains("fw and watch only read"), "{text}");
}
