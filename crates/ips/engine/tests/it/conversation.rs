//! TCP connections between any ends, message by message, through the engine of a test bed.

use std::net::Ipv4Addr;

use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, FIN, PSH, SYN};
use millrace_wire::{IpProto, tcp};

use crate::bed::{TestBed, ip};

/// Address and port.
pub(crate) type End = (Ipv4Addr, u16);

/// A connection; index 0 is the client, 1 the server.
pub(crate) struct Conversation {
    ends: [End; 2],
    /// Sequence number of the next byte of each end.
    seq: [u32; 2],
}

impl Conversation {
    /// Completes the handshake of a connection.
    pub(crate) fn open(bed: &mut TestBed, client: End, server: End) -> Conversation {
        let mut conversation = Conversation {
            ends: [client, server],
            seq: [1000, 9000],
        };
        conversation.send(bed, 0, SYN, &[]);
        conversation.send(bed, 1, SYN | ACK, &[]);
        conversation.send(bed, 0, ACK, &[]);
        conversation
    }

    /// Sends a segment; returns true if it was dropped.
    pub(crate) fn send(&mut self, bed: &mut TestBed, from: usize, flags: u16, data: &[u8]) -> bool {
        let (src, dst) = (self.ends[from], self.ends[1 - from]);
        let repr = tcp::Repr {
            src: src.1,
            dst: dst.1,
            seq: self.seq[from],
            ack: if flags & ACK == 0 { 0 } else { self.seq[1 - from] },
            flags,
            window: 65_535,
            urgent: 0,
            options: tcp::Options::new(&[]).unwrap(),
        };
        let mut out = Vec::new();
        repr.emit(
            &Pseudo::V4 {
                src: src.0,
                dst: dst.0,
            },
            data,
            &mut out,
        );
        self.seq[from] += data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        bed.send(ip((src.0, dst.0), IpProto::TCP, &out)).is_dropped()
    }

    fn say(&mut self, bed: &mut TestBed, from: usize, data: &[u8]) -> bool {
        let is_dropped = self.send(bed, from, PSH | ACK, data);
        self.send(bed, 1 - from, ACK, &[]);
        is_dropped
    }

    /// Sends data of the client in one segment, and their acknowledgment; returns true if the segment was dropped.
    pub(crate) fn client(&mut self, bed: &mut TestBed, data: &[u8]) -> bool {
        self.say(bed, 0, data)
    }

    /// Sends data of the server in one segment, and their acknowledgment; returns true if the segment was dropped.
    pub(crate) fn server(&mut self, bed: &mut TestBed, data: &[u8]) -> bool {
        self.say(bed, 1, data)
    }

    /// Ends the connection.
    pub(crate) fn close(&mut self, bed: &mut TestBed) {
        self.send(bed, 0, FIN | ACK, &[]);
        self.send(bed, 1, FIN | ACK, &[]);
        self.send(bed, 0, ACK, &[]);
    }
}
