//! gNMI (the gRPC Network Management Interface of OpenConfig) without IO.
//!
//! ```text
//! GetRequest ----> get ----\
//! SetRequest ----> set -----+--> path --> view (openconfig | millrace) --> Datastore
//! SubscribeRequest -> subscribe --/
//! ```

#![forbid(unsafe_code)]

mod commit;
mod get;
pub mod openconfig;
pub mod path;
pub mod proto;
mod set;
mod status;
pub mod subscribe;
mod value;
pub mod view;

pub use get::{capabilities, get};
pub use set::set;
pub use status::of_failure;

/// The version of gNMI (`gnmi_service` in gnmi.proto).
pub const VERSION: &str = "0.10.0";
/// The kind of comment that records the id of a commit that waits for its confirmation.
pub const COMMIT: &str = "gNMI commit";
