//! Interface between the REST server and the running switch. A request becomes a task of the control thread of its
//! bridge, which reads counters; workers are not involved.
//!
//! ```text
//!  REST server ── task ──▶ control thread of the bridge ── reads ──▶ tables, counters
//!              ◀─ answer ─
//! ```

mod chains;
mod controllers;
mod flows;
mod groups;
mod ipfix;
mod lags;
mod lldp;
mod mirrors;
mod nic;
mod oam;
mod observed;
mod offload;
mod ovsdb;
mod ports;
mod queues;
mod routing;
mod rstp;
mod sflow;
mod trace;
mod wans;
mod workers;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_agent::{BridgeControl, Switch};
use millrace_api::server::{
    CaptureSpec, CapturedPacket, FlowQuery, Flows, Live, LiveError, PortCounters, RouteQuery, TracePacket,
};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_flow::Match;
use millrace_flow::classify::Classifier;
use millrace_flow::text::FlowModText;
use millrace_model::{Config, ConfigErrors};
use millrace_ovs_follower::Follower;
use millrace_pipeline::{DropReason, Standalone};
use millrace_store::Store;
use millrace_types::{PortNo, Vid};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::log::{Filter, LEVELS, Log, TARGETS};
use crate::machine::Machine;
use crate::start::Start;
use controllers::controller;
pub(crate) use observed::observer;
pub(crate) use ports::counters_of;
use workers::{Load, worker};

/// The running switch, for the REST server.
pub(crate) struct LiveSwitch<B: Backend> {
    switch: Arc<Switch<B>>,
    store: Store,
    /// The configuration at the start of the process.
    configured: Arc<Config>,
    /// The directory of the store.
    state_dir: PathBuf,
    machine: Machine,
    log: Arc<Log>,
    started: Instant,
    dpdk: Option<view::Dpdk>,
    /// The follower of an Open vSwitch database.
    follower: Follower,
    load: Mutex<Load>,
}

impl<B: Backend> LiveSwitch<B> {
    pub(crate) fn new(
        switch: Arc<Switch<B>>,
        start: &Start,
        machine: Machine,
        log: Arc<Log>,
        started: Instant,
        dpdk: Option<view::Dpdk>,
    ) -> Self {
        LiveSwitch {
            switch,
            store: start.store().clone(),
            configured: Arc::clone(start.config()),
            state_dir: start.state_dir().to_owned(),
            machine,
            log,
            started,
            dpdk,
            follower: Follower::default(),
            load: Mutex::default(),
        }
    }

    pub(crate) fn switch(&self) -> &Switch<B> {
        &self.switch
    }

    pub(crate) fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Returns the keys that differ from the configuration at the start of the process and take effect only at the
    /// next start.
    fn restart_needed_for(&self) -> Vec<String> {
        let changes = millrace_model::diff(&self.configured, &self.store.head().config);
        changes
            .into_iter()
            .filter(|change| change.restart)
            .map(|change| change.path)
            .collect()
    }

    /// Returns the problems of the switch, of its controllers and of the database that it follows.
    fn problems_of(&self, of_switch: Vec<millrace_agent::Problem>) -> Vec<view::StatusProblem> {
        let problem = |problem: millrace_agent::Problem| {
            // A reason ends with a sentence that gives the next step.
            let (message, next_step) = match problem.reason.split_once("To fix it: ") {
                Some((message, next_step)) => (
                    message.trim_end_matches([' ', '.']).to_owned(),
                    next_step.to_owned(),
                ),
                None => (problem.reason, "it is tried again every 5 s".to_owned()),
            };
            view::StatusProblem {
                subject: problem.object,
                message,
                next_step,
            }
        };
        let mut problems: Vec<_> = of_switch.into_iter().map(problem).collect();
        let lost = self.ask_all(controllers::lost_packets);
        problems.extend(ovsdb::problems(&self.follower.status()));
        problems.extend(lost.into_iter().filter_map(|(_, problem)| problem));
        problems
    }

    /// Runs a task on the control thread of a bridge and returns its result.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        bridge: &str,
        question: impl FnOnce(&mut BridgeControl<B>) -> T + Send + 'static,
    ) -> Result<T, LiveError> {
        let missing = || LiveError::NoBridge {
            name: bridge.to_owned(),
            running: self.switch.bridge_names(),
        };
        let handle = self.switch.bridge(bridge).ok_or_else(missing)?;
        handle.call_blocking(question).map_err(|_| missing())
    }

    /// Runs a task on the control threads of all running bridges.
    pub(crate) fn ask_all<T: Send + 'static>(
        &self,
        question: impl Fn(&mut BridgeControl<B>) -> T + Copy + Send + 'static,
    ) -> Vec<(String, T)> {
        let names = self.switch.bridge_names();
        names
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.ask(&name, question).ok()?)))
            .collect()
    }
}

impl<B: Backend> Live for LiveSwitch<B> {
    fn version(&self) -> view::Version {
        view::Version {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dpdk: self.dpdk.clone(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            pid: Some(std::process::id()),
            network_namespace: std::fs::metadata("/proc/self/ns/net")
                .ok()
                .map(|found| found.ino()),
        }
    }

    fn log(&self) -> view::Log {
        view::Log {
            filter: self.log.filter().to_string(),
            levels: LEVELS.map(|(name, _)| name.to_owned()).into(),
            targets: TARGETS.map(str::to_owned).into(),
        }
    }

    fn set_log(&self, filter: &str) -> Result<view::Log, LiveError> {
        let filter: Filter = filter.parse().map_err(|error| LiveError::LogFilter {
            text: filter.to_owned(),
            reason: format!("{error}"),
        })?;
        crate::dpdk_log::set_level(&filter);
        self.log.set(filter);
        Ok(self.log())
    }

    fn ready(&self) -> view::Ready {
        let applied = self.switch.status().revision.is_some();
        let reasons = if applied {
            Vec::new()
        } else {
            vec!["the configuration is being applied".to_owned()]
        };
        view::Ready {
            ready: applied,
            reasons,
        }
    }

    fn check(&self, config: &Config) -> Result<(), ConfigErrors> {
        let head = self.store.head();
        self.machine
            .check_change(config, &head.config, &self.configured, &self.state_dir)
    }

    fn status(&self) -> view::Status {
        let wanted = self.store.head().revision.number.0;
        let status = self.switch.status();
        let state = if status.revision != Some(wanted) {
            view::Reconciliation::Working
        } else if !status.problems.is_empty() {
            view::Reconciliation::Degraded
        } else if !status.starting.is_empty() {
            view::Reconciliation::Working
        } else {
            view::Reconciliation::Settled
        };
        let problems = self.problems_of(status.problems);
        view::Status {
            desired_revision: wanted,
            running_revision: status.revision,
            state,
            problems,
            restart_needed_for: self.restart_needed_for(),
        }
    }

    fn problems(&self) -> Vec<view::StatusProblem> {
        self.problems_of(self.switch.status().problems)
    }

    fn port_counters(&self) -> Vec<(String, Vec<PortCounters>)> {
        self.ask_all(ports::counters)
    }

    fn bridges(&self) -> Vec<view::Bridge> {
        self.ask_all(|bridge| {
            let controlled = bridge.is_controlled();
            view::Bridge {
                name: bridge.config().name.to_string(),
                dpid: bridge.config().datapath_id().to_string(),
                forwarding: match (bridge.datapath().forwarding().standalone(), controlled) {
                    (Standalone::Misses | Standalone::All, _) => view::Forwarding::Standalone,
                    (Standalone::Off, true) => view::Forwarding::Controlled,
                    (Standalone::Off, false) => view::Forwarding::Secure,
                },
                ports: bridge.ports().len() as u32,
                tables: bridge.datapath().forwarding().table_len() as u32,
                flows: bridge.tables().entry_len() as u64,
                controllers_connected: bridge.controllers_len() as u32,
            }
        })
        .into_iter()
        .map(|(_, bridge)| bridge)
        .collect()
    }

    fn ports(&self, bridge: &str) -> Result<Vec<view::Port>, LiveError> {
        let mut running = self.ask(bridge, ports::running)?;
        // Configured ports that could not be opened are included.
        let config = Arc::clone(&self.store.head().config);
        let wanted = config
            .bridges
            .iter()
            .filter(|wanted| wanted.name.as_str() == bridge);
        let numbers: BTreeSet<u32> = running.iter().map(|shown| shown.number).collect();
        for port in wanted.flat_map(millrace_model::Bridge::all_ports) {
            if !numbers.contains(&port.number.raw()) {
                running.push(ports::missing(bridge, &port));
            }
        }
        running.sort_by_key(|port| port.number);
        Ok(running)
    }

    fn flows(&self, bridge: &str, query: &FlowQuery) -> Result<Flows, LiveError> {
        let query = query.clone();
        let name = bridge.to_owned();
        self.ask(bridge, move |control| flows::page(control, &name, &query))?
    }

    fn flow_mods(&self, bridge: &str, mods: Vec<FlowModText>) -> Result<view::FlowModsDone, LiveError> {
        self.ask(bridge, move |control| flows::change(control, mods))?
    }

    fn save_flows(&self, bridge: &str) -> Result<view::FlowsSaved, LiveError> {
        if !self.store.head().config.system.keep_flows {
            return Err(LiveError::Contradicted {
                message: "system.keep_flows is false: no start would restore the flow entries".to_owned(),
                next_step: "set system.keep_flows = true in the configuration".to_owned(),
            });
        }
        let saved = self
            .switch
            .save_flows(bridge)
            .ok_or_else(|| LiveError::NoBridge {
                name: bridge.to_owned(),
                running: self.switch.bridge_names(),
            })?;
        let saved = saved.map_err(|error| LiveError::Unavailable {
            message: format!("the flow entries cannot be saved: {error}"),
            next_step: format!("make room and rights for files in {}", self.state_dir.display()),
        })?;
        Ok(view::FlowsSaved {
            bridge: bridge.to_owned(),
            flows: saved.flows as u64,
            groups: saved.groups as u64,
            meters: saved.meters as u64,
            file: saved.file.display().to_string(),
        })
    }

    fn reset_flow_counters(&self, bridge: &str, query: &FlowQuery) -> Result<u64, LiveError> {
        let (name, query) = (bridge.to_owned(), query.clone());
        self.ask(bridge, move |control| flows::reset(control, &name, &query))?
    }

    fn reset_port_counters(&self, bridge: &str, port: Option<PortNo>) -> Result<u64, LiveError> {
        self.ask(bridge, move |control| control.reset_port_counters(port) as u64)
    }

    fn tables(&self, bridge: &str) -> Result<Vec<view::Table>, LiveError> {
        self.ask(bridge, |control| {
            let forwarding = control.datapath().forwarding();
            let stats = control.tables().table_stats();
            stats
                .map(|stat| {
                    let classifier = forwarding.table(stat.table);
                    view::Table {
                        table: stat.table.0,
                        entries: stat.active.into(),
                        max_entries: stat.max_entries.into(),
                        lookups: stat.lookups,
                        matches: stat.matches,
                        classifier: classifier.map_or_else(String::new, |table| table.kind().to_string()),
                        memory_bytes: classifier
                            .filter(|table| !table.is_empty())
                            .map(|table| table.heap_size() as u64),
                    }
                })
                .collect()
        })
    }

    fn controllers(&self, bridge: &str) -> Result<Vec<view::Controller>, LiveError> {
        let status = self.switch.channels(bridge);
        status
            .map(|list| list.into_iter().map(|one| controller(bridge, one)).collect())
            .ok_or_else(|| LiveError::NoBridge {
                name: bridge.to_owned(),
                running: self.switch.bridge_names(),
            })
    }

    fn macs(&self, bridge: &str) -> Result<Vec<view::MacEntry>, LiveError> {
        self.ask(bridge, |control| {
            let now = control.datapath().now();
            let entries = control.tables().fdb().map(|entry| view::MacEntry {
                vlan: entry.key.vid.raw(),
                mac: entry.key.mac.to_string(),
                port: entry.port.raw(),
                age_seconds: now.since(entry.last_seen()).as_secs_f64(),
            });
            entries.collect()
        })
    }

    fn flush_macs(&self, bridge: &str, vlan: Option<Vid>, port: Option<PortNo>) -> Result<u64, LiveError> {
        self.ask(bridge, move |control| control.flush_fdb(vlan, port) as u64)
    }

    fn mirrors(&self, bridge: &str) -> Result<Vec<view::Mirror>, LiveError> {
        self.ask(bridge, |control| mirrors::view(control))
    }

    fn sflow(&self, bridge: &str) -> Result<Option<view::Sflow>, LiveError> {
        self.ask(bridge, |control| {
            let status = control.sflow_status()?;
            Some(sflow::view(&status, control.ports()))
        })
    }

    fn ipfix(&self, bridge: &str) -> Result<Option<view::Ipfix>, LiveError> {
        self.ask(bridge, |control| control.ipfix_status().as_ref().map(ipfix::view))
    }

    fn groups(&self, bridge: &str) -> Result<Vec<view::Group>, LiveError> {
        self.ask(bridge, |control| groups::groups(control))
    }

    fn meters(&self, bridge: &str) -> Result<Vec<view::Meter>, LiveError> {
        self.ask(bridge, |control| groups::meters(control))
    }

    fn chains(&self, bridge: &str) -> Result<Vec<view::Chain>, LiveError> {
        self.ask(bridge, chains::chains)
    }

    fn restart_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError> {
        let (of, chain, hop) = (bridge.to_owned(), chain.to_owned(), hop.to_owned());
        self.ask(bridge, move |control| chains::restart(control, &of, &chain, &hop))?
    }

    fn reload_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError> {
        let (of, chain, hop) = (bridge.to_owned(), chain.to_owned(), hop.to_owned());
        self.ask(bridge, move |control| chains::reload(control, &of, &chain, &hop))?
    }

    fn nic_registers(&self, bridge: &str, port: PortNo) -> Result<Vec<view::NicRegister>, LiveError> {
        let name = bridge.to_owned();
        self.ask(bridge, move |control| nic::registers(control, &name, port))?
    }

    fn nic_entries(&self, bridge: &str, port: PortNo) -> Result<Vec<view::NicEntry>, LiveError> {
        let name = bridge.to_owned();
        self.ask(bridge, move |control| nic::entries(control, &name, port))?
    }

    fn queues(&self, bridge: &str) -> Result<Vec<view::EgressQueue>, LiveError> {
        self.ask(bridge, |control| queues::queues(control))
    }

    fn wans(&self) -> Vec<view::WanPath> {
        let states = self.switch.datapath().backend().wans().states();
        wans::wans(&states, &self.store.head().config)
    }

    fn lags(&self) -> Vec<view::Lag> {
        self.ask_all(lags::view)
            .into_iter()
            .flat_map(|(_, lags)| lags)
            .collect()
    }

    fn ovsdb(&self) -> view::Ovsdb {
        ovsdb::view(self.follower.status())
    }

    fn vrfs(&self) -> Vec<view::Vrf> {
        self.switch.router().vrfs().iter().map(routing::vrf).collect()
    }

    fn router_totals(&self) -> Option<view::RouterTotals> {
        self.switch
            .router()
            .totals()
            .map(|totals| routing::totals(&totals))
    }

    fn router_interfaces(&self) -> Vec<view::RouterInterface> {
        self.switch
            .router()
            .interfaces()
            .iter()
            .map(routing::interface)
            .collect()
    }

    fn routes(&self, vrf: &str, query: &RouteQuery) -> Result<view::RoutePage, LiveError> {
        routing::routes(self.switch.router(), vrf, query)
    }

    fn nexthops(&self, vrf: &str) -> Result<Vec<view::NextHopGroup>, LiveError> {
        routing::nexthops(self.switch.router(), vrf)
    }

    fn neighbours(&self, vrf: &str) -> Result<Vec<view::Neighbour>, LiveError> {
        routing::neighbours(self.switch.router(), vrf)
    }

    fn workers(&self) -> Vec<view::Worker> {
        let ports: Vec<_> = self
            .ask_all(|control| {
                let ports = control.ports().iter();
                let ports = ports.map(|(number, port)| (*number, port.model.name.to_string()));
                let members = control.members();
                let members = members.map(|(number, port, member)| (number, format!("{port}/{member}")));
                ports.chain(members).collect()
            })
            .into_iter()
            .flat_map(|(bridge, ports): (String, Vec<(PortNo, String)>)| {
                ports
                    .into_iter()
                    .map(move |(number, name)| (bridge.clone(), number, name))
            })
            .collect();
        let polled = self.ask_all(|control| control.datapath().polled());
        let stats = self.switch.datapath().worker_stats();
        let shares = self.load.lock().shares(stats.len());
        stats
            .iter()
            .zip(shares)
            .map(|(stats, busy)| worker(stats, busy, &polled, &ports))
            .collect()
    }

    fn measure_load(&self) {
        let stats = self.switch.datapath().worker_stats();
        self.load.lock().measure(&stats, Instant::now());
    }

    fn drops(&self) -> Vec<view::Drop> {
        let counts = self.ask_all(|control| DropReason::ALL.map(|reason| control.tables().drops(reason)));
        counts
            .into_iter()
            .flat_map(|(bridge, counts)| {
                DropReason::ALL
                    .into_iter()
                    .zip(counts)
                    .map(move |(reason, packets)| view::Drop {
                        bridge: Some(bridge.clone()),
                        reason: reason.name().to_owned(),
                        description: reason.description().to_owned(),
                        packets,
                    })
            })
            .collect()
    }

    fn trace(&self, bridge: &str, packet: &TracePacket) -> Result<view::Trace, LiveError> {
        let (name, packet) = (bridge.to_owned(), packet.clone());
        self.ask(bridge, move |control| {
            trace::hypothetical(control, &name, &packet)
        })?
    }

    fn trace_live(
        &self,
        bridge: &str,
        filter: &Match,
        timeout: Duration,
    ) -> Result<Option<view::Trace>, LiveError> {
        let filter = filter.clone();
        let found = self.ask(bridge, move |control| control.trace_live(&filter, timeout))?;
        // The control thread ends the wait by dropping its sender.
        let Ok(outcome) = found.blocking_recv() else {
            return Ok(None);
        };
        let name = bridge.to_owned();
        self.ask(bridge, move |control| {
            Some(trace::shown(control, &name, &outcome))
        })
    }

    fn capture(&self, bridge: &str, spec: &CaptureSpec) -> Result<mpsc::Receiver<CapturedPacket>, LiveError> {
        let spec = spec.clone();
        let name = bridge.to_owned();
        self.ask(bridge, move |control| trace::capture(control, &name, &spec))?
    }
}
