//! The control side of a hop and of its functions.

use std::sync::Arc;

use millrace_nf::{Kind, Setup, SourceFile, Spread};

use crate::counters::InstanceCounters;
use crate::hop::HopPolicy;
use crate::plan::{ChainPlan, HopPlan};
use crate::process::{AttachPoint, Process};
use crate::restart::Restart;
use crate::shared::HopValue;

/// The control side of one function in one lane.
pub(super) struct InstanceControl {
    pub(super) counters: Arc<InstanceCounters>,
    pub(super) setup: Setup,
    pub(super) restart: Restart,
    /// The last report of the function.
    pub(super) report: String,
    /// The reason why the function went down last.
    pub(super) failure: String,
    pub(super) process: Option<Arc<Process>>,
}

impl InstanceControl {
    /// Logs why a function went down, and ends its process if it still runs. Returns true if the process was
    /// killed from outside the switch.
    pub(super) fn end_failed(&mut self, chain: &str, hop: &str) -> bool {
        if let Some(reason) = self.counters.take_reason() {
            tracing::warn!(%chain, %hop, %reason, "function down");
            self.failure = reason;
        }
        let Some(process) = &self.process else {
            return false;
        };
        let was_killed = process.was_killed();
        if !was_killed {
            // A process that hangs or violates the protocol is still running.
            process.kill();
        }
        was_killed
    }
}

/// The control side of a hop, over all lanes.
pub(super) struct HopControl {
    pub(super) id: u32,
    pub(super) plan: HopPlan,
    pub(super) kind: &'static Kind,
    /// The packets that reach the same instance.
    pub(super) spread: Spread,
    /// By lane, then by instance.
    pub(super) instances: Vec<Vec<InstanceControl>>,
    pub(super) restarts: u64,
    /// The socket of attached functions.
    pub(super) point: Option<Arc<AttachPoint>>,
    /// The value that the functions share; `None` for kinds without one.
    pub(super) value: Option<HopValue>,
    /// The file from which processes read the source of the value; `None` if they need none.
    pub(super) source: Option<Arc<SourceFile>>,
}

impl HopControl {
    /// Returns the packets that reach the same instance once the chain has this plan. The functions have the state of their
    /// flows, so a hop whose own needs and plan do not change spreads as before.
    pub(super) fn spread_for(&self, wanted: &ChainPlan) -> Spread {
        wanted.spread.unwrap_or(match self.kind.spread {
            Spread::Addresses => Spread::Addresses,
            Spread::Flow => self.spread,
        })
    }
}

/// Returns the settings of a hop that can change while its functions keep running.
pub(super) fn policy(plan: &HopPlan, spread: Spread) -> HopPolicy {
    HopPolicy {
        on_failure: plan.on_failure,
        steer: plan.number.filter(|_| plan.steer),
        spread,
    }
}
