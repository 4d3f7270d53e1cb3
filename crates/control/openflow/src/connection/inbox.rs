//! Splits a stream of bytes into messages.

use core::ops::Range;

use crate::header::{HEADER_SIZE, Header};

/// Received bytes that are not yet decoded: at most one chunk and one partial message.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    /// Removes the messages that [`Inbox::next_frame`] returned, and appends received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }

    /// Returns the range of the next complete message; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The header, if its length field is smaller than the size of a header.
    pub fn next_frame(&mut self) -> Result<Option<Range<usize>>, Header> {
        let Some(header) = Header::parse(self.rest()) else {
            return Ok(None);
        };
        let size = usize::from(header.length);
        if size < HEADER_SIZE {
            return Err(header);
        }
        let start = self.taken;
        if self.bytes.len() - start < size {
            return Ok(None);
        }
        self.taken += size;
        Ok(Some(start..start + size))
    }

    /// Returns the bytes of a message that [`Inbox::next_frame`] returned.
    pub fn bytes(&self, frame: Range<usize>) -> &[u8] {
        &self.bytes[frame]
    }

    /// Returns the bytes after the last message that was returned.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_the_bytes_arrive() {
        let stream: Vec<u8> = (0..50u8)
            .flat_map(|i| {
                let mut message = vec![4, 2, 0, 8 + i, 0, 0, 0, i];
                message.resize(8 + usize::from(i), i);
                message
            })
            .collect();
        for chunk in [1, 3, 7, 64, 5000] {
            let mut inbox = Inbox::default();
            let mut sizes = Vec::new();
            for bytes in stream.chunks(chunk) {
                inbox.extend(bytes);
                while let Some(frame) = inbox.next_frame().unwrap() {
                    sizes.push(inbox.bytes(frame).len());
                }
            }
            assert_eq!(sizes, (8..58).collect::<Vec<_>>());
            assert!(inbox.rest().is_empty());
        }
    }

    #[test]
    fn a_length_below_that_of_a_header_is_an_error() {
        let mut inbox = Inbox::default();
        inbox.extend(&[4, 2, 0, 7, 0, 0, 0, 1]);
        assert_eq!(inbox.next_frame().unwrap_err().length, 7);
    }
}
