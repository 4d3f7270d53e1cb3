//! The send half of a packet socket: bursts of frames to an interface of the kernel.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use arrayvec::ArrayVec;
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;
use millrace_wire::virtio_net::{Header, SHORT};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

/// Greatest number of buffers for one `sendmmsg`: each frame has one for its header and one for each segment.
const PIECES_MAX: usize = 512;

/// The outcome of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Number of packets that left the burst.
    pub packets: usize,
    /// Number of packets among `packets` that were dropped: longer than the MTU, no memory in the kernel, or a GSO
    /// packet that a `virtio_net_hdr` cannot describe.
    pub dropped: usize,
    /// True if the interface is down or gone, and accepts nothing.
    pub is_down: bool,
}

/// A transmit queue of an interface.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

impl Sender {
    pub(crate) fn new(socket: OwnedFd) -> Sender {
        Sender { socket }
    }

    /// Returns true if the kernel accepts this GSO packet unsegmented.
    #[must_use]
    pub fn takes_gso(gso: &GsoLayout) -> bool {
        // A `virtio_net_hdr` cannot describe segmentation after headers other than Ethernet and VLAN tags.
        gso.is_plain()
    }

    /// Sends packets from the front of a burst without waiting; packets for which the kernel has no room
    /// stay. A GSO packet is dropped if its segments are longer than `mtu` bytes from the IP header on.
    #[inline]
    pub fn send<P: Packet, const N: usize>(&mut self, burst: &mut ArrayVec<P, N>, mtu: usize) -> Sent {
        let (len, mut sent) = (burst.len(), Sent::default());
        while !burst.is_empty() {
            let headers = headers(burst, mtu);
            let taken = if headers.is_empty() {
                // The first packet has no header that the kernel accepts.
                Err(Errno::MSGSIZE)
            } else {
                self.transmit(burst, &headers)
            };
            match taken {
                Ok(taken) if taken == burst.len() => P::discard(burst),
                Ok(taken) => drop(burst.drain(..taken)),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => {
                    sent.is_down = true;
                    break;
                }
                Err(_) => {
                    drop(burst.remove(0));
                    sent.dropped += 1;
                }
            }
        }
        sent.packets = len - burst.len();
        sent
    }

    /// Passes the first packets to the kernel, as many as have headers and fit into [`PIECES_MAX`] buffers. Returns the
    /// number of packets that the kernel accepted, at least one.
    #[inline]
    fn transmit<P: Packet, const N: usize>(
        &self,
        burst: &ArrayVec<P, N>,
        headers: &ArrayVec<[u8; SHORT], N>,
    ) -> Result<usize, Errno> {
        let mut pieces = ArrayVec::<IoSlice<'_>, PIECES_MAX>::new();
        let mut ends = ArrayVec::<usize, N>::new();
        for (packet, header) in burst.iter().zip(headers) {
            let begin = pieces.len();
            let mut fits = pieces.try_push(IoSlice::new(header)).is_ok();
            packet.each_segment(&mut |bytes| fits &= pieces.try_push(IoSlice::new(bytes)).is_ok());
            if !fits {
                pieces.truncate(begin);
                break;
            }
            ends.push(pieces.len());
        }
        if ends.is_empty() {
            return Err(Errno::MSGSIZE);
        }
        let mut controls = ArrayVec::<SendAncillaryBuffer<'_, '_, '_>, N>::new();
        controls.extend(ends.iter().map(|_| SendAncillaryBuffer::default()));
        let mut messages = ArrayVec::<MMsgHdr<'_>, N>::new();
        let mut begin = 0;
        for (end, control) in ends.iter().zip(&mut controls) {
            messages.push(MMsgHdr::new(pieces.get(begin..*end).unwrap_or_default(), control));
            begin = *end;
        }
        sendmmsg(&self.socket, &mut messages, SendFlags::DONTWAIT)
    }
}

/// Returns the headers of the first packets, up to a packet that has none.
#[inline]
fn headers<P: Packet, const N: usize>(burst: &mut ArrayVec<P, N>, mtu: usize) -> ArrayVec<[u8; SHORT], N> {
    burst.iter_mut().map_while(|packet| header(packet, mtu)).collect()
}

#[inline(always)]
fn header<P: Packet>(packet: &mut P, mtu: usize) -> Option<[u8; SHORT]> {
    if packet.segment_size().is_none() {
        return Some([0; SHORT]);
    }
    let gso = GsoLayout::of(packet).filter(|gso| Sender::takes_gso(gso) && gso.packet_size() <= mtu)?;
    let header = Header::for_gso(packet, &gso)?;
    let bytes = header.emit(u16::try_from(gso.headers_size()).ok()?, 0);
    bytes.first_chunk().copied()
}
