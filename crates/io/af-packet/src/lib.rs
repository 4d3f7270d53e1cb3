//! AF_PACKET: the frames of an interface of the kernel, received from a ring in shared memory and sent by one system call
//! a burst. Nothing but CAP_NET_RAW is needed, no driver is unbound, and the interface stays the kernel's.
//!
//! ```text
//!              kernel                             |  this process
//!  interface --> tpacket_rcv --+-- slot of the ring ---- Receiver -> packet     up to 1.9 KB: no system call
//!                              +-- queue of the socket -- recvmsg -> segments    longer: one system call, no copy more
//!  interface <-- packet_snd <------------------------- sendmmsg <- Sender       one system call a burst
//! ```
//!
//! # What a sender leaves to a NIC
//! Hosts behind a veth, and guests, send TCP as packets of up to 64 KiB without a checksum. The kernel says so in a
//! `virtio_net_hdr` in front of each frame (`PACKET_VNET_HDR`, [`millrace_wire::virtio_net`]). Checksums are completed here;
//! a packet that is to be segmented stays whole, marked with its segment size. The sender says the same to the kernel about
//! long packets, and so they reach the next host whole.
//!
//! # Long frames
//! A ring of slots that hold 64 KiB would take 64 MiB for a thousand packets. So slots are short, and what does not fit is
//! left in the socket's receive queue as well (`PACKET_COPY_THRESH`, `TP_STATUS_COPY`), in the order of the slots. From
//! there it is copied once, into the segments of a packet.
//!
//! # VLAN tags
//! The kernel takes the outer tag off and keeps it beside the frame. It is put back with the type that it had
//! (`TP_STATUS_VLAN_TPID_VALID`): 0x88a8 stays 0x88a8. Tags of frames that are sent stay in the frame.
//!
//! # Whom we trust
//! The kernel, but not more than needed: what a slot says is checked before it is used ([`slot`]), and what the header in
//! front of a frame says, which other hosts have a say in, is held against the frame.

#![deny(unsafe_code)]

mod error;
mod receive;
mod send;
pub mod slot;
mod socket;
mod sys;

pub use error::OpenError;
pub use receive::{Received, Receiver};
pub use send::{Sender, Sent};
pub use socket::{Drops, QUEUES_MAX, open};
