//! The engine of intrusion prevention: packets in, verdicts and events out.
//!
//! ```text
//!  frame ─packet─▶ Packet ─defragment─▶ Packet ─flow─▶ Flow ─tcp─▶ in-order data ─app─▶ transactions
//!                                                       │             │                     │
//!                                                       ▼             ▼                     ▼
//!                                                  detect: packet ── stream ──────── buffers ──▶ events, Verdict
//! ```
//!
//! An [`Engine`] serves one lane and has no lock, clock or randomness: time, packet numbers and the hash seed
//! are arguments. The engine is written from RFCs, the documentation of the rule languages and observed
//! behaviour.

#![forbid(unsafe_code)]

pub mod app;
pub mod defragment;
pub mod detect;
mod engine;
pub mod event;
pub mod flow;
mod hash;
mod history;
mod mode;
pub mod packet;
pub mod pieces;
pub mod policy;
pub mod settings;
pub mod tcp;
pub mod verdict;

pub use engine::{Counters, Engine, Frame};
pub use event::{Event, Events};
pub use flow::{Direction, Flow, FlowVerdict};
pub use packet::{LinkType, Packet};
pub use policy::{Cause, Overload, Policies, Policy};
pub use settings::{Encryption, Mode, Settings};
pub use tcp::{StreamChunk, StreamWindow};
pub use verdict::{Action, Verdict};
