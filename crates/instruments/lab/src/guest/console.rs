//! Commands in a guest, over a serial line that QEMU shows as a socket.
//!
//! A command is a line: a token and what the guest's shell is to run. The answer begins with a line that has the token, and
//! ends with one that has it and the status; in between is what the command wrote. One command runs at a time; others wait.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a guest only gives back, to show that it listens.
pub(super) const READY: &str = "ready-";
/// Before the token of an answer that begins, and of one that ends.
pub(super) const BEGIN: &str = "[begin ";
pub(super) const DONE: &str = "[done ";
/// The longest line that a terminal's driver passes on (N_TTY_BUF_SIZE is 4096), with the token.
const LINE_MAX: usize = 4000;

/// Whether the guest takes commands.
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

/// Runs a command and copies what it writes, both its standard output and error. Returns its status.
///
/// # Errors
/// The guest is gone; a command that does not fit a line; that of the writer.
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

/// What is no other command's.
fn number() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}

/// As a word of the shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// What a guest says.
struct Answer<R> {
    stream: R,
    /// What was read and not looked at yet.
    rest: Vec<u8>,
}

impl<R: Read> Answer<R> {
    fn new(stream: R) -> Answer<R> {
        Answer {
            stream,
            rest: Vec::new(),
        }
    }

    /// Copies everything before `end`, and passes over that.
    fn until(&mut self, end: &str, to: &mut dyn Write) -> io::Result<()> {
        let end = end.as_bytes();
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|bytes| bytes == end) {
                to.write_all(&self.rest[..at])?;
                self.rest.drain(..at + end.len());
                return to.flush();
            }
            // All but what may be the beginning of the end.
            let sure = self.rest.len().saturating_sub(end.len() - 1);
            to.write_all(&self.rest[..sure])?;
            to.flush()?;
            self.rest.drain(..sure);
            let mut more = [0; 4096];
            let size = self.stream.read(&mut more)?;
            if size == 0 {
                let gone = "the guest has ended";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, gone));
            }
            self.rest.extend_from_slice(&more[..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte at a time, as serial lines are.
    struct Slow(Vec<u8>);

    impl Read for Slow {
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
        let said = b"left over\n[done 6 0\n[begin 7\nhello [done 6 1\n[done 7 13\n";
        let mut answer = Answer::new(Slow(said.to_vec()));
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
    fn words_reach_the_guests_shell_as_they_are() {
        assert_eq!(quoted("10.0.0.1/24"), "10.0.0.1/24");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn what_does_not_fit_a_line_is_refused() {
        let error = run(Path::new("/none"), &["a\nb".to_owned()], &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
