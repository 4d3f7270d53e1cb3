//! Packets as those of DPDK: a pointer to a buffer that is used again. A [`Frame`](millrace_wire::Frame) is eight times as
//! large, and each of the router's stages moves it.

use std::sync::Arc;

use millrace_datapath::io::wan::Wans;
use millrace_datapath::io::{Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, OpenError, Opened};
use millrace_wire::{NoHeadroom, Packet};

const HEADROOM: usize = 128;
const SIZE: usize = 256;

/// A packet of at most 128 bytes.
pub(crate) struct Mbuf(Box<Buffer>);

#[repr(align(64))]
struct Buffer {
    bytes: [u8; SIZE],
    start: u16,
    end: u16,
}

impl Mbuf {
    pub(crate) fn new() -> Mbuf {
        Mbuf(Box::new(Buffer {
            bytes: [0; SIZE],
            start: HEADROOM as u16,
            end: HEADROOM as u16,
        }))
    }

    /// Gives the buffer another packet.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        let end = HEADROOM + bytes.len();
        self.0.bytes[HEADROOM..end].copy_from_slice(bytes);
        (self.0.start, self.0.end) = (HEADROOM as u16, end as u16);
    }
}

impl Packet for Mbuf {
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.0.end - self.0.start)
    }

    #[inline]
    fn head(&self) -> &[u8] {
        &self.0.bytes[usize::from(self.0.start)..usize::from(self.0.end)]
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        let range = usize::from(self.0.start)..usize::from(self.0.end);
        &mut self.0.bytes[range]
    }

    #[inline]
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        self.0.start = self.0.start.checked_sub(size as u16).ok_or(NoHeadroom)?;
        Ok(())
    }

    #[inline]
    fn trim_front(&mut self, size: usize) {
        self.0.start += size.min(self.len()) as u16;
    }

    #[inline]
    fn truncate(&mut self, size: usize) -> bool {
        self.0.end = self.0.end.min(self.0.start + size as u16);
        true
    }

    fn try_clone(&self) -> Option<Mbuf> {
        let mut copy = Mbuf::new();
        copy.fill(self.head());
        Some(copy)
    }

    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize) {
        out.extend_from_slice(&self.head()[..self.len().min(max_len)]);
    }
}

/// A backend whose ports the caller opens.
pub(crate) struct MbufBackend(pub(crate) HeapBackend);

impl Backend for MbufBackend {
    type Packet = Mbuf;
    type Registration = ();

    fn packet(&self, bytes: &[u8]) -> Option<Mbuf> {
        let mut packet = Mbuf::new();
        packet.fill(bytes);
        Some(packet)
    }

    fn wans(&self) -> &Arc<Wans> {
        self.0.wans()
    }

    fn open(&self, spec: &DeviceSpec, _: DeviceOptions) -> Result<Opened<Mbuf>, OpenError> {
        Err(OpenError::Unsupported {
            device: spec.to_string(),
            reason: "this backend opens no device".to_owned(),
            next_step: "attach a port that is open".to_owned(),
        })
    }

    fn register_worker(&self) -> Result<(), String> {
        Ok(())
    }

    fn buffers(&self) -> Option<millrace_datapath::io::BufferCounts> {
        None
    }
}

/// Frees the packets of a burst, as a device that has sent them.
pub(crate) struct Sink(pub(crate) millrace_datapath::spread::ring::Sender<Mbuf>);

impl millrace_datapath::io::TxQueue<Mbuf> for Sink {
    fn tx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        for packet in burst.drain(..) {
            // The ring has room for all packets.
            let _full = self.0.push(packet);
        }
        self.0.publish();
    }
}
