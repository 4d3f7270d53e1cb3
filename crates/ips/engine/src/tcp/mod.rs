//! TCP: states, normalisation and reassembly.
//!
//! ```text
//!            ┌───────────────────────── Session ──────────────────────────┐
//!  segment ─▶│ handshake, checks, problems ─▶ Half (client) ─▶ Stream ──▶ │─▶ chunks (app), windows (detect)
//!            │                                Half (server) ─▶ Stream ──▶ │
//!            └────────────────────────────────────────────────────────────┘
//! ```

mod chunk;
mod half;
pub mod normalize;
pub(crate) mod observer;
mod options;
mod session;
mod settings;
mod stream;
mod urgent;

pub use chunk::{StreamChunk, StreamWindow};
pub use normalize::{Normalizer, TcpProblem};
pub use session::Session;
pub use settings::TcpSettings;
pub(crate) use stream::LOOK_BACK;
pub use stream::Stream;

#[cfg(test)]
mod tests;
