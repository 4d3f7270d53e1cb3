//! Attached functions on the control side: which instances wait for a process, and which process becomes which instance.

use std::sync::Arc;

use millrace_nf::SettingError;
use millrace_types::Time;
use millrace_wire::Packet;

use super::hop::{HopControl, InstanceControl};
use crate::hop::Runner;
use crate::plan::{Class, HopPlan};
use crate::process::{AttachPoint, Process};

impl HopControl {
    /// Accepts processes that connect to the socket of the hop, if it has one.
    pub(super) fn poll_attached(&self, now: Time) {
        let Some(point) = &self.point else { return };
        let attached = |instance: &InstanceControl| {
            let process = instance.process.as_ref()?;
            (!instance.counters.is_down()).then(|| process.pid())
        };
        let attached: Vec<Option<u32>> = self.instances.iter().flatten().map(attached).collect();
        point.poll(now, &attached);
    }
}

/// Opens the socket of a hop with attached functions; `None` for other hops.
///
/// # Errors
/// A reason with the next step.
pub(super) fn open(plan: &HopPlan) -> Result<Option<Arc<AttachPoint>>, String> {
    let Some(path) = plan.attach_path() else {
        return Ok(None);
    };
    if plan.class == Class::Inline {
        return Err(
            "an attached function runs in a process: expected class isolated or ring, not inline".to_owned(),
        );
    }
    AttachPoint::open(path).map(Some)
}

/// Checks the settings of a hop with attached functions: only `export` is valid, because each process has its own settings.
pub(super) fn check(plan: &HopPlan) -> Result<(), SettingError> {
    plan.settings.only(&["export"])
}

/// Attaches a waiting process as this instance, which is down. Returns its function; `None` if no process waits, the
/// pause after the last process is not over, or the process cannot be attached.
pub(super) fn attach<P: Packet + 'static>(
    point: &AttachPoint,
    number: usize,
    class: Class,
    instance: &mut InstanceControl,
    now: Time,
) -> Option<(Runner<P>, Arc<Process>)> {
    let number = u32::try_from(number).ok()?;
    // The pause limits the work for a process that violates the protocol and attaches again and again.
    if !point.has_process_for(number) || !instance.restart.is_due(now, true) {
        return None;
    }
    match point.attach(number, class, &mut instance.setup) {
        Ok(attached) => {
            attached.map(|(isolated, process)| (Runner::Remote(Box::new(isolated) as _), process))
        }
        Err(error) => {
            tracing::warn!(socket = %point.path().display(), %error, "function not attached");
            instance.failure = format!("a process cannot be attached: {error}");
            None
        }
    }
}
