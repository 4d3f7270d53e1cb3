//! The commands `send`, `receive` and `courier` of `millrace` and of `millrace-courier`: arguments, progress and exit status.

#![forbid(unsafe_code)]

mod args;
mod courier;
mod device;
mod display;
mod error;
mod ports;
mod receive;
mod remote;
mod send;

pub use args::{Commit, Receive, Send};
pub use courier::{Courier, courier};
pub use device::OpenDpdk;
pub use error::CommandError;
pub use ports::{Listen, PortRange};
pub use receive::receive;
pub use send::send;
