//! AF_PACKET: frames of a kernel interface, received from a ring in shared memory and sent by one system call
//! for each burst. The crate needs CAP_NET_RAW only; no driver is unbound, and the kernel keeps the
//! interface.
//!
//! ```text
//!              kernel                             |  this process
//!  interface --> tpacket_rcv --+-- slot of the ring ---- Receiver -> packet     up to 1.9 KB: no system call
//!                              +-- queue of the socket -- recvmsg -> segments    longer: one system call, no extra copy
//!  interface <-- packet_snd <------------------------- sendmmsg <- Sender       one system call per burst
//! ```
//!
//! # Offloads
//! Hosts behind a veth, and guests, leave checksums and the segmentation of TCP and UDP to the NIC. The
//! kernel describes both in a `virtio_net_hdr` in front of each frame (`PACKET_VNET_HDR`,
//! [`millrace_wire::virtio_net`]). A receiver completes partial checksums. It does not segment a GSO packet,
//! and stores the segment size as metadata. A sender passes GSO packets to the kernel with such a header, so
//! that they reach the next host unsegmented.
//!
//! # Long frames
//! A ring of slots that hold 64 KiB would take 64 MiB for a thousand packets. Slots are short instead, and a frame that
//! does not fit is also in the socket's receive queue (`PACKET_COPY_THRESH`, `TP_STATUS_COPY`), in the order of the
//! slots. `recvmsg` copies it from there into the segments of a packet.
//!
//! # VLAN tags
//! The kernel removes the outer tag and stores it beside the frame. A receiver inserts it again with its
//! original type (`TP_STATUS_VLAN_TPID_VALID`): 0x88a8 stays 0x88a8. A sender leaves tags in the frame.
//!
//! # Trust
//! The kernel is trusted, but its numbers are checked before they are used ([`slot`]). Other hosts influence
//! the `virtio_net_hdr`; a receiver drops frames that do not agree with it.

#![deny(unsafe_code)]

mod error;
mod receive;
mod send;
pub mod slot;
mod socket;
mod state;
mod sys;

pub use error::OpenError;
pub use receive::{Received, Receiver};
pub use send::{Sender, Sent};
pub use socket::{QUEUES_MAX, open};
pub use state::SocketState;
