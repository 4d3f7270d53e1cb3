//! Metrics and status over HTTP/1.0: on a Unix socket, and metrics on a loopback address, too.
//!
//! One thread for each listener accepts connections, and a thread for each connection answers one request, which must
//! arrive within two seconds. A listener has [`LIMITS`] of connections: a newer one closes the oldest of them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_listener::{Admission, Limits, Source};
use thiserror::Error;

/// The time that a request may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The limits of a listener. A request is the only one of its connection, so no connection is established.
const LIMITS: Limits = Limits {
    established: 0,
    established_of_source: 0,
    pending: 32,
    pending_of_source: 32,
};
/// The pause after a failed accept, for example when the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The maximum size of a request in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// The maximum size of a status in bytes.
const STATUS_MAX: u64 = 64 << 20;

/// Returns the page at a path, with its content type.
pub(crate) type Pages = dyn Fn(&str) -> Option<(&'static str, String)> + Send + Sync;

/// Serves pages on a Unix socket, from a thread that lasts as long as the process.
pub(crate) fn serve_unix(path: &Path, pages: std::sync::Arc<Pages>) -> io::Result<()> {
    // The state directory's lock is held: an existing socket belongs to a process that has ended.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    let accept = move || {
        let (stream, _) = listener.accept()?;
        let other = stream.try_clone()?;
        let close = move || drop(other.shutdown(Shutdown::Both));
        Ok((Stream::Unix(stream), Source::Local, close))
    };
    spawn("status", move || serve("courier.sock", accept, &pages))
}

/// Serves pages on a TCP address, from a thread that lasts as long as the process; returns the address.
pub(crate) fn serve_tcp(
    address: std::net::SocketAddr,
    pages: std::sync::Arc<Pages>,
) -> io::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let accept = move || {
        let (stream, from) = listener.accept()?;
        let other = stream.try_clone()?;
        let close = move || drop(other.shutdown(Shutdown::Both));
        Ok((Stream::Tcp(stream), Source::from(from), close))
    };
    spawn("metrics", move || serve("metrics", accept, &pages))?;
    Ok(address)
}

/// Accepts connections, and answers each on a thread of its own.
fn serve<C: FnOnce() + Send + 'static>(
    name: &str,
    accept: impl Fn() -> io::Result<(Stream, Source, C)>,
    pages: &std::sync::Arc<Pages>,
) {
    let admission = Admission::new(LIMITS, name);
    loop {
        admission.wait();
        let (stream, source, close) = match accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(listener = name, %error, "a connection cannot be accepted");
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let connection = admission.begin(source, close);
        let pages = std::sync::Arc::clone(pages);
        let answer = move || {
            let _counted = connection;
            respond(stream, &*pages);
        };
        if let Err(error) = spawn("client", answer) {
            tracing::warn!(listener = name, %error, "a connection is not served");
        }
    }
}

/// A connection over either transport.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(bytes),
            Stream::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run)?;
    Ok(())
}

/// Answers one request. A peer that is slow, or sends no request, is disconnected.
fn respond(mut stream: Stream, pages: &Pages) {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        let mut buffer = [0; 1_024];
        if left.is_zero() || request.len() > REQUEST_MAX || stream.set_timeouts(left, PATIENCE).is_err() {
            return;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(size) => request.extend_from_slice(&buffer[..size]),
        }
    }
    let head = String::from_utf8_lossy(&request);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, (kind, body)) = match (method, pages(path)) {
        ("GET", Some(page)) => ("200 OK", page),
        ("GET", None) => (
            "404 Not Found",
            ("text/plain", "expected /metrics or /status\n".to_owned()),
        ),
        _ => (
            "405 Method Not Allowed",
            ("text/plain", "expected GET\n".to_owned()),
        ),
    };
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat());
}

/// A status that cannot be read.
#[derive(Debug, Error)]
pub enum StatusError {
    /// The daemon does not respond.
    #[error("no daemon responds at {}: {error}; start `millrace courier serve`, or give its socket with --socket", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        error: io::Error,
    },
    /// The response is not that of a daemon.
    #[error("the response at {} is not that of `millrace courier serve`", path.display())]
    Response {
        /// The socket.
        path: PathBuf,
    },
}

/// Returns the status of the daemon at a socket, as JSON.
///
/// # Errors
/// If no daemon responds.
pub fn read_status(path: &Path) -> Result<serde_json::Value, StatusError> {
    let connect = |error| StatusError::Connect {
        path: path.to_owned(),
        error,
    };
    let mut stream = UnixStream::connect(path).map_err(connect)?;
    stream.set_read_timeout(Some(2 * PATIENCE)).map_err(connect)?;
    stream
        .write_all(b"GET /status HTTP/1.0\r\n\r\n")
        .map_err(connect)?;
    let mut text = String::new();
    stream
        .take(STATUS_MAX)
        .read_to_string(&mut text)
        .map_err(connect)?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|_| StatusError::Response {
        path: path.to_owned(),
    })
}
