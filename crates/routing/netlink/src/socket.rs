//! A netlink socket of routing (`NETLINK_ROUTE`).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, recvmsg, setsockopt, sockopt};

use crate::wire::multicast;

/// The receive buffer of notifications, in bytes. A burst of notifications fills it while the consumer is busy: a full
/// table of 1,000,000 routes is about 900 MB in the accounting of the kernel, and takes zebra 14 s.
pub(crate) const RECEIVE_BUFFER_SIZE: usize = 128 << 20;
/// The longest datagram that is read, in bytes. The kernel makes parts of a dump up to 32 KiB long, and an attribute of a
/// notification is at most 64 KiB.
pub(crate) const DATAGRAM_SIZE: usize = 128 << 10;

/// The groups of notifications that the reader subscribes to.
const GROUPS: [u32; 9] = [
    multicast::LINK,
    multicast::NEIGH,
    multicast::IPV4_IFADDR,
    multicast::IPV6_IFADDR,
    multicast::IPV4_ROUTE,
    multicast::IPV6_ROUTE,
    multicast::NEXTHOP,
    multicast::IPV4_NETCONF,
    multicast::IPV6_NETCONF,
];

pub(crate) struct Socket(netlink_sys::Socket);

/// The outcome of a read.
pub(crate) enum Received {
    /// A datagram of this size.
    Datagram(usize),
    /// Nothing waits.
    Empty,
    /// The receive buffer was full, and messages were dropped; or a datagram was longer than the buffer of the reader.
    Lost,
}

impl Socket {
    /// Opens a socket in the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Socket> {
        let mut socket = netlink_sys::Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.set_cap_ack(true)?;
        // The kernel then checks requests for dumps, and lists no entries of its caches.
        socket.set_netlink_get_strict_chk(true)?;
        Ok(Socket(socket))
    }

    /// Subscribes to the notifications, with a receive buffer of `size` bytes.
    pub(crate) fn subscribe(&self, size: usize) -> io::Result<()> {
        // Without CAP_NET_ADMIN in the first user namespace, the limit of net.core.rmem_max holds.
        if setsockopt(&self.0, sockopt::RcvBufForce, &size).is_err() {
            setsockopt(&self.0, sockopt::RcvBuf, &size)?;
        }
        // Overruns are reported as ENOBUFS.
        self.0.set_no_enobufs(false)?;
        for group in GROUPS {
            self.0.add_membership(group)?;
        }
        Ok(())
    }

    /// Sends requests. The kernel executes them before this function returns.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let size = self.0.send(bytes, 0)?;
        if size != bytes.len() {
            return Err(io::Error::from(io::ErrorKind::WriteZero));
        }
        Ok(())
    }

    /// Reads a datagram. Datagrams of other processes are skipped.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
            let received = match recvmsg::<NetlinkAddr>(self.0.as_raw_fd(), &mut parts, None, flags) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Ok(Received::Empty),
                Err(Errno::ENOBUFS) => return Ok(Received::Lost),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if received.address.is_some_and(|sender| sender.pid() != 0) {
                continue;
            }
            let (size, is_cut) = (received.bytes, received.flags.contains(MsgFlags::MSG_TRUNC));
            return Ok(if is_cut {
                Received::Lost
            } else {
                Received::Datagram(size)
            });
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
