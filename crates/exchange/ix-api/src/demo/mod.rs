//! The exchange of the demonstrations, on a running engine: for tests of this crate and of the page.
//!
//! ```text
//!   exchange: two sites, four members --> database in memory --> engine <--> switches in memory (ix-service, simulation)
//!   traffic (sFlow), routes (BGP, ROAs, IRR), bird, series, frames ----^
//! ```

mod bird;
mod exchange;
mod frames;
mod mailbox;
mod routes;
mod series;
mod traffic;
mod world;

pub use bird::RouteServerReads;
pub use exchange::{PASSWORD, demo};
pub use mailbox::Mailbox;
pub use traffic::Script;
#[cfg(test)]
pub(crate) use world::start_api;
pub use world::{World, WorldError};
