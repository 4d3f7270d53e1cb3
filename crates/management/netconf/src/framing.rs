//! Framing of messages (RFC 6242, section 4): the end-of-message mark `]]>]]>` until both sides have said `base:1.1`, and then
//! chunks.
//!
//! ```text
//! <rpc …/>]]>]]>                      end-of-message framing
//!
//! \n#4\n<rpc\n#6\n …/>  \n##\n        chunked framing: two chunks and the end of the message
//! ```

/// The size limit of a message, in bytes: that of a request of REST.
pub const MESSAGE_SIZE_MAX: usize = 4 << 20;
const MARK: &[u8] = b"]]>]]>";
/// The longest header of a chunk: `\n#4294967295\n`.
const HEADER_SIZE_MAX: usize = 13;

/// The reason why bytes are no message. The session ends (RFC 6242, section 4.2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A message exceeds the limit.
    #[error("a message exceeds {MESSAGE_SIZE_MAX} bytes")]
    TooLarge,
    /// The bytes are no header of a chunk.
    #[error("expected the header of a chunk, as in `\\n#123\\n` (RFC 6242, section 4.2)")]
    Header,
}

/// Messages of a byte stream.
#[derive(Debug, Default)]
pub struct Framing {
    buffer: Vec<u8>,
    /// Bytes of the buffer in which no mark begins.
    searched: usize,
    /// The message of which chunks have been read.
    message: Vec<u8>,
    is_chunked: bool,
}

/// The header of a chunk (RFC 6242, section 4.2).
struct ChunkHeader {
    header_size: usize,
    /// The size of the chunk; 0 at the end of the message.
    size: usize,
}

impl Framing {
    /// Takes bytes of the client.
    ///
    /// # Errors
    /// [`FramingError::TooLarge`], if the client sends more than a message without waiting for its reply.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        if self.buffer.len() + bytes.len() > 2 * MESSAGE_SIZE_MAX {
            return Err(FramingError::TooLarge);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Changes to chunks, after both sides have said `base:1.1`.
    pub fn chunk(&mut self) {
        self.is_chunked = true;
        self.searched = 0;
    }

    /// Returns true if messages are chunked.
    pub fn is_chunked(&self) -> bool {
        self.is_chunked
    }

    /// Returns the next whole message.
    ///
    /// # Errors
    /// [`FramingError`]. The stream has no further messages then.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        match self.is_chunked {
            true => self.next_chunked(),
            false => self.next_marked(),
        }
    }

    /// Returns the first message, hello. ncclient may send it in chunks already (ncclient, issue 524).
    ///
    /// # Errors
    /// [`FramingError`].
    pub fn next_hello(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        let starts_chunked = self.buffer.starts_with(b"\n#") || !self.message.is_empty();
        match starts_chunked {
            true => self.next_chunked(),
            false => self.next_marked(),
        }
    }

    fn next_marked(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        let from = self.searched.min(self.buffer.len());
        let rest = self.buffer.get(from..).unwrap_or_default();
        let found = rest.windows(MARK.len()).position(|window| window == MARK);
        match found {
            Some(offset) => {
                let end = from + offset;
                if end > MESSAGE_SIZE_MAX {
                    return Err(FramingError::TooLarge);
                }
                let mut message: Vec<u8> = self.buffer.drain(..end + MARK.len()).collect();
                message.truncate(end);
                self.searched = 0;
                Ok(Some(message))
            }
            None if self.buffer.len() > MESSAGE_SIZE_MAX => Err(FramingError::TooLarge),
            None => {
                self.searched = self.buffer.len().saturating_sub(MARK.len() - 1);
                Ok(None)
            }
        }
    }

    fn next_chunked(&mut self) -> Result<Option<Vec<u8>>, FramingError> {
        loop {
            let Some(ChunkHeader {
                header_size: header,
                size,
            }) = self.header()?
            else {
                return Ok(None);
            };
            if size == 0 {
                self.buffer.drain(..header);
                return Ok(Some(std::mem::take(&mut self.message)));
            }
            if self.message.len() + size > MESSAGE_SIZE_MAX {
                return Err(FramingError::TooLarge);
            }
            if self.buffer.len() < header + size {
                return Ok(None);
            }
            self.message
                .extend(self.buffer.drain(..header + size).skip(header));
        }
    }

    /// Returns the header at the begin of the buffer; `None` if it is not complete.
    fn header(&self) -> Result<Option<ChunkHeader>, FramingError> {
        let head: Vec<u8> = self.buffer.iter().copied().take(HEADER_SIZE_MAX).collect();
        let expected = b"\n#";
        if !head.iter().zip(expected).all(|(found, wanted)| found == wanted) {
            return Err(FramingError::Header);
        }
        let rest = head.get(2..).unwrap_or_default();
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            // A header that cannot become valid is an error at once, so that no client waits for an answer.
            let digits = rest.iter().enumerate().all(|(at, byte)| match byte {
                b'#' => at == 0,
                b'0' => at > 0 && rest.first() != Some(&b'#'),
                b'1'..=b'9' => rest.first() != Some(&b'#'),
                _ => false,
            });
            return match digits && head.len() < HEADER_SIZE_MAX {
                true => Ok(None),
                false => Err(FramingError::Header),
            };
        };
        let digits = rest.get(..end).unwrap_or_default();
        if digits == b"#" {
            return match self.message.is_empty() {
                // A message has one chunk at least.
                true => Err(FramingError::Header),
                false => Ok(Some(ChunkHeader {
                    header_size: 2 + end + 1,
                    size: 0,
                })),
            };
        }
        let is_size = matches!(digits.first(), Some(b'1'..=b'9')) && digits.iter().all(u8::is_ascii_digit);
        let size = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        match size {
            Some(size) if is_size => Ok(Some(ChunkHeader {
                header_size: 2 + end + 1,
                size,
            })),
            _ => Err(FramingError::Header),
        }
    }

    /// Returns a message with its frame.
    pub fn framed(&self, message: &str) -> Vec<u8> {
        match self.is_chunked {
            true => format!("\n#{}\n{message}\n##\n", message.len()).into_bytes(),
            false => format!("{message}]]>]]>").into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(framing: &mut Framing) -> Result<Vec<String>, FramingError> {
        let mut messages = Vec::new();
        while let Some(message) = framing.next_message()? {
            messages.push(String::from_utf8(message).unwrap());
        }
        Ok(messages)
    }

    #[test]
    fn the_example_of_rfc_6242_section_4_2_is_one_message() {
        let mut framing = Framing::default();
        framing.chunk();
        framing
            .receive(b"\n#4\n<rpc\n#18\n message-id=\"102\"\n\n#79\n     xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\">\n  <close-session/>\n</rpc>\n##\n")
            .unwrap();
        let messages = all(&mut framing).unwrap();
        assert_eq!(messages.len(), 1);
        assert!(
            messages[0].starts_with("<rpc message-id=\"102\"\n     xmlns="),
            "{messages:?}"
        );
        assert!(messages[0].ends_with("</rpc>"));
    }

    #[test]
    fn bytes_that_are_no_header_end_the_stream_at_once() {
        for bad in [
            "x",
            "\n\n#1\na",
            "\n#0\n",
            "\n#01\n",
            "\n#x",
            "\n##\n",
            "\n#-1\n",
            "\n#99999999999\n",
            "\n#1\nab",
        ] {
            let mut framing = Framing::default();
            framing.chunk();
            framing.receive(bad.as_bytes()).unwrap();
            assert!(framing.next_message().is_err(), "{bad:?}");
        }
        let mut framing = Framing::default();
        framing.chunk();
        framing.receive(b"\n#4194305\n").unwrap();
        assert_eq!(framing.next_message(), Err(FramingError::TooLarge));
    }

    #[test]
    fn a_message_without_an_end_is_bounded() {
        let mut framing = Framing::default();
        framing.receive(&vec![b'x'; MESSAGE_SIZE_MAX]).unwrap();
        assert_eq!(framing.next_message(), Ok(None));
        framing.receive(b"x").unwrap();
        assert_eq!(framing.next_message(), Err(FramingError::TooLarge));
        assert!(framing.receive(&vec![0; MESSAGE_SIZE_MAX]).is_err());
    }

    proptest! {
        /// Messages arrive whole however the stream is cut.
        #[test]
        fn every_segmentation_gives_the_same_messages(
            messages in proptest::collection::vec("[a-z#\n\\]>]{1,40}", 1..5), size in 1..20usize, chunked in any::<bool>()
        ) {
            // Without chunks, the first mark ends a message (RFC 6242, section 4.3): it must not begin in the message itself.
            let ends_at_its_end = |message: &String| format!("{message}]]>]]>").find("]]>]]>") == Some(message.len());
            prop_assume!(chunked || messages.iter().all(ends_at_its_end));
            let mut framing = Framing::default();
            if chunked {
                framing.chunk();
            }
            let stream: Vec<u8> = messages.iter().flat_map(|message| framing.framed(message)).collect();
            let mut read = Vec::new();
            for piece in stream.chunks(size) {
                framing.receive(piece).unwrap();
                read.extend(all(&mut framing).unwrap());
            }
            prop_assert_eq!(read, messages);
        }
    }
}
