//! An AgentX subagent (RFC 2741), read only: the state of the switch as objects of SNMP. The SNMP agent of the machine, such as
//! Debian's snmpd, has the users, the keys and the network; this crate speaks to it over its Unix socket.
//!
//! ```text
//!  views of REST ── tables ──▶ Objects (oid → value)
//!                                 ▲
//!  snmpd ── PDUs ──▶ Session ── looks up, answers ──▶ snmpd
//! ```
//!
//! [`pdu`] is the codec, [`Session`] the protocol without IO, [`tables`] the MIBs, and [`serve`] the driver.

#![forbid(unsafe_code)]

mod numbers;
mod objects;
mod oid;
pub mod pdu;
mod serve;
mod session;
pub mod tables;

pub use numbers::Numbers;
pub use objects::{Objects, Value};
pub use oid::Oid;
pub use serve::{Settings, serve};
pub use session::{Session, SessionError};
