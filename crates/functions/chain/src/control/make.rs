//! The functions of a hop: created in the worker or in processes.

use std::path::Path;
use std::sync::Arc;

use millrace_nf::{Kind, MakeError, Setup, SourceFile, Spread};
use millrace_types::Time;
use millrace_wire::Packet;

use super::values::source_of;
use super::{Chain, ChainError, HopControl, InstanceControl, attach};
use crate::counters::InstanceCounters;
use crate::hop::{Hop, HopPolicy, Instance, Runner};
use crate::plan::{Class, HopPlan};
use crate::process::{self, ATTACHED, Process, Unattached, unattached};
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

/// Returns the settings of a hop that can change while its functions keep running.
pub(super) fn policy(plan: &HopPlan, spread: Spread) -> HopPolicy {
    HopPolicy {
        on_failure: plan.on_failure,
        steer: plan.number.filter(|_| plan.steer),
        spread,
    }
}

/// Creates a function in the worker or in a process. Returns the function, and its process if it has one.
pub(super) fn make_runner<P: Packet + 'static>(
    program: &Path,
    kind: &'static Kind,
    plan: &HopPlan,
    setup: &Setup,
    source: Option<&SourceFile>,
) -> Result<(Runner<P>, Option<Arc<Process>>), ChainError> {
    let hop = || plan.name.clone();
    let make = || {
        let made = kind.make_function(setup);
        made.map_err(|source| ChainError::Make { hop: hop(), source })
    };
    match plan.class {
        Class::Inline => Ok((Runner::Inline(make()?), None)),
        Class::Isolated | Class::Ring => {
            // Creating a built-in function here shows errors in its settings at once. A loaded function was created by the
            // process that described it.
            if !plan.is_loaded_elsewhere() {
                drop(make()?);
            }
            let started = process::start(program, plan, setup, source);
            let (isolated, process) = started.map_err(|error| ChainError::Class {
                hop: hop(),
                reason: format!("its process cannot be started: {error}"),
            })?;
            Ok((Runner::Remote(Box::new(isolated)), Some(process)))
        }
    }
}
