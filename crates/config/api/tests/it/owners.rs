//! Tests of owners and of the lock over REST.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use millrace_api::fake::FakeServer;
use serde_json::{Value, json};

use crate::wire::{Answer, ask, ask_with, open};

/// A bound far above the time of any operation.
const PATIENCE: Duration = Duration::from_secs(60);

fn send(server: &FakeServer, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    ask_with(server, method, path, &headers, body.to_string().as_bytes())
}

fn put_bridge(server: &FakeServer, name: &str, query: &str, size: u32) -> Answer {
    let path = format!("/api/v1/config/bridges/{name}{query}");
    send(server, "PUT", &path, &json!({ "mac_table_size": size }))
}

fn refused(answer: &Answer, status: u16, kind: &str) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    let problem = answer.json();
    assert_eq!(problem["type"], format!("/problems/{kind}"));
    problem
}

#[test]
fn what_another_front_end_owns_is_refused_on_every_way_with_the_remedy() {
    let server = FakeServer::start().unwrap();
    let made = put_bridge(&server, "br-int", "?origin=ovsdb&author=neutron", 100);
    assert_eq!(made.status, 200, "{}", made.text());
    let revision = &made.json()["revision"];
    assert_eq!(
        (&revision["origin"], &revision["operation"]["kind"]),
        (&json!("ovsdb"), &json!("commit"))
    );
    let whole = ask(&server, "GET", "/api/v1/config").json();
    let mut without = whole.clone();
    without["bridge"].as_array_mut().unwrap().pop();
    let mut changed = whole.clone();
    changed["bridge"][1]["tables"] = json!(7);
    let port = json!({"number": 1, "device": "memory"});
    let merge = [("content-type", "application/merge-patch+json")];
    let any = [("content-type", "application/json"), ("if-match", "*")];
    for query in ["", "?dry_run=true", "?confirm_within=60"] {
        let config = format!("/api/v1/config{query}");
        let bridge = format!("/api/v1/config/bridges/br-int{query}");
        let answers = [
            put_bridge(&server, "br-int", query, 200),
            ask(&server, "DELETE", &bridge),
            send(
                &server,
                "PUT",
                &format!("/api/v1/config/bridges/br-int/ports/p1{query}"),
                &port,
            ),
            ask_with(
                &server,
                "PATCH",
                &config,
                &merge,
                json!({"bridge": []}).to_string().as_bytes(),
            ),
            ask_with(&server, "PUT", &config, &any, without.to_string().as_bytes()),
            ask_with(&server, "PUT", &config, &any, changed.to_string().as_bytes()),
        ];
        for answer in answers {
            let problem = refused(&answer, 409, "owned");
            let detail = problem["detail"].as_str().unwrap();
            assert_eq!(
                detail,
                "bridge br-int belongs to ovsdb: use ovs-vsctl, or `millrace own br-int --local` to take it over"
            );
        }
    }
    assert_eq!(ask(&server, "GET", "/api/v1/config").json(), whole);
    // A file that does not know of the bridge lets it stay, and is told so. One that changes it is refused.
    let put = |config: &Value, query: &str| {
        let path = format!("/api/v1/config?keep_others=true{query}");
        ask_with(&server, "PUT", &path, &any, config.to_string().as_bytes())
    };
    without["system"]["memory_mib"] = json!(700);
    for query in ["&dry_run=true", ""] {
        let done = put(&without, query).json();
        assert_eq!(
            done["left_alone"],
            json!([{"object": "bridge/br-int", "owner": "ovsdb"}]),
            "{done}"
        );
        assert_eq!(done["changes"].as_array().unwrap().len(), 1, "{done}");
    }
    refused(&put(&changed, ""), 409, "owned");
    assert_eq!(ask(&server, "GET", "/api/v1/config/bridges/br-int").status, 200);
    let owners = ask(&server, "GET", "/api/v1/owners").json();
    let of = |object: &str| {
        let list = owners["objects"].as_array().unwrap();
        list.iter().find(|owned| owned["object"] == object).unwrap()["owner"].clone()
    };
    assert_eq!(
        (of("bridge/br-int"), of("bridge/br0"), of("system")),
        (json!("ovsdb"), json!("local"), json!("local"))
    );
}

#[test]
fn an_object_changes_hands_and_a_rollback_says_what_it_leaves_alone() {
    let server = FakeServer::start().unwrap();
    put_bridge(&server, "br-int", "?origin=ovsdb", 100);
    put_bridge(&server, "br1", "", 100);
    put_bridge(&server, "br-int", "?origin=ovsdb", 200);
    let diff = ask(&server, "GET", "/api/v1/revisions/3/diff").json();
    assert_eq!(diff["changes"][0]["owner"], "ovsdb", "{diff}");
    assert!(
        diff["changes"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("100 -> 200 (of ovsdb)"),
        "{diff}"
    );
    for query in ["?dry_run=true", ""] {
        let back = ask(&server, "POST", &format!("/api/v1/revisions/2/rollback{query}")).json();
        assert_eq!(
            back["left_alone"],
            json!([{"object": "bridge/br-int", "owner": "ovsdb"}]),
            "{back}"
        );
        let paths: Vec<_> = back["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| &change["path"])
            .collect();
        assert_eq!(paths, ["/bridge/br1"], "{back}");
    }
    assert_eq!(
        ask(&server, "GET", "/api/v1/config/bridges/br-int").json()["mac_table_size"],
        200
    );
    let own = |objects: Value, owner: &str| {
        send(
            &server,
            "POST",
            "/api/v1/owners?author=alice",
            &json!({"objects": objects, "owner": owner}),
        )
    };
    refused(&own(json!(["br7"]), "local"), 404, "not-found");
    refused(&own(json!(["br0"]), "No Name"), 422, "invalid");
    let taken = own(json!(["br-int"]), "local");
    assert_eq!(
        taken.json()["operation"],
        json!({"kind": "own"}),
        "{}",
        taken.text()
    );
    assert_eq!(put_bridge(&server, "br-int", "", 300).status, 200);
    refused(&put_bridge(&server, "br-int", "?origin=ovsdb", 400), 409, "owned");
    refused(
        &put_bridge(&server, "br-int", "?origin=Ovs+DB", 300),
        400,
        "bad-request",
    );
}

#[test]
fn revisions_of_a_machine_that_replaced_each_other_are_no_gap_of_the_change_stream() {
    let server = FakeServer::start().unwrap();
    for size in 100..110 {
        put_bridge(&server, "br-int", "?origin=ovsdb", size);
    }
    let list = ask(&server, "GET", "/api/v1/revisions").json();
    let newest = &list["revisions"][0];
    assert_eq!(
        (&newest["number"], &newest["replaces"]),
        (&json!(11), &json!(2)),
        "{list}"
    );
    for seen in ["1", "4"] {
        let mut stream = BufReader::new(open(
            &server,
            "GET",
            "/api/v1/events",
            &[("last-event-id", seen)],
            b"",
        ));
        let mut line = String::new();
        while !line.starts_with("event: ") {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        assert_eq!(line, "event: revision\n");
    }
}

#[test]
fn while_a_session_holds_the_lock_the_changes_of_others_are_refused_with_its_name() {
    let server = FakeServer::start().unwrap();
    let taken = ask(&server, "POST", "/api/v1/lock?author=alice&lease=100").json();
    let token = taken["token"].as_str().unwrap().to_owned();
    let mine = [
        ("content-type", "application/json"),
        ("lock-token", token.as_str()),
    ];
    let body = json!({"mac_table_size": 100}).to_string();
    let problem = refused(&put_bridge(&server, "br1", "", 100), 423, "locked");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("(alice) holds the lock"),
        "{problem}"
    );
    refused(
        &ask(&server, "POST", "/api/v1/revisions/0/rollback"),
        423,
        "locked",
    );
    refused(
        &send(
            &server,
            "POST",
            "/api/v1/owners",
            &json!({"objects": ["br0"], "owner": "ovsdb"}),
        ),
        423,
        "locked",
    );
    refused(&ask(&server, "POST", "/api/v1/lock"), 423, "locked");
    let done = ask_with(
        &server,
        "PUT",
        "/api/v1/config/bridges/br1?confirm_within=600",
        &mine,
        body.as_bytes(),
    );
    assert_eq!(done.status, 200, "{}", done.text());
    refused(&ask(&server, "POST", "/api/v1/config/confirm"), 423, "locked");
    refused(&ask(&server, "DELETE", "/api/v1/config/confirm"), 423, "locked");
    assert_eq!(
        ask_with(&server, "POST", "/api/v1/config/confirm", &mine, b"").status,
        200
    );
    assert_eq!(
        ask_with(&server, "PUT", "/api/v1/lock?lease=50", &mine, b"").status,
        200
    );
    refused(&ask(&server, "DELETE", "/api/v1/lock"), 400, "bad-request");
    refused(
        &ask_with(&server, "DELETE", "/api/v1/lock", &[("lock-token", "7")], b""),
        400,
        "bad-request",
    );
    refused(&ask(&server, "POST", "/api/v1/lock?lease=0"), 400, "bad-request");
    let other = [("lock-token", "00000000000000000000000000000000")];
    refused(
        &ask_with(&server, "DELETE", "/api/v1/lock", &other, b""),
        409,
        "conflict",
    );
    assert_eq!(
        ask_with(&server, "DELETE", "/api/v1/lock", &mine, b"").status,
        200
    );
    assert_eq!(ask(&server, "GET", "/api/v1/lock").json(), json!({"lock": null}));
    assert_eq!(put_bridge(&server, "br2", "", 100).status, 200);
    ask(&server, "POST", "/api/v1/lock");
    assert_eq!(ask(&server, "DELETE", "/api/v1/lock?force=true").status, 200);
}

#[test]
fn a_lock_of_a_session_is_free_after_the_end_of_its_connection() {
    let server = FakeServer::start().unwrap();
    let mut stream = BufReader::new(open(&server, "POST", "/api/v1/lock/session?author=bob", &[], b""));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    let taken: Value = serde_json::from_str(line.trim_start_matches("data: ")).unwrap();
    assert!(
        taken["lock"]["holder"].as_str().unwrap().ends_with("(bob)"),
        "{taken}"
    );
    refused(&put_bridge(&server, "br1", "", 100), 423, "locked");
    let begun = Instant::now();
    drop(stream);
    while ask(&server, "GET", "/api/v1/lock").json()["lock"] != Value::Null {
        assert!(begun.elapsed() < PATIENCE, "the lock is not released");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(put_bridge(&server, "br1", "", 100).status, 200);
}

#[test]
fn a_session_whose_lock_is_broken_is_told_at_once() {
    let server = FakeServer::start().unwrap();
    let mut stream = BufReader::new(open(&server, "POST", "/api/v1/lock/session", &[], b""));
    let mut line = String::new();
    while line != "event: lock\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    assert_eq!(ask(&server, "DELETE", "/api/v1/lock?force=true").status, 200);
    while line != "event: lost\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
}

#[test]
fn a_follower_says_the_number_that_its_desired_state_has_at_its_origin() {
    let server = FakeServer::start().unwrap();
    let made = put_bridge(&server, "br7", "?origin=etcd&external=41", 100).json();
    assert_eq!(
        (&made["revision"]["origin"], &made["revision"]["external"]),
        (&json!("etcd"), &json!(41)),
        "{made}"
    );
    // People's changes have none.
    let made = put_bridge(&server, "br8", "?external=41", 100).json();
    assert_eq!(
        (&made["revision"]["origin"], &made["revision"]["external"]),
        (&json!("local"), &Value::Null),
        "{made}"
    );
    refused(
        &put_bridge(&server, "br9", "?origin=etcd&external=-1", 100),
        400,
        "bad-request",
    );
}
