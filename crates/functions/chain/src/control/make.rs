//! The functions of a hop: created in the worker or in processes.

use std::sync::Arc;

use millrace_nf::{MakeError, Spread};
use millrace_types::Time;
use millrace_wire::Packet;

use super::error::ChainError;
use super::hop::{HopControl, InstanceControl, policy};
use super::runner::make_runner;
use super::values::source_of;
use super::{Chain, attach};
use crate::counters::InstanceCounters;
use crate::hop::{Hop, Instance, Runner};
use crate::plan::HopPlan;
use crate::process::{self, ATTACHED, Unattached, unattached};
use crate::restart::Restart;
use crate::shunned::ShunnedFlows;

impl<P: Packet + 'static> Chain<P> {
    /// Creates the functions of a hop, which may replace those of `held`. Returns its control side, and the hop of each lane.
    pub(super) fn make_hop(
        &self,
        id: u32,
        plan: &HopPlan,
        held: Option<&HopControl>,
        spread: Spread,
        now: Time,
    ) -> Result<(HopControl, Vec<Hop<P>>), ChainError> {
        let refuse = |source| ChainError::Make {
            hop: plan.name.clone(),
            source,
        };
        let point = attach::open(plan).map_err(|reason| ChainError::Class {
            hop: plan.name.clone(),
            reason,
        })?;
        let kind = match plan.is_loaded_elsewhere() {
            _ if point.is_some() => {
                attach::check(plan)
                    .map(|()| &ATTACHED)
                    .map_err(|source| MakeError::Setting {
                        name: ATTACHED.name,
                        source,
                    })
            }
            false => self.catalogue.find(&plan.function),
            true => process::describe(&self.program, plan).map_err(|reason| MakeError::Load {
                name: plan.function.clone(),
                reason,
            }),
        };
        let kind = kind.map_err(refuse)?;
        let source = source_of(kind, plan, held).map_err(|error| ChainError::Class {
            hop: plan.name.clone(),
            reason: format!("the memory for its processes cannot be created: {error}"),
        })?;
        let instances = match plan.drained {
            true => 0,
            false => plan.instances.max(1),
        };
        let (mut controls, mut hops) = (Vec::new(), Vec::new());
        let mut numbers = 0_u32..;
        for _ in &self.lanes {
            let (mut lane_controls, mut lane_instances) = (Vec::new(), Vec::new());
            for number in numbers.by_ref().take(usize::from(instances)) {
                let mut setup = kind.setup(&plan.settings, self.seed, self.zero_unix_millis);
                setup.instance = number;
                setup.limits = plan.limits;
                setup.shared = held
                    .filter(|held| held.has_value_for(kind))
                    .and_then(|held| held.value.as_ref()?.value().cloned());
                let counters = Arc::<InstanceCounters>::default();
                let (runner, process) = match &point {
                    None => make_runner(&self.program, kind, plan, &setup, source.as_deref())?,
                    Some(point) => (Runner::Remote(Box::new(Unattached::new(point.path())) as _), None),
                };
                let shunned = ShunnedFlows::of_kind(kind, self.seed);
                let made = Instance::new(runner, Arc::clone(&counters), shunned);
                lane_instances.push(match &point {
                    None => made,
                    Some(point) => made.in_state_down(unattached(point.path())),
                });
                lane_controls.push(InstanceControl {
                    counters,
                    setup,
                    restart: Restart::new(now),
                    report: String::new(),
                    failure: String::new(),
                    process,
                });
            }
            controls.push(lane_controls);
            hops.push(Hop {
                id,
                policy: policy(plan, spread),
                group: None,
                instances: lane_instances,
            });
        }
        let record = HopControl {
            id,
            plan: plan.clone(),
            kind,
            spread,
            instances: controls,
            restarts: held.map_or(0, |held| held.restarts),
            point,
            value: None,
            source,
        };
        Ok((record, hops))
    }
}
