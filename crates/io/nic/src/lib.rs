//! The interface between a switch and a NIC that classifies, marks and dispatches packets.
//!
//! ```text
//!            driver (switch)                              device (model, RTL, hardware)
//!   register::REGISTERS  ------- configuration ----------> parser, hash, tables
//!   command::Command     ------- command ring -----------> sequencer: takes effect between two packets
//!                        <------ command completions ----- status, counters
//!   buffers              ------- free buffers, a queue --> dispatcher
//!                        <------ completions, a queue ---- mark, hash, bucket, fences
//! ```
//! The numbers of the interface are the tables of this crate: [`register`], [`key`], [`command`], [`completion`],
//! [`row`]. [`document`] writes them as a SystemVerilog package and as docs/nic-interface.md, so that hardware, model and
//! switch read one source. [`record`] is the format in which a simulator is driven with the same input as the model.
//!
//! The crate passes the memory of a device in software over a socket ([`connection`]), and does no other IO. Every number of the other side is read once and checked before it is used.

#![forbid(unsafe_code)]

pub mod bits;
pub mod command;
pub mod command_completion;
pub mod completion;
pub mod config;
pub mod connection;
pub mod counter;
pub mod device;
pub mod document;
pub mod driver;
pub mod exact;
pub mod hash;
pub mod key;
pub mod memory;
pub mod reading;
pub mod record;
pub mod register;
pub mod row;

pub use command::{Action, Command};
pub use command_completion::{CommandCompletion, Status};
pub use completion::Completion;
pub use config::{Capabilities, Config};
pub use counter::Counter;
pub use hash::HashKeys;
pub use key::Key;

/// Number of bytes at the front of a frame that the parser can read.
pub const WINDOW_SIZE: usize = millrace_wire::flow_hash::WINDOW_SIZE;
/// Maximum number of parser steps for one frame: one step is one header. `FlowHash` has the same limit.
pub const STEPS_MAX: usize = millrace_wire::flow_hash::STEPS_MAX;
/// Number of buckets, to which the upper 10 bits of the hash belong.
pub const BUCKETS: usize = 1024;
/// Maximum number of receive queues.
pub const QUEUES_MAX: usize = 32;
/// Maximum number of ports of the device.
pub const PORTS_MAX: usize = 16;
/// Number of ways of the exact table.
pub const WAYS: usize = 4;
/// Maximum number of mask banks.
pub const BANKS_MAX: usize = 16;
/// Number of forms: 0 means "no lookup", 1 to 15 name a mask of the exact table.
pub const FORMS: usize = 16;
/// Number of completions of each queue that only fences may use.
pub const FENCE_RESERVE: usize = 4;
/// Number of bytes that the recognition of the payload of a label stack reads at most: a control word, an Ethernet header and
/// an IPv4 header with all options.
pub const RECOGNITION_SIZE: usize = 4 + 14 + 60;
/// Longest frame in bytes.
pub const FRAME_SIZE_MAX: usize = 9600;
/// Shortest frame in bytes: an Ethernet header.
pub const FRAME_SIZE_MIN: usize = 14;
