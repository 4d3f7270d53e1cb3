//! Tests of the OpenAPI document and the metrics: they are complete, and have the form that their readers expect.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::wire::{ask, ask_with};
use millrace_api::fake::FakeServer;
use serde_json::Value;

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

#[test]
fn every_operation_of_the_document_is_served_and_every_route_is_in_the_document() {
    let server = FakeServer::start().unwrap();
    let document = ask(&server, "GET", "/openapi.json").json();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let given = path
            .replace("{bridge}", "br0")
            .replace("{port}", "h1")
            .replace("{number}", "1")
            .replace("{name}", "stale");
        for method in METHODS {
            let described = item.get(method).is_some();
            operations += usize::from(described);
            // Streams are not requested. A handler that expects a body rejects the media type of this
            // request.
            if given.ends_with("/events") || given.ends_with("/capture") || given.ends_with("/lock/session") {
                continue;
            }
            let answer = ask_with(
                &server,
                &method.to_uppercase(),
                &given,
                &[("content-type", "text/odd")],
                b"?",
            );
            assert_eq!(
                answer.status != 405,
                described,
                "{method} {path} gave {}",
                answer.status
            );
            assert!(!answer.text().contains("no resource at"), "{method} {path}");
        }
    }
    // All routes of the router are in the lists of `routes!(…)`.
    let source = include_str!("../../src/server/router.rs");
    let handlers: usize = source
        .split("routes!(")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap_or("").matches("::").count())
        .sum();
    assert_eq!(operations, handlers);
    assert!(
        !source.contains(".route("),
        "a route outside of `routes!` is not in the document"
    );
}

#[test]
fn every_reference_of_the_document_leads_somewhere_and_every_operation_tells_its_errors() {
    let server = FakeServer::start().unwrap();
    let document = ask(&server, "GET", "/openapi.json").json();
    let mut references = BTreeSet::new();
    collect(&document, &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(
                ids.insert(id.to_owned()),
                "{method} {path}: another operation is {id}, too"
            );
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            let infallible = ["/health", "/ready", "/docs", "/openapi.json"].contains(&path.as_str());
            assert!(
                infallible || operation["responses"]["default"].is_object(),
                "{method} {path}"
            );
        }
    }
    let config = &document["components"]["schemas"]["Config"]["properties"];
    assert!(
        config["bridge"].is_object(),
        "the model is in the document: {config}"
    );
}

fn collect(value: &Value, references: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                references.insert(reference.clone());
            }
            map.values().for_each(|value| collect(value, references));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

#[test]
fn the_page_for_people_lists_every_path() {
    let server = FakeServer::start().unwrap();
    let page = ask(&server, "GET", "/docs").text();
    for path in ask(&server, "GET", "/openapi.json").json()["paths"]
        .as_object()
        .unwrap()
        .keys()
    {
        assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
    }
}

#[test]
fn metrics_pass_promtool_and_carry_the_counters() {
    let server = FakeServer::start().unwrap();
    let text = ask(&server, "GET", "/metrics").text();
    assert!(
        text.contains("millrace_port_receive_packets_total{bridge=\"br0\",port=\"h1\"}"),
        "{text}"
    );
    assert!(
        text.contains("millrace_dropped_packets_total{bridge=\"br0\",reason=\"no_match\"} 42"),
        "{text}"
    );
    for line in [
        "millrace_config_locked 0",
        "millrace_port_enabled{bridge=\"br0\",port=\"h1\"} 1",
    ] {
        assert!(text.lines().any(|held| held == line), "{line} is not in\n{text}");
    }
    assert!(
        !text.contains("\nmillrace_config_confirm_deadline_seconds "),
        "nothing waits"
    );
    let hop = "bridge=\"br0\",chain=\"edge\",hop=";
    for line in [
        format!("millrace_hop_packets_total{{{hop}\"fw\"}} 1000000"),
        format!("millrace_hop_bytes_total{{{hop}\"fw\"}} 640000000"),
        format!("millrace_hop_verdicts_total{{{hop}\"fw\",verdict=\"drop\"}} 42"),
        format!("millrace_hop_dropped_packets_total{{{hop}\"watch\",reason=\"hop_down\"}} 958"),
        format!("millrace_hop_waiting_packets{{{hop}\"watch\"}} 17"),
        format!("millrace_hop_restarts_total{{{hop}\"watch\"}} 3"),
        format!("millrace_hop_state{{{hop}\"watch\",state=\"down\"}} 1"),
        format!("millrace_hop_state{{{hop}\"watch\",state=\"up\"}} 0"),
        format!("millrace_hop_packet_seconds{{{hop}\"fw\"}} 0.000000062"),
        format!("millrace_hop_latency_seconds{{{hop}\"watch\"}} 0.000021000"),
        format!("millrace_function_count_total{{{hop}\"fw\",counter=\"denied\"}} 42"),
    ] {
        assert!(text.lines().any(|held| held == line), "{line} is not in\n{text}");
    }
    let series: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.rsplit_once(' ')?.0).filter(|series| !series.starts_with('#')))
        .collect();
    let distinct: std::collections::HashSet<&str> = series.iter().copied().collect();
    assert_eq!(distinct.len(), series.len(), "each series is there once");
    assert!(!text.contains("punix:"), "a listener has no series");
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("skipped in part: promtool is not installed (apt-get install prometheus)");
        return;
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.trim().is_empty(),
        "promtool says: {said}"
    );
}
