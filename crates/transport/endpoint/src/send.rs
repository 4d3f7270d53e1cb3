//! Sending datagrams: a large buffer becomes datagrams that share one head and are written directly to a
//! [`FrameWriter`].

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;

use millrace_types::Time;
use millrace_wire::udp;
use thiserror::Error;

use crate::config::is_host;
use crate::endpoint::Endpoint;
use crate::head::{Ends, Head};
use crate::segments::Segments;

/// The destination of frames to be sent, such as a ring.
pub trait FrameWriter {
    /// Writes a frame of `size` bytes, which the slices hold in order. Returns false if there is no room; the frame is lost.
    fn write_frame<'a>(&mut self, size: usize, slices: impl Iterator<Item = &'a [u8]>) -> bool;
}

/// Datagrams that cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The source port is not bound.
    #[error("port {port} is not bound; bind it first")]
    NotBound { port: u16 },
    /// The address is multicast, broadcast or unspecified.
    #[error("{to} is not the address of one host; expected a unicast address")]
    NotUnicast {
        /// The address.
        to: IpAddr,
    },
    /// No prefix contains the address and there is no gateway, or no own address of the same version is
    /// usable yet.
    #[error("there is no route to {to}; give a gateway, or an own address of its prefix")]
    NoRoute {
        /// The address.
        to: IpAddr,
    },
    /// The datagrams would exceed the path MTU. There are no fragments.
    #[error(
        "an IP packet of {size} bytes does not pass to {to}, where {mtu} bytes do; send smaller datagrams"
    )]
    TooBig {
        /// The address.
        to: IpAddr,
        /// Size of the largest packet in bytes.
        size: usize,
        /// The path MTU in bytes.
        mtu: u16,
    },
}

impl Endpoint {
    /// Sends datagrams of `segment` bytes from a bound port; the last one may be shorter. The bytes are those
    /// of `parts` in order, cut anywhere. Returns the number of datagrams that were written, or that wait for
    /// the next hop's MAC address.
    ///
    /// # Errors
    /// [`SendError`] if none of them can be sent.
    pub fn send<S: Deref<Target = [u8]>>(
        &mut self,
        now: Time,
        from_port: u16,
        to: SocketAddr,
        parts: &[S],
        segment: usize,
        writer: &mut impl FrameWriter,
    ) -> Result<usize, SendError> {
        let address = to.ip().to_canonical();
        if !self.ports.contains(&from_port) {
            return Err(SendError::NotBound { port: from_port });
        }
        if !is_host(address) || self.addresses.is_broadcast(address) {
            return Err(SendError::NotUnicast { to: address });
        }
        let no_route = SendError::NoRoute { to: address };
        let (hop, source) = self.addresses.route(address).ok_or(no_route)?;
        if self.addresses.is_own(address) {
            return Err(no_route);
        }
        let segments = Segments::new(parts, segment);
        let path = self.paths.path(now, address);
        let ends = Ends {
            src: (source, from_port),
            dst: (address, to.port()),
        };
        let head = Head::new(self.config.mac, self.config.vlan, ends, path.flow_label());
        let mut head = head.ok_or(no_route)?;
        let size = head.network_size() + segments.largest();
        if size > usize::from(path.mtu()) {
            let mtu = path.mtu();
            return Err(SendError::TooBig {
                to: address,
                size,
                mtu,
            });
        }
        let mac = self.neighbours.resolve(now, hop);
        if let Some(mac) = mac {
            head.set_destination(mac);
        }
        let (mut sent, mut unsent) = (0, 0);
        for segment in segments {
            let checksum = head.complete(segment.size(), segment.sum(), path.ident());
            path.record((udp::SIZE + segment.size()) as u16, checksum);
            let frame_size = head.bytes().len() + segment.size();
            if mac.is_some() {
                let slices = std::iter::once(head.bytes()).chain(segment.slices());
                if !writer.write_frame(frame_size, slices) {
                    unsent += 1;
                    continue;
                }
            } else {
                let mut frame = Vec::with_capacity(frame_size);
                frame.extend_from_slice(head.bytes());
                segment.slices().for_each(|slice| frame.extend_from_slice(slice));
                self.neighbours.wait(hop, frame);
            }
            sent += 1;
        }
        self.counters.sent += sent as u64;
        self.counters.unsent += unsent;
        if mac.is_none() {
            self.push_solicitations();
        }
        Ok(sent)
    }
}
