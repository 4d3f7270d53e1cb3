//! A switch of fixed values and a server for it, for the tests of this crate and of the command line.

mod chains;
mod flows;
mod lags;
mod nic;
mod ovsdb;
mod problem;
mod queues;
mod routing;
mod server;
mod switch;
mod wans;

pub use server::{CONFIG, FakeServer, FakeService};
pub use switch::FakeSwitch;
#[cfg(test)]
pub(crate) use switch::port;
