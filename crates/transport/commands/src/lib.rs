//! The commands `send` and `receive` of `millrace` and of `millrace-courier`: arguments, progress and exit status.

#![forbid(unsafe_code)]

mod args;
mod device;
mod display;
mod error;
mod receive;
mod remote;
mod send;

pub use args::{Commit, Receive, Send};
pub use device::OpenDpdk;
pub use error::CommandError;
pub use receive::receive;
pub use send::send;
