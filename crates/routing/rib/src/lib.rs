//! Routes from the kernel and from FPM as changes of the FIB, without IO or clock.

#![forbid(unsafe_code)]

mod action;
pub mod event;

pub use action::Action;
pub use event::{Event, Netns};

/// The state of all VRFs: one writer of their FIBs.
#[derive(Debug, Default)]
pub struct Rib {}
