//! Packets.

use millrace_wire::Frame;
use millrace_wire::Packet;

/// Parsing the headers of a frame.
pub fn layers(bytes: &[u8]) {
    let frame = Frame::new(bytes);
    assert_eq!(frame.len(), bytes.len());
}
