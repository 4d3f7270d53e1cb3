//! The OpenFlow channels of a bridge: connections with controllers (OpenFlow 1.3.5, section 6.3).
//!
//! [`Connector`] keeps the connections and listeners that the configuration asks for. Each connection is an async task
//! (`session.rs`) around a [`Connection`](millrace_openflow::connection::Connection):
//!
//! ```text
//!  connector -+-> active ---> session, auxiliary ---> session      the switch connects (`tcp:`, `tls:`)
//!             +-> passive --> admission ------------> session      the switch listens (`ptcp:`, `ptls:`, `punix:`)
//!
//!  session:   socket --> decode --> requests --> control thread --> outbox --> socket
//! ```

mod active;
mod auxiliary;
mod backoff;
mod connect;
mod connector;
mod passive;
mod session;
mod status;
mod stream;
mod tls;

pub use connector::Connector;
pub use status::{ChannelKind, ChannelState, ChannelStatus, ChannelTable};
pub(crate) use tls::TlsFiles;
pub use tls::{TlsFault, check_tls, invalid_certificates};
