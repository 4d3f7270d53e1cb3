//! The meter table of the control side.

use std::sync::Arc;

use millrace_types::Time;

use crate::meter::CompiledMeter;

/// A meter of the bridge.
#[derive(Clone, Debug)]
pub(super) struct MeterRecord {
    pub(super) compiled: Arc<CompiledMeter>,
    pub(super) created: Time,
}
