//! Opening an interface: sockets, their options in the order that the kernel requires, and the ring.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::{self, PacketOption, Ring};
use crate::{OpenError, Receiver, Sender};

/// Greatest number of queue pairs of an interface.
pub const QUEUES_MAX: u16 = 64;
/// `TPACKET_V2`: one slot for each packet. User space owns a slot as soon as the kernel has filled it. With
/// `TPACKET_V3`, the kernel hands over a block when the block is full or a timer expires, which would delay
/// TCP.
const TPACKET_V2: i32 = 1;
/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// `ARPHRD_LOOPBACK`: frames have an Ethernet header, too.
const LOOPBACK: u16 = 772;
/// Size in bytes of a socket's receive buffer, for long frames, and of a send buffer. The kernel doubles the size to
/// allow for its own overhead (socket(7), `SO_RCVBUF`).
const BUFFER_SIZE: usize = 8 << 20;
/// `PACKET_FANOUT_HASH`, a symmetric hash of addresses and ports, with `PACKET_FANOUT_FLAG_UNIQUEID`, which creates a
/// group with an unused number.
const FANOUT: i32 = 0x2000 << 16;

/// Opens an interface with 1 to [`QUEUES_MAX`] queue pairs. All frames of a flow arrive in one queue.
///
/// # Errors
/// [`OpenError`]
pub fn open(interface: &str, queues: u16) -> Result<Vec<(Receiver, Sender)>, OpenError> {
    let opening = Opening::new(interface)?;
    let mut pairs = Vec::new();
    let mut group = None;
    for _ in 0..queues.clamp(1, QUEUES_MAX) {
        let (socket, ring) = opening.receiving()?;
        if queues > 1 {
            opening.set(&socket, &sys::PACKET_FANOUT, &group.unwrap_or(FANOUT))?;
            if group.is_none() {
                group = Some(opening.fanout(&socket)?);
            }
        }
        pairs.push((
            Receiver::new(Arc::new(socket), ring),
            Sender::new(opening.sending()?),
        ));
    }
    Ok(pairs)
}

struct Opening<'a> {
    interface: &'a str,
    index: u32,
}

impl<'a> Opening<'a> {
    fn new(interface: &'a str) -> Result<Opening<'a>, OpenError> {
        // A socket without a protocol receives nothing.
        let socket = socket()?;
        let index = name_to_index(&socket, interface).map_err(|_| OpenError::Missing {
            interface: interface.to_owned(),
        })?;
        let opening = Opening { interface, index };
        opening.bind(&socket, 0)?;
        let kind = sys::hardware_type(&socket).map_err(|error| opening.refused("getsockname", error))?;
        match kind {
            ETHERNET | LOOPBACK => Ok(opening),
            kind => Err(OpenError::NotEthernet {
                interface: interface.to_owned(),
                kind,
            }),
        }
    }

    fn refused(&self, step: &'static str, error: Errno) -> OpenError {
        match error {
            Errno::NODEV | Errno::NXIO => OpenError::Missing {
                interface: self.interface.to_owned(),
            },
            error => OpenError::Refused {
                interface: self.interface.to_owned(),
                step,
                error,
            },
        }
    }

    fn set<T>(&self, socket: &OwnedFd, option: &PacketOption<T>, value: &T) -> Result<(), OpenError> {
        sys::set(socket, option, value).map_err(|error| self.refused(option.name, error))
    }

    fn bind(&self, socket: &OwnedFd, protocol: u16) -> Result<(), OpenError> {
        sys::bind(socket, self.index, protocol).map_err(|error| self.refused("bind", error))
    }

    /// Returns the option value by which further sockets join the fanout group of this one.
    fn fanout(&self, socket: &OwnedFd) -> Result<i32, OpenError> {
        let group = sys::fanout(socket).map_err(|error| self.refused(sys::PACKET_FANOUT.name, error))?;
        // Only the first socket sets the flag `PACKET_FANOUT_FLAG_UNIQUEID`.
        Ok(group & !FANOUT)
    }

    /// Opens a socket that receives all frames of the interface, and maps its ring.
    fn receiving(&self) -> Result<(OwnedFd, Ring), OpenError> {
        let socket = socket()?;
        self.set(&socket, &sys::PACKET_VERSION, &TPACKET_V2)?;
        self.set(&socket, &sys::PACKET_VNET_HDR, &1)?;
        self.set(&socket, &sys::PACKET_COPY_THRESH, &1)?;
        // Kernels before 4.20 do not have this option. The slots then show which frames are outgoing.
        let _unknown = sys::set(&socket, &sys::PACKET_IGNORE_OUTGOING, &1);
        self.set(&socket, &sys::PACKET_RX_RING, &Ring::request())?;
        let ring = Ring::map(&socket).map_err(|error| self.refused("mmap", error))?;
        // A size above `net.core.rmem_max` requires CAP_NET_ADMIN.
        if set_socket_recv_buffer_size_force(&socket, BUFFER_SIZE).is_err() {
            let _less = set_socket_recv_buffer_size(&socket, BUFFER_SIZE);
        }
        self.bind(&socket, ALL_PROTOCOLS)?;
        self.set(
            &socket,
            &sys::PACKET_ADD_MEMBERSHIP,
            &sys::promiscuous(self.index),
        )?;
        Ok((socket, ring))
    }

    /// Opens a socket that only sends.
    fn sending(&self) -> Result<OwnedFd, OpenError> {
        let socket = socket()?;
        self.set(&socket, &sys::PACKET_VNET_HDR, &1)?;
        if set_socket_send_buffer_size_force(&socket, BUFFER_SIZE).is_err() {
            let _less = set_socket_send_buffer_size(&socket, BUFFER_SIZE);
        }
        self.bind(&socket, 0)?;
        Ok(socket)
    }
}

fn socket() -> Result<OwnedFd, OpenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => OpenError::Permission,
        error => OpenError::Refused {
            interface: String::new(),
            step: "socket(AF_PACKET)",
            error,
        },
    })
}
