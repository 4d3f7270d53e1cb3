//! A client of etcd (version 3) over the JSON gateway of each member (`/v3/kv/range`, `/v3/kv/txn`, `/v3/lease/…`, `/v3/watch`).
//!
//! The types of requests and answers have no IO. With the feature `client`, a blocking client sends them.
//!
//! | what etcd does | what this client does |
//! | --- | --- |
//! | a member answers nothing, or has no leader | the next request goes to the next member; a read tries all of them |
//! | a write whose answer is lost may have happened | no write is repeated here: the caller reads again and decides |
//! | a watch hangs in a partition, or its revisions are compacted | a watch ends by itself after a given time; it only wakes a reader |

#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
pub mod message;
mod settings;
mod types;

#[cfg(feature = "client")]
pub use client::{Client, EtcdError, Woken};
pub use settings::{Settings, SettingsError};
pub use types::{Compare, KeyValue, Keys, Lease, Op, Read, Txn, TxnDone};
