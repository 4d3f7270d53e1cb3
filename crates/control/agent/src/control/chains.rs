//! The chains of a bridge: made equal to what is configured, and kept alive.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_builtin::CATALOGUE;
use millrace_chain::{
    Chain, ChainError, ChainPlan, ChainStats, Class, Environment, Exporter, HopPlan, OnFailure, PortChanges,
    nf_program,
};
use millrace_datapath::io::Backend;
use millrace_datapath::service::ServiceId;
use millrace_loader::LOADERS;
use millrace_model as model;
use millrace_nf::{Limits, MakeError, Settings};
use millrace_types::Time;

use super::BridgeControl;

/// A chain and where it runs.
pub(super) struct Running<B: Backend> {
    pub(super) chain: Chain<B::Packet>,
    services: Vec<ServiceId>,
    exporter: Exporter,
}

/// The chains of one bridge, by name.
pub struct Chains<B: Backend> {
    pub(super) running: BTreeMap<String, Running<B>>,
    /// Why chains are not what is wanted.
    problems: BTreeMap<String, String>,
    seed: u64,
    made: usize,
    /// There were chains when hops were shown last.
    had_any: bool,
}

impl<B: Backend> Chains<B> {
    pub(super) fn new(seed: u64) -> Chains<B> {
        Chains {
            running: BTreeMap::new(),
            problems: BTreeMap::new(),
            seed,
            made: 0,
            had_any: false,
        }
    }

    /// What chains and their hops counted, by name.
    pub fn stats(&mut self) -> Vec<ChainStats> {
        self.running
            .values_mut()
            .map(|running| running.chain.stats())
            .collect()
    }

    /// Why a chain that is wanted does not run, or runs as it was before; `None` if it is what is wanted.
    pub fn problem(&self, chain: &str) -> Option<&str> {
        self.problems.get(chain).map(String::as_str)
    }

    /// Has the functions of a hop made anew. Returns whether there is such a hop.
    ///
    /// # Errors
    /// [`ChainError`]; the functions stay.
    pub fn restart(&mut self, chain: &str, hop: &str, now: Time) -> Result<bool, ChainError> {
        match self.running.get_mut(chain) {
            None => Ok(false),
            Some(running) => running.chain.restart(hop, now),
        }
    }
}

impl<B: Backend> BridgeControl<B> {
    /// Ends chains that are not wanted, or not as they are.
    pub fn remove_chains(&mut self, wanted: &[model::Chain]) {
        let stays = |name: &str, running: &Running<B>| {
            let wanted = wanted.iter().find(|chain| chain.name.as_str() == name);
            wanted.is_some_and(|chain| plan_of(chain).is_ok_and(|plan| !running.chain.needs_new_chain(&plan)))
        };
        let running = self.chains.running.iter();
        let obsolete = running.filter(|(name, running)| !stays(name, running));
        let obsolete: Vec<String> = obsolete.map(|(name, _)| name.clone()).collect();
        for name in obsolete {
            let ports = self
                .ports
                .iter()
                .filter(|(_, status)| is_of(&status.model, &name));
            let ports: Vec<_> = ports.map(|(number, _)| *number).collect();
            for number in ports {
                self.remove_port(number);
            }
            if let Some(running) = self.chains.running.remove(&name) {
                for service in running.services {
                    self.datapath.remove_service(service);
                }
                tracing::info!(bridge = %self.config.name, chain = %name, "chain removed");
            }
        }
    }

    /// Makes the chains what is wanted. What is wrong is returned by name, with the reason.
    pub fn apply_chains(&mut self, wanted: &[model::Chain]) -> Vec<(String, String)> {
        let mut problems = BTreeMap::new();
        for chain in wanted {
            if let Err(reason) = self.apply_chain(chain) {
                problems.insert(chain.name.to_string(), reason);
            }
        }
        self.chains.problems.clone_from(&problems);
        // Whoever sees that the revision runs sees its hops, too.
        self.write_hops();
        problems.into_iter().collect()
    }

    fn apply_chain(&mut self, wanted: &model::Chain) -> Result<(), String> {
        let plan = plan_of(wanted)?;
        let now = self.datapath.now();
        let name = plan.name.clone();
        if !self.chains.running.contains_key(&name) {
            let workers = usize::from(self.datapath.workers_len());
            let environment = Environment {
                catalogue: CATALOGUE.with_loaders(LOADERS),
                workers,
                seed: self.chains.seed,
                zero_unix_millis: zero_unix_millis(now),
                program: nf_program(),
            };
            let (mut chain, lanes) = Chain::new(&plan, environment);
            let changes = chain.edit(&plan, now).map_err(|error| told(&error))?;
            // Chains begin at different workers, so that those of one lane spread over all of them.
            let first = self.chains.made;
            self.chains.made += 1;
            let mut services = Vec::new();
            for (number, lane) in lanes.into_iter().enumerate() {
                services.push(self.datapath.add_service(first + number, lane));
            }
            let mut exporter = Exporter::new(&name);
            exporter.export(&chain);
            let running = Running {
                chain,
                services,
                exporter,
            };
            self.chains.running.insert(name.clone(), running);
            tracing::info!(bridge = %self.config.name, chain = %name, hops = plan.hops.len(), "chain added");
            return self.change_chain_ports(wanted, changes);
        }
        let Some(running) = self.chains.running.get_mut(&name) else {
            return Ok(());
        };
        if *running.chain.plan() == plan {
            return Ok(());
        }
        let changes = running.chain.edit(&plan, now).map_err(|error| told(&error))?;
        running.exporter.export(&running.chain);
        tracing::info!(bridge = %self.config.name, chain = %name, hops = plan.hops.len(), "chain changed");
        self.change_chain_ports(wanted, changes)
    }

    fn change_chain_ports(
        &mut self,
        wanted: &model::Chain,
        changes: PortChanges<B::Packet>,
    ) -> Result<(), String> {
        for number in changes.closed {
            self.remove_port(number);
        }
        let names: BTreeMap<_, _> = wanted.ports().collect();
        for (number, _, opened) in changes.opened {
            let name = names.get(&number).map_or("", String::as_str);
            let name = name
                .parse()
                .map_err(|error: model::NameError| error.to_string())?;
            let mut port = model::Port::new(name, number, model::Device::Chain(wanted.name.clone()));
            // What is flooded into one end would come out of the other, and be flooded again.
            port.no_flood = true;
            self.attach_port(&port, opened)
                .map_err(|problem| problem.to_string())?;
        }
        Ok(())
    }

    /// Keeps the chains alive.
    pub(super) fn tick_chains(&mut self, now: Time) {
        for running in self.chains.running.values_mut() {
            running.chain.tick(now);
        }
        self.write_hops();
    }

    /// Shows others how the hops of the chains are.
    fn write_hops(&mut self) {
        if !self.chains.running.is_empty() || self.chains.had_any {
            self.chains.had_any = !self.chains.running.is_empty();
            let stats = self.chains.stats();
            self.hops.write(&stats);
        }
    }
}

/// What is wrong, and what to do where waiting does not help.
fn told(error: &ChainError) -> String {
    let remedy = match error {
        ChainError::Class { .. } => return error.to_string(),
        ChainError::Make { source, .. } => match source {
            MakeError::Unknown { .. } => "name another under `function`",
            MakeError::Load { .. } => {
                "put a file there that is a function and that the daemon may load, or name another under `function`; it is \
                 tried again every 5 s"
            }
            MakeError::Setting { .. } => "correct the `settings` of the hop",
        },
    };
    format!("{error}. To fix it: {remedy}")
}

fn is_of(port: &model::Port, chain: &str) -> bool {
    matches!(&port.device, model::Device::Chain(name) if name.as_str() == chain)
}

/// The Unix time at which the workers' clock was zero.
fn zero_unix_millis(now: Time) -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix = unix.map_or(0, |unix| unix.as_millis() as u64);
    unix.saturating_sub(now.nanos() / 1_000_000)
}

fn plan_of(chain: &model::Chain) -> Result<ChainPlan, String> {
    let hop = |hop: &model::Hop| {
        let settings =
            Settings::parse(&hop.settings).map_err(|error| format!("hop {}: {error}", hop.name))?;
        Ok(HopPlan {
            name: hop.name.to_string(),
            function: hop.function.to_string(),
            class: match hop.class {
                model::HopClass::Inline => Class::Inline,
                model::HopClass::Ring => Class::Ring,
                model::HopClass::Isolated => Class::Isolated,
            },
            settings,
            limits: Limits {
                memory: hop.memory_mib.map(|mib| u64::from(mib.get()) << 20),
                fuel: hop.fuel.map(model::Fuel::get),
            },
            weight: hop.weight.get(),
            cpu_percent: hop.cpu_percent.map(model::CpuPercent::get),
            instances: hop.instances.get(),
            on_failure: match hop.on_failure {
                model::OnFailure::Closed => OnFailure::Closed,
                model::OnFailure::Open => OnFailure::Open,
                model::OnFailure::Bypass => OnFailure::Bypass,
            },
            number: hop.number,
            steer: hop.steer,
            drained: hop.drained,
        })
    };
    Ok(ChainPlan {
        name: chain.name.to_string(),
        near: chain.number,
        far: chain.far_end(),
        lanes: chain.lanes.get(),
        parallel: chain.parallel,
        hops: chain.hops.iter().map(hop).collect::<Result<_, String>>()?,
    })
}
