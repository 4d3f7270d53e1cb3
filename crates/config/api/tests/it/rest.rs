//! Tests of the interface on the wire: statuses, headers and bodies, sent and read as bytes.

use crate::wire::{Answer, ask, ask_with};
use millrace_api::fake::FakeServer;
use millrace_model::CoreId;
use millrace_store::{Note, Proposal, UnixTime};
use serde_json::{Value, json};

pub(crate) fn problem(answer: &Answer, status: u16, kind: &str) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json"),
        "{}",
        answer.text()
    );
    let problem = answer.json();
    assert_eq!(problem["status"], status);
    assert_eq!(problem["type"], format!("/problems/{kind}"));
    assert!(
        problem["title"].is_string() && problem["detail"].is_string(),
        "{problem}"
    );
    problem
}

#[test]
fn every_way_to_ask_wrongly_is_answered_with_a_problem() {
    let server = FakeServer::start().unwrap();
    let json_type = ("content-type", "application/json");
    problem(&ask(&server, "GET", "/nothing"), 404, "not-found");
    problem(&ask(&server, "GET", "/api/v1/bridges/br9"), 404, "not-found");
    problem(
        &ask(&server, "GET", "/api/v1/bridges/br9/flows"),
        404,
        "not-found",
    );
    problem(
        &ask(&server, "GET", "/api/v1/bridges/br0/ports/h9"),
        404,
        "not-found",
    );
    problem(&ask(&server, "GET", "/api/v1/revisions/77"), 404, "not-found");
    problem(&ask(&server, "GET", "/api/v1/revisions/x"), 400, "bad-request");
    problem(
        &ask(&server, "GET", "/api/v1/revisions?limit=0"),
        400,
        "bad-request",
    );
    problem(
        &ask(&server, "GET", "/api/v1/revisions?limti=3"),
        400,
        "bad-request",
    );
    problem(
        &ask(&server, "GET", "/api/v1/bridges/br0/flows?after=x"),
        400,
        "bad-request",
    );
    problem(
        &ask(&server, "GET", "/api/v1/bridges/br0/flows?match=tpc"),
        400,
        "bad-request",
    );
    problem(
        &ask(&server, "GET", "/api/v1/bridges/br0/capture?direction=up"),
        400,
        "bad-request",
    );
    problem(
        &ask(&server, "GET", "/api/v1/bridges/%ff/ports"),
        400,
        "bad-request",
    );
    let answer = ask(&server, "DELETE", "/api/v1/config");
    problem(&answer, 405, "method-not-allowed");
    assert!(
        answer
            .header("allow")
            .is_some_and(|allow| allow.contains("PATCH")),
        "{answer:?}"
    );
    let put =
        |headers: &[(&str, &str)], body: &[u8]| ask_with(&server, "PUT", "/api/v1/config", headers, body);
    problem(&put(&[json_type], b"{}"), 428, "condition-required");
    problem(&put(&[("if-match", "*")], b"{}"), 415, "unsupported-media");
    problem(&put(&[json_type, ("if-match", "*")], b"{"), 400, "bad-request");
    problem(&put(&[json_type, ("if-match", "7")], b"{}"), 400, "bad-request");
    problem(&put(&[json_type, ("if-match", "\"7\"")], b"{}"), 412, "stale");
    let large = vec![b' '; millrace_api::server::BODY_LIMIT + 1];
    problem(&put(&[json_type, ("if-match", "*")], &large), 413, "too-large");
    let illegal = json!({"bridge": [{"name": "br0", "tables": 300, "colour": "red"}]}).to_string();
    let refused = problem(
        &put(&[json_type, ("if-match", "*")], illegal.as_bytes()),
        422,
        "invalid",
    );
    let pointers: Vec<_> = refused["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| &error["pointer"])
        .collect();
    assert!(pointers.contains(&&json!("/bridge/0/tables")) && pointers.contains(&&json!("/bridge/0/colour")));
    assert_eq!(ask(&server, "GET", "/problems/stale").status, 200);
}

#[test]
fn a_body_with_very_many_mistakes_is_answered_with_the_first_twenty_and_a_count() {
    let server = FakeServer::start().unwrap();
    let mistakes: serde_json::Map<_, _> = (0..5000)
        .map(|number| (format!("colour{number}"), json!(1)))
        .collect();
    let headers = [
        ("content-type", "application/merge-patch+json"),
        ("if-match", "*"),
    ];
    let body = json!(mistakes).to_string();
    let answer = ask_with(&server, "PATCH", "/api/v1/config", &headers, body.as_bytes());
    let refused = problem(&answer, 422, "invalid");
    assert_eq!(refused["errors"].as_array().unwrap().len(), 20);
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.ends_with("\nand 4980 more errors"), "{detail}");
    assert!(answer.text().len() < 20_000, "{}", answer.text().len());
}

#[test]
fn a_configuration_changes_only_for_a_client_that_knows_the_present_one() {
    let server = FakeServer::start().unwrap();
    let read = ask(&server, "GET", "/api/v1/config");
    assert_eq!((read.status, read.header("etag")), (200, Some("\"1\"")));
    let headers = [("if-none-match", "\"1\"")];
    assert_eq!(
        ask_with(&server, "GET", "/api/v1/config", &headers, b"").status,
        304
    );
    let missing = ask_with(&server, "GET", "/api/v1/config/bridges/br9", &headers, b"");
    problem(&missing, 404, "not-found");

    let mut config = read.json();
    config["bridge"][0]["port"][0]["mtu"] = json!(9000);
    let body = config.to_string();
    let put = |path: &str, tag: &str| {
        ask_with(
            &server,
            "PUT",
            path,
            &[("content-type", "application/json"), ("if-match", tag)],
            body.as_bytes(),
        )
    };
    let dry = put("/api/v1/config?dry_run=true", "\"1\"");
    assert_eq!(
        dry.json()["changes"][0]["path"],
        "/bridge/br0/port/h1/mtu",
        "{}",
        dry.text()
    );
    assert_eq!(
        (dry.json()["dry_run"].clone(), dry.header("etag")),
        (json!(true), Some("\"1\""))
    );
    let done = put("/api/v1/config?author=alice&comment=jumbo", "\"1\"");
    assert_eq!(
        (done.status, done.header("etag")),
        (200, Some("\"2\"")),
        "{}",
        done.text()
    );
    assert_eq!(
        done.json()["revision"]["author"],
        format!("{} (alice)", crate::trust::user())
    );
    problem(&put("/api/v1/config", "\"1\""), 412, "stale");
    // An equal configuration changes nothing and makes no revision.
    let same = put("/api/v1/config", "\"2\"");
    assert_eq!(
        (same.header("etag"), same.json()["changes"].clone()),
        (Some("\"2\""), json!([]))
    );

    let patch = [("content-type", "application/merge-patch+json")];
    let patched = ask_with(
        &server,
        "PATCH",
        "/api/v1/config",
        &patch,
        br#"{"system": {"memory_mib": 1024}}"#,
    );
    assert_eq!(
        (patched.status, patched.header("etag")),
        (200, Some("\"3\"")),
        "{}",
        patched.text()
    );
    let diff = ask(&server, "GET", "/api/v1/revisions/1/diff").json();
    assert_eq!(
        (diff["to"].clone(), diff["changes"].as_array().unwrap().len()),
        (json!(3), 2),
        "{diff}"
    );
    let back = ask(&server, "POST", "/api/v1/revisions/1/rollback");
    assert_eq!(
        back.json()["revision"]["operation"],
        json!({"kind": "rollback", "to": 1}),
        "{}",
        back.text()
    );
    assert_eq!(
        ask(&server, "GET", "/api/v1/revisions/4").json()["config"],
        read.json()
    );
    let list = ask(&server, "GET", "/api/v1/revisions?limit=2").json();
    assert_eq!(list["revisions"][0]["number"], 4);
    assert_eq!(list["revisions"].as_array().unwrap().len(), 2);
}

#[test]
fn what_this_machine_could_not_start_with_is_refused_wherever_it_comes_from() {
    let server = FakeServer::start().unwrap();
    let patch = [("content-type", "application/merge-patch+json")];
    for query in ["", "?dry_run=true", "?confirm_within=60"] {
        let path = format!("/api/v1/config{query}");
        let body = br#"{"system": {"worker_cores": [1, 900]}}"#;
        let refused = problem(&ask_with(&server, "PATCH", &path, &patch, body), 422, "invalid");
        assert_eq!(
            refused["errors"][0],
            json!({"pointer": "/system/worker_cores/1", "code": "unavailable", "detail": "there is no core 900: expected 0 to 15"})
        );
    }
    // This revision comes from a machine with more cores.
    let store = server.store();
    let mut config = (*store.head().config).clone();
    config.system.worker_cores = vec![CoreId::new(900).unwrap()];
    for config in [config, (*store.head().config).clone()] {
        let proposal = Proposal {
            expected: None,
            config,
            note: Note::default(),
        };
        store.commit(proposal, UnixTime(1)).unwrap();
    }
    problem(
        &ask(&server, "POST", "/api/v1/revisions/2/rollback"),
        422,
        "invalid",
    );
    assert_eq!(server.store().head().revision.number.0, 3);
}

#[test]
fn bridges_and_ports_are_changed_at_their_own_addresses() {
    let server = FakeServer::start().unwrap();
    let json_type = [("content-type", "application/json")];
    let port = "/api/v1/config/bridges/br0/ports/h3";
    let put = |path: &str, body: &str| ask_with(&server, "PUT", path, &json_type, body.as_bytes());
    assert_eq!(put(port, r#"{"number": 3, "device": "net_null2"}"#).status, 200);
    assert_eq!(ask(&server, "GET", port).json()["number"], 3);
    assert_eq!(
        put(port, r#"{"name": "h3", "number": 4, "device": "net_null2"}"#).status,
        200
    );
    assert_eq!(
        ask(&server, "GET", "/api/v1/config/bridges/br0").json()["port"][2]["number"],
        4
    );
    problem(
        &put(port, r#"{"name": "h4", "number": 4, "device": "net_null2"}"#),
        422,
        "invalid",
    );
    problem(
        &put(port, r#"{"number": 1, "device": "net_null2"}"#),
        422,
        "invalid",
    );
    problem(&put(port, "[]"), 422, "invalid");
    problem(
        &put(
            "/api/v1/config/bridges/br9/ports/h3",
            r#"{"number": 4, "device": "net_null2"}"#,
        ),
        404,
        "not-found",
    );
    assert_eq!(ask(&server, "DELETE", port).status, 200);
    problem(&ask(&server, "DELETE", port), 404, "not-found");
    problem(&ask(&server, "GET", port), 404, "not-found");
    assert_eq!(put("/api/v1/config/bridges/br1", "{}").status, 200);
    assert_eq!(
        ask(&server, "GET", "/api/v1/config").json()["bridge"][1]["name"],
        "br1"
    );
    assert_eq!(ask(&server, "DELETE", "/api/v1/config/bridges/br1").status, 200);
    problem(
        &ask(&server, "DELETE", "/api/v1/config/bridges/br1"),
        404,
        "not-found",
    );
}

#[test]
fn a_change_that_nobody_confirms_is_taken_back() {
    let server = FakeServer::start().unwrap();
    let patch = |path: &str| {
        let headers = [("content-type", "application/merge-patch+json")];
        ask_with(
            &server,
            "PATCH",
            path,
            &headers,
            br#"{"system": {"memory_mib": 2048}}"#,
        )
    };
    problem(&patch("/api/v1/config?confirm_within=0"), 400, "bad-request");
    let waiting = patch("/api/v1/config?confirm_within=1");
    assert_eq!(waiting.json()["pending"]["revision"], 2, "{}", waiting.text());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while ask(&server, "GET", "/api/v1/config").header("etag") != Some("\"3\"") {
        assert!(
            std::time::Instant::now() < deadline,
            "the change was not taken back"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(
        ask(&server, "GET", "/api/v1/revisions/3").json()["revision"]["operation"],
        json!({"kind": "expired", "to": 1})
    );
    problem(&ask(&server, "POST", "/api/v1/config/confirm"), 409, "conflict");

    assert_eq!(patch("/api/v1/config?confirm_within=600").status, 200);
    assert_eq!(
        ask(&server, "GET", "/api/v1/config/confirm").json()["pending"]["revision"],
        4
    );
    problem(
        &ask(&server, "POST", "/api/v1/config/confirm?revision=3"),
        409,
        "conflict",
    );
    assert_eq!(
        ask(&server, "POST", "/api/v1/config/confirm?revision=4").status,
        200
    );
    assert_eq!(
        ask(&server, "GET", "/api/v1/config/confirm").json()["pending"],
        Value::Null
    );

    let headers = [("content-type", "application/merge-patch+json")];
    let path = "/api/v1/config?confirm_within=600";
    assert_eq!(
        ask_with(
            &server,
            "PATCH",
            path,
            &headers,
            br#"{"system": {"memory_mib": 512}}"#
        )
        .status,
        200
    );
    problem(
        &ask(&server, "POST", "/api/v1/revisions/1/rollback"),
        409,
        "conflict",
    );
    let cancelled = ask(&server, "DELETE", "/api/v1/config/confirm");
    assert_eq!(
        cancelled.json()["operation"],
        json!({"kind": "cancelled", "to": 4}),
        "{}",
        cancelled.text()
    );
}

#[test]
fn of_many_writers_with_one_etag_exactly_one_wins() {
    let server = FakeServer::start().unwrap();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || {
                    let body = json!({"system": {"memory_mib": 600 + writer}}).to_string();
                    let headers = [
                        ("content-type", "application/merge-patch+json"),
                        ("if-match", "\"1\""),
                    ];
                    ask_with(server, "PATCH", "/api/v1/config", &headers, body.as_bytes()).status
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 412).count(),
        7,
        "{statuses:?}"
    );
}

#[test]
fn writers_without_an_etag_lose_no_change_of_each_other() {
    let server = FakeServer::start().unwrap();
    std::thread::scope(|scope| {
        for number in 10..16 {
            let server = &server;
            scope.spawn(move || {
                let path = format!("/api/v1/config/bridges/br0/ports/x{number}");
                let body = json!({"number": number, "device": format!("net_null{number}")}).to_string();
                let answer = ask_with(
                    server,
                    "PUT",
                    &path,
                    &[("content-type", "application/json")],
                    body.as_bytes(),
                );
                assert_eq!(answer.status, 200, "{}", answer.text());
            });
        }
    });
    assert_eq!(server.store().head().config.bridges[0].ports.len(), 8);
}

#[test]
fn flows_come_page_by_page_and_by_match() {
    let server = FakeServer::start().unwrap();
    let (mut path, mut seen) = ("/api/v1/bridges/br0/flows?limit=3".to_owned(), Vec::new());
    loop {
        let page = ask(&server, "GET", &path).json();
        seen.extend(
            page["flows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|flow| flow["match"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => path = format!("/api/v1/bridges/br0/flows?limit=3&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 4);
    let page = ask(&server, "GET", "/api/v1/bridges/br0/flows?match=tcp").json();
    let flow = &page["flows"][0];
    assert_eq!(flow["actions"], "set_field:7->ip_dscp,output:2");
    assert_eq!(
        flow["instructions"]["apply_actions"][0],
        json!({"type": "set_field", "field": "ip_dscp", "value": "0x7"})
    );
    assert_eq!(flow["fields"][4]["mask"], "0xff000000", "{flow}");
}

#[test]
fn a_packet_is_traced_from_its_description_or_its_bytes() {
    let server = FakeServer::start().unwrap();
    let trace = |body: Value| {
        let headers = [("content-type", "application/json")];
        ask_with(
            &server,
            "POST",
            "/api/v1/bridges/br0/trace",
            &headers,
            body.to_string().as_bytes(),
        )
    };
    let described = trace(json!({"packet": "in_port=h2,tcp,nw_dst=10.0.0.2,tp_dst=80"}));
    assert_eq!(described.json()["in_port"], 2, "{}", described.text());
    assert_eq!(described.json()["packet"].as_str().unwrap().len(), 120);
    let given = trace(json!({"hex": "0200000000020200000000010800"}));
    assert_eq!(
        given.json()["packet"],
        "0200000000020200000000010800",
        "{}",
        given.text()
    );
    problem(&trace(json!({"packet": "tcp,tp_dst=http"})), 422, "invalid");
    problem(&trace(json!({"packet": "in_port=9,tcp"})), 404, "not-found");
    problem(&trace(json!({"hex": "xyz"})), 422, "invalid");
    problem(&trace(json!({"paket": "tcp"})), 422, "invalid");
    problem(&trace(json!(["tcp"])), 422, "invalid");
}

#[test]
fn a_live_trace_waits_for_a_packet_and_not_for_ever() {
    let server = FakeServer::start().unwrap();
    let trace = |body: Value| {
        let headers = [("content-type", "application/json")];
        ask_with(
            &server,
            "POST",
            "/api/v1/bridges/br0/trace-live",
            &headers,
            body.to_string().as_bytes(),
        )
    };
    assert_eq!(
        trace(json!({"match": "udp", "timeout_seconds": 5})).json()["in_port"],
        1
    );
    problem(
        &trace(json!({"match": "tcp", "timeout_seconds": 0.1})),
        408,
        "timeout",
    );
    problem(
        &trace(json!({"match": "tcp", "timeout_seconds": 61})),
        422,
        "invalid",
    );
}

#[test]
fn rates_appear_after_the_second_look() {
    let server = FakeServer::start().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let port = ask(&server, "GET", "/api/v1/bridges/br0/ports/1").json();
        if let Some(rate) = port["rates"]["rx_pps"].as_f64() {
            assert!(rate > 0.0);
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no rates came: {port}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn probes_documentation_and_simple_lists_answer() {
    let server = FakeServer::start().unwrap();
    for path in [
        "/health",
        "/ready",
        "/docs",
        "/openapi.json",
        "/metrics",
        "/api/v1/version",
        "/api/v1/status",
        "/api/v1/workers",
        "/api/v1/drops",
        "/api/v1/owners",
        "/api/v1/lock",
        "/api/v1/state",
        "/api/v1/lags",
        "/api/v1/bridges",
        "/api/v1/bridges/br0",
        "/api/v1/bridges/br0/tables",
        "/api/v1/bridges/br0/controllers",
        "/api/v1/bridges/br0/macs",
        "/api/v1/bridges/br0/mirrors",
        "/api/v1/bridges/br0/sflow",
        "/api/v1/bridges/br0/ipfix",
        "/api/v1/bridges/br0/groups",
        "/api/v1/bridges/br0/meters",
        "/api/v1/bridges/br0/queues",
    ] {
        assert_eq!(ask(&server, "GET", path).status, 200, "{path}");
    }
}

#[test]
fn every_metric_that_an_alert_reads_is_exposed() {
    let server = FakeServer::start().unwrap();
    let metrics = String::from_utf8(ask(&server, "GET", "/metrics").body).unwrap();
    let rules = include_str!("../../../../../contrib/prometheus/millrace.rules.yml");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = rules
        .lines()
        .filter(|line| !line.trim_start().starts_with("description"))
        .flat_map(|line| line.split(|c| !is_part(c)))
        .filter(|word| word.starts_with("millrace_"));
    let mut count = 0;
    for name in names {
        count += 1;
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name}");
    }
    assert!(count >= 15, "{count} names found");
    for line in [
        r#"millrace_lag_member_distributing{bridge="br0",port="p5",lag="uplink",member="eth12"} 0"#,
        r#"millrace_lag_member_churned{bridge="br0",port="p5",lag="uplink",member="eth12"} 1"#,
        r#"millrace_vrf_routes{vrf="blue",family="ipv4"} 2"#,
        r#"millrace_vrf_ignored_messages_total{vrf="blue",reason="encapsulated"} 3"#,
        r#"millrace_interface_punt_limited_packets_total{vrf="blue",interface="v10",class="ospf"} 5"#,
        r#"millrace_interface_icmp_errors_limited_total{vrf="blue",interface="v10",class="time_exceeded"} 6"#,
        "millrace_router_refused_total 4",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}
