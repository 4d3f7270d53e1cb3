//! Settings, status and control socket of emulated paths, shared by `[[wan]]`, lab files, `millrace wan` and
//! `millrace-wan`.
//!
//! ```text
//!  [[wan]]  lab file  command line          show, watch, REST, metrics
//!      \       |       /                            |
//!       Settings (key, text)                    PathStatus
//!              |                                    |
//!       [DirectionConfig; 2]  ---- emulator ----  Stats
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub mod args;
mod settings;
mod socket;
mod status;

pub use settings::{Change, Setting, Settings, SettingsError, bases_first, is_base, keys};
pub use socket::{Reply, Request, SOCKET_DIRECTORY, SocketError, ask, default_socket, directory, sockets};
pub use status::{Delay, DirectionStatus, DropCount, InterfaceStatus, PathStatus};
