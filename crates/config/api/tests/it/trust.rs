//! Who may ask: tokens, TLS, foreign pages; and clients that mean harm.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::wire::{ask, ask_with, open};
use millrace_api::client::{Client, ClientError};
use millrace_api::fake::{FakeServer, FakeSwitch};
use millrace_api::server::{Bound, Settings, StartError, Tls, Token};
use millrace_store::{Store, UnixTime};
use proptest::prelude::*;

const TOKEN: &str = "0123456789abcdef0123";

fn with_token() -> FakeServer {
    FakeServer::start_with(Settings {
        token: Some(Token::new(TOKEN).unwrap()),
        ..Settings::loopback(0)
    })
    .unwrap()
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
    assert_eq!(asks("http://localhost"), 200);
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_token_and_a_certificate() {
    let store = Store::in_memory(UnixTime(1)).unwrap();
    let settings = Settings {
        listen: SocketAddr::from(([0, 0, 0, 0], 0)),
        token: None,
        tls: None,
    };
    let bound = Bound::bind(settings, Arc::new(FakeSwitch::default()), store.clone()).await;
    assert!(matches!(bound, Err(StartError::Unprotected { .. })));
    let first = Bound::bind(
        Settings::loopback(0),
        Arc::new(FakeSwitch::default()),
        store.clone(),
    )
    .await
    .unwrap();
    let again = Settings::loopback(first.address().port());
    let Err(error) = Bound::bind(again, Arc::new(FakeSwitch::default()), store).await else {
        panic!("an address was taken twice");
    };
    assert!(
        error.to_string().contains("set api.listen to another address"),
        "{error}"
    );
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
    let token = Token::new(TOKEN).unwrap();
    let server = FakeServer::start_with(Settings {
        token: Some(token),
        tls: Some(tls),
        ..Settings::loopback(0)
    })
    .unwrap();
    let url = format!("https://localhost:{}", server.address().port());
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
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
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
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            prop_assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
            Ok(())
        })
        .unwrap();
    assert_eq!(ask(&server, "GET", "/health").status, 200);
}

/// JSON of any shape, of keys that the interface knows and of some it does not.
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

#[test]
fn a_header_that_comes_byte_by_byte_is_cut_off() {
    let server = FakeServer::start().unwrap();
    let mut stream = open(&server, "GET", "/health", &[], b"");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET /health HT").unwrap();
    let begun = std::time::Instant::now();
    let _ = slow.read_to_end(&mut answer);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
