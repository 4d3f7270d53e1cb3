//! Commands in a guest, over a serial line that QEMU connects to a Unix socket.
//!
//! ```text
//!  request:  TOKEN COMMAND
//!  answer:   [begin TOKEN
//!            output of the command, standard output and error
//!            [done TOKEN STATUS
//! ```
//!
//! One command runs at a time; others wait.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_types::shell::quoted;

/// The prefix of a word that the guest echoes, to show that it accepts commands.
pub(super) const READY: &str = "ready-";
/// The prefix of the token at the beginning and at the end of an answer.
pub(super) const BEGIN: &str = "[begin ";
pub(super) const DONE: &str = "[done ";
/// The maximum length of a command line in bytes, token included (the terminal driver's N_TTY_BUF_SIZE is 4096).
const LINE_MAX: usize = 4000;

/// Returns true if the guest accepts commands.
pub(super) fn is_ready(socket: &Path, within: Duration) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(within))?;
        let token = format!("{READY}{}", number());
        writeln!(stream, "{token}")?;
        Answer::new(stream).until(&format!("{token}\n"), &mut io::sink())?;
        Ok(true)
    };
    ask().unwrap_or(false)
}

/// Runs a command and copies its standard output and error. Returns its exit status.
///
/// # Errors
/// The guest has ended; the command does not fit one line; an error of the writer.
pub(crate) fn run(socket: &Path, words: &[String], to: &mut dyn Write) -> io::Result<u8> {
    let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let line = line.join(" ");
    if line.contains('\n') || line.len() > LINE_MAX {
        let text = format!("a guest takes commands of one line with at most {LINE_MAX} characters");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut stream = UnixStream::connect(socket)?;
    let token = number();
    writeln!(stream, "{token} {line}")?;
    let mut answer = Answer::new(stream);
    answer.until(&format!("{BEGIN}{token}\n"), &mut io::sink())?;
    answer.until(&format!("{DONE}{token} "), to)?;
    let mut status = Vec::new();
    answer.until("\n", &mut status)?;
    let status = String::from_utf8_lossy(&status).trim().parse();
    status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns a number that is unique to this command.
fn number() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}

/// The answer stream of a guest.
struct Answer<R> {
    stream: R,
    /// The bytes that were read and not yet processed.
    rest: Vec<u8>,
}

impl<R: Read> Answer<R> {
    fn new(stream: R) -> Answer<R> {
        Answer {
            stream,
            rest: Vec::new(),
        }
    }

    /// Copies everything before `end`, and skips `end`.
    fn until(&mut self, end: &str, to: &mut dyn Write) -> io::Result<()> {
        let end = end.as_bytes();
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|bytes| bytes == end) {
                to.write_all(&self.rest[..at])?;
                self.rest.drain(..at + end.len());
                return to.flush();
            }
            // All bytes except those that may be a prefix of `end`.
            let sure = self.rest.len().saturating_sub(end.len() - 1);
            to.write_all(&self.rest[..sure])?;
            to.flush()?;
            self.rest.drain(..sure);
            let mut more = [0; 4096];
            let size = self.stream.read(&mut more)?;
            if size == 0 {
                let message = "the guest has ended";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            self.rest.extend_from_slice(&more[..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns one byte at a time, as a serial line may.
    struct ByteReader(Vec<u8>);

    impl Read for ByteReader {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            to[0] = self.0.remove(0);
            Ok(1)
        }
    }

    #[test]
    fn an_answer_is_what_stands_between_its_own_marks() {
        let stream = b"left over\n[done 6 0\n[begin 7\nhello [done 6 1\n[done 7 13\n";
        let mut answer = Answer::new(ByteReader(stream.to_vec()));
        answer.until("[begin 7\n", &mut io::sink()).unwrap();
        let mut output = Vec::new();
        answer.until("[done 7 ", &mut output).unwrap();
        assert_eq!(output, b"hello [done 6 1\n");
        let mut status = Vec::new();
        answer.until("\n", &mut status).unwrap();
        assert_eq!(status, b"13");
        let error = answer.until("\n", &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_does_not_fit_a_line_is_refused() {
        let error = run(Path::new("/none"), &["a\nb".to_owned()], &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
