//! Frames of the Forwarding Plane Manager interface (FRR, fpm/fpm.h), read incrementally.
//!
//! ```text
//!  0         1      2        4
//!  | version | type | length | netlink messages...     length is in network byte order and includes the header
//! ```

use thiserror::Error;

const HEADER_SIZE: usize = 4;
/// `FPM_PROTO_VERSION`.
const VERSION: u8 = 1;
/// `FPM_MSG_TYPE_NETLINK`.
const NETLINK: u8 = 1;
/// `FPM_MSG_TYPE_PROTOBUF`.
const PROTOBUF: u8 = 2;
/// The longest frame in bytes: its length has 16 bits.
const FRAME_SIZE_MAX: usize = 65_535;
/// Size of the buffer: a frame that is not complete, and the room for one more.
const BUFFER_SIZE: usize = 2 * (FRAME_SIZE_MAX + 1);

/// The violation of FPM by which a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ProtocolViolation {
    #[error("a frame of FPM version {found}, expected {VERSION}: is the peer zebra?")]
    Version { found: u8 },
    #[error(
        "frames of protobuf, expected netlink: start zebra with the module dplane_fpm_nl (zebra -M dplane_fpm_nl)"
    )]
    Protobuf,
    #[error("a frame of type {found}, expected {NETLINK} (netlink)")]
    Type { found: u8 },
    #[error("a frame of {found} bytes, expected at least {HEADER_SIZE}")]
    Length { found: u16 },
}

/// The bytes of a session that are not consumed yet, at most 128 KiB.
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            buffer: vec![0; BUFFER_SIZE],
            start: 0,
            end: 0,
        }
    }
}

impl Frames {
    /// Returns the room for further bytes, at least 64 KiB after [`Self::next`] has returned `None`.
    pub fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Takes notice of `size` bytes that were written to the room.
    pub fn fill(&mut self, size: usize) {
        self.end = (self.end + size).min(self.buffer.len());
    }

    /// Returns the netlink messages of the next complete frame; `None` if there is none yet.
    ///
    /// # Errors
    /// Returns [`ProtocolViolation`]; what follows cannot be read.
    #[expect(clippy::should_implement_trait, reason = "the item borrows the buffer")]
    pub fn next(&mut self) -> Option<Result<&[u8], ProtocolViolation>> {
        let bytes = self.buffer.get(self.start..self.end)?;
        let &[version, kind, high, low] = bytes.first_chunk::<HEADER_SIZE>()?;
        let length = u16::from_be_bytes([high, low]);
        match (version, kind) {
            (VERSION, NETLINK) => {}
            (VERSION, PROTOBUF) => return Some(Err(ProtocolViolation::Protobuf)),
            (VERSION, found) => return Some(Err(ProtocolViolation::Type { found })),
            (found, _) => return Some(Err(ProtocolViolation::Version { found })),
        }
        if usize::from(length) < HEADER_SIZE {
            return Some(Err(ProtocolViolation::Length { found: length }));
        }
        let payload = bytes.get(HEADER_SIZE..usize::from(length))?;
        self.start += usize::from(length);
        Some(Ok(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() + HEADER_SIZE) as u16;
        [&[VERSION, NETLINK], &length.to_be_bytes()[..], payload].concat()
    }

    #[test]
    fn frames_are_the_same_however_their_bytes_arrive() {
        let payloads: Vec<Vec<u8>> = [0, 1, 52, 4096, FRAME_SIZE_MAX - HEADER_SIZE, 7]
            .iter()
            .map(|size| (0..*size).map(|byte| byte as u8).collect())
            .collect();
        let bytes: Vec<u8> = payloads.iter().flat_map(|payload| frame(payload)).collect();
        for part in [1, 3, 5, 4099, 50_000, 65_536] {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for bytes in bytes.chunks(part) {
                frames.room()[..bytes.len()].copy_from_slice(bytes);
                frames.fill(bytes.len());
                while let Some(payload) = frames.next() {
                    found.push(payload.unwrap().to_vec());
                }
            }
            assert_eq!(found, payloads, "in parts of {part} bytes");
        }
    }

    #[test]
    fn what_is_no_frame_of_netlink_is_named() {
        let cases: [(&[u8], &str); 4] = [
            (b"GET / HTTP/1.1", "version 71, expected 1"),
            (&[1, 2, 0, 8, 0, 0, 0, 0], "zebra -M dplane_fpm_nl"),
            (&[1, 9, 0, 8, 0, 0, 0, 0], "type 9, expected 1"),
            (&[1, 1, 0, 3], "3 bytes, expected at least 4"),
        ];
        for (bytes, expected) in cases {
            let mut frames = Frames::default();
            frames.room()[..bytes.len()].copy_from_slice(bytes);
            frames.fill(bytes.len());
            let error = frames.next().unwrap().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
