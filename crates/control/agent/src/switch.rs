//! The running switch: its bridges, and their reconciliation with a configuration.
//!
//! Reconciliation applies as much of a configuration as possible and reports the differences. A missing
//! device does not affect other ports. The switch tries to open it again until it exists or the configuration
//! changes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use millrace_datapath::Datapath;
use millrace_datapath::io::Backend;
use millrace_model as model;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::channel::{ChannelStatus, ChannelTable, Connector, TlsFiles};
use crate::control::{BridgeHandle, HopProblem, RunningBridge};
use crate::keep::{Keeper, Saved};
use crate::observe::{Observation, Observer};
use crate::problem::Problem;
use crate::routing::Router;
use crate::wans;

/// The state of reconciliation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The revision that was applied last; `None` before the first.
    pub revision: Option<u64>,
    /// The parts of the revision that do not run.
    pub problems: Vec<Problem>,
    /// Hops of chains whose processes are starting for the first time: `bridge br0, chain edge, hop fw`.
    pub starting: Vec<String>,
}

/// A bridge, its channels, and the configuration that was applied to them.
struct Member<B: Backend> {
    /// This field is declared first, so that it is dropped before the bridge, which its connections use.
    connector: Connector<B>,
    bridge: RunningBridge<B>,
    config: model::Bridge,
}

/// A bridge's handle and connections, for readers.
struct Entry<B: Backend> {
    handle: BridgeHandle<B>,
    channels: Arc<ChannelTable>,
    tls: Arc<TlsFiles>,
}

/// All bridges of a process.
pub struct Switch<B: Backend> {
    datapath: Arc<Datapath<B>>,
    runtime: Handle,
    seed: u64,
    /// Locked while a configuration is applied.
    members: Mutex<BTreeMap<String, Member<B>>>,
    /// Locked for short times only, so that readers do not wait while devices are opened.
    directory: Mutex<BTreeMap<String, Entry<B>>>,
    status: Mutex<Status>,
    /// The revision that was applied last.
    applied: watch::Sender<Option<u64>>,
    /// The files of kept flow entries; empty if a restart keeps none.
    keeper: OnceLock<Keeper>,
    /// The observer of all bridges, if there is one.
    observer: OnceLock<Observer>,
    router: Router<B>,
}

impl<B: Backend> Switch<B> {
    /// Returns a switch without bridges. `runtime` runs the connections with controllers; `seed` keys hash tables and
    /// should be random.
    pub fn new(datapath: Arc<Datapath<B>>, runtime: Handle, seed: u64) -> Switch<B> {
        Switch {
            router: Router::new(Arc::clone(&datapath), seed),
            datapath,
            runtime,
            seed,
            members: Mutex::default(),
            directory: Mutex::default(),
            status: Mutex::default(),
            applied: watch::Sender::new(None),
            keeper: OnceLock::new(),
            observer: OnceLock::new(),
        }
    }

    /// Sets the files from which the first [`Switch::apply`] restores flow entries, groups and meters, before the
    /// bridges have ports, and to which the switch saves them. The first call counts.
    pub fn keep(&self, keeper: Keeper) {
        // A second keeper would be a mistake of the caller, and changes nothing.
        let _first = self.keeper.set(keeper);
    }

    /// Sets the observer that all bridges started later, and the router, report to. The first call counts.
    pub fn observe(&self, observer: Observer) {
        self.router.observe(Arc::clone(&observer));
        // A second observer would be a mistake of the caller, and changes nothing.
        let _first = self.observer.set(observer);
    }

    /// Returns the workers.
    pub fn datapath(&self) -> &Arc<Datapath<B>> {
        &self.datapath
    }

    /// Returns the router.
    pub fn router(&self) -> &Router<B> {
        &self.router
    }

    /// Makes the switch equal to `config`, as far as possible. Blocks while devices are opened and closed, so an async task
    /// must not call this. While there are problems, the caller repeats the call with the same configuration, because a
    /// missing device may appear.
    pub fn apply(&self, revision: u64, config: &model::Config) -> Status {
        let mut members = self.members.lock();
        let mut problems = Vec::new();
        let mut gone = Vec::new();
        let stays = |name: &str| {
            let wanted = config.bridge(name);
            let running = members.get(name);
            running
                .is_some_and(|member| wanted.is_some_and(|wanted| !needs_new_bridge(&member.config, wanted)))
        };
        self.router.withdraw(config, |name| self.bridge(name), stays);
        members.retain(|name, member| {
            let wanted = config.bridges.iter().find(|bridge| bridge.name.as_str() == name);
            let stays = wanted.is_some_and(|wanted| !needs_new_bridge(&member.config, wanted));
            if !stays {
                self.directory.lock().remove(name);
                gone.push(name.clone());
            }
            stays
        });
        // The threads of these bridges have ended, so that nothing of them is reported later.
        if let Some(observer) = self.observer.get() {
            for bridge in &gone {
                observer(&Observation::BridgeGone { bridge });
            }
        }
        problems.extend(wans::apply(self.datapath.backend().wans(), config));
        // A device may move to another bridge, which opens it after all bridges have closed theirs.
        for wanted in &config.bridges {
            if let Some(member) = members.get(wanted.name.as_str()) {
                close_obsolete(member, wanted);
            }
        }
        for wanted in &config.bridges {
            let name = wanted.name.to_string();
            let member = match members.entry(name.clone()) {
                std::collections::btree_map::Entry::Occupied(held) => held.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => match self.start(wanted) {
                    Ok(member) => free.insert(member),
                    Err(reason) => {
                        problems.push(Problem::new(format!("bridge {name}"), reason));
                        continue;
                    }
                },
            };
            apply_bridge(member, wanted, &mut problems);
        }
        wans::retain(self.datapath.backend().wans(), config);
        problems.extend(self.router.apply(config, |name| self.bridge(name)));
        if let Some(keeper) = self.keeper.get() {
            // A bridge that failed to start is tried again, and gets its entries then.
            keeper.end_restoration(|name| config.bridge(name).is_some());
        }
        for problem in &problems {
            tracing::warn!(revision, object = %problem.object, reason = %problem.reason, "not running");
        }
        let status = Status {
            revision: Some(revision),
            problems,
            starting: Vec::new(),
        };
        *self.status.lock() = status.clone();
        self.applied.send_replace(Some(revision));
        status
    }

    /// Returns the state of reconciliation: the problems of the latest call of [`Switch::apply`], and the hops of chains
    /// that are down or starting now. Does not wait for control threads.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().clone();
        let refused = self.keeper.get().map(Keeper::refused).unwrap_or_default();
        status.problems.extend(
            refused
                .iter()
                .map(|(bridge, reason)| Problem::new(format!("bridge {bridge}, flow entries"), reason)),
        );
        for found in self.router.problems() {
            if !status
                .problems
                .iter()
                .any(|problem| problem.object == found.object)
            {
                status.problems.push(found);
            }
        }
        for (bridge, entry) in self.directory.lock().iter() {
            // Files that were replaced since the latest call of `apply` are read, too.
            let object = format!("bridge {bridge}, tls");
            status.problems.retain(|problem| problem.object != object);
            if let Some(reason) = entry.tls.problem() {
                status.problems.push(Problem { object, reason });
            }
            for HopProblem { hop, reason } in entry.handle.hop_problems() {
                let object = format!("bridge {bridge}, {hop}");
                match reason {
                    Some(reason) => status.problems.push(Problem { object, reason }),
                    None => status.starting.push(object),
                }
            }
        }
        status
    }

    /// Returns the revision that was applied last, and its changes.
    pub fn applied(&self) -> watch::Receiver<Option<u64>> {
        self.applied.subscribe()
    }

    /// Returns the number of times at which another program took away what the switch had made of the configuration in the
    /// kernel, and its changes: then it is to be applied again.
    pub fn disturbances(&self) -> watch::Receiver<u64> {
        self.router.disturbances()
    }

    /// Returns the names of the running bridges.
    pub fn bridge_names(&self) -> Vec<String> {
        self.directory.lock().keys().cloned().collect()
    }

    /// Returns a handle to a bridge.
    pub fn bridge(&self, name: &str) -> Option<BridgeHandle<B>> {
        self.directory.lock().get(name).map(|entry| entry.handle.clone())
    }

    /// Returns the connections and listeners of a bridge.
    pub fn channels(&self, name: &str) -> Option<Vec<ChannelStatus>> {
        let channel_table = self
            .directory
            .lock()
            .get(name)
            .map(|entry| Arc::clone(&entry.channels))?;
        Some(channel_table.read())
    }

    /// Saves the flow entries, groups and meters of a bridge; `None` if the switch has no such bridge, or keeps none
    /// ([`Switch::keep`]).
    ///
    /// # Errors
    /// The error of the file system.
    pub fn save_flows(&self, name: &str) -> Option<std::io::Result<Saved>> {
        let keeper = self.keeper.get()?;
        keeper.save(&self.bridge(name)?)
    }

    /// Stops and removes all bridges. If `saves` is true, the state of each is saved first, after its connections are
    /// closed; files of other bridges are removed, and all files if `saves` is false.
    pub fn stop(&self, saves: bool) {
        let nothing = model::Config::new();
        self.router
            .withdraw(&nothing, |name| self.bridge(name), |_| false);
        self.directory.lock().clear();
        let members = std::mem::take(&mut *self.members.lock());
        let mut saved = Vec::new();
        for (
            name,
            Member {
                connector, bridge, ..
            },
        ) in members
        {
            drop(connector);
            if let Some(keeper) = self.keeper.get().filter(|_| saves)
                && let Some(outcome) = keeper.save(bridge.handle())
            {
                match outcome {
                    Ok(Saved {
                        file,
                        flows,
                        groups,
                        meters,
                    }) => {
                        tracing::info!(bridge = name, flows, groups, meters, file = %file.display(), "flow entries saved");
                        saved.push(name);
                    }
                    Err(error) => {
                        tracing::error!(bridge = name, %error, "flow entries cannot be saved: the next start has none");
                    }
                }
            }
        }
        if let Some(keeper) = self.keeper.get() {
            keeper.retain(|name| saved.iter().any(|saved| saved == name));
        }
    }

    fn start(&self, wanted: &model::Bridge) -> Result<Member<B>, String> {
        let empty = model::Bridge {
            ports: Vec::new(),
            ..wanted.clone()
        };
        let bridge =
            RunningBridge::start(&self.datapath, &empty, self.seed).map_err(|error| error.to_string())?;
        if let Some(observer) = self.observer.get().cloned() {
            let observed = bridge.handle().send(|control| control.observe(observer));
            observed.map_err(|error| error.to_string())?;
        }
        if let Some(keeper) = self.keeper.get() {
            keeper.restore(wanted.name.as_str(), bridge.handle());
        }
        let connector = Connector::new(
            wanted.name.to_string(),
            bridge.handle().clone(),
            self.runtime.clone(),
        );
        if let Some(observer) = self.observer.get().cloned() {
            connector.channel_table().observe(observer);
        }
        tracing::info!(bridge = %wanted.name, dpid = %wanted.datapath_id(), "bridge added");
        let entry = Entry {
            handle: bridge.handle().clone(),
            channels: Arc::clone(connector.channel_table()),
            tls: Arc::clone(connector.tls()),
        };
        self.directory.lock().insert(wanted.name.to_string(), entry);
        Ok(Member {
            connector,
            bridge,
            config: empty,
        })
    }
}

/// Returns true if a bridge must be created again: its number of tables cannot change while it runs.
fn needs_new_bridge(running: &model::Bridge, wanted: &model::Bridge) -> bool {
    running.tables != wanted.tables
}

/// Returns true if a port must be opened again for the new configuration.
fn needs_new_port(running: &model::Port, wanted: &model::Port) -> bool {
    running.name != wanted.name
        || running.device != wanted.device
        || running.queues != wanted.queues
        || running.mtu != wanted.mtu
}

/// Closes the ports and chains of a running bridge that are not configured, or that must be opened again.
fn close_obsolete<B: Backend>(member: &Member<B>, wanted: &model::Bridge) {
    let ports: Vec<model::Port> = wanted.all_ports().collect();
    let chains = wanted.chains.clone();
    let bridge = wanted.clone();
    let closed = member.bridge.handle().call_blocking(move |control| {
        let obsolete: Vec<_> = control
            .ports
            .iter()
            .filter(|(number, running)| {
                // Ports of chains are added and removed with their chains.
                if matches!(running.model.device, model::Device::Chain(_)) {
                    return false;
                }
                let wanted = ports.iter().find(|port| port.number == **number);
                wanted.is_none_or(|wanted| needs_new_port(&running.model, wanted))
            })
            .map(|(number, _)| *number)
            .collect();
        for number in obsolete {
            control.remove_port(number);
        }
        control.close_obsolete_members(&bridge);
        control.remove_chains(&chains);
    });
    if let Err(error) = closed {
        // `apply_bridge` reports this error.
        tracing::debug!(bridge = %wanted.name, %error, "no port closed");
    }
}

/// Makes a running bridge equal to its configuration, as far as possible. The caller has closed obsolete
/// ports and chains. Adds the differences to `problems`.
fn apply_bridge<B: Backend>(member: &mut Member<B>, wanted: &model::Bridge, problems: &mut Vec<Problem>) {
    let bridge = wanted.clone();
    // The LOCAL port is configured like any other port.
    let ports: Vec<model::Port> = bridge.all_ports().collect();
    let outcome = member.bridge.handle().call_blocking(move |control| {
        control.configure(bridge.clone());
        let mut problems = Vec::new();
        for port in &ports {
            if control.ports.contains_key(&port.number) {
                control.change_port(port);
            } else if let Err(problem) = control.add_port(port) {
                problems.push(Problem::new(format!("port {}", problem.name), problem.source));
            }
        }
        problems.extend(control.apply_lags());
        problems.extend(control.apply_chains(&bridge.chains));
        problems.extend(control.sflow_problems());
        problems
    });
    let name = &wanted.name;
    match outcome {
        Ok(found) => problems.extend(found.into_iter().map(|problem| problem.of_bridge(name))),
        Err(error) => problems.push(Problem::new(format!("bridge {name}"), error)),
    }
    let failed = member.connector.apply(wanted).into_iter();
    problems.extend(failed.map(|problem| problem.of_bridge(name)));
    member.config = wanted.clone();
}
