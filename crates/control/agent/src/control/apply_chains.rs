//! Reconciliation of the chains of a bridge with the configuration, and their periodic work.

use std::collections::BTreeMap;

use millrace_builtin::CATALOGUE;
use millrace_chain::{Chain, ChainError, ChainStats, Environment, Exporter, PortChanges, nf_program};
use millrace_datapath::io::Backend;
use millrace_loader::LOADERS;
use millrace_model as model;
use millrace_types::Time;

use super::bridge::BridgeControl;
use super::chains::{RunningChain, explain, is_of, plan_of, zero_unix_millis};
use crate::problem::Problem;

impl<B: Backend> BridgeControl<B> {
    /// Removes chains that are not configured, and chains that no edit can bring to their configuration.
    pub(crate) fn remove_chains(&mut self, wanted: &[model::Chain]) {
        let stays = |name: &str, running: &RunningChain<B>| {
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

    /// Adds and edits chains until they equal the configuration. Returns the chains that still differ.
    pub(crate) fn apply_chains(&mut self, wanted: &[model::Chain]) -> Vec<Problem> {
        let mut problems = BTreeMap::new();
        for chain in wanted {
            if let Err(reason) = self.apply_chain(chain) {
                problems.insert(chain.name.to_string(), reason);
            }
        }
        let found = problems
            .iter()
            .map(|(name, reason)| Problem::new(format!("chain {name}"), reason));
        let found = found.collect();
        self.chains.problems = problems;
        // A reader that sees the new revision also sees the state of its hops.
        self.write_hops();
        found
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
            let changes = chain.edit(&plan, now).map_err(|error| explain(&error))?;
            // Chains start at different workers, so that chains with one lane are spread over all workers.
            let first = self.chains.added;
            self.chains.added += 1;
            let mut services = Vec::new();
            for (number, lane) in lanes.into_iter().enumerate() {
                services.push(self.datapath.add_service(first + number, lane));
            }
            let mut exporter = Exporter::new(&name);
            exporter.export(&chain);
            let running = RunningChain {
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
            running.chain.reload_changed();
            return Ok(());
        }
        let changes = running.chain.edit(&plan, now).map_err(|error| explain(&error))?;
        running.exporter.export(&running.chain);
        tracing::info!(bridge = %self.config.name, chain = %name, hops = plan.hops.len(), "chain changed");
        self.change_chain_ports(wanted, changes)
    }

    /// Closes and opens the logical ports of a chain that was edited.
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
            // A packet flooded into one end would leave by the other end, and be flooded again.
            port.no_flood = true;
            self.attach_port(&port, opened)
                .map_err(|problem| problem.to_string())?;
        }
        Ok(())
    }

    /// Does the periodic work of all chains: restarts functions, collects counters.
    pub(super) fn tick_chains(&mut self, now: Time) {
        for running in self.chains.running.values_mut() {
            if running.chain.tick(now) {
                running.exporter.export(&running.chain);
            }
        }
        self.write_hops();
    }

    /// Writes the state of the chains' hops to the hop board.
    fn write_hops(&mut self) {
        if !self.chains.running.is_empty() || self.chains.had_any {
            self.chains.had_any = !self.chains.running.is_empty();
            let stats = self.chains.stats();
            self.hops.write(&stats);
        }
    }

    /// Returns the counters of all chains and their hops, by the chains' names.
    pub fn chain_stats(&mut self) -> Vec<ChainStats> {
        self.chains.stats()
    }

    /// Returns the reason why a configured chain does not run, or still runs with its former configuration; `None` if it
    /// equals the configuration.
    pub fn chain_problem(&self, chain: &str) -> Option<&str> {
        self.chains.problems.get(chain).map(String::as_str)
    }

    /// Reads and compiles the shared value of a hop again, such as its rules. Returns true if the bridge has such a hop.
    pub fn reload_hop(&mut self, chain: &str, hop: &str) -> bool {
        let running = self.chains.running.get_mut(chain);
        running.is_some_and(|running| running.chain.reload(hop))
    }

    /// Re-creates the functions of a hop. Returns true if the bridge has such a hop.
    ///
    /// # Errors
    /// [`ChainError`]; the existing functions stay.
    pub fn restart_hop(&mut self, chain: &str, hop: &str) -> Result<bool, ChainError> {
        let now = self.datapath.now();
        match self.chains.running.get_mut(chain) {
            None => Ok(false),
            Some(running) => running.chain.restart(hop, now),
        }
    }
}
