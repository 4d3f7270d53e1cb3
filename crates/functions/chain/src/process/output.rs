//! The last lines that a function's process writes to standard error, which explain a failure.

use std::io::Read;

/// Size of the stored output in bytes.
const TAIL: usize = 2048;
/// Number of reported lines.
const LINES: usize = 3;
/// Number of reported characters.
const CHARS: usize = 300;

/// Reads a pipe to its end, and returns the last lines of the text as one line.
pub(super) fn last_words(mut pipe: impl Read) -> String {
    let (mut tail, mut chunk) = (Vec::new(), [0; TAIL]);
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => {
                tail.extend_from_slice(&chunk[..len]);
                tail.drain(..tail.len().saturating_sub(TAIL));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    summary(&String::from_utf8_lossy(&tail))
}

/// Returns the last lines of a text as one line, without control characters and the name of the program.
pub(super) fn summary(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let last = last
        .iter()
        .map(|line| line.strip_prefix("millrace-nf: ").unwrap_or(line));
    let joined = last.collect::<Vec<_>>().join("; ");
    joined.chars().filter(|c| !c.is_control()).take(CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_of_however_many() {
        let mut text = "x".repeat(100_000) + "\n";
        text += "one\n\ntwo\n\u{1b}[31mmillrace-nf\nmillrace-nf: packet memory 1: No such device\n";
        assert_eq!(
            last_words(text.as_bytes()),
            "two; [31mmillrace-nf; packet memory 1: No such device"
        );
        assert_eq!(last_words(&b"\xff only"[..]), "\u{fffd} only");
        assert_eq!(last_words(&b""[..]), "");
        assert_eq!(summary(&"y".repeat(1000)).len(), CHARS);
    }
}
