//! Links, addresses, neighbours and routes of the kernel by netlink; routes of FRR by FPM.
//!
//! ```text
//!                     namespace of a VRF
//!   +--------------------------------------------------+
//!   |  FRR, BIRD --routes--> kernel --notifications-----+--> [Kernel] --+
//!   |      |                    ^                       |               +--> events --> millrace-rib
//!   |      +-------- FPM -------|-----------------------+--> [Fpm] -----+                   |
//!   |                           +--- neighbours, dumps -+--- [Kernel] <----- actions -------+
//!   |  shadow interfaces <------------ addresses -------+--- [Shadow]
//!   +--------------------------------------------------+
//! ```
//!
//! * [`wire`] decodes messages without copies; [`translate`] turns them into the events of the RIB.
//! * [`Kernel`] reads a namespace: notifications and dumps on one socket, overruns, settings of the kernel; and sends requests
//!   about neighbours.
//! * [`Fpm`] listens for zebra.
//! * [`Shadow`] sets the addresses of shadow interfaces. Their devices are opened by `millrace-datapath` (`DeviceSpec::Shadow`).
//!
//! Threads enter a namespace ([`Namespace`]); the rest of the process stays in its own. Events go through a bounded channel that
//! blocks the reader, so that a slow consumer loses nothing until the receive buffer of the socket is full, and that is told as
//! [`millrace_rib::event::Change::Lost`].

#![forbid(unsafe_code)]

mod dumps;
pub mod fpm;
mod kernel;
mod message;
mod namespace;
mod outbox;
mod overtaken;
mod requests;
mod settings;
mod shadow;
mod socket;
mod status;
pub mod translate;
pub mod wire;

pub use fpm::Fpm;
pub use kernel::{Kernel, Settings};
pub use namespace::{Identity, Namespace, NamespaceError};
pub use outbox::BATCH_LEN;
pub use shadow::{InterfaceAddress, Shadow};
pub use status::Status;
pub use translate::Ignored;
