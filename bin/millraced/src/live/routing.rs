//! The router, from the agent's values to those of REST.

use millrace_api::server::LiveError;
use millrace_api::view;

/// Returns the error for a VRF that does not run.
pub(super) fn no_vrf(name: &str, vrfs: Vec<view::Vrf>) -> LiveError {
    LiveError::NoVrf {
        name: name.to_owned(),
        running: vrfs.into_iter().map(|vrf| vrf.name).collect(),
    }
}
