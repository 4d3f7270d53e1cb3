//! The control side of a chain: makes its functions, edits its lanes, makes failed functions again, reads counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_datapath::io::Opened;
use millrace_datapath::service::Service;
use millrace_datapath::spread::FlowHash;
use millrace_nf::{Catalogue, Direction, Kind, MakeError, Setup};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;
use thiserror::Error;

use crate::cgroup;
use crate::counters::{ChainStats, HopState, HopStats, InstanceCounters, Sampled};
use crate::hop::{Hop, Instance, Manner, Runner};
use crate::lane::{Change, Entry, Input, LaneHandle, Slot, lane};
use crate::plan::{ChainPlan, Class, HopPlan};
use crate::port;
use crate::process::{self, Process};
use crate::restart::Restart;
use crate::together::{Group, MEMBERS_MAX};

/// Why a chain cannot be what is wanted. What it was before stays.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    /// A function cannot be made.
    #[error("hop {hop}: {source}")]
    Make {
        /// The hop.
        hop: String,
        /// Why.
        source: MakeError,
    },
    /// Functions of this class cannot run here.
    #[error("hop {hop}: {reason}")]
    Class {
        /// The hop.
        hop: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// One function in one lane.
struct Seat {
    counters: Arc<InstanceCounters>,
    setup: Setup,
    restart: Restart,
    /// What the function reported last.
    report: String,
    /// Why it went down last.
    failure: String,
    process: Option<Arc<Process>>,
}

/// A hop, over all lanes.
struct Record {
    id: u32,
    plan: HopPlan,
    kind: &'static Kind,
    /// By lane, then by instance.
    seats: Vec<Vec<Seat>>,
    restarts: u64,
}

/// Logical ports to open and to close after an edit.
pub struct PortChanges<P> {
    /// To be attached to the bridge, with their names.
    pub opened: Vec<(PortNo, String, Opened<P>)>,
    /// To be removed from the bridge. The lanes take what still waits there.
    pub closed: Vec<PortNo>,
}

/// What is around a chain.
#[derive(Clone, Debug)]
pub struct Around {
    /// The functions that there are.
    pub catalogue: Catalogue,
    /// Workers of the switch.
    pub workers: usize,
    /// Keys its hash and those of its functions.
    pub seed: u64,
    /// The Unix time in milliseconds at which the clock of the workers was zero.
    pub zero_unix_millis: u64,
    /// The program that runs functions of class `isolated`: [`nf_program`](crate::nf_program), or another.
    pub program: PathBuf,
}

/// A chain that runs.
pub struct Chain<P> {
    plan: ChainPlan,
    catalogue: Catalogue,
    hash: FlowHash,
    seed: u64,
    zero_unix_millis: u64,
    program: PathBuf,
    workers: usize,
    lanes: Vec<LaneHandle<P>>,
    records: Vec<Record>,
    made: u32,
    ports: Vec<(PortNo, Entry)>,
}

impl<P: Packet + 'static> Chain<P> {
    /// A chain without hops and ports, and the services of its lanes, one for each worker that is to run it. What it
    /// is wanted to be is said by [`Chain::edit`].
    pub fn new(plan: &ChainPlan, around: Around) -> (Chain<P>, Vec<Box<dyn Service<P>>>) {
        let hash = FlowHash::new(around.seed);
        let (mut lanes, mut services) = (Vec::new(), Vec::new());
        for _ in 0..usize::from(plan.lanes).clamp(1, around.workers.max(1)) {
            let (service, handle) = lane(hash.clone());
            lanes.push(handle);
            services.push(Box::new(service) as Box<dyn Service<P>>);
        }
        let empty = ChainPlan {
            hops: Vec::new(),
            ..plan.clone()
        };
        let chain = Chain {
            plan: empty,
            catalogue: around.catalogue,
            hash,
            seed: around.seed,
            zero_unix_millis: around.zero_unix_millis,
            program: around.program,
            workers: around.workers,
            lanes,
            records: Vec::new(),
            made: 0,
            ports: Vec::new(),
        };
        (chain, services)
    }

    /// What it is now.
    pub fn plan(&self) -> &ChainPlan {
        &self.plan
    }

    /// Whether the chain would have to be made anew to become this.
    pub fn needs_new_chain(&self, wanted: &ChainPlan) -> bool {
        self.plan.name != wanted.name || self.plan.lanes != wanted.lanes
    }

    /// Makes the chain what is wanted, while packets go through it: none is lost, and none overtakes another. Functions
    /// that stay as they are keep what they know.
    ///
    /// # Errors
    /// [`ChainError`]; nothing has changed.
    pub fn edit(&mut self, wanted: &ChainPlan, now: Time) -> Result<PortChanges<P>, ChainError> {
        let mut slots: Vec<Vec<Slot<P>>> = self.lanes.iter().map(|_| Vec::new()).collect();
        let mut made = Vec::new();
        for plan in &wanted.hops {
            let held = self.records.iter().find(|record| record.plan.name == plan.name);
            if let Some(held) = held.filter(|held| held.plan.has_same_function(plan)) {
                let keep = || Slot::Keep(held.id, manner(plan));
                slots.iter_mut().for_each(|slots| slots.push(keep()));
                continue;
            }
            let id = match held {
                Some(held) => held.id,
                None => {
                    self.made += 1;
                    self.made
                }
            };
            let restarts = held.map_or(0, |held| held.restarts);
            let (record, hops) = self.make_hop(id, plan, restarts, now)?;
            made.push(record);
            for (slots, hop) in slots.iter_mut().zip(hops) {
                slots.push(Slot::New(hop));
            }
        }
        // From here on nothing fails.
        let mut held = core::mem::take(&mut self.records);
        for plan in &wanted.hops {
            let source = match made.iter().position(|record| record.plan.name == plan.name) {
                Some(at) => Some(made.swap_remove(at)),
                None => held
                    .iter()
                    .position(|record| record.plan.name == plan.name)
                    .map(|at| held.swap_remove(at)),
            };
            self.records.extend(source.map(|record| Record {
                plan: plan.clone(),
                ..record
            }));
        }
        self.plan = wanted.clone();
        let (changes, mut inputs) = self.change_ports();
        let groups = self.groups();
        for ((lane, slots), opened) in self.lanes.iter_mut().zip(slots).zip(&mut inputs) {
            let group =
                |(first, len, instances): &(usize, usize, usize)| Group::new(*first, *len, *instances);
            lane.send(Change::Edit {
                slots,
                groups: groups.iter().map(group).collect(),
                opened: core::mem::take(opened),
                closed: changes.closed.clone(),
                exits: [wanted.far, wanted.near],
            });
        }
        Ok(changes)
    }

    /// Whether all changes have taken effect in all lanes.
    pub fn is_settled(&self) -> bool {
        self.lanes.iter().all(LaneHandle::is_settled)
    }

    /// Makes functions again that have failed, as far as their time has come, and drops what lanes have left behind.
    /// To be called some times a second.
    pub fn tick(&mut self, now: Time) {
        for lane in &self.lanes {
            while lane.leftovers.try_recv().is_ok() {}
        }
        self.read_reports();
        for record in &mut self.records {
            let (kind, plan) = (record.kind, &record.plan);
            for (lane, seats) in self.lanes.iter_mut().zip(&mut record.seats) {
                for (instance, seat) in seats.iter_mut().enumerate() {
                    if let Some(process) = &seat.process {
                        process.look(now);
                    }
                    if !seat.counters.is_down() {
                        continue;
                    }
                    if let Some(reason) = seat.counters.take_reason() {
                        tracing::warn!(chain = %self.plan.name, hop = %plan.name, %reason, "function down");
                        seat.failure = reason;
                    }
                    let killed = seat.process.as_ref().is_some_and(|process| process.was_killed());
                    // One that hangs, or lies, is not to come back to it.
                    if let Some(process) = seat.process.as_ref().filter(|_| !killed) {
                        process.kill();
                    }
                    if !lane.is_settled() || !seat.restart.is_due(now, killed) {
                        continue;
                    }
                    match make_runner(&self.program, kind, plan, &seat.setup) {
                        Ok((runner, process)) => {
                            seat.process = process;
                            record.restarts += 1;
                            tracing::info!(chain = %self.plan.name, hop = %plan.name, "function started again");
                            lane.send(Change::Replace {
                                hop: record.id,
                                instance,
                                with: Instance::new(runner, Arc::clone(&seat.counters)),
                            });
                        }
                        Err(error) => {
                            tracing::warn!(chain = %self.plan.name, hop = %plan.name, %error, "function not started");
                        }
                    }
                }
            }
        }
    }

    /// Has the functions of a hop made again, with nothing of what they know. Returns whether there is such a hop.
    ///
    /// # Errors
    /// [`ChainError`]; the functions stay as they are.
    pub fn restart(&mut self, hop: &str, now: Time) -> Result<bool, ChainError> {
        let Some(record) = self.records.iter_mut().find(|record| record.plan.name == hop) else {
            return Ok(false);
        };
        // A record of another function is one that is made anew.
        let function = core::mem::take(&mut record.plan.function);
        record.restarts += 1;
        let wanted = self.plan.clone();
        let outcome = self.edit(&wanted, now);
        if outcome.is_err()
            && let Some(record) = self.records.iter_mut().find(|record| record.plan.name == hop)
        {
            record.plan.function = function;
            record.restarts -= 1;
        }
        outcome.map(|_| true)
    }

    /// Takes what functions report: each keeps two reports, so that one who does not look gets old ones.
    fn read_reports(&mut self) {
        for seat in self
            .records
            .iter_mut()
            .flat_map(|record| record.seats.iter_mut().flatten())
        {
            let report = &mut seat.report;
            while seat.setup.report.receive(|bytes| {
                report.clear();
                report.push_str(&String::from_utf8_lossy(bytes));
            }) {}
        }
    }

    /// What was counted, and what functions reported last.
    pub fn stats(&mut self) -> ChainStats {
        self.read_reports();
        let groups = self.groups();
        let hop = |(place, record): (usize, &Record)| {
            let is_in = |(first, len, _): &(usize, usize, usize)| (*first..first + len).contains(&place);
            let mut stats = HopStats {
                name: record.plan.name.clone(),
                function: record.plan.function.clone(),
                class: record.plan.class.as_str(),
                parallel: groups.iter().position(is_in).map(|number| number + 1),
                restarts: record.restarts,
                limits: cgroup::inline(&record.plan),
                counters: record.kind.counters.iter().map(|name| (*name, 0)).collect(),
                ..HopStats::default()
            };
            if record.plan.drained {
                stats.state = HopState::Drained;
            }
            let mut sampled = Sampled::default();
            for seat in record.seats.iter().flatten() {
                stats.add(&seat.counters, &mut sampled);
                stats.report.push_str(&seat.report);
                if let Some(process) = &seat.process {
                    stats.limits = process.limits().to_vec();
                }
                if !seat.failure.is_empty() {
                    stats.failure.clone_from(&seat.failure);
                }
                for (sum, (_, value)) in stats.counters.iter_mut().zip(seat.setup.counters.read()) {
                    sum.1 += value;
                }
            }
            stats
        };
        ChainStats {
            name: self.plan.name.clone(),
            near: self.plan.near.raw(),
            far: self.plan.far.raw(),
            lanes: self.lanes.len(),
            hops: self.records.iter().enumerate().map(hop).collect(),
        }
    }

    /// The setups of all functions that have something to say to the outside, by hop.
    pub fn outboxes(&self) -> impl Iterator<Item = (&str, &Setup)> {
        let speaking = self.records.iter().filter(|record| record.kind.outbox.0 != 0);
        speaking.flat_map(|record| {
            let seats = record.seats.iter().flatten();
            seats.map(|seat| (record.plan.name.as_str(), &seat.setup))
        })
    }

    /// The processes that run functions now, by number.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        let seats = self
            .records
            .iter()
            .flat_map(|record| record.seats.iter().flatten());
        seats.filter_map(|seat| Some(seat.process.as_ref()?.pid()))
    }

    /// Hops that are given packets at the same time: the place of the first one, how many, and the instances of each.
    fn groups(&self) -> Vec<(usize, usize, usize)> {
        let mut groups: Vec<(usize, usize, usize)> = Vec::new();
        for (place, record) in self.records.iter().enumerate() {
            let plan = &record.plan;
            let may = plan.class != Class::Inline
                && !plan.drained
                && manner(plan).steer.is_none()
                && record.kind.only_reads();
            if !self.plan.parallel || !may {
                continue;
            }
            let instances = usize::from(plan.instances.max(1));
            match groups.last_mut() {
                Some((first, len, held))
                    if *first + *len == place && *held == instances && *len < MEMBERS_MAX =>
                {
                    *len += 1;
                }
                _ => groups.push((place, 1, instances)),
            }
        }
        groups.retain(|(_, len, _)| *len > 1);
        groups
    }

    /// Makes the functions of a hop, for each lane.
    fn make_hop(
        &self,
        id: u32,
        plan: &HopPlan,
        restarts: u64,
        now: Time,
    ) -> Result<(Record, Vec<Hop<P>>), ChainError> {
        let refuse = |source| ChainError::Make {
            hop: plan.name.clone(),
            source,
        };
        let kind = match plan.is_loaded_elsewhere() {
            false => self.catalogue.find(&plan.function),
            true => process::describe(&self.program, plan).map_err(|reason| MakeError::Load {
                name: plan.function.clone(),
                reason,
            }),
        };
        let kind = kind.map_err(refuse)?;
        let instances = match plan.drained {
            true => 0,
            false => plan.instances.max(1),
        };
        let (mut seats, mut hops) = (Vec::new(), Vec::new());
        for _ in &self.lanes {
            let (mut lane_seats, mut lane_instances) = (Vec::new(), Vec::new());
            for _ in 0..instances {
                let mut setup = kind.setup(&plan.settings, self.seed, self.zero_unix_millis);
                setup.limits = plan.limits;
                let counters = Arc::<InstanceCounters>::default();
                let (runner, process) = make_runner(&self.program, kind, plan, &setup)?;
                lane_instances.push(Instance::new(runner, Arc::clone(&counters)));
                lane_seats.push(Seat {
                    counters,
                    setup,
                    restart: Restart::new(now),
                    report: String::new(),
                    failure: String::new(),
                    process,
                });
            }
            seats.push(lane_seats);
            hops.push(Hop {
                id,
                manner: manner(plan),
                group: None,
                instances: lane_instances,
            });
        }
        let record = Record {
            id,
            plan: plan.clone(),
            kind,
            seats,
            restarts,
        };
        Ok((record, hops))
    }

    /// Opens and closes logical ports until they are those of the plan; and what each lane gets of the new ones.
    fn change_ports(&mut self) -> (PortChanges<P>, Vec<Vec<Input<P>>>) {
        let plan = &self.plan;
        let mut wanted = vec![(plan.near, plan.name.clone(), Entry::End(Direction::Forward))];
        if plan.far != plan.near {
            let name = format!("{}.far", plan.name);
            wanted.push((plan.far, name, Entry::End(Direction::Backward)));
        }
        for record in &self.records {
            let port = record.plan.number.map(|number| {
                let name = format!("{}.{}", plan.name, record.plan.name);
                (number, name, Entry::Hop(record.id))
            });
            wanted.extend(port);
        }
        let is_wanted =
            |held: &(PortNo, Entry)| wanted.iter().any(|(port, _, entry)| (*port, *entry) == *held);
        let closed = self
            .ports
            .iter()
            .filter(|held| !is_wanted(held))
            .map(|held| held.0);
        let closed: Vec<PortNo> = closed.collect();
        let mut inputs: Vec<Vec<Input<P>>> = self.lanes.iter().map(|_| Vec::new()).collect();
        let mut opened = Vec::new();
        for (port, name, entry) in &wanted {
            if self.ports.contains(&(*port, *entry)) {
                continue;
            }
            let (device, rings) = port::open(self.workers, self.lanes.len(), &self.hash);
            opened.push((*port, name.clone(), device));
            for (inputs, rings) in inputs.iter_mut().zip(rings) {
                inputs.push(Input {
                    port: *port,
                    entry: *entry,
                    rings,
                });
            }
        }
        self.ports = wanted.into_iter().map(|(port, _, entry)| (port, entry)).collect();
        (PortChanges { opened, closed }, inputs)
    }
}

fn manner(plan: &HopPlan) -> Manner {
    Manner {
        on_failure: plan.on_failure,
        steer: plan.number.filter(|_| plan.steer),
    }
}

/// A function, where its class wants it; and its process, if it has one.
fn make_runner<P: Packet + 'static>(
    program: &Path,
    kind: &'static Kind,
    plan: &HopPlan,
    setup: &Setup,
) -> Result<(Runner<P>, Option<Arc<Process>>), ChainError> {
    let hop = || plan.name.clone();
    let make = || {
        let made = kind.make_function(setup);
        made.map_err(|source| ChainError::Make { hop: hop(), source })
    };
    match plan.class {
        Class::Inline => Ok((Runner::Inline(make()?), None)),
        Class::Isolated | Class::Ring if setup.settings.all("export").next().is_some() => {
            Err(ChainError::Class {
                hop: hop(),
                reason: format!(
                    "`export` does not work from a process: expected class inline, not {}",
                    plan.class.as_str()
                ),
            })
        }
        Class::Isolated | Class::Ring => {
            // Made here as well: what is wrong with its settings is told now. One that is loaded was made elsewhere when
            // it was asked to describe itself.
            if !plan.is_loaded_elsewhere() {
                drop(make()?);
            }
            let started = process::start(program, plan, setup);
            let (isolated, process) = started.map_err(|error| ChainError::Class {
                hop: hop(),
                reason: format!("its process cannot be started: {error}"),
            })?;
            Ok((Runner::Remote(Box::new(isolated)), Some(process)))
        }
    }
}
