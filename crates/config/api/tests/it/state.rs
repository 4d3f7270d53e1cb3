//! Tests of the state that others follow, and of its events.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use millrace_api::fake::FakeServer;
use millrace_api::view::StateKind;
use serde_json::{Value, json};

use crate::wire::{Stream, ask, ask_with, open};

struct Event {
    name: String,
    id: String,
    data: Value,
}

/// Returns the next event.
fn next(reader: &mut BufReader<Box<dyn Stream>>) -> Event {
    let (mut name, mut id, mut data) = <(String, String, String)>::default();
    // A stream of nothing but comments, which keep it alive, would never end.
    let deadline = Instant::now() + Duration::from_secs(60);
    for line in reader.lines() {
        assert!(Instant::now() < deadline, "no event came");
        let line = line.unwrap();
        match line.split_once(": ") {
            Some(("event", value)) => value.clone_into(&mut name),
            Some(("id", value)) => value.clone_into(&mut id),
            Some(("data", value)) => value.clone_into(&mut data),
            _ if line.is_empty() && !name.is_empty() => {
                let data = serde_json::from_str(&data).unwrap();
                return Event { name, id, data };
            }
            _ => {}
        }
    }
    panic!("the stream ended");
}

fn stream(server: &FakeServer, query: &str, headers: &[(&str, &str)]) -> BufReader<Box<dyn Stream>> {
    BufReader::new(open(
        server,
        "GET",
        &format!("/api/v1/events{query}"),
        headers,
        b"",
    ))
}

fn state(server: &FakeServer, kinds: &str) -> (String, Value) {
    let answer = ask(server, "GET", &format!("/api/v1/state?kinds={kinds}")).json();
    (
        answer["cursor"].as_str().unwrap().to_owned(),
        answer["state"].clone(),
    )
}

#[test]
fn a_stream_goes_on_from_the_cursor_of_a_snapshot_without_a_gap_and_a_reader_that_lost_its_place_is_told() {
    let server = FakeServer::start().unwrap();
    let journal = server.journal();
    journal.publish(StateKind::Links, "br0/h1", &json!({"link": "up"}));
    let (cursor, before) = state(&server, "links,ports");
    assert_eq!(before, json!({"links": {"br0/h1": {"link": "up"}}, "ports": {}}));
    journal.publish(StateKind::Links, "br0/h1", &json!({"link": "down"}));
    journal.publish(StateKind::Neighbours, "br0/h1/10.0.0.1", &1);
    let mut first = stream(&server, &format!("?kinds=links,ports&after={cursor}"), &[]);
    let event = next(&mut first);
    assert_eq!(event.name, "links");
    assert_eq!(event.data, json!({"key": "br0/h1", "value": {"link": "down"}}));
    journal.remove_all("br0/");
    let gone = next(&mut first);
    assert_eq!(gone.data, json!({"key": "br0/h1", "value": null}));
    drop(first);
    // The connection broke after the first event.
    let mut resumed = stream(&server, "?kinds=links", &[("last-event-id", &event.id)]);
    assert_eq!(next(&mut resumed).data, gone.data);
    // A slow reader falls out of the ring. It is told, and goes on from the present.
    for number in 0..9000 {
        journal.publish(StateKind::Links, "br0/h1", &number);
    }
    for place in [cursor.as_str(), "1-7", "nonsense", ""] {
        let mut late = stream(&server, &format!("?kinds=links&after={place}"), &[]);
        let reset = next(&mut late);
        assert_eq!(
            (reset.name.as_str(), reset.data["cursor"].as_str()),
            ("reset", Some(reset.id.as_str()))
        );
        let (present, values) = state(&server, "links");
        assert_eq!((present, &values["links"]["br0/h1"]), (reset.id, &json!(8999)));
    }
    let mut late = stream(&server, "?kinds=links", &[]);
    assert_eq!(next(&mut late).name, "reset");
    journal.publish(StateKind::Links, "br0/h1", &"news");
    assert_eq!(next(&mut late).data["value"], "news");
    let wrong = ask(&server, "GET", "/api/v1/state?kinds=links,colours");
    assert!(
        wrong.status == 400
            && wrong
                .text()
                .contains("expected one of revisions, confirmation, ports"),
        "{}",
        wrong.text()
    );
}

#[test]
fn revisions_confirmations_and_shortfalls_are_part_of_the_state() {
    let server = FakeServer::start().unwrap();
    let (cursor, before) = state(&server, "revisions,confirmation");
    assert_eq!(
        (&before["revisions"]["head"]["number"], &before["confirmation"]),
        (&json!(1), &json!({}))
    );
    let patch = [("content-type", "application/merge-patch+json")];
    let change = br#"{"system": {"memory_mib": 600}}"#;
    ask_with(
        &server,
        "PATCH",
        "/api/v1/config?confirm_within=600",
        &patch,
        change,
    );
    let mut events = stream(
        &server,
        &format!("?kinds=revisions,confirmation&after={cursor}"),
        &[],
    );
    let (revision, waits) = (next(&mut events), next(&mut events));
    assert_eq!(
        (revision.name.as_str(), &revision.data["value"]["number"]),
        ("revisions", &json!(2))
    );
    assert_eq!(
        (waits.name.as_str(), &waits.data["value"]["revision"]),
        ("confirmation", &json!(2))
    );
    ask(&server, "POST", "/api/v1/config/confirm");
    assert_eq!(next(&mut events).data, json!({"key": "pending", "value": null}));
    let mut events = stream(&server, "?kinds=shortfalls", &[]);
    // The switch runs the revision, and has its problem, from the third reading of its status on.
    for _ in 0..3 {
        ask(&server, "GET", "/api/v1/status");
    }
    let (_, now) = state(&server, "shortfalls");
    let subject = "/bridge/br0/port/h2";
    let found = match now["shortfalls"].get(subject) {
        Some(found) => found.clone(),
        None => loop {
            let event = next(&mut events);
            if event.name == "shortfalls" && event.data["key"] == subject {
                break event.data["value"].clone();
            }
        },
    };
    assert_eq!(found[0]["message"], "the link is down", "{found}");
}
