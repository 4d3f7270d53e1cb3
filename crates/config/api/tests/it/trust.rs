//! Tests of access control (tokens, TLS, requests from foreign web pages) and of hostile clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::wire::{Stream, ask, ask_with, connect};
use millrace_api::client::{Client, ClientError};
use millrace_api::fake::{FakeServer, FakeSwitch};
use millrace_api::server::{BoundServer, Limits, Settings, SocketError, StartError, Tcp, Tls, Token};
use millrace_store::{Store, UnixTime};
use proptest::prelude::*;

const TOKEN: &str = "0123456789abcdef0123";

fn over_tcp(address: impl Into<SocketAddr>, tls: Option<Tls>) -> Tcp {
    Tcp {
        listen: address.into(),
        token: Token::new(TOKEN).unwrap(),
        tls,
    }
}

fn with_token() -> FakeServer {
    FakeServer::start_with(Some(over_tcp(([127, 0, 0, 1], 0), None)), Limits::default()).unwrap()
}

#[test]
fn with_a_token_only_those_who_know_it_and_probes_may_ask() {
    let server = with_token();
    let answer = ask(&server, "GET", "/api/v1/config");
    assert_eq!(answer.status, 401);
    assert!(
        answer
            .header("www-authenticate")
            .is_some_and(|value| value.starts_with("Bearer"))
    );
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(
        ask_with(
            &server,
            "GET",
            "/api/v1/config",
            &[("authorization", &bearer)],
            b""
        )
        .status,
        200
    );
    assert_eq!(ask(&server, "GET", "/health").status, 200);
    assert_eq!(ask(&server, "GET", "/metrics").status, 401);
    // The mode of the socket file controls the access to the Unix socket.
    let socket = format!("unix:{}", server.socket().display());
    assert!(Client::new(&socket, None, None).unwrap().version().is_ok());
    let client = |token: &str| Client::new(&server.url(), Some(token.to_owned()), None).unwrap();
    assert!(client(TOKEN).version().is_ok());
    assert!(matches!(client("wrong").version(), Err(ClientError::Problem(problem)) if problem.status == 401));
}

#[test]
fn a_page_of_another_origin_is_refused() {
    let server = FakeServer::start().unwrap();
    let asks = |origin: &str| {
        ask_with(
            &server,
            "POST",
            "/api/v1/revisions/1/rollback",
            &[("origin", origin)],
            b"",
        )
        .status
    };
    assert_eq!(asks("http://evil.example"), 403);
    assert_eq!(asks("http://évil.example"), 403);
    assert_eq!(asks("http://localhost"), 200);
    let streams = |site: &str| {
        let path = "/api/v1/bridges/br0/capture?count=1";
        ask_with(&server, "GET", path, &[("sec-fetch-site", site)], b"").status
    };
    assert_eq!(streams("cross-site"), 403);
    assert_eq!(streams("same-site"), 403);
    assert_eq!(streams("same-origin"), 200);
}

#[test]
fn a_request_with_two_hosts_is_refused() {
    let server = FakeServer::start().unwrap();
    assert_eq!(
        ask_with(&server, "GET", "/health", &[("host", "evil.example")], b"").status,
        400
    );
}

#[test]
fn a_connection_that_shows_no_token_ends_with_its_answer() {
    let server = with_token();
    for path in ["/api/v1/config", "/health"] {
        let mut stream = connect(&server);
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.repeat(50).as_bytes()).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    }
}

#[test]
fn the_user_at_the_socket_is_the_author_of_a_revision() {
    let server = FakeServer::start().unwrap();
    let patch = |query: &str, mib: u32| {
        let headers = [("content-type", "application/merge-patch+json")];
        let body = format!(r#"{{"system": {{"memory_mib": {mib}}}}}"#);
        let path = format!("/api/v1/config{query}");
        let answer = ask_with(&server, "PATCH", &path, &headers, body.as_bytes());
        answer.json()["revision"]["author"].as_str().unwrap().to_owned()
    };
    let user = user();
    assert_eq!(patch("", 600), user);
    assert_eq!(patch("?author=alice", 601), format!("{user} (alice)"));
}

/// Returns the name of the user who runs the tests.
pub(crate) fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_certificate_and_nothing_is_taken_twice() {
    let store = Store::in_memory(UnixTime(1)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let bind = async |socket: &str, address: SocketAddr| {
        let settings = Settings {
            tcp: Some(over_tcp(address, None)),
            ..Settings::for_socket(directory.path().join(socket))
        };
        BoundServer::bind(settings, Arc::new(FakeSwitch::default()), store.clone()).await
    };
    let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let open = bind("a", SocketAddr::from(([0, 0, 0, 0], 0))).await;
    assert!(matches!(open, Err(StartError::Unprotected { .. })));
    let first = bind("a", loopback(0)).await.unwrap();
    let Err(error) = bind("b", first.address().unwrap()).await else {
        panic!("an address was taken twice");
    };
    assert!(
        error.to_string().contains("set api.listen to another address"),
        "{error}"
    );
    let again = bind("a", loopback(0)).await;
    assert!(matches!(
        again,
        Err(StartError::Socket {
            source: SocketError::Served,
            ..
        })
    ));
}

#[test]
fn over_tls_the_client_trusts_the_authority_it_was_given_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Tls::from_files(&cert, &key).unwrap();
    let tcp = over_tcp(([127, 0, 0, 1], 0), Some(tls));
    let server = FakeServer::start_with(Some(tcp), Limits::default()).unwrap();
    let url = format!("https://localhost:{}", server.address().unwrap().port());
    let trusting = Client::new(&url, Some(TOKEN.to_owned()), Some(&cert)).unwrap();
    assert_eq!(trusting.version().unwrap().version, "0.1.0");
    let doubting = Client::new(&url, Some(TOKEN.to_owned()), None).unwrap();
    assert!(matches!(doubting.version(), Err(ClientError::Unreachable { .. })));
    let error = Tls::from_files(&key, &key).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected a PEM file with a certificate chain"),
        "{error}"
    );
}

#[test]
fn many_silent_connections_do_not_keep_others_from_asking() {
    let server = FakeServer::start().unwrap();
    let silent: Vec<Box<dyn Stream>> = (0..200).map(|_| connect(&server)).collect();
    assert_eq!(ask(&server, "GET", "/health").status, 200);
    drop(silent);
}

#[test]
fn whatever_bytes_come_the_server_goes_on() {
    let server = FakeServer::start().unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        ..ProptestConfig::default()
    });
    runner
        .run(&prop::collection::vec(any::<u8>(), 0..2000), |bytes| {
            let mut stream = connect(&server);
            let _ = stream.write_all(&bytes);
            stream.shutdown_write();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            prop_assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
            Ok(())
        })
        .unwrap();
    assert_eq!(ask(&server, "GET", "/health").status, 200);
}

/// Generates JSON of any shape, with keys that the interface knows and others.
fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "[ -~]{0,12}".prop_map(Into::into),
        prop::sample::select(vec![
            "br0",
            "h1",
            "net_null9",
            "tcp:127.0.0.1",
            "tcp,tp_dst=1",
            "00",
            "in_port=h1"
        ])
        .prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let key = prop::sample::select(vec![
            "bridge",
            "port",
            "name",
            "number",
            "device",
            "system",
            "api",
            "listen",
            "workers",
            "packet",
            "hex",
            "match",
            "timeout_seconds",
            "mtu",
            "tables",
            "odd",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn whatever_json_comes_the_answer_is_a_success_or_a_problem() {
    let server = FakeServer::start().unwrap();
    let targets = [
        ("PUT", "/api/v1/config"),
        ("PATCH", "/api/v1/config"),
        ("PUT", "/api/v1/config/bridges/br0"),
        ("PUT", "/api/v1/config/bridges/br0/ports/h1"),
        ("POST", "/api/v1/bridges/br0/trace"),
        ("POST", "/api/v1/bridges/br0/trace-live"),
    ];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        ..ProptestConfig::default()
    });
    runner
        .run(
            &(any_json(), prop::sample::select(targets.to_vec())),
            |(mut body, (method, path))| {
                if let Some(body) = body.as_object_mut().filter(|_| path.ends_with("trace-live")) {
                    body.insert("timeout_seconds".to_owned(), 0.1.into());
                }
                let headers = [("content-type", "application/json"), ("if-match", "*")];
                let answer = ask_with(&server, method, path, &headers, body.to_string().as_bytes());
                let is_problem = answer.header("content-type") == Some("application/problem+json");
                prop_assert!(
                    answer.status == 200 || (is_problem && (400..500).contains(&answer.status)),
                    "{}",
                    answer.text()
                );
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn deeply_nested_json_is_refused_and_not_followed() {
    let server = FakeServer::start().unwrap();
    let body = "[".repeat(100_000);
    let headers = [("content-type", "application/json"), ("if-match", "*")];
    assert_eq!(
        ask_with(&server, "PUT", "/api/v1/config", &headers, body.as_bytes()).status,
        400
    );
}
