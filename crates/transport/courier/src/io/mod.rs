//! Datagrams in and out: the trait that the event loops use, and its implementations: UDP sockets, and a
//! user-space endpoint on Ethernet frames.
//!
//! ```text
//!   loop:  receive() until None  ->  protocol  ->  send(), send_segments()  ->  flush()
//!          wait for descriptor() or for the earliest of next_timeout() and the protocol's timers
//!          on_timeout(now) when next_timeout() has come
//! ```
//!
//! One thread owns a backend. Nothing here blocks: a full queue drops datagrams, and the protocol repairs
//! this loss like any other.

mod frames;
mod memif;
mod port_probe;
mod socket;
pub mod via;

pub use frames::{FrameIo, FrameLink};
pub use memif::{MemifConfig, MemifLink};
pub(crate) use port_probe::{PortProbes, probe_ports};
pub use socket::UdpIo;
pub(crate) use socket::{headers, mapped};

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Datagrams from one peer that a receive offload (GRO) has joined. All but the last one are `segment` bytes long.
#[derive(Debug)]
pub struct Burst<'a> {
    /// The peer.
    pub from: SocketAddr,
    /// The payloads, one after the other. They may be decrypted in place.
    pub bytes: &'a mut [u8],
    /// Bytes of each datagram but the last one, which may be shorter; never zero.
    pub segment: usize,
    /// The datagrams carry a congestion mark (CE, RFC 3168).
    pub congestion_experienced: bool,
}

impl Burst<'_> {
    /// Returns the datagrams, which may be changed in place.
    pub fn datagrams(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_mut(self.segment)
    }
}

/// UDP datagrams of one local port.
pub trait DatagramIo: Send {
    /// Returns the local address and port; the address may be unspecified.
    ///
    /// # Errors
    /// If the backend has lost its address.
    fn local_address(&self) -> io::Result<SocketAddr>;

    /// Returns the maximum number of datagrams in one call of [`DatagramIo::send_segments`]; 1 or more.
    fn segments_max(&self) -> usize;

    /// Sends one datagram, or queues it until [`DatagramIo::flush`]. A datagram that a full queue or the path
    /// refuses counts as lost.
    ///
    /// # Errors
    /// If the backend cannot continue.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> io::Result<()>;

    /// Sends datagrams of `segment` bytes each to one peer; the last one may be shorter. `parts` are their
    /// bytes in order, cut anywhere. The caller passes no more than [`DatagramIo::segments_max`] datagrams
    /// and 65,000 bytes.
    ///
    /// # Errors
    /// If the backend cannot continue.
    fn send_segments(&mut self, to: SocketAddr, parts: &[IoSlice<'_>], segment: usize) -> io::Result<()>;

    /// Sends what is queued.
    ///
    /// # Errors
    /// If the backend cannot continue.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the next burst that arrived, if there is one.
    ///
    /// # Errors
    /// If the backend cannot continue.
    fn receive(&mut self) -> io::Result<Option<Burst<'_>>>;

    /// Returns a descriptor. After [`DatagramIo::receive`] has returned none, the descriptor becomes readable
    /// when a burst may be there.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the time at which the backend has work that no datagram triggers, such as the repetition of an
    /// ARP request.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does the work that is due.
    ///
    /// # Errors
    /// If the backend cannot continue.
    fn on_timeout(&mut self, now: Instant) -> io::Result<()> {
        let _ = now;
        Ok(())
    }

    /// Returns a second backend at the same local port, which receives all later datagrams of `peer`.
    ///
    /// # Errors
    /// If the backend cannot be divided.
    fn connect(&self, peer: SocketAddr) -> io::Result<Box<dyn DatagramIo>> {
        let _ = peer;
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this interface cannot be shared by two sessions; use the kernel's network",
        ))
    }

    /// Returns true if the kernel sends the datagrams, and reports closed ports of peers to sockets of this process.
    fn reports_closed_ports(&self) -> bool {
        false
    }

    /// Returns the path MTU to a peer in bytes: the interface's MTU, or less if a router reported less.
    fn path_mtu(&self, to: SocketAddr) -> u16;
}
