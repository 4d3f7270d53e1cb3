//! HTTP as bytes on a socket, so that the tests do not depend on a lenient client.

#![allow(dead_code, reason = "each test file uses what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use millrace_api::fake::FakeServer;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

pub(crate) fn ask(server: &FakeServer, method: &str, path: &str) -> Answer {
    ask_with(server, method, path, &[], b"")
}

pub(crate) fn ask_with(
    server: &FakeServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = open(server, method, path, headers, body);
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    // The server may close the connection before it has read a body that is too large. The response counts.
    while let Ok(size) = stream.read(&mut chunk) {
        if size == 0 {
            break;
        }
        bytes.extend_from_slice(&chunk[..size]);
    }
    parse(&bytes)
}

/// A connection over TCP or a Unix socket.
pub(crate) trait Stream: Read + Write + Send {
    fn set_timeouts(&self, timeout: Duration);
    fn shutdown_write(&self);
}

impl Stream for TcpStream {
    fn set_timeouts(&self, timeout: Duration) {
        self.set_read_timeout(Some(timeout)).unwrap();
        self.set_write_timeout(Some(timeout)).unwrap();
    }

    fn shutdown_write(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Stream for UnixStream {
    fn set_timeouts(&self, timeout: Duration) {
        self.set_read_timeout(Some(timeout)).unwrap();
        self.set_write_timeout(Some(timeout)).unwrap();
    }

    fn shutdown_write(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

/// Connects to the server: over TCP if it is served, else over the Unix socket.
pub(crate) fn connect(server: &FakeServer) -> Box<dyn Stream> {
    let stream: Box<dyn Stream> = match server.address() {
        Some(address) => Box::new(TcpStream::connect(address).unwrap()),
        None => Box::new(UnixStream::connect(server.socket()).unwrap()),
    };
    stream.set_timeouts(Duration::from_secs(60));
    stream
}

/// Sends a request. The caller reads the response.
pub(crate) fn open(
    server: &FakeServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Box<dyn Stream> {
    let mut stream = connect(server);
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    if !body.is_empty() {
        head += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes()).unwrap();
    let _ = stream.write_all(body);
    stream
}

pub(crate) fn parse(bytes: &[u8]) -> Answer {
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("an answer has a head");
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = &bytes[end + 4..];
    let body = if chunked { unchunk(body) } else { body.to_vec() };
    Answer {
        status: status.unwrap_or(0),
        headers,
        body,
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(&String::from_utf8_lossy(&bytes[..end]), 16).unwrap_or(0);
        let chunk = bytes.get(end + 2..end + 2 + size).unwrap_or_default();
        body.extend_from_slice(chunk);
        if size == 0 {
            break;
        }
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
    body
}
