//! The target of exported messages: a UDP collector, a file, or a Unix socket.

use std::fs::File;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::fcntl::OFlag;

use super::pipe::Pipe;

/// The expected form of a target.
const EXPECTED: &str = "expected udp:HOST:PORT, file:PATH or unix:PATH";

enum Open {
    Datagrams(UdpSocket),
    File(File),
    Pipe(Pipe),
    Stream(UnixStream),
}

/// A target, open or to be opened again.
pub(super) struct Sink {
    to: String,
    open: Option<Open>,
    /// The number of writes that failed since the target last received all accepted bytes.
    failed: u64,
}

impl Sink {
    /// Opens a target. One that cannot be opened is tried again by [`Sink::maintain`].
    pub(super) fn open(chain: &str, to: &str) -> Sink {
        let open = connect(to);
        if let Err(error) = &open {
            tracing::warn!(chain, to, %error, "export target cannot be opened; it is tried again every second");
        }
        Sink {
            to: to.to_owned(),
            open: open.ok(),
            failed: 0,
        }
    }

    /// Returns whether each message is sent as one datagram.
    pub(super) fn is_datagrams(&self) -> bool {
        matches!(self.open, Some(Open::Datagrams(_)))
    }

    /// Writes bytes. Those that cannot be written are lost.
    pub(super) fn write(&mut self, chain: &str, bytes: &[u8]) {
        let written = match &mut self.open {
            None => Err(io::Error::from(io::ErrorKind::NotConnected)),
            Some(Open::Datagrams(socket)) => socket.send(bytes).map(|_| ()),
            Some(Open::File(file)) => file.write_all(bytes),
            Some(Open::Pipe(pipe)) => pipe.write(bytes),
            Some(Open::Stream(stream)) => stream.write_all(bytes),
        };
        match written {
            // A pipe with a slow reader accepts some messages and refuses others. This is logged once.
            Ok(()) if self.is_behind() => {}
            Ok(()) => self.failed = 0,
            Err(error) => {
                if self.failed == 0 {
                    tracing::warn!(chain, to = %self.to, %error, "messages not exported");
                }
                self.failed += 1;
                // A pipe without room refuses only whole messages, so it can stay open.
                let has_room_later = error.kind() == io::ErrorKind::WouldBlock;
                if match self.open {
                    Some(Open::Stream(_)) => true,
                    Some(Open::Pipe(_)) => !has_room_later,
                    _ => false,
                } {
                    self.open = None;
                }
            }
        }
    }

    /// Returns whether accepted bytes wait for room in a pipe.
    fn is_behind(&self) -> bool {
        matches!(&self.open, Some(Open::Pipe(pipe)) if pipe.is_behind())
    }

    /// Writes the bytes that a pipe had no room for, before the target is closed. Waits for room until a deadline.
    pub(super) fn finish(&mut self, chain: &str, deadline: Instant) {
        if let Some(Open::Pipe(pipe)) = &mut self.open
            && let Err(error) = pipe.finish(deadline)
        {
            tracing::debug!(chain, to = %self.to, %error, "the last message is not whole");
        }
    }

    /// Writes the bytes that a pipe had no room for.
    pub(super) fn flush(&mut self) {
        if let Some(Open::Pipe(pipe)) = &mut self.open
            && pipe
                .flush()
                .is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
        {
            self.open = None;
        }
    }

    /// Opens a target that is not open. Opens a file again if it was moved or `is_asked` is true, and a pipe if it was
    /// moved.
    pub(super) fn maintain(&mut self, chain: &str, is_asked: bool) {
        let is_stale = match &self.open {
            None => true,
            Some(Open::File(file)) => is_asked || self.was_moved(file),
            Some(Open::Pipe(pipe)) => self.was_moved(pipe.file()),
            Some(_) => false,
        };
        if !is_stale {
            return;
        }
        match connect(&self.to) {
            Ok(open) => {
                tracing::debug!(chain, to = %self.to, "export target opened");
                self.open = Some(open);
            }
            Err(error) => tracing::debug!(chain, to = %self.to, %error, "export target cannot be opened"),
        }
    }

    /// Returns whether the path no longer names the open file.
    fn was_moved(&self, file: &File) -> bool {
        let Some(path) = self.to.strip_prefix("file:") else {
            return false;
        };
        let number = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let held = file.metadata().map(number).ok();
        held.is_some() && std::fs::metadata(path).map(number).ok() != held
    }
}

fn connect(to: &str) -> io::Result<Open> {
    match to.split_once(':') {
        Some(("udp", address)) => UdpSocket::bind("[::]:0")
            .or_else(|_| UdpSocket::bind("0.0.0.0:0"))
            .and_then(|socket| connect_to(socket, address))
            .map(Open::Datagrams),
        Some(("file", path)) => {
            // With O_NONBLOCK, a pipe without a reader is not opened (ENXIO, fifo(7)). Otherwise the call would block, and
            // delay the messages of other hops.
            let mut options = File::options();
            options
                .create(true)
                .append(true)
                .custom_flags(OFlag::O_NONBLOCK.bits());
            let file = options.open(path)?;
            Ok(match file.metadata()?.is_file() {
                true => Open::File(file),
                false => Open::Pipe(Pipe::new(file)),
            })
        }
        Some(("unix", path)) => {
            let stream = UnixStream::connect(path)?;
            // A reader that does not read must not hold up the messages of other hops.
            stream.set_nonblocking(true)?;
            Ok(Open::Stream(stream))
        }
        _ => Err(io::Error::other(EXPECTED)),
    }
}

fn connect_to(socket: UdpSocket, address: &str) -> io::Result<UdpSocket> {
    match socket.connect(address) {
        Ok(()) => Ok(socket),
        // The address is of the other family.
        Err(_) => {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(address)?;
            Ok(socket)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_file_that_was_rotated_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eve.json");
        let mut sink = Sink::open("edge", &format!("file:{}", path.display()));
        sink.write("edge", b"one\n");
        std::fs::rename(&path, folder.path().join("eve.json.1")).unwrap();
        sink.write("edge", b"two\n");
        sink.maintain("edge", false);
        sink.write("edge", b"three\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"three\n");
        let moved = std::fs::read(folder.path().join("eve.json.1")).unwrap();
        assert_eq!(moved, b"one\ntwo\n");
    }

    #[test]
    fn a_pipe_without_a_reader_is_opened_once_it_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut sink = Sink::open("edge", &format!("file:{}", path.display()));
        sink.write("edge", b"lost\n");
        let reader = File::options()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&path);
        sink.maintain("edge", false);
        sink.write("edge", b"kept\n");
        drop(sink);
        let mut text = String::new();
        reader.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept\n");
    }

    #[test]
    fn a_slow_reader_of_a_pipe_is_one_problem_until_it_has_caught_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut options = File::options();
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let mut reader = options.open(&path).unwrap();
        let mut sink = Sink::open("edge", &format!("file:{}", path.display()));
        let message = vec![7; 200_000];
        sink.write("edge", &message);
        assert!(sink.is_behind() && sink.failed == 0);
        sink.write("edge", &message);
        assert_eq!(sink.failed, 1);
        while sink.is_behind() {
            let _end = reader.read_to_end(&mut Vec::new());
            sink.flush();
        }
        sink.write("edge", &message);
        assert!(sink.is_behind(), "the message is accepted");
        assert_eq!(sink.failed, 1);
        sink.write("edge", &message);
        assert_eq!(sink.failed, 2, "no further line in the log");
        while sink.is_behind() {
            let _end = reader.read_to_end(&mut Vec::new());
            sink.flush();
        }
        let _end = reader.read_to_end(&mut Vec::new());
        sink.write("edge", b"short");
        assert_eq!(sink.failed, 0);
    }

    #[test]
    fn a_socket_whose_reader_comes_late_receives_what_follows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eve.sock");
        let mut sink = Sink::open("edge", &format!("unix:{}", path.display()));
        sink.write("edge", b"lost\n");
        let listener = UnixListener::bind(&path).unwrap();
        sink.maintain("edge", false);
        sink.write("edge", b"kept\n");
        let (mut reader, _) = listener.accept().unwrap();
        drop(sink);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept\n");
    }
}
