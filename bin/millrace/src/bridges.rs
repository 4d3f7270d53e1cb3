//! The bridges that a command applies to: those that are named, or all.

use millrace_api::client::{Client, ClientError};

use crate::cli::BridgeSelection;

/// Returns the names of the selected bridges.
pub(crate) fn bridge_names(client: &Client, of: &BridgeSelection) -> Result<Vec<String>, ClientError> {
    match &of.bridge {
        Some(name) => Ok(vec![name.clone()]),
        None => Ok(client.bridges()?.into_iter().map(|bridge| bridge.name).collect()),
    }
}
