//! Tests of hundreds of clients that hold connections on real sockets: silent ones, slow ones, and ones that
//! read nothing. The time limits are short, so that the tests are short; `Limits` has the defaults.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::wire::{Stream, ask, connect, open, parse};
use millrace_api::client::Client;
use millrace_api::fake::FakeServer;
use millrace_api::server::{Limits, Tcp, Token};

const TOKEN: &str = "0123456789abcdef0123";
/// The number of connections of a hostile client.
const CONNECTIONS: usize = 300;
/// The longest time that an immediate action of the server may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Returns the default number of slots, and time limits of a second.
fn short() -> Limits {
    Limits {
        head: Duration::from_secs(1),
        body: Duration::from_secs(1),
        write: Duration::from_secs(1),
        ..Limits::default()
    }
}

/// Returns the default number of slots, and time limits that no test reaches.
fn long() -> Limits {
    let hour = Duration::from_secs(3600);
    Limits {
        head: hour,
        body: hour,
        write: hour,
        ..Limits::default()
    }
}

fn over_tcp(limits: Limits) -> FakeServer {
    let tcp = Tcp {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: Token::new(TOKEN).unwrap(),
        tls: None,
    };
    FakeServer::start_with(Some(tcp), limits).unwrap()
}

/// Checks that `/health` and `/ready` respond within [`SOON`].
#[track_caller]
fn probes_answer(server: &FakeServer) {
    let begun = Instant::now();
    for path in ["/health", "/ready"] {
        assert_eq!(ask(server, "GET", path).status, 200, "{path}");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// Reads until the server closes the connection, which it must do within [`SOON`]. Returns the bytes read.
#[track_caller]
fn closes(stream: &mut dyn Stream) -> Vec<u8> {
    let begun = Instant::now();
    let mut said = Vec::new();
    // A reset closes the connection, too; a timeout does not.
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it stays open");
    }
    assert!(begun.elapsed() < SOON);
    said
}

/// Sends a request with the token, and returns the connection, which stays open, and the first line of the response.
fn ask_with_token(server: &FakeServer, path: &str) -> (Box<dyn Stream>, String) {
    let mut stream = connect(server);
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    (stream, String::from_utf8_lossy(&line).into_owned())
}

#[test]
fn connections_without_an_authorized_request_keep_nobody_from_asking_however_long_they_stay() {
    for server in [FakeServer::start_with(None, long()).unwrap(), over_tcp(long())] {
        for said in [
            "",
            "GET /api/v1/version HT",
            "GET /api/v1/version HTTP/1.1\r\nhost: localhost\r\n",
        ] {
            let held: Vec<Box<dyn Stream>> = (0..CONNECTIONS)
                .map(|_| {
                    let mut stream = connect(&server);
                    stream.write_all(said.as_bytes()).unwrap();
                    stream
                })
                .collect();
            probes_answer(&server);
            let (_stream, line) = ask_with_token(&server, "/api/v1/version");
            assert_eq!(line, "HTTP/1.1 200", "beside {said:?}");
            drop(held);
        }
    }
}

#[test]
fn a_client_with_the_token_has_64_connections_and_the_next_gets_an_error_that_names_the_limit() {
    for server in [FakeServer::start_with(None, long()).unwrap(), over_tcp(long())] {
        let held: Vec<_> = (0..64)
            .map(|_| ask_with_token(&server, "/api/v1/version"))
            .collect();
        assert!(held.iter().all(|(_, line)| line == "HTTP/1.1 200"));
        let (mut stream, line) = ask_with_token(&server, "/api/v1/version");
        assert_eq!(line, "HTTP/1.1 429");
        let said = String::from_utf8_lossy(&closes(stream.as_mut())).into_owned();
        assert!(said.contains("at most 64 of one user or address"), "{said}");
        probes_answer(&server);
        // Connections that newer ones replace are those without a request.
        let silent: Vec<Box<dyn Stream>> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
        probes_answer(&server);
        drop(silent);
        for (mut stream, _) in held {
            stream.set_timeouts(Duration::from_millis(1));
            let mut bytes = Vec::new();
            let open = stream.read_to_end(&mut bytes).unwrap_err();
            assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn what_holds_the_address_does_not_hold_the_socket() {
    let server = over_tcp(long());
    let silent: Vec<Box<dyn Stream>> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    let socket = format!("unix:{}", server.socket().display());
    assert!(Client::new(&socket, None, None).unwrap().config().is_ok());
    drop(silent);
}

#[test]
fn clients_that_ask_and_read_nothing_are_ended() {
    let server = FakeServer::start_with(None, short()).unwrap();
    let request = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(64);
    let deaf: Vec<Box<dyn Stream>> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = connect(&server);
            // The server stops reading when its responses are not read.
            stream.set_timeouts(Duration::from_millis(5));
            let _ = stream.write_all(request.as_bytes());
            stream.set_timeouts(SOON);
            stream
        })
        .collect();
    probes_answer(&server);
    // Nobody reads meanwhile: the slots become free because the server closes these connections.
    let deadline = Instant::now() + SOON;
    while ask(&server, "GET", "/api/v1/version").status != 200 {
        assert!(
            Instant::now() < deadline,
            "clients that read nothing hold every place"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(deaf);
}

/// Returns 200 connections with a request whose body does not end.
fn unfinished_requests(server: &FakeServer) -> Vec<Box<dyn Stream>> {
    let head = "PATCH /api/v1/config HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 4000\r\n\r\n{\"system\"";
    let requests = (0..200).map(|_| {
        let mut stream = connect(server);
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
    requests.collect()
}

#[test]
fn unfinished_bodies_hold_as_many_places_as_a_client_may_have() {
    let server = FakeServer::start_with(None, long()).unwrap();
    let mut unfinished = unfinished_requests(&server);
    probes_answer(&server);
    for stream in &unfinished {
        stream.set_timeouts(Duration::from_millis(1));
    }
    let is_open = |stream: &mut Box<dyn Stream>| loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    // Further ones are refused, and closed soon after that.
    let (places, begun) = (Limits::default().connections_per_peer, Instant::now());
    loop {
        let open = unfinished.iter_mut().map(is_open).filter(|open| *open).count();
        assert!(open >= places && begun.elapsed() < SOON, "{open} are open");
        if open == places {
            return;
        }
    }
}

#[test]
fn an_authorized_request_whose_body_is_on_its_way_keeps_its_connection_beside_silent_ones() {
    let server = over_tcp(long());
    let body = br#"{"system": {"memory_mib": 777}}"#;
    let mut slow = connect(&server);
    let head = format!(
        "PATCH /api/v1/config HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/merge-patch+json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    slow.write_all(head.as_bytes()).unwrap();
    let silent: Vec<Box<dyn Stream>> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    probes_answer(&server);
    slow.write_all(body).unwrap();
    let mut line = [0; 12];
    slow.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 200");
    drop(silent);
}

#[test]
fn bodies_that_do_not_arrive_are_refused_and_their_connections_closed() {
    let server = FakeServer::start_with(None, short()).unwrap();
    let mut unfinished = unfinished_requests(&server);
    probes_answer(&server);
    let mut timed_out = 0;
    for stream in &mut unfinished {
        let said = closes(stream.as_mut());
        if said.is_empty() {
            // The server closed this connection for a newer one.
            continue;
        }
        match parse(&said).status {
            408 => timed_out += 1,
            status => assert_eq!(status, 429),
        }
    }
    // A connection that times out early makes room for another one, so more of them than the limit can time
    // out.
    assert!(timed_out >= Limits::default().connections_per_peer, "{timed_out}");
    assert_eq!(ask(&server, "GET", "/api/v1/version").status, 200);
}

#[test]
fn a_response_reaches_a_client_whose_unneeded_body_comes_late() {
    let server = FakeServer::start_with(None, long()).unwrap();
    let reload = "/api/v1/bridges/br0/chains/edge/hops/fw/reload";
    for path in [reload, "/absent"] {
        let mut stream = connect(&server);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The server has time to respond before the body arrives.
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"{}").unwrap();
        let mut said = [0; 8];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"HTTP/1.1", "{path}");
        // The connection serves the next request.
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"{}").unwrap();
    }
}

#[test]
fn a_head_that_does_not_arrive_ends_its_connection_and_so_does_silence_after_an_answer() {
    let server = FakeServer::start_with(None, short()).unwrap();
    let mut slow = connect(&server);
    slow.write_all(b"GET /health HT").unwrap();
    closes(slow.as_mut());
    let mut idle = connect(&server);
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    assert!(closes(idle.as_mut()).starts_with(b"HTTP/1.1 200"));
}

#[test]
fn streams_to_a_client_that_reads_stay_longer_than_any_deadline() {
    let limits = short();
    let server = FakeServer::start_with(None, limits).unwrap();
    let mut events = open(&server, "GET", "/api/v1/events", &[], b"");
    let mut first = [0; 12];
    events.read_exact(&mut first).unwrap();
    assert!(first.ends_with(b"200"));
    // Nothing is written for three time limits: no write is pending, so the connection stays open.
    events.set_timeouts(3 * limits.write);
    let mut said = Vec::new();
    let quiet = events.read_to_end(&mut said).unwrap_err();
    assert_eq!(quiet.kind(), std::io::ErrorKind::WouldBlock, "the stream ended");
    let headers = [("content-type", "application/merge-patch+json")];
    let body = br#"{"system": {"memory_mib": 777}}"#;
    let patched = crate::wire::ask_with(&server, "PATCH", "/api/v1/config", &headers, body);
    assert_eq!(patched.status, 200);
    events.set_timeouts(SOON);
    let mut chunk = [0; 4096];
    let mut text = String::new();
    while !text.contains("id: 2") {
        let size = events.read(&mut chunk).unwrap();
        assert!(size > 0, "the stream ended: {text}");
        text += &String::from_utf8_lossy(&chunk[..size]);
    }
}
