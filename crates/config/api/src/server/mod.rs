//! The server: REST, metrics, change stream and captures over HTTP/1.1.
//!
//! ```text
//! let bound = BoundServer::bind(Settings::from_config(&config.api, state_dir)?, live, store).await?;
//! bound.run(shutdown).await;
//! ```
//!
//! Each entry of the following list is a layer of files. A file uses only files of the same layer and of lower
//! layers, without cycles.
//!
//! ```text
//! bound                                    the server from bind to shutdown, and its housekeeping
//! accept                                   connections: their number, and their time limits
//! router                                   the router of all resources
//! routes/*                                 handlers, one file for each resource
//! guard, extract, condition, authorship,   parts of handlers: access, parameters, If-Match, authors,
//! port_names, pcapng, exposition           port names, capture files, metrics
//! small_body                               bodies that are read before the handler runs
//! app, sample, journal                     the state that handlers share
//! live, problem                            the running switch as a trait; errors as HTTP responses
//! settings, socket, tls, token, probe      listeners and their secrets
//! peer, limits                             clients, and their limits
//! ```

mod accept;
mod app;
mod authorship;
mod bound;
mod condition;
mod exposition;
mod extract;
mod guard;
mod journal;
mod limits;
mod live;
mod pcapng;
mod peer;
mod port_names;
mod probe;
mod problem;
mod router;
mod routes;
mod sample;
mod settings;
mod small_body;
mod socket;
mod tls;
mod token;

pub use bound::BoundServer;
#[cfg(feature = "fake")]
pub(crate) use bound::service;
pub use journal::Journal;
pub use limits::{BODY_LIMIT, Limits};
pub use live::{
    CaptureSpec, CapturedPacket, Direction, FlowQuery, Flows, Live, LiveError, PortCounters, RouteQuery,
    RouteSelection, TracePacket,
};
pub use probe::probe;
pub use settings::{Settings, StartError, Tcp};
pub use socket::SocketError;
pub use tls::{Tls, TlsError};
pub use token::{Token, TokenError};
