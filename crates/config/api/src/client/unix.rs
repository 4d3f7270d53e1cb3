//! HTTP over a Unix socket: connector and transport for `ureq`.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, time,
};
use ureq::{Agent, Error};

/// Returns an agent whose connections all go to the socket at `path`.
pub(super) fn agent(config: Config, path: &Path) -> Agent {
    Agent::with_parts(config, SocketConnector(path.to_owned()), NoResolver)
}

/// Returns the users who may connect to a socket: `root`, `root and user 997`, `root and the members of group 998`.
pub(super) fn allowed_users(path: &Path) -> String {
    let Ok(found) = std::fs::metadata(path) else {
        return "root".to_owned();
    };
    let user = (found.uid() != 0).then(|| format!("user {}", found.uid()));
    let is_of_group = found.mode() & 0o060 == 0o060;
    let group = is_of_group.then(|| format!("the members of group {}", found.gid()));
    let others: Vec<String> = [user, group].into_iter().flatten().collect();
    match others.is_empty() {
        true => "root".to_owned(),
        false => format!("root and {}", others.join(" and ")),
    }
}

/// Resolves every name to an unused address: the host in the URL is a placeholder.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(addresses)
    }
}

/// Connects to a Unix socket.
#[derive(Debug)]
struct SocketConnector(PathBuf);

impl Connector for SocketConnector {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = UnixStream::connect(&self.0)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Connection { stream, buffers }))
    }
}

/// A connection to a Unix socket.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

/// Returns the remaining time in the form of a socket timeout: `None` for no limit, never zero.
fn remaining(timeout: NextTimeout) -> Option<Duration> {
    match timeout.after {
        time::Duration::NotHappening => None,
        time::Duration::Exact(time) => Some(time.max(Duration::from_millis(1))),
    }
}

fn failed(error: std::io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(remaining(timeout))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        match self.stream.write_all(output) {
            // The server responded and closed without reading the body, as it does for a request that it rejects. The
            // response is still readable (RFC 9112, section 9.5). Without a response, the read fails.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(())
            }
            other => other.map_err(|error| failed(error, timeout)),
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(remaining(timeout))?;
        let input = self.buffers.input_append_buf();
        let size = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error, timeout)),
                Ok(size) => break size,
            }
        };
        self.buffers.input_appended(size);
        Ok(size > 0)
    }

    /// Returns true if an idle connection can be used for another request: the server has neither closed it nor sent
    /// data.
    fn is_open(&mut self) -> bool {
        let probe = |stream: &mut UnixStream| {
            stream.set_nonblocking(true)?;
            let read = stream.read(&mut [0]);
            stream.set_nonblocking(false)?;
            read
        };
        probe(&mut self.stream).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::client::{ChangeOptions, Client, ClientError};

    #[test]
    fn an_answer_that_comes_before_the_body_is_sent_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
            let problem = r#"{"type":"/problems/busy","title":"busy","status":429,"detail":"too many"}"#;
            let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\n";
            write!(stream, "{head}content-length: {}\r\n\r\n{problem}", problem.len()).unwrap();
        });
        let client = Client::new(&format!("unix:{}", path.display()), None, None).unwrap();
        // The body exceeds the buffers of the socket, so that the server closes during the write.
        let config = serde_json::json!({"text": "x".repeat(4 << 20)});
        let refused = client.replace_config(&config, None, &ChangeOptions::default());
        assert!(
            matches!(&refused, Err(ClientError::Problem(problem)) if problem.status == 429),
            "{refused:?}"
        );
        server.join().unwrap();
    }
}
