//! Tests of responses that stay open: the change stream and captures.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::wire::{Stream, ask_with, open};
use millrace_api::client::{CaptureOptions, Client};
use millrace_api::fake::FakeServer;
use millrace_api::view::Revision;

fn patch(server: &FakeServer, memory_mib: u32, query: &str) {
    let headers = [("content-type", "application/merge-patch+json")];
    let body = format!(r#"{{"system": {{"memory_mib": {memory_mib}}}}}"#);
    let answer = ask_with(
        server,
        "PATCH",
        &format!("/api/v1/config{query}"),
        &headers,
        body.as_bytes(),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Returns the name, id and data of the next event, decoded from chunked coding.
fn event(reader: &mut BufReader<Box<dyn Stream>>) -> (String, String, String) {
    let (mut name, mut id, mut data) = Default::default();
    for line in reader.lines() {
        let line = line.expect("the stream goes on");
        match line.split_once(": ") {
            Some(("event", value)) => value.clone_into(&mut name),
            Some(("id", value)) => value.clone_into(&mut id),
            Some(("data", value)) => value.clone_into(&mut data),
            _ if line.is_empty() && !name.is_empty() => return (name, id, data),
            _ => {}
        }
    }
    panic!("the stream ended");
}

#[test]
fn the_change_stream_tells_every_revision_once_and_resumes_where_it_broke() {
    let server = FakeServer::start().unwrap();
    let mut stream = BufReader::new(open(&server, "GET", "/api/v1/events", &[], b""));
    let (name, id, data) = event(&mut stream);
    assert_eq!((name.as_str(), id.as_str()), ("revision", "1"));
    assert_eq!(serde_json::from_str::<Revision>(&data).unwrap().author, "fake");
    patch(&server, 600, "");
    assert_eq!(event(&mut stream).1, "2");
    drop(stream);
    for memory_mib in 601..605 {
        patch(&server, memory_mib, "");
    }
    let mut stream = BufReader::new(open(
        &server,
        "GET",
        "/api/v1/events",
        &[("last-event-id", "2")],
        b"",
    ));
    let ids: Vec<String> = (0..4).map(|_| event(&mut stream).1).collect();
    assert_eq!(ids, ["3", "4", "5", "6"]);
    let nothing_pending = (
        "confirmation".to_owned(),
        String::new(),
        r#"{"pending":null}"#.to_owned(),
    );
    assert_eq!(event(&mut stream), nothing_pending);
    patch(&server, 605, "?confirm_within=600");
    assert_eq!(event(&mut stream).1, "7");
    let (name, id, data) = event(&mut stream);
    assert_eq!((name.as_str(), id.as_str()), ("confirmation", ""));
    assert!(data.contains("\"revision\":7"), "{data}");
    ask_with(&server, "POST", "/api/v1/config/confirm", &[], b"");
    assert_eq!(event(&mut stream), nothing_pending);
}

#[test]
fn a_client_that_resumes_is_told_of_a_confirmation_that_ended_meanwhile() {
    let server = FakeServer::start().unwrap();
    patch(&server, 600, "?confirm_within=600");
    let mut stream = BufReader::new(open(&server, "GET", "/api/v1/events", &[], b""));
    assert_eq!(event(&mut stream).1, "2");
    assert!(event(&mut stream).2.contains("\"revision\":2"));
    drop(stream);
    ask_with(&server, "POST", "/api/v1/config/confirm", &[], b"");
    let resume = |seen| {
        let headers = [("last-event-id", seen)];
        BufReader::new(open(&server, "GET", "/api/v1/events", &headers, b""))
    };
    let (name, _, data) = event(&mut resume("2"));
    assert_eq!(
        (name.as_str(), data.as_str()),
        ("confirmation", r#"{"pending":null}"#)
    );
    // A pending confirmation is sent after the revisions that the client missed.
    patch(&server, 601, "?confirm_within=600");
    let mut stream = resume("1");
    let events: Vec<_> = (0..3).map(|_| event(&mut stream)).collect();
    assert_eq!((events[0].1.as_str(), events[1].1.as_str()), ("2", "3"));
    assert!(events[2].0 == "confirmation" && events[2].2.contains("\"revision\":3"));
}

#[test]
fn a_client_of_another_store_is_told_the_present_revision() {
    let server = FakeServer::start().unwrap();
    let mut stream = BufReader::new(open(
        &server,
        "GET",
        "/api/v1/events",
        &[("last-event-id", "99")],
        b"",
    ));
    assert_eq!(event(&mut stream).1, "1");
    let answer = ask_with(&server, "GET", "/api/v1/events", &[("last-event-id", "x")], b"");
    assert_eq!(answer.status, 400);
}

#[test]
fn the_client_reads_the_change_stream() {
    let server = FakeServer::start().unwrap();
    let client = Client::new(&server.url(), None, None).unwrap();
    let mut events = client.events(Some(0)).unwrap();
    let event = events.next().unwrap();
    assert_eq!(
        (event.name.as_str(), event.id.as_deref()),
        ("revision", Some("1"))
    );
}

#[test]
fn streams_end_when_the_server_does() {
    let server = FakeServer::start().unwrap();
    let mut stream = BufReader::new(open(&server, "GET", "/api/v1/events", &[], b""));
    event(&mut stream);
    let begun = std::time::Instant::now();
    drop(server);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn only_so_many_streams_are_open_at_once() {
    let server = FakeServer::start().unwrap();
    let mut open_ones = Vec::new();
    let refused = loop {
        let mut stream = open(&server, "GET", "/api/v1/events", &[], b"");
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        if first.ends_with(b"429") {
            break open_ones.len();
        }
        open_ones.push(stream);
    };
    assert_eq!(refused, 32);
    drop(open_ones);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    for memory in 700.. {
        let mut first = [0; 12];
        open(&server, "GET", "/api/v1/events", &[], b"")
            .read_exact(&mut first)
            .unwrap();
        if first.ends_with(b"200") {
            return;
        }
        // The server notices a closed connection at the next write.
        patch(&server, memory, "");
        assert!(std::time::Instant::now() < deadline, "no place became free");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_capture_is_a_file_that_wireshark_reads() {
    let server = FakeServer::start().unwrap();
    let client = Client::new(&server.url(), None, None).unwrap();
    let options = CaptureOptions {
        count: Some(3),
        port: Some("h1".to_owned()),
        ..CaptureOptions::default()
    };
    let mut file = Vec::new();
    client
        .capture("br0", &options)
        .unwrap()
        .read_to_end(&mut file)
        .unwrap();
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.pcapng");
    std::fs::write(&path, &file).unwrap();
    let tshark = Command::new("tshark")
        .args([
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
            "-e",
            "frame.interface_name",
            "-r",
        ])
        .arg(&path)
        .stderr(Stdio::null())
        .output();
    let Ok(output) = tshark else {
        eprintln!("skipped in part: tshark is not installed (apt-get install tshark)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[1], "1700000000.000000001\t60\th1");
}
