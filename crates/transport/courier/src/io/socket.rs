//! UDP sockets of the kernel; one call sends or receives several datagrams of one size (UDP_SEGMENT, UDP_GRO).

use super::{Burst, DatagramIo};
use millrace_transport::flow::USUAL_MTU;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockFlag, SockType,
    SockaddrStorage, bind, recvmmsg, sendmsg, setsockopt, socket, sockopt,
};
use rustix::net::sockopt as mtu_options;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The maximum number of segments in one send (UDP_MAX_SEGMENTS of Linux is 128; 64 before version 6.9).
const SEGMENTS_MAX: usize = 64;
/// The requested size of the receive buffer, in bytes.
const BUFFER_SIZE: usize = 16 << 20;
/// Bytes of the largest message: datagrams that the kernel received as one (UDP_GRO).
const MESSAGE_SIZE: usize = 65_536;
/// The maximum number of messages that one `recvmmsg` call receives.
const MESSAGES_MAX: usize = 16;
/// Messages of more bytes than this are received one by one, so that each is in the processor's caches when
/// it is handled.
const LARGE_MESSAGE: usize = 8 << 10;

/// A UDP socket with segmentation and receive offload if the kernel has them.
#[derive(Debug)]
pub struct UdpIo {
    socket: UdpSocket,
    segments: bool,
    /// A buffer for each message.
    buffer: Vec<u8>,
    /// The messages of the last call; `next` is the index of the one that is returned next.
    received: Vec<Message>,
    next: usize,
    /// The maximum number of messages of the next `recvmmsg` call.
    messages: usize,
    /// True if the last `recvmmsg` call emptied the socket.
    drained: bool,
}

/// A message in its buffer.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: Option<SocketAddr>,
    bytes: usize,
    segment: usize,
}

impl UdpIo {
    /// Returns a socket that is bound to an address.
    ///
    /// # Errors
    /// The errors of `bind(2)`.
    pub fn bind(address: SocketAddr) -> io::Result<UdpIo> {
        UdpIo::with(UdpSocket::bind(address)?)
    }

    /// Returns a socket that is bound to an address, and that [`DatagramIo::connect`] can divide by peers.
    /// Further sockets of this user may have the same address (`SO_REUSEPORT`, socket(7)).
    ///
    /// # Errors
    /// The errors of `bind(2)`, also if another process uses the address.
    pub fn bind_shared(address: SocketAddr) -> io::Result<UdpIo> {
        // Binds without the option first, because the option would also let a second daemon bind.
        let address = UdpSocket::bind(address)?.local_addr()?;
        UdpIo::with(shared(address)?)
    }

    fn with(socket: UdpSocket) -> io::Result<UdpIo> {
        socket.set_nonblocking(true)?;
        // Without CAP_NET_ADMIN, net.core.rmem_max limits the size.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_SIZE).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_SIZE);
        }
        let _ = setsockopt(&socket, sockopt::SndBuf, &(4 << 20));
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        probe_path_mtu(&socket);
        Ok(UdpIo {
            socket,
            segments: true,
            buffer: vec![0; MESSAGES_MAX * MESSAGE_SIZE],
            received: Vec::with_capacity(MESSAGES_MAX),
            next: 0,
            messages: MESSAGES_MAX,
            drained: false,
        })
    }

    /// Receives messages.
    fn fill(&mut self) -> io::Result<()> {
        self.received.clear();
        self.next = 0;
        let mut headers =
            MultiHeaders::<SockaddrStorage>::preallocate(self.messages, Some(nix::cmsg_space!(i32)));
        let mut parts: Vec<[IoSliceMut<'_>; 1]> = self
            .buffer
            .chunks_exact_mut(MESSAGE_SIZE)
            .take(self.messages)
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        let fd = self.socket.as_raw_fd();
        let results = match recvmmsg(fd, &mut headers, parts.iter_mut(), MsgFlags::empty(), None) {
            Ok(results) => results,
            Err(error) if is_empty(error) => {
                self.drained = true;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for message in results {
            let mut segment = message.bytes;
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::UdpGroSegments(size) = control {
                    segment = usize::try_from(size).unwrap_or(segment);
                }
            }
            self.received.push(Message {
                from: message.address.as_ref().and_then(socket_address),
                bytes: message.bytes,
                segment,
            });
        }
        self.drained = self.received.len() < self.messages;
        let is_large = self.received.iter().any(|message| message.bytes > LARGE_MESSAGE);
        self.messages = if is_large { 1 } else { MESSAGES_MAX };
        Ok(())
    }
}

impl DatagramIo for UdpIo {
    fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn segments_max(&self) -> usize {
        SEGMENTS_MAX
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send_to(datagram, to) {
            Ok(_) => Ok(()),
            Err(error) => ignore(error),
        }
    }

    fn send_segments(&mut self, to: SocketAddr, parts: &[IoSlice<'_>], segment: usize) -> io::Result<()> {
        let address = SockaddrStorage::from(to);
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if self.segments || size <= segment {
            let segment = u16::try_from(segment).unwrap_or(u16::MAX);
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let control = if size > usize::from(segment) {
                &control[..]
            } else {
                &[]
            };
            let result = sendmsg(
                self.socket.as_raw_fd(),
                parts,
                control,
                MsgFlags::empty(),
                Some(&address),
            );
            return match result {
                Ok(_) => Ok(()),
                // The interface's MTU became smaller: the segments count as lost, as on any path.
                Err(Errno::EINVAL)
                    if usize::from(segment) + headers_size(to) > usize::from(self.path_mtu(to)) =>
                {
                    Ok(())
                }
                // Neither the device nor the kernel can segment: from now on, each datagram is sent by a call of its own.
                Err(Errno::EINVAL | Errno::EIO) if self.segments && size > usize::from(segment) => {
                    self.segments = false;
                    self.send_segments(to, parts, usize::from(segment))
                }
                Err(error) => ignore(error.into()),
            };
        }
        let mut all = Vec::with_capacity(size);
        for part in parts {
            all.extend_from_slice(part);
        }
        for datagram in all.chunks(segment) {
            self.send(to, datagram)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Burst<'_>>> {
        loop {
            if self.next == self.received.len() {
                // The socket was empty after the last call: the descriptor becomes readable when a message arrives.
                if std::mem::take(&mut self.drained) {
                    return Ok(None);
                }
                self.fill()?;
                continue;
            }
            let at = self.next;
            self.next += 1;
            let message = self.received[at];
            // An address with port 0 cannot be answered: it means that the peer wants no answer (udp(7), RFC 768).
            let Some(from) = message.from.filter(|from| from.port() != 0) else {
                continue;
            };
            let start = at * MESSAGE_SIZE;
            return Ok(Some(Burst {
                from,
                bytes: &mut self.buffer[start..start + message.bytes],
                segment: message.segment.max(1),
                congestion_experienced: false,
            }));
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn connect(&self, peer: SocketAddr) -> io::Result<Box<dyn DatagramIo>> {
        // The kernel prefers a connected socket to others of the same address. Datagrams that other peers
        // send between bind(2) and connect(2) are lost.
        let socket = shared(self.socket.local_addr()?)?;
        socket.connect(peer)?;
        Ok(Box::new(UdpIo::with(socket)?))
    }

    fn reports_closed_ports(&self) -> bool {
        true
    }

    fn path_mtu(&self, to: SocketAddr) -> u16 {
        let local = self
            .socket
            .local_addr()
            .map(|address| address.ip().to_canonical());
        let mtu =
            local.and_then(|local| route_mtu(local, SocketAddr::new(to.ip().to_canonical(), to.port())));
        mtu.unwrap_or(USUAL_MTU)
    }
}

/// Returns the size of the IP and UDP headers of a packet to an address, in bytes.
fn headers_size(to: SocketAddr) -> usize {
    match to.ip().to_canonical() {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    }
}

/// Lets a socket send packets up to the MTU of the interface, without fragmentation. The flow finds the path
/// MTU (RFC 8899), so the kernel need not (`IP_PMTUDISC_PROBE`, ip(7)). A socket of IPv6 may send IPv4, too.
fn probe_path_mtu(socket: &UdpSocket) {
    let _ = mtu_options::set_ip_mtu_discover(socket, mtu_options::Ipv4PathMtuDiscovery::PROBE);
    let _ = mtu_options::set_ipv6_mtu_discover(socket, mtu_options::Ipv6PathMtuDiscovery::PROBE);
}

/// Returns the MTU of the route to an address, in bytes: the MTU of the interface, or one that a router
/// reported recently.
fn route_mtu(local: IpAddr, to: SocketAddr) -> io::Result<u16> {
    // A socket for many peers has no route. This extra socket is connected, and sends nothing.
    let local = match (local.is_unspecified(), to.ip()) {
        (true, IpAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (true, IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        (false, _) => local,
    };
    let socket = UdpSocket::bind(SocketAddr::new(local, 0))?;
    socket.connect(to)?;
    let mtu = if to.is_ipv4() {
        mtu_options::ip_mtu(&socket)?
    } else {
        mtu_options::ipv6_mtu(&socket)?
    };
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// Returns a socket that lets other sockets of this user bind the same address.
fn shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(UdpSocket::from(socket))
}

/// Returns the address in the form for a socket of the given family.
pub(crate) fn mapped(address: SocketAddr, only_v4: bool) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if !only_v4 => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
        _ => address,
    }
}

/// Returns true if a receive call failed because no datagram is there. The socket also reports an ICMP error
/// that an earlier datagram caused (ip(7)). It is ignored, because the peer's silence shows the same.
fn is_empty(error: Errno) -> bool {
    matches!(
        error,
        Errno::EAGAIN
            | Errno::EINTR
            | Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::EHOSTDOWN
            | Errno::ENETUNREACH
            | Errno::ENOPROTOOPT
            | Errno::ENONET
    )
}

/// Returns `Ok` if a datagram was not sent for a reason that concerns only this datagram or its destination.
/// The error is ignored, because the socket also serves other peers.
fn ignore(error: io::Error) -> io::Result<()> {
    let code = error.raw_os_error().map(Errno::from_raw);
    match code {
        Some(
            Errno::EAGAIN
            | Errno::EINTR
            | Errno::ENOBUFS
            | Errno::EMSGSIZE
            | Errno::EPERM
            | Errno::ECONNREFUSED
            | Errno::ENETUNREACH
            | Errno::ENETDOWN
            | Errno::EHOSTUNREACH
            | Errno::EHOSTDOWN
            | Errno::EINVAL
            | Errno::EACCES
            | Errno::EADDRNOTAVAIL
            | Errno::ENOPROTOOPT
            | Errno::ENONET,
        ) => Ok(()),
        _ => Err(error),
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::V4(SocketAddrV4::from(*v4)));
    }
    address
        .as_sockaddr_in6()
        .map(|v6| SocketAddr::V6(SocketAddrV6::from(*v6)))
}

/// Returns the size of the IP and UDP headers of a datagram to an address, in bytes.
pub(crate) fn headers(address: &SocketAddr) -> u16 {
    match address.ip() {
        IpAddr::V4(_) => 28,
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => 28,
        IpAddr::V6(_) => 48,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_a_connected_peer_come_to_its_own_socket() {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut daemon = UdpIo::bind_shared(any).unwrap();
        let address = daemon.local_address().unwrap();
        assert!(UdpIo::bind_shared(address).is_err(), "a second daemon");
        let (mut peer, mut other) = (UdpIo::bind(any).unwrap(), UdpIo::bind(any).unwrap());
        let mut connected = daemon.connect(peer.local_address().unwrap()).unwrap();
        for _ in 0..20 {
            peer.send(address, b"peer").unwrap();
            other.send(address, b"other").unwrap();
        }
        let drain = |io: &mut dyn DatagramIo| {
            let mut found = Vec::new();
            while let Some(burst) = io.receive().unwrap() {
                found.extend(burst.bytes.chunks(burst.segment).map(<[u8]>::to_vec));
            }
            found
        };
        assert_eq!(drain(&mut *connected), vec![b"peer".to_vec(); 20]);
        assert_eq!(drain(&mut daemon), vec![b"other".to_vec(); 20]);
        connected.send(peer.local_address().unwrap(), b"back").unwrap();
        assert_eq!(peer.receive().unwrap().unwrap().from, address);
    }

    #[test]
    fn ipv6_packets_have_larger_headers() {
        let size = |address: &str| headers_size(address.parse().unwrap());
        assert_eq!(size("192.0.2.1:7800"), 20 + 8);
        assert_eq!(size("[::ffff:192.0.2.1]:7800"), 20 + 8);
        assert_eq!(size("[2001:db8::1]:7800"), 40 + 8);
    }

    /// Sends a UDP datagram over a raw socket, with any source port; returns false if this user may not.
    fn send_raw(source_port: u16, to: SocketAddr, payload: &[u8]) -> bool {
        let Ok(raw) = nix::sys::socket::socket(
            AddressFamily::Inet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            nix::sys::socket::SockProtocol::Udp,
        ) else {
            return false;
        };
        let size = u16::try_from(8 + payload.len()).unwrap();
        let mut datagram = Vec::new();
        for field in [source_port, to.port(), size, 0] {
            datagram.extend_from_slice(&field.to_be_bytes());
        }
        datagram.extend_from_slice(payload);
        let to = SockaddrStorage::from(to);
        nix::sys::socket::sendto(raw.as_raw_fd(), &datagram, &to, MsgFlags::empty()).is_ok()
    }

    #[test]
    fn a_datagram_from_port_0_is_dropped() {
        let mut io = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = io.local_address().unwrap();
        if !send_raw(0, to, b"no answer") {
            println!("skipped: raw sockets need CAP_NET_RAW");
            return;
        }
        assert!(send_raw(9, to, b"answer"));
        assert_eq!(io.receive().unwrap().unwrap().from.port(), 9);
        assert!(io.receive().unwrap().is_none());
    }

    #[test]
    fn a_destination_that_cannot_be_reached_does_not_end_the_socket() {
        let mut io = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // EINVAL of a port 0, or of a socket of the loopback interface; EACCES of a broadcast address.
        for to in ["127.0.0.1:0", "192.0.2.1:9", "255.255.255.255:9"] {
            let to: SocketAddr = to.parse().unwrap();
            assert!(io.send(to, b"1").is_ok(), "{to}");
            let parts = [IoSlice::new(b"12"), IoSlice::new(b"34")];
            assert!(io.send_segments(to, &parts, 2).is_ok(), "{to} in segments");
        }
        for error in [
            Errno::EHOSTDOWN,
            Errno::ENOPROTOOPT,
            Errno::EADDRNOTAVAIL,
            Errno::ENONET,
        ] {
            assert!(ignore(error.into()).is_ok(), "{error}");
        }
        assert!(ignore(Errno::EBADF.into()).is_err());
    }

    #[test]
    fn an_icmp_error_of_an_earlier_datagram_does_not_end_the_socket() {
        for error in [
            Errno::ENETUNREACH,
            Errno::EHOSTDOWN,
            Errno::ENOPROTOOPT,
            Errno::ENONET,
        ] {
            assert!(is_empty(error), "{error}");
        }
        assert!(!is_empty(Errno::EBADF));
    }

    #[test]
    fn the_mtu_of_the_loopback_interface_is_known_over_both_versions() {
        let v4 = UdpIo::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let v6 = UdpIo::bind("[::]:0".parse().unwrap()).unwrap();
        for (io, to) in [
            (&v4, "127.0.0.1:9"),
            (&v6, "[::ffff:127.0.0.1]:9"),
            (&v6, "[::1]:9"),
        ] {
            assert_eq!(io.path_mtu(to.parse().unwrap()), u16::MAX, "{to}");
        }
    }

    #[test]
    fn a_burst_arrives_as_its_datagrams() {
        let mut a = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut b = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (head, body) = ([1_u8; 16], [2_u8; 1_000]);
        let short = [3_u8; 100];
        let parts: Vec<IoSlice<'_>> = (0..10)
            .flat_map(|_| [IoSlice::new(&head), IoSlice::new(&body)])
            .chain([IoSlice::new(&short)])
            .collect();
        for segments in [true, false] {
            a.segments = segments;
            let to = b.local_address().unwrap();
            a.send_segments(to, &parts, 1_016).unwrap();
            let mut sizes = Vec::new();
            // Loopback delivers within the send.
            while let Some(burst) = b.receive().unwrap() {
                assert_eq!(burst.from, a.local_address().unwrap());
                sizes.extend(burst.bytes.chunks(burst.segment).map(<[u8]>::len));
            }
            assert_eq!(sizes, [vec![1_016; 10], vec![100]].concat());
        }
    }
}
