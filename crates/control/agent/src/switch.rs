//! The running switch: its bridges, made equal to a configuration again and again.
//!
//! Reconciliation does what can be done and reports the rest: a port whose device is missing does not keep
//! the others from working, and is tried again until it is there or no longer wanted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_datapath::Datapath;
use millrace_datapath::io::Backend;
use millrace_model as model;
use tokio::runtime::Handle;

use crate::channel::{Board, ChannelStatus, Connector};
use crate::control::{BridgeHandle, HopTrouble, RunningBridge};

/// Something that is wanted and not running.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortfall {
    /// What: `bridge br0, port p1`.
    pub object: String,
    /// Why, and what to do.
    pub reason: String,
}

/// How far the running switch is what is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The revision that was last made real; `None` before the first.
    pub revision: Option<u64>,
    /// The parts of it that are not running.
    pub shortfalls: Vec<Shortfall>,
    /// Hops of chains whose processes have not shown life for the first time: `bridge br0, chain edge, hop fw`.
    pub starting: Vec<String>,
}

struct Member<B: Backend> {
    /// Ended before the bridge whose tasks it sends.
    connector: Connector<B>,
    bridge: RunningBridge<B>,
    config: model::Bridge,
}

/// How others reach a bridge.
struct Entry<B: Backend> {
    handle: BridgeHandle<B>,
    channels: Arc<Board>,
}

/// All bridges of a process.
pub struct Switch<B: Backend> {
    datapath: Arc<Datapath<B>>,
    runtime: Handle,
    seed: u64,
    /// Held while a configuration is applied.
    members: Mutex<BTreeMap<String, Member<B>>>,
    /// Held for moments, so that questions are answered while devices are opened.
    directory: Mutex<BTreeMap<String, Entry<B>>>,
    status: Mutex<Status>,
}

impl<B: Backend> Switch<B> {
    /// Returns a switch without bridges. Controllers are served by `runtime`; `seed` keys hash tables and should be
    /// random.
    pub fn new(datapath: Arc<Datapath<B>>, runtime: Handle, seed: u64) -> Switch<B> {
        Switch {
            datapath,
            runtime,
            seed,
            members: Mutex::default(),
            directory: Mutex::default(),
            status: Mutex::default(),
        }
    }

    /// Returns the workers.
    pub fn datapath(&self) -> &Arc<Datapath<B>> {
        &self.datapath
    }

    /// Makes the switch equal to `config`, as far as possible. Blocks while devices are opened and closed;
    /// not to be called from an async task. To be called again with the same configuration while there are
    /// shortfalls: what was missing may have appeared.
    pub fn apply(&self, revision: u64, config: &model::Config) -> Status {
        let mut members = lock(&self.members);
        let mut shortfalls = Vec::new();
        members.retain(|name, member| {
            let wanted = config.bridges.iter().find(|bridge| bridge.name.as_str() == name);
            let stays = wanted.is_some_and(|wanted| !needs_new_bridge(&member.config, wanted));
            if !stays {
                lock(&self.directory).remove(name);
            }
            stays
        });
        for wanted in &config.bridges {
            let name = wanted.name.to_string();
            let member = match members.entry(name.clone()) {
                std::collections::btree_map::Entry::Occupied(held) => held.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => match self.start(wanted) {
                    Ok(member) => free.insert(member),
                    Err(reason) => {
                        shortfalls.push(Shortfall {
                            object: format!("bridge {name}"),
                            reason,
                        });
                        continue;
                    }
                },
            };
            apply_bridge(member, wanted, &mut shortfalls);
        }
        for shortfall in &shortfalls {
            tracing::warn!(revision, object = %shortfall.object, reason = %shortfall.reason, "not running");
        }
        let status = Status {
            revision: Some(revision),
            shortfalls,
            starting: Vec::new(),
        };
        *lock(&self.status) = status.clone();
        status
    }

    /// Returns how far the running switch is what is wanted: what was missing when the configuration was applied last, and
    /// the hops of chains that are down or still start now. Waits for no bridge.
    pub fn status(&self) -> Status {
        let mut status = lock(&self.status).clone();
        for (bridge, entry) in lock(&self.directory).iter() {
            for HopTrouble { hop, reason } in entry.handle.hop_troubles() {
                let object = format!("bridge {bridge}, {hop}");
                match reason {
                    Some(reason) => status.shortfalls.push(Shortfall { object, reason }),
                    None => status.starting.push(object),
                }
            }
        }
        status
    }

    /// Returns the names of the bridges that run.
    pub fn bridge_names(&self) -> Vec<String> {
        lock(&self.directory).keys().cloned().collect()
    }

    /// Returns a handle on a bridge.
    pub fn bridge(&self, name: &str) -> Option<BridgeHandle<B>> {
        lock(&self.directory).get(name).map(|entry| entry.handle.clone())
    }

    /// Returns the channels of a bridge to its controllers, and its listeners.
    pub fn channels(&self, name: &str) -> Option<Vec<ChannelStatus>> {
        let board = lock(&self.directory)
            .get(name)
            .map(|entry| Arc::clone(&entry.channels))?;
        Some(board.read())
    }

    /// Ends all bridges.
    pub fn clear(&self) {
        lock(&self.directory).clear();
        lock(&self.members).clear();
    }

    fn start(&self, wanted: &model::Bridge) -> Result<Member<B>, String> {
        let empty = model::Bridge {
            ports: Vec::new(),
            ..wanted.clone()
        };
        let bridge =
            RunningBridge::start(&self.datapath, &empty, self.seed).map_err(|error| error.to_string())?;
        let connector = Connector::new(
            wanted.name.to_string(),
            bridge.handle().clone(),
            self.runtime.clone(),
        );
        tracing::info!(bridge = %wanted.name, dpid = %wanted.datapath_id(), "bridge added");
        let entry = Entry {
            handle: bridge.handle().clone(),
            channels: Arc::clone(connector.board()),
        };
        lock(&self.directory).insert(wanted.name.to_string(), entry);
        Ok(Member {
            connector,
            bridge,
            config: empty,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a bridge cannot change while it runs: its controllers know it by one, its tables were made for the
/// other.
fn needs_new_bridge(running: &model::Bridge, wanted: &model::Bridge) -> bool {
    running.datapath_id() != wanted.datapath_id() || running.tables != wanted.tables
}

/// What a port cannot change while it runs.
fn needs_new_port(running: &model::Port, wanted: &model::Port) -> bool {
    running.name != wanted.name
        || running.device != wanted.device
        || running.queues != wanted.queues
        || running.mtu != wanted.mtu
}

fn apply_bridge<B: Backend>(member: &mut Member<B>, wanted: &model::Bridge, shortfalls: &mut Vec<Shortfall>) {
    let bridge = wanted.clone();
    // LOCAL is a port like others from here on.
    let ports: Vec<model::Port> = bridge.all_ports().collect();
    let problems = member.bridge.handle().call_blocking(move |control| {
        let obsolete: Vec<_> = control
            .ports
            .iter()
            .filter(|(number, running)| {
                // Those of chains go and come with their chains.
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
        control.remove_chains(&bridge.chains);
        control.configure(bridge.clone());
        let mut problems = Vec::new();
        for port in &ports {
            if control.ports.contains_key(&port.number) {
                control.change_port(port);
            } else if let Err(problem) = control.add_port(port) {
                problems.push((format!("port {}", problem.name), problem.source.to_string()));
            }
        }
        let chains = control.apply_chains(&bridge.chains).into_iter();
        problems.extend(chains.map(|(name, reason)| (format!("chain {name}"), reason)));
        problems
    });
    let name = &wanted.name;
    match problems {
        Ok(problems) => shortfalls.extend(problems.into_iter().map(|(object, reason)| Shortfall {
            object: format!("bridge {name}, {object}"),
            reason,
        })),
        Err(gone) => shortfalls.push(Shortfall {
            object: format!("bridge {name}"),
            reason: gone.to_string(),
        }),
    }
    let unheard = member.connector.apply(wanted);
    shortfalls.extend(unheard.into_iter().map(|(listener, reason)| Shortfall {
        object: format!("bridge {name}, {listener}"),
        reason,
    }));
    member.config = wanted.clone();
}
