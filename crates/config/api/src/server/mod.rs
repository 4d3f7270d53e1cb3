//! The server: REST, metrics, change stream and captures over HTTP/1.1.
//!
//! ```text
//! let bound = Bound::bind(Settings::from_config(&config.api, state_dir)?, live, store).await?;
//! bound.run(shutdown).await;
//! ```
//!
//! Layers, from the top; a file uses those below it only:
//!
//! ```text
//! bound                              listeners and housekeeping, from bind to shutdown
//! accept, slots, socket, tls         connections: how many, from whom, how slowly
//! router, overload                   paths to handlers; the service without a free slot
//! routes/*                           one file for each resource
//! guard, extract, port_names         what requests must show, and what handlers take from them
//! app, sample                        the state that handlers share
//! live, problem, limits, token       the running switch as a trait, errors, bounds
//! ```

mod accept;
mod app;
mod authorship;
mod bound;
mod condition;
mod exposition;
mod extract;
mod guard;
mod limits;
mod live;
mod overload;
mod pcapng;
mod peer;
mod port_names;
mod probe;
mod problem;
mod router;
mod routes;
mod sample;
mod settings;
mod slots;
mod socket;
mod tls;
mod token;
mod write_timeout;

pub use bound::Bound;
#[cfg(feature = "fake")]
pub(crate) use bound::service;
pub use limits::{BODY_LIMIT, Limits};
pub use live::{CaptureSpec, CapturedPacket, Direction, FlowQuery, Flows, Live, LiveError, TracePacket};
pub use probe::probe;
pub use settings::{Settings, StartError, Tcp};
pub use socket::SocketError;
pub use tls::{Tls, TlsError};
pub use token::{Token, TokenError};
