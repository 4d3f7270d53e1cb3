//! A blocking client, for the command line and for tests.

mod bridges;
mod config;
mod connection;
mod error;
mod lock;
mod packets;
mod query;
mod routing;
mod switch;
mod unix;

pub use bridges::FlowOptions;
pub use config::{ChangeOptions, Event};
pub use connection::Client;
pub use error::ClientError;
pub use packets::CaptureOptions;
pub use routing::RouteOptions;
