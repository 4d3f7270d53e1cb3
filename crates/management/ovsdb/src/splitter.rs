//! The ends of JSON texts in a stream. OVSDB puts nothing between two messages (RFC 7047, section 4), so the end of one is
//! where its outermost brace closes. Nothing is parsed here: a value that is too large or nested too deep never reaches the
//! parser.

use thiserror::Error;

/// Finds the JSON objects in a stream of bytes.
#[derive(Debug)]
pub struct Splitter {
    size_max: usize,
    depth_max: usize,
    buffer: Vec<u8>,
    /// The number of bytes of `buffer` that were looked at.
    scanned: usize,
    depth: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outside of a string.
    Plain,
    /// In a string.
    Text,
    /// After a backslash in a string.
    Escape,
}

/// The reason why a stream is not read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SplitterError {
    /// A message is longer than the limit.
    #[error("a message of more than {max} bytes: expected fewer")]
    TooLong {
        /// The limit in bytes.
        max: usize,
    },
    /// A message is nested deeper than the limit.
    #[error("a message nested more than {max} deep: expected less")]
    TooDeep {
        /// The limit of nested arrays and objects.
        max: usize,
    },
    /// A message is no object.
    #[error("a message that begins with the byte {byte:#04x}: expected a JSON object")]
    NoObject {
        /// The first byte.
        byte: u8,
    },
}

impl Splitter {
    /// Returns a splitter of messages of at most `size_max` bytes, in which arrays and objects nest at most `depth_max` deep.
    pub fn new(size_max: usize, depth_max: usize) -> Splitter {
        Splitter {
            size_max,
            depth_max,
            buffer: Vec::new(),
            scanned: 0,
            depth: 0,
            state: State::Plain,
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the bytes of the next complete message; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`SplitterError`]; the stream has no further messages then.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, SplitterError> {
        if self.depth == 0 {
            let blanks = self
                .buffer
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            self.buffer.drain(..blanks);
        }
        while let Some(byte) = self.buffer.get(self.scanned).copied() {
            if self.depth == 0 && byte != b'{' {
                return Err(SplitterError::NoObject { byte });
            }
            self.scanned += 1;
            if self.scanned > self.size_max {
                return Err(SplitterError::TooLong { max: self.size_max });
            }
            match (self.state, byte) {
                (State::Text, b'\\') => self.state = State::Escape,
                (State::Text, b'"') => self.state = State::Plain,
                (State::Escape, _) => self.state = State::Text,
                (State::Text, _) => {}
                (State::Plain, b'"') => self.state = State::Text,
                (State::Plain, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > self.depth_max {
                        return Err(SplitterError::TooDeep { max: self.depth_max });
                    }
                }
                (State::Plain, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        let rest = self.buffer.split_off(self.scanned);
                        self.scanned = 0;
                        return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
                    }
                }
                (State::Plain, _) => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;
    use proptest::prelude::*;

    fn all(splitter: &mut Splitter) -> Vec<String> {
        std::iter::from_fn(|| splitter.next_message().unwrap())
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect()
    }

    #[test]
    fn messages_without_separators_are_found_whatever_their_strings_hold() {
        let mut splitter = Splitter::new(100, 8);
        splitter.push(br#"{"a":"}\"{"}{"b":[1,{"c":2}]}  {"d""#);
        assert_eq!(all(&mut splitter), [r#"{"a":"}\"{"}"#, r#"{"b":[1,{"c":2}]}"#]);
        splitter.push(b":3}");
        assert_eq!(all(&mut splitter), [r#"{"d":3}"#]);
    }

    #[test]
    fn a_message_that_is_too_long_too_deep_or_no_object_ends_the_stream() {
        for (text, error) in [
            (
                &b"{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1}"[..],
                SplitterError::TooLong { max: 20 },
            ),
            (b"{\"a\":[[[[", SplitterError::TooDeep { max: 4 }),
            (b" x", SplitterError::NoObject { byte: b'x' }),
        ] {
            let mut splitter = Splitter::new(20, 4);
            splitter.push(text);
            assert_eq!(splitter.next_message(), Err(error));
        }
    }

    proptest! {
        #[test]
        fn the_same_messages_are_found_in_any_segmentation(cuts in prop::collection::vec(1usize..9, 1..40)) {
            let text = br#"{"id":null,"method":"update","params":[{"x":"\\\""}]}{"id":1,"result":{}}{}"#;
            let mut splitter = Splitter::new(1000, 8);
            let (mut found, mut at, mut cuts) = (Vec::new(), 0, cuts.into_iter().cycle());
            while at < text.len() {
                let end = (at + cuts.next().unwrap()).min(text.len());
                splitter.push(&text[at..end]);
                found.extend(all(&mut splitter));
                at = end;
            }
            prop_assert_eq!(found.len(), 3);
            prop_assert_eq!(found.concat(), String::from_utf8_lossy(text));
        }
    }
}
