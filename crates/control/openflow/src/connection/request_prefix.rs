//! The part of a request that an error reply contains.

use crate::error_message::ERROR_DATA_SIZE;

/// The first bytes of a request, kept for an error reply.
#[derive(Clone, Copy)]
pub struct RequestPrefix {
    bytes: [u8; ERROR_DATA_SIZE],
    size: u8,
}

impl RequestPrefix {
    /// Returns the first bytes of this request.
    pub fn new(request: &[u8]) -> RequestPrefix {
        let mut bytes = [0; ERROR_DATA_SIZE];
        let size = request.len().min(ERROR_DATA_SIZE);
        bytes[..size].copy_from_slice(&request[..size]);
        RequestPrefix {
            bytes,
            size: size as u8,
        }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }
}

impl core::fmt::Debug for RequestPrefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "RequestPrefix({} bytes)", self.size)
    }
}
