//! The control thread of one bridge: the single writer of its tables, and the only one that hears its
//! workers.
//!
//! Whoever wants something of a bridge (a controller's connection, reconciliation, a person's question)
//! sends a task, which runs here, in order, with everything of the bridge in its hands. Between tasks the
//! thread publishes what changed, expires flow entries, learns addresses and hands packet-ins on. It sleeps
//! when there is nothing to do, and workers wake it.

mod chain_trace;
mod chains;
mod hops;
mod neighbours;
mod operator;
mod ports;
mod qos;
mod taps;
mod tunnels;
mod vnics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, Thread};

use millrace_datapath::io::Backend;
use millrace_datapath::{Bridge, BridgeError, BridgeSetup, Datapath};
use millrace_flow::{Field, FieldSet};
use millrace_model as model;
use millrace_pipeline::{
    Control, ControlConfig, FdbConfig, FlowCachePolicy, FragmentMode, Op, TableLimit, WhenFull,
};
use millrace_types::{Duration, PortNo, TableId, Time};
use thiserror::Error;
use tokio::sync::oneshot;

pub use chain_trace::{Passage, PassageEnd, TracedHop};
pub use chains::Chains;
pub use hops::{HopBoard, HopTrouble};
pub use operator::RefusedFlowMod;
pub use ports::{PortProblem, PortStatus};
pub use taps::{CaptureRequest, CaptureSink, Captured, Taps, TraceOutcome};

use crate::channel::Channels;
use crate::handlers;

/// Tasks that wait for the control thread.
const TASKS_LEN: usize = 4096;
/// Tasks that are run before workers' events are looked at again.
const TASKS_BATCH: usize = 256;
/// Changes that wait before they are published even without a barrier.
const CHANGES_BATCH: usize = 65_536;
/// Flow entries, and stations, that one round looks at for time-outs: some hundred microseconds.
const EXPIRE_BUDGET: usize = 4096;
/// Packet-ins, stations that were seen, packets of neighbours and copies for captures that one round handles: whoever sends
/// many does not keep it from the rest.
const PACKET_INS_BATCH: usize = 256;
const LEARNS_BATCH: usize = 1024;
const NEIGHBOURS_BATCH: usize = 64;
const TAPPED_BATCH: usize = 1024;
/// The longest sleep: how late a time-out may be noticed, and how often devices are asked for their link.
const TICK: Duration = Duration::from_millis(50);

type Task<B> = Box<dyn FnOnce(&mut BridgeControl<B>) + Send>;

/// Why a task was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TaskError {
    /// The control thread is behind; try again later.
    #[error("the bridge is busy: its queue of tasks is full")]
    Full,
    /// The bridge has been removed.
    #[error("the bridge is gone")]
    Gone,
}

/// A handle on the control thread of a bridge.
pub struct BridgeHandle<B: Backend> {
    tasks: mpsc::SyncSender<Task<B>>,
    thread: Thread,
    hops: Arc<HopBoard>,
}

impl<B: Backend> Clone for BridgeHandle<B> {
    fn clone(&self) -> Self {
        BridgeHandle {
            tasks: self.tasks.clone(),
            thread: self.thread.clone(),
            hops: Arc::clone(&self.hops),
        }
    }
}

impl<B: Backend> BridgeHandle<B> {
    /// Returns the hops of chains that do not work, without asking the control thread.
    pub fn hop_troubles(&self) -> Vec<HopTrouble> {
        self.hops.read()
    }

    /// Has `task` run on the control thread, after everything that was sent before. Never waits.
    ///
    /// # Errors
    /// [`TaskError`]; the task has not run and will not.
    pub fn send(&self, task: impl FnOnce(&mut BridgeControl<B>) + Send + 'static) -> Result<(), TaskError> {
        self.post(Box::new(task)).map_err(|(error, _)| error)
    }

    /// Has `task` run on the control thread, and waits for its answer, without blocking the runtime.
    ///
    /// # Errors
    /// [`TaskError::Gone`].
    pub async fn call<R: Send + 'static>(
        &self,
        task: impl FnOnce(&mut BridgeControl<B>) -> R + Send + 'static,
    ) -> Result<R, TaskError> {
        let (answer, answered) = oneshot::channel();
        let mut task: Task<B> = Box::new(move |bridge| {
            // Whoever asked may have gone away meanwhile.
            let _asker_gone = answer.send(task(bridge));
        });
        loop {
            match self.post(task) {
                Ok(()) => break,
                Err((TaskError::Gone, _)) => return Err(TaskError::Gone),
                Err((TaskError::Full, back)) => task = back,
            }
            tokio::time::sleep(core::time::Duration::from_millis(1)).await;
        }
        answered.await.map_err(|_| TaskError::Gone)
    }

    /// Has `task` run on the control thread, and blocks for its answer. Not for async tasks.
    ///
    /// # Errors
    /// [`TaskError::Gone`].
    pub fn call_blocking<R: Send + 'static>(
        &self,
        task: impl FnOnce(&mut BridgeControl<B>) -> R + Send + 'static,
    ) -> Result<R, TaskError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let task: Task<B> = Box::new(move |bridge| {
            let _asker_gone = answer.send(task(bridge));
        });
        self.tasks.send(task).map_err(|_| TaskError::Gone)?;
        self.thread.unpark();
        answered.recv().map_err(|_| TaskError::Gone)
    }

    fn post(&self, task: Task<B>) -> Result<(), (TaskError, Task<B>)> {
        match self.tasks.try_send(task) {
            Ok(()) => {
                self.thread.unpark();
                Ok(())
            }
            Err(mpsc::TrySendError::Full(task)) => Err((TaskError::Full, task)),
            Err(mpsc::TrySendError::Disconnected(task)) => Err((TaskError::Gone, task)),
        }
    }
}

/// A bridge that runs. Dropping it closes its ports and ends its control thread.
pub struct RunningBridge<B: Backend> {
    handle: BridgeHandle<B>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Why a bridge does not start.
#[derive(Debug, Error)]
pub enum StartBridgeError {
    /// The kernel refused a thread.
    #[error("bridge {name}: its control thread cannot be started: {source}")]
    Thread {
        /// The bridge.
        name: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The data plane refused it.
    #[error("bridge {name}: {source}")]
    Datapath {
        /// The bridge.
        name: String,
        /// Why.
        source: BridgeError,
    },
    /// The thread ended before the bridge was there.
    #[error("bridge {name}: its control thread ended before it was ready; the log has its panic")]
    Ended {
        /// The bridge.
        name: String,
    },
}

/// Starts a control thread, and waits until it reports that its bridge is there, or why not.
fn start_thread(
    name: &str,
    body: impl FnOnce(mpsc::SyncSender<Result<(), BridgeError>>) + Send + 'static,
) -> Result<JoinHandle<()>, StartBridgeError> {
    let name = name.to_owned();
    let (report, reported) = mpsc::sync_channel(1);
    let builder = std::thread::Builder::new().name(format!("bridge-{name}"));
    let thread = match builder.spawn(move || body(report)) {
        Ok(thread) => thread,
        Err(source) => return Err(StartBridgeError::Thread { name, source }),
    };
    match reported.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(source)) => Err(StartBridgeError::Datapath { name, source }),
        Err(mpsc::RecvError) => Err(StartBridgeError::Ended { name }),
    }
}

impl<B: Backend> RunningBridge<B> {
    /// Starts a bridge with the settings of `config`, still without ports and controllers. `seed` keys its
    /// hash tables: it should be random.
    ///
    /// # Errors
    /// [`StartBridgeError`].
    pub fn start(
        datapath: &Arc<Datapath<B>>,
        config: &model::Bridge,
        seed: u64,
    ) -> Result<RunningBridge<B>, StartBridgeError> {
        let name = config.name.to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let hops = Arc::<HopBoard>::default();
        let (tasks, inbox) = mpsc::sync_channel(TASKS_LEN);
        let thread = {
            let (datapath, config, stop) = (Arc::clone(datapath), config.clone(), Arc::clone(&stop));
            let hops = Arc::clone(&hops);
            start_thread(&name, move |report| {
                match BridgeControl::new(&datapath, config, seed) {
                    Ok(mut bridge) => {
                        bridge.hops = hops;
                        let _starter_gone = report.send(Ok(()));
                        bridge.run(&inbox, &stop);
                    }
                    Err(error) => {
                        let _starter_gone = report.send(Err(error));
                    }
                }
            })?
        };
        let handle = BridgeHandle {
            tasks,
            thread: thread.thread().clone(),
            hops,
        };
        Ok(RunningBridge {
            handle,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns a handle for others.
    pub fn handle(&self) -> &BridgeHandle<B> {
        &self.handle
    }
}

impl<B: Backend> Drop for RunningBridge<B> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.handle.thread.unpark();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a control thread panicked");
        }
    }
}

/// Everything of one bridge, in the hands of its control thread.
pub struct BridgeControl<B: Backend> {
    /// The settings, as configured; ports and controllers in it are what is wanted, not what is there.
    pub config: model::Bridge,
    /// Flow tables, MAC table. What it emits goes to `ops`.
    pub tables: Control,
    /// What controllers call the tables; those that no controller has named are not in it.
    pub table_names: BTreeMap<TableId, String>,
    /// Changes that workers do not know of yet.
    pub ops: Vec<Op>,
    /// The hold on the workers.
    pub datapath: Bridge<B>,
    /// The ports that are there.
    pub ports: BTreeMap<PortNo, PortStatus>,
    /// The controllers that are connected.
    pub channels: Channels,
    /// Captures and live traces that wait for packets.
    pub taps: Taps,
    /// The chains of network functions that are there.
    pub chains: Chains<B>,
    hops: Arc<HopBoard>,
    /// The counters of ports when they were set to zero, for those that were.
    baselines: BTreeMap<PortNo, operator::Baseline>,
    tunnels: tunnels::TunnelPorts,
    search: vnics::Search,
    next_tick: Time,
}

impl<B: Backend> BridgeControl<B> {
    fn new(datapath: &Datapath<B>, config: model::Bridge, seed: u64) -> Result<Self, BridgeError> {
        let mut tables = Control::new(ControlConfig {
            tables: config.tables.get(),
            seed,
            fdb: fdb_config(&config),
            flow_cache: flow_cache(&config),
            match_extensions: config.match_extensions,
            ..ControlConfig::default()
        });
        tables.set_limits(table_limits(&config));
        let mut ops = Vec::new();
        tables.set_fragments(fragments(&config), &mut ops);
        tables.set_select_fields(select_fields(&config), &mut ops);
        let mut counters: Vec<_> = (0..datapath.workers_len()).map(|_| tables.counters()).collect();
        counters.push(tables.own_counters());
        let setup = BridgeSetup {
            forwarding: [tables.forwarding(), tables.forwarding()],
            counters,
        };
        let datapath = datapath.bridge(setup)?;
        Ok(BridgeControl {
            config,
            tables,
            table_names: BTreeMap::new(),
            ops,
            ports: BTreeMap::new(),
            channels: Channels::default(),
            taps: Taps::default(),
            chains: Chains::new(seed),
            hops: Arc::default(),
            baselines: BTreeMap::new(),
            tunnels: tunnels::TunnelPorts::default(),
            search: vnics::Search::default(),
            next_tick: datapath.now(),
            datapath,
        })
    }

    /// Makes every change visible, and returns when no worker sees what was before: what a barrier waits
    /// for. Tells the controllers of entries that are gone, with their final counters.
    pub fn publish(&mut self) {
        handlers::tell_monitors(self);
        if self.ops.is_empty() && self.tables.unpublished_len() == 0 {
            return;
        }
        self.datapath.publish(&mut self.ops);
        let mut removed = Vec::new();
        self.tables.published(&mut removed);
        for flow in removed {
            handlers::flow_removed(self, &flow);
        }
    }

    /// Takes settings that may change while the bridge runs. Its ports and controllers are others' to change.
    pub fn configure(&mut self, config: model::Bridge) {
        self.tables.set_fdb_config(fdb_config(&config), &mut self.ops);
        self.tables.set_flow_cache(flow_cache(&config), &mut self.ops);
        self.tables.set_limits(table_limits(&config));
        self.tables.set_match_extensions(config.match_extensions);
        self.tables
            .set_select_fields(select_fields(&config), &mut self.ops);
        if config.fragments != self.config.fragments {
            self.tables.set_fragments(fragments(&config), &mut self.ops);
        }
        self.config = config;
        self.update_standalone();
    }

    /// What a table is called, by a controller or else in the configuration.
    pub fn table_name(&self, table: TableId) -> Option<String> {
        let written = self.table_names.get(&table).cloned();
        written.or_else(|| {
            let mut settings = self.config.table_settings.iter();
            let found = settings.find(|settings| settings.number.get() == table.0)?;
            found.name.as_ref().map(ToString::to_string)
        })
    }

    /// Whether packets that match nothing are to be forwarded by NORMAL, now.
    pub fn update_standalone(&mut self) {
        let standalone =
            self.config.fail_mode == model::FailMode::Standalone && !self.channels.is_controlled();
        self.tables.set_standalone(standalone, &mut self.ops);
    }

    fn run(mut self, inbox: &mpsc::Receiver<Task<B>>, stop: &AtomicBool) {
        self.update_standalone();
        while !stop.load(Ordering::Acquire) {
            let mut busy = self.run_tasks(inbox);
            busy |= self.take_events();
            let now = self.datapath.now();
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                self.tick(now);
            }
            busy |= self.tables.expire(now, EXPIRE_BUDGET, &mut self.ops) == EXPIRE_BUDGET;
            self.publish();
            self.datapath.catch_up();
            if !busy {
                std::thread::park_timeout(self.next_tick.since(self.datapath.now()));
            }
        }
    }

    fn run_tasks(&mut self, inbox: &mpsc::Receiver<Task<B>>) -> bool {
        let mut busy = false;
        for task in inbox.try_iter().take(TASKS_BATCH) {
            task(self);
            busy = true;
            if self.ops.len() > CHANGES_BATCH {
                self.publish();
            }
        }
        busy
    }

    /// What workers told.
    fn take_events(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..LEARNS_BATCH {
            let Some(learn) = self.datapath.next_learn() else {
                break;
            };
            let now = self.datapath.now();
            self.tables.learn(learn, now, &mut self.ops);
            busy = true;
        }
        for _ in 0..PACKET_INS_BATCH {
            let Some((info, packet)) = self.datapath.next_packet_in() else {
                break;
            };
            handlers::packet_in(self, &info, &packet);
            busy = true;
        }
        for _ in 0..NEIGHBOURS_BATCH {
            let Some((underlay, packet)) = self.datapath.next_neighbour() else {
                break;
            };
            self.neighbour(underlay, &packet);
            busy = true;
        }
        for _ in 0..TAPPED_BATCH {
            let Some(tapped) = self.datapath.next_tapped() else {
                break;
            };
            self.hand_out_tapped(&tapped);
            busy = true;
        }
        busy
    }

    fn tick(&mut self, now: Time) {
        self.tables.age_fdb(now, EXPIRE_BUDGET, &mut self.ops);
        self.tables.settle(now, &mut self.ops);
        self.tend_tunnels(now);
        self.look_for_peers(now);
        self.look_at_links();
        self.expire_taps(now);
        self.tick_chains(now);
        handlers::resume_monitors(self);
    }
}

fn select_fields(config: &model::Bridge) -> FieldSet {
    let field = |field: &model::SelectField| match field {
        model::SelectField::InPort => Field::InPort,
        model::SelectField::Metadata => Field::Metadata,
        model::SelectField::TunnelId => Field::TunnelId,
        model::SelectField::EthDst => Field::EthDst,
        model::SelectField::EthSrc => Field::EthSrc,
        model::SelectField::EthType => Field::EthType,
        model::SelectField::VlanVid => Field::VlanVid,
        model::SelectField::IpProto => Field::IpProto,
        model::SelectField::Ipv4Src => Field::Ipv4Src,
        model::SelectField::Ipv4Dst => Field::Ipv4Dst,
        model::SelectField::Ipv6Src => Field::Ipv6Src,
        model::SelectField::Ipv6Dst => Field::Ipv6Dst,
        model::SelectField::Ipv6Flabel => Field::Ipv6Flabel,
        // Ports of all transports are at one place of the key.
        model::SelectField::TpSrc => Field::TcpSrc,
        model::SelectField::TpDst => Field::TcpDst,
        model::SelectField::ArpSpa => Field::ArpSpa,
        model::SelectField::ArpTpa => Field::ArpTpa,
        model::SelectField::MplsLabel => Field::MplsLabel,
        model::SelectField::PbbIsid => Field::PbbIsid,
    };
    config.select_hash.iter().map(field).collect()
}

fn fragments(config: &model::Bridge) -> FragmentMode {
    match config.fragments {
        model::Fragments::Normal => FragmentMode::Normal,
        model::Fragments::Drop => FragmentMode::Drop,
        model::Fragments::Reassemble => FragmentMode::Reassemble,
    }
}

fn flow_cache(config: &model::Bridge) -> FlowCachePolicy {
    match config.flow_cache {
        model::FlowCache::Auto => FlowCachePolicy::Auto,
        model::FlowCache::Off => FlowCachePolicy::Off,
    }
}

fn table_limits(config: &model::Bridge) -> BTreeMap<TableId, TableLimit> {
    let settings = config.table_settings.iter();
    let limit = |table: &model::Table| TableLimit {
        max_entries: table.max_entries.map_or(u32::MAX, model::TableSize::get),
        when_full: match table.when_full {
            model::WhenFull::Refuse => WhenFull::Refuse,
            model::WhenFull::Evict => WhenFull::Evict,
        },
    };
    settings
        .map(|table| (TableId(table.number.get()), limit(table)))
        .collect()
}

fn fdb_config(config: &model::Bridge) -> FdbConfig {
    FdbConfig {
        ageing: Duration::from_secs(config.mac_ageing_s.get().into()),
        max_entries: config.mac_table_size.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_thread_that_ends_before_it_reports_is_no_start() {
        let error = start_thread("br0", |_report| panic!("as a bridge may")).unwrap_err();
        assert!(
            matches!(error, StartBridgeError::Ended { ref name } if name == "br0"),
            "{error}"
        );
    }
}
