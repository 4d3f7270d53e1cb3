//! Programs that instruments start: pinned to a core, watched until they are ready, and ended by process id.
//!
//! A program ends with the instrument that started it, whether the instrument returns, receives SIGINT
//! ([`interrupt`]), or is killed (the kernel's parent-death signal).

#![forbid(unsafe_code)]

mod command;
mod error;
pub mod interrupt;
mod port;
mod running;
mod threads;

pub use command::{command_line, is_installed, program_path, run_tool, tail, tool_output, version, wrap};
pub use error::ProcessError;
pub use port::free_port;
pub use running::{Running, pause};
pub use threads::{OtherCores, ThreadTimes, claim_core, pin_current_thread, pin_process, resident_memory};
