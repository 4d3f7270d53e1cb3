//! The control side of a chain: creates functions, edits lanes, restarts failed functions, reads counters.

mod attach;
mod error;
mod hop;
mod make;
mod runner;
mod values;

use std::path::PathBuf;
use std::sync::Arc;

use millrace_datapath::io::Opened;
use millrace_datapath::service::Service;
use millrace_datapath::spread::FlowHash;
use millrace_nf::{Catalogue, Direction, Spread};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

pub use error::ChainError;

use crate::cgroup;
use crate::counters::{ChainStats, HopState, HopStats, Sampled};
use crate::group::{Group, MEMBERS_MAX};
use crate::hop::Instance;
use crate::lane::{Change, Entry, Input, LaneHandle, Retired, Slot, lane};
use crate::plan::{ChainPlan, Class};
use crate::port;
use crate::shared::drop_elsewhere;
use crate::shunned::ShunnedFlows;
use hop::{HopControl, policy};
use runner::make_runner;

/// Logical ports to open and to close after an edit.
pub struct PortChanges<P> {
    /// Ports to be attached to the bridge, with their names.
    pub opened: Vec<(PortNo, String, Opened<P>)>,
    /// Ports to be removed from the bridge. The lanes empty their rings.
    pub closed: Vec<PortNo>,
}

/// The environment of a chain.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The functions that hops can name.
    pub catalogue: Catalogue,
    /// The number of the switch's workers.
    pub workers: usize,
    /// The key of the chain's flow hash, and of its functions' hash tables.
    pub seed: u64,
    /// The Unix time in milliseconds at which the clock of the workers was zero.
    pub zero_unix_millis: u64,
    /// The program that runs functions in processes, usually [`nf_program`](crate::nf_program).
    pub program: PathBuf,
}

/// The control side of a chain that runs.
pub struct Chain<P> {
    plan: ChainPlan,
    catalogue: Catalogue,
    hash: FlowHash,
    /// The packets that reach the same lane.
    spread: Spread,
    seed: u64,
    zero_unix_millis: u64,
    program: PathBuf,
    workers: usize,
    lanes: Vec<LaneHandle<P>>,
    records: Vec<HopControl>,
    made: u32,
    ports: Vec<(PortNo, Entry)>,
}

impl<P: Packet + 'static> Chain<P> {
    /// Returns a chain without hops and ports, and the services of its lanes, one for each worker that runs it. A call of
    /// [`Chain::edit`] adds hops and ports.
    pub fn new(plan: &ChainPlan, environment: Environment) -> (Chain<P>, Vec<Box<dyn Service<P>>>) {
        let hash = FlowHash::new(environment.seed);
        let (mut lanes, mut services) = (Vec::new(), Vec::new());
        for _ in 0..usize::from(plan.lanes).clamp(1, environment.workers.max(1)) {
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
            catalogue: environment.catalogue,
            hash,
            spread: plan.lane_spread(&environment.catalogue),
            seed: environment.seed,
            zero_unix_millis: environment.zero_unix_millis,
            program: environment.program,
            workers: environment.workers,
            lanes,
            records: Vec::new(),
            made: 0,
            ports: Vec::new(),
        };
        (chain, services)
    }

    /// Returns the plan that the chain currently follows.
    pub fn plan(&self) -> &ChainPlan {
        &self.plan
    }

    /// Returns whether this plan requires a new chain instead of an edit.
    pub fn needs_new_chain(&self, wanted: &ChainPlan) -> bool {
        let is_spread_otherwise = self.spread != wanted.lane_spread(&self.catalogue);
        self.plan.name != wanted.name
            || self.plan.lanes != wanted.lanes
            || wanted.lanes > 1 && is_spread_otherwise
    }

    /// Changes the chain to a plan, under traffic: no packet is lost or reordered. Functions of unchanged hops keep their
    /// state.
    ///
    /// # Errors
    /// [`ChainError`]; the chain is unchanged.
    pub fn edit(&mut self, wanted: &ChainPlan, now: Time) -> Result<PortChanges<P>, ChainError> {
        let mut slots: Vec<Vec<Slot<P>>> = self.lanes.iter().map(|_| Vec::new()).collect();
        let spread = wanted.lane_spread(&self.catalogue);
        let mut made = Vec::new();
        for plan in &wanted.hops {
            let held = self.records.iter().find(|record| record.plan.name == plan.name);
            if let Some(held) = held.filter(|held| held.plan.has_same_function(held.kind, plan)) {
                let keep = || Slot::Keep(held.id, policy(plan, held.spread_for(wanted)));
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
            let (record, hops) = self.make_hop(id, plan, held, spread, now)?;
            made.push(record);
            for (slots, hop) in slots.iter_mut().zip(hops) {
                slots.push(Slot::New(hop));
            }
        }
        // No step from here on can fail.
        let mut held = core::mem::take(&mut self.records);
        for plan in &wanted.hops {
            let of_plan = |record: &HopControl| record.plan.name == plan.name;
            let old = held.iter().position(of_plan).map(|at| held.swap_remove(at));
            let new = made.iter().position(of_plan).map(|at| made.swap_remove(at));
            let Some(record) = (match (new, old) {
                (Some(mut new), Some(mut old)) => {
                    new.take_value(&mut old);
                    Some(new)
                }
                (new, old) => new.or(old),
            }) else {
                continue;
            };
            let mut record = HopControl {
                plan: plan.clone(),
                spread: record.spread_for(wanted),
                ..record
            };
            record.set_value();
            self.records.push(record);
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

    /// Returns whether all changes have taken effect in all lanes.
    pub fn is_settled(&self) -> bool {
        self.lanes.iter().all(LaneHandle::is_settled)
    }

    /// Drops the objects that lanes have replaced.
    fn drop_retired(&self) {
        for lane in &self.lanes {
            while let Ok(retired) = lane.retired.try_recv() {
                if let Retired::Values(values) = retired {
                    drop_elsewhere(values);
                }
            }
        }
    }

    /// Restarts failed functions whose pause is over, and drops objects that lanes have replaced. The caller calls this
    /// several times a second. Returns whether functions got another shared value, which exporters need, too.
    pub fn tick(&mut self, now: Time) -> bool {
        self.drop_retired();
        self.read_reports();
        let has_shared = self.share_values(now);
        for record in &mut self.records {
            record.poll_attached(now);
            let (kind, plan) = (record.kind, &record.plan);
            let mut number = 0;
            for (lane, instances) in self.lanes.iter_mut().zip(&mut record.instances) {
                for (index, instance) in instances.iter_mut().enumerate() {
                    number += 1;
                    if let Some(process) = &instance.process {
                        process.look(now);
                    }
                    if !instance.counters.is_down() {
                        continue;
                    }
                    let killed = instance.end_failed(&self.plan.name, &plan.name);
                    if !lane.is_settled() {
                        continue;
                    }
                    let made = match &record.point {
                        Some(point) => match attach::attach(point, number - 1, plan.class, instance, now) {
                            Some((runner, process)) => Ok((runner, Some(process))),
                            None => continue,
                        },
                        None if instance.restart.is_due(now, killed) => make_runner(
                            &self.program,
                            kind,
                            plan,
                            &instance.setup,
                            record.source.as_deref(),
                        ),
                        None => continue,
                    };
                    match made {
                        Ok((runner, process)) => {
                            // The first process that is attached is no restart.
                            record.restarts +=
                                u64::from(record.point.is_none() || instance.process.is_some());
                            instance.process = process;
                            tracing::info!(chain = %self.plan.name, hop = %plan.name, "function started again");
                            lane.send(Change::Replace {
                                hop: record.id,
                                instance: index,
                                with: Instance::new(
                                    runner,
                                    Arc::clone(&instance.counters),
                                    ShunnedFlows::of_kind(kind, self.seed),
                                ),
                            });
                        }
                        Err(error) => {
                            tracing::warn!(chain = %self.plan.name, hop = %plan.name, %error, "function not started");
                        }
                    }
                }
            }
        }
        has_shared
    }

    /// Replaces the functions of a hop by new ones without state. Returns whether there is such a hop.
    ///
    /// # Errors
    /// [`ChainError`]; the functions stay.
    pub fn restart(&mut self, hop: &str, now: Time) -> Result<bool, ChainError> {
        let Some(record) = self.records.iter_mut().find(|record| record.plan.name == hop) else {
            return Ok(false);
        };
        // `edit` replaces the hop, because the empty function name differs from the plan.
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

    /// Takes the reports of functions. Each queue holds two, so it must be emptied regularly to get recent ones.
    fn read_reports(&mut self) {
        for instance in self
            .records
            .iter_mut()
            .flat_map(|record| record.instances.iter_mut().flatten())
        {
            let report = &mut instance.report;
            while instance.setup.report.receive(|bytes| {
                report.clear();
                report.push_str(&String::from_utf8_lossy(bytes));
            }) {}
        }
    }

    /// Returns the statistics, with the last reports of functions.
    pub fn stats(&mut self) -> ChainStats {
        self.read_reports();
        let groups = self.groups();
        let hop = |(index, record): (usize, &HopControl)| {
            let is_in = |(first, len, _): &(usize, usize, usize)| (*first..first + len).contains(&index);
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
            for instance in record.instances.iter().flatten() {
                stats.add(&instance.counters, &mut sampled);
                stats.report.push_str(&instance.report);
                if let Some(process) = &instance.process {
                    stats.limits = process.limits().to_vec();
                    if process.is_attached() && !instance.counters.is_down() {
                        let line = format!("attached: process {}\n", process.pid());
                        stats.report.push_str(&line);
                    }
                }
                if !instance.failure.is_empty() {
                    stats.failure.clone_from(&instance.failure);
                }
                for (name, value) in instance.setup.counters.read() {
                    match stats.counters.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, sum)) => *sum += value,
                        None => stats.counters.push((name, value)),
                    }
                }
            }
            if let Some(status) = record.value_status() {
                stats.add_shared(status);
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

    /// Returns the process ids of the processes that run functions.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        let instances = self
            .records
            .iter()
            .flat_map(|record| record.instances.iter().flatten());
        instances.filter_map(|instance| Some(instance.process.as_ref()?.pid()))
    }

    /// Returns the groups of parallel hops, which spread packets alike: index of the first hop, number of hops, and instances of
    /// each.
    fn groups(&self) -> Vec<(usize, usize, usize)> {
        let mut groups: Vec<(usize, usize, usize)> = Vec::new();
        for (index, record) in self.records.iter().enumerate() {
            let plan = &record.plan;
            let may = plan.class != Class::Inline
                && !plan.drained
                && policy(plan, self.spread).steer.is_none()
                && record.kind.only_reads();
            if !self.plan.parallel || !may {
                continue;
            }
            let instances = usize::from(plan.instances.max(1));
            match groups.last_mut() {
                Some((first, len, held))
                    if *first + *len == index
                        && *held == instances
                        && (instances == 1 || self.records[*first].spread == record.spread)
                        && *len < MEMBERS_MAX =>
                {
                    *len += 1;
                }
                _ => groups.push((index, 1, instances)),
            }
        }
        groups.retain(|(_, len, _)| *len > 1);
        groups
    }

    /// Opens and closes logical ports for the plan. Returns them, and the new rings of each lane.
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
            let (device, rings) = port::open(self.workers, self.lanes.len(), &self.hash, self.spread);
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
