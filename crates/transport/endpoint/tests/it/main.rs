//! Endpoints on one link, in virtual time; hostile frames; and the kernel as a peer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod discovery;
mod hostile;
mod icmp;
mod kernel;
mod link;
mod transfer;
