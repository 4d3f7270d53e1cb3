//! Scenarios of the crate, one module for each file.

mod candidate;
mod confirmed;
mod fake;
mod hello;
mod locks;
mod notifications;
mod reads;
