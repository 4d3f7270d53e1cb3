//! Refused changes of tables, groups and meters: the error for the controller, and the reason for the log.

use millrace_datapath::io::Backend;
use millrace_openflow::ErrorCode;
use millrace_pipeline::{FlowModError, GroupModError, MeterModError};
use millrace_types::Xid;
use thiserror::Error;

use super::replies::error_code;
use crate::control::BridgeControl;
use crate::controllers::ConnectionId;

/// The reason why the pipeline refuses a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Reason {
    #[error(transparent)]
    Flow(#[from] FlowModError),
    #[error(transparent)]
    Group(#[from] GroupModError),
    #[error(transparent)]
    Meter(#[from] MeterModError),
}

/// A refused request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The error code for the controller.
    pub(super) code: ErrorCode,
    /// The pipeline's reason; `None` if only the error code is known.
    reason: Option<Reason>,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Refusal {
        Refusal { code, reason: None }
    }
}

impl From<FlowModError> for Refusal {
    fn from(error: FlowModError) -> Refusal {
        Refusal {
            code: error_code(error.code()),
            reason: Some(error.into()),
        }
    }
}

impl From<GroupModError> for Refusal {
    fn from(error: GroupModError) -> Refusal {
        Refusal {
            code: error_code(error.code()),
            reason: Some(error.into()),
        }
    }
}

impl From<MeterModError> for Refusal {
    fn from(error: MeterModError) -> Refusal {
        Refusal {
            code: error_code(error.code()),
            reason: Some(error.into()),
        }
    }
}

/// Logs the refusal of a change at WARN, as often as the bridge's limit admits. `request` is the name of the message.
pub(super) fn log<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    xid: Xid,
    request: &'static str,
    refusal: &Refusal,
) {
    let Some(reason) = &refusal.reason else {
        return;
    };
    let now = bridge.datapath.now();
    let Some(suppressed) = bridge.controllers.refusal_log.admit(now) else {
        return;
    };
    let controller = bridge
        .controllers
        .connected(id)
        .map(|connected| &connected.address);
    let controller = controller.map_or("", |address| address);
    tracing::warn!(
        bridge = %bridge.config.name, %controller, xid = xid.0, code = %refusal.code, %reason, suppressed,
        "{request} refused"
    );
}
