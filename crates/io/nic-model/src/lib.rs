//! The bit-exact model of the classifying NIC, by which the RTL is judged and with which the switch is tested.
//!
//! ```text
//!   frame --> parser: window of 128 bytes, one header a step --> key, flow fields
//!                                                                 |      |
//!                          key & mask of the port's bank <--------+      +--> flow hash --> bucket --> queue
//!                                    |            |                                                     |
//!                              exact table   ternary table --> action (mark, queue, drop, class) ------> dispatcher
//! ```
//! docs/nic-interface.md is the specification. The model is pure: it has no clock (the time of a completion is an argument) and
//! no IO; a [`Twin`] gets what a NIC in software gets, and is compared with it. The parser is another implementation of the flow hash and of the flow key than those of the switch, on purpose:
//! tests compare them.

#![forbid(unsafe_code)]

mod device;
mod fault;
pub mod frames;
mod parser;
mod proto;
mod recognize;
mod simulator;
mod software;
pub mod stimulus;
mod table;
mod twin;
mod view;

pub use device::{Classified, Model, Outcome};
pub use fault::Fault;
pub use parser::{Parsed, parse};
pub use simulator::Simulator;
pub use software::SoftwareNic;
pub use twin::{Twin, differences};
