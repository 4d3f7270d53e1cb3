//! System calls of packet sockets that no safe crate offers, and the mapped ring: the only unsafe code of the crate.
//!
//! # Invariant
//! Every access to the ring is within its mapping, is aligned, and causes no fault.
//!
//! # Argument
//! * **Within**: the mapping has [`SLOTS`] slots of [`SLOT_SIZE`] bytes. The size of a block is a multiple of
//!   this size, so slots are contiguous. An index is taken modulo the number of slots, and a range is
//!   compared with [`SLOT_SIZE`].
//! * **No fault**: the pages belong to the socket, and stay mapped while the mapping exists, even if the socket
//!   or the interface is closed.
//! * **The kernel writes**: the kernel owns a slot until the slot's status, an atomic, changes. Bytes are copied
//!   through raw pointers, and no reference to them exists.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, packet_mreq, sockaddr_ll, socklen_t, tpacket_req};
use millrace_shared_memory::{Mapping, prefetch};
use rustix::io::Errno;

use crate::slot::{SLOT_SIZE, USER};

/// Size in bytes of a block of the ring, which is contiguous in the kernel's memory.
const BLOCK_SIZE: usize = 1 << 18;
/// Number of slots of a ring, 8 MiB in all. This many packets can arrive while the worker is not running.
const SLOTS: usize = 4096;

/// Converts the return value of a system call into a result.
fn checked(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// An option of packet sockets, and the type of its value.
pub(crate) struct PacketOption<T> {
    number: c_int,
    /// Name in the kernel's headers.
    pub(crate) name: &'static str,
    value: core::marker::PhantomData<T>,
}

macro_rules! options {
    ($($name:ident: $type:ty;)*) => {
        $(pub(crate) const $name: PacketOption<$type> = PacketOption {
            number: libc::$name,
            name: stringify!($name),
            value: core::marker::PhantomData,
        };)*
    };
}

options! {
    PACKET_VERSION: c_int;
    PACKET_VNET_HDR: c_int;
    PACKET_COPY_THRESH: c_int;
    PACKET_FANOUT: c_int;
    PACKET_RX_RING: tpacket_req;
    PACKET_ADD_MEMBERSHIP: packet_mreq;
}

/// `PACKET_IGNORE_OUTGOING`, Linux 4.20.
pub(crate) const PACKET_IGNORE_OUTGOING: PacketOption<c_int> = PacketOption {
    number: 23,
    name: "PACKET_IGNORE_OUTGOING",
    value: core::marker::PhantomData,
};

/// Sets an option of a packet socket.
pub(crate) fn set<T>(socket: &OwnedFd, option: &PacketOption<T>, value: &T) -> Result<(), Errno> {
    let (size, value) = (
        size_of::<T>() as socklen_t,
        core::ptr::from_ref(value).cast::<c_void>(),
    );
    // SAFETY: the kernel reads no more bytes than the value has, and the value lives during the call.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option.number, value, size) })
}

/// Returns the number and the type of a socket's fanout group.
pub(crate) fn fanout(socket: &OwnedFd) -> Result<c_int, Errno> {
    let (mut value, mut size): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    let pointer = core::ptr::from_mut(&mut value).cast();
    let level = libc::SOL_PACKET;
    // SAFETY: the kernel writes no more than `size` bytes, and the value has that size.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            libc::PACKET_FANOUT,
            pointer,
            &raw mut size,
        )
    })?;
    Ok(value)
}

/// Returns and resets the number of packets that were dropped because no slot was free (`PACKET_STATISTICS`).
pub(crate) fn drops(socket: &OwnedFd) -> Result<u32, Errno> {
    // `struct tpacket_stats`: packets, and drops.
    let (mut value, mut size): ([u32; 2], _) = ([0; 2], size_of::<[u32; 2]>() as socklen_t);
    let pointer = core::ptr::from_mut(&mut value).cast();
    let level = libc::SOL_PACKET;
    // SAFETY: the kernel writes no more than `size` bytes, and the value has that size.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            libc::PACKET_STATISTICS,
            pointer,
            &raw mut size,
        )
    })?;
    Ok(value[1])
}

/// Returns the socket address of an interface and a protocol. A socket with protocol 0 receives no frames.
fn address(index: u32, protocol: u16) -> sockaddr_ll {
    // SAFETY: a `sockaddr_ll` has only integer fields, for which zero is a valid value.
    let mut address: sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as c_int;
    address
}

/// Binds a socket to an interface.
pub(crate) fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> Result<(), Errno> {
    let address = address(index, protocol);
    let size = size_of::<sockaddr_ll>() as socklen_t;
    // SAFETY: the kernel reads no more bytes than the address has, and the address lives during the call.
    checked(unsafe { libc::bind(socket.as_raw_fd(), core::ptr::from_ref(&address).cast(), size) })
}

/// Returns the hardware type of the interface that a socket is bound to (`ARPHRD_*`).
pub(crate) fn hardware_type(socket: &OwnedFd) -> Result<u16, Errno> {
    Ok(bound_to(socket)?.sll_hatype)
}

/// Returns the index of the interface that a socket is bound to; -1 after the interface has gone.
pub(crate) fn bound_index(socket: &OwnedFd) -> Result<c_int, Errno> {
    Ok(bound_to(socket)?.sll_ifindex)
}

fn bound_to(socket: &OwnedFd) -> Result<sockaddr_ll, Errno> {
    let mut address = address(0, 0);
    let mut size = size_of::<sockaddr_ll>() as socklen_t;
    let pointer = core::ptr::from_mut(&mut address).cast();
    // SAFETY: the kernel writes no more than `size` bytes, and the address has that size.
    checked(unsafe { libc::getsockname(socket.as_raw_fd(), pointer, &raw mut size) })?;
    Ok(address)
}

/// Returns the membership that puts an interface into promiscuous mode.
pub(crate) fn promiscuous(index: u32) -> packet_mreq {
    packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    }
}

/// The receive ring of a socket.
#[derive(Debug)]
pub(crate) struct Ring(Mapping);

impl Ring {
    /// Returns the geometry of the ring for `PACKET_RX_RING`.
    pub(crate) fn request() -> tpacket_req {
        tpacket_req {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: (SLOTS * SLOT_SIZE / BLOCK_SIZE) as u32,
            tp_frame_size: SLOT_SIZE as u32,
            tp_frame_nr: SLOTS as u32,
        }
    }

    /// Maps the ring of a socket that was given [`Ring::request`].
    pub(crate) fn map(socket: &OwnedFd) -> Result<Ring, Errno> {
        Mapping::populated(socket, SLOTS * SLOT_SIZE).map(Ring)
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the remainder is a slot of the mapping.
        unsafe { self.0.start().add(index % SLOTS * SLOT_SIZE) }
    }

    #[inline(always)]
    fn status(&self, index: usize) -> &AtomicU32 {
        let status = self.slot(index).cast::<AtomicU32>();
        // SAFETY: the first word of a slot is aligned, is mapped while `self` lives, and is accessed
        // only as an atomic.
        unsafe { status.as_ref() }
    }

    /// Returns true if the kernel has filled the slot at an index, which is taken modulo the number of slots.
    #[inline(always)]
    pub(crate) fn is_ours(&self, index: usize) -> bool {
        self.status(index).load(Ordering::Acquire) & USER != 0
    }

    /// Gives a slot back to the kernel.
    #[inline(always)]
    pub(crate) fn release_slot(&self, index: usize) {
        self.status(index).store(0, Ordering::Release);
    }

    /// Fills `into` with the bytes of a slot from offset `at` on. Returns false, and copies nothing, if the slot has
    /// fewer bytes.
    #[inline(always)]
    pub(crate) fn read(&self, index: usize, at: usize, into: &mut [u8]) -> bool {
        if at > SLOT_SIZE || into.len() > SLOT_SIZE - at {
            return false;
        }
        // SAFETY: within the slot, as was just checked.
        let from = unsafe { self.slot(index).add(at) };
        // SAFETY: both ranges are `into.len()` bytes long. `into` does not overlap the mapping, because the only
        // references to the mapping are to atomics.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Prefetches the bytes of a slot at offset `at`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize, at: usize) {
        prefetch(self.slot(index).as_ptr().wrapping_add(at));
    }
}
