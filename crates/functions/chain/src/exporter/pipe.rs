//! A pipe as the target of exported messages. Its reader may be slow, or stop reading.
//!
//! Writes do not block. Bytes for which the pipe has no room wait here, and while there are any, later messages are lost as a
//! whole, so that the reader gets only whole messages.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time for which one write waits for a reader that has kept up so far.
const PATIENCE: Duration = Duration::from_millis(20);

/// A pipe, or another file that is not regular, opened with O_NONBLOCK.
pub(super) struct Pipe {
    file: File,
    /// The end of the last message that was accepted.
    rest: Vec<u8>,
}

impl Pipe {
    pub(super) fn new(file: File) -> Pipe {
        Pipe {
            file,
            rest: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether accepted bytes wait for room.
    pub(super) fn is_behind(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Accepts messages. The pipe gets them now, or later by [`flush`](Pipe::flush).
    ///
    /// # Errors
    /// The kernel's error; `WouldBlock` if the pipe has no room for the rest of earlier messages.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        let deadline = Instant::now() + PATIENCE;
        let mut written = self.write_some(bytes)?;
        while written < bytes.len() && self.waits_for_room(deadline) {
            written += self.write_some(&bytes[written..])?;
        }
        self.rest.extend_from_slice(&bytes[written..]);
        Ok(())
    }

    /// Writes the rest of earlier messages.
    ///
    /// # Errors
    /// The kernel's error; `WouldBlock` if there is no room for all bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let rest = core::mem::take(&mut self.rest);
        let written = self.write_some(&rest)?;
        self.rest = rest;
        self.rest.drain(..written);
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes the rest of earlier messages, and waits until a deadline, at most a second away, for room.
    ///
    /// # Errors
    /// As of [`flush`](Pipe::flush).
    pub(super) fn finish(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            match self.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits_for_room(deadline) => {}
                flushed => return flushed,
            }
        }
    }

    /// Writes as many bytes as there is room for. Returns their number.
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(size) => written += size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Waits until there is room. Returns false if there is none at the deadline.
    fn waits_for_room(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: 0,
            tv_nsec: left.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&left)).is_ok_and(|ready| ready != 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    /// Returns both ends of a pipe that does not block.
    fn pipe() -> (File, Pipe) {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).unwrap();
        let file = |end: OwnedFd| File::from(end);
        (file(reader), Pipe::new(file(writer)))
    }

    fn available(reader: &mut File) -> Vec<u8> {
        let mut bytes = Vec::new();
        let error = reader.read_to_end(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        bytes
    }

    #[test]
    fn a_reader_that_stops_and_goes_on_gets_whole_messages() {
        let (mut reader, mut pipe) = pipe();
        let message = |byte: u8| vec![byte; 40_000];
        let is_accepted = |pipe: &mut Pipe, byte: u8| match pipe.write(&message(byte)) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                false
            }
        };
        let first = (1..=250).take_while(|byte| is_accepted(&mut pipe, *byte)).count() as u8;
        assert!((1..250).contains(&first));
        let mut came = available(&mut reader);
        assert_ne!(came.len() % 40_000, 0, "the last message is not whole yet");
        assert!(is_accepted(&mut pipe, 251));
        while pipe.flush().is_err() {
            came.extend(available(&mut reader));
        }
        came.extend(available(&mut reader));
        let wanted: Vec<u8> = (1..=first).chain([251]).flat_map(message).collect();
        assert!(came == wanted, "{} bytes instead of {}", came.len(), wanted.len());
    }

    #[test]
    fn the_last_message_is_finished_if_the_reader_goes_on() {
        let (mut reader, mut pipe) = pipe();
        while !pipe.is_behind() {
            pipe.write(&[7; 40_000]).unwrap();
        }
        let error = pipe.finish(Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut came = available(&mut reader).len();
        pipe.finish(Instant::now()).unwrap();
        assert!(!pipe.is_behind());
        came += available(&mut reader).len();
        assert_eq!(came % 40_000, 0);
    }

    #[test]
    fn a_pipe_whose_reader_has_gone_fails() {
        let (reader, mut pipe) = pipe();
        drop(reader);
        assert_eq!(pipe.write(b"lost").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
