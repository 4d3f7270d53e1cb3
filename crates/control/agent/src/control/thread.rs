//! The control thread of a bridge: runs tasks, handles workers' events, expires entries, publishes changes,
//! and sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use millrace_datapath::io::Backend;
use millrace_datapath::{BridgeError, Datapath};
use millrace_l2ctl::lldp::Agent;
use millrace_model as model;
use millrace_pipeline::PacketInInfo;
use millrace_types::{Duration, Time};
use thiserror::Error;

use super::bridge::BridgeControl;
use super::handle::{BridgeHandle, TASKS_LEN, Task};
use super::hops::HopProblems;
use super::spanning_tree::SpanningTree;
use crate::asynchronous::{packet_in, resume_flow_updates};

/// The maximum number of tasks that run before workers' events are polled again.
const TASKS_BATCH: usize = 256;
/// The time after which a batch of tasks ends. BFD and CCM frames are sent between batches.
const TASKS_TIME_MAX: Duration = Duration::from_millis(5);
/// The number of changes above which a batch of tasks publishes them, even without a barrier.
const CHANGES_BATCH: usize = 65_536;
/// The number of flow entries, and of MAC addresses, that one round checks for time-outs: some hundred
/// microseconds of work.
const EXPIRE_BUDGET: usize = 4096;
/// The maximum number of events of each type that one round handles. A flood of one type delays the others by
/// one batch only.
const PACKET_INS_BATCH: usize = 256;
const LEARNS_BATCH: usize = 1024;
const NEIGHBOURS_BATCH: usize = 64;
const TAPPED_BATCH: usize = 1024;
const OAM_BATCH: usize = 1024;
/// The longest sleep, which bounds the delay of time-outs, and of changes of links that no device reports.
const TICK: Duration = Duration::from_millis(50);

/// The interval at which the thread looks for workers that are behind.
const WORKERS_INTERVAL: Duration = Duration::from_millis(1);

/// The reason why a bridge does not start.
#[derive(Debug, Error)]
pub enum StartBridgeError {
    /// The kernel refused a thread.
    #[error("bridge {name}: its control thread cannot be started: {source}")]
    Thread {
        /// The bridge.
        name: String,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// The data plane refused the bridge.
    #[error("bridge {name}: {source}")]
    Datapath {
        /// The bridge.
        name: String,
        /// The error of the data plane.
        source: BridgeError,
    },
    /// The thread ended before the bridge was ready.
    #[error("bridge {name}: its control thread ended before it was ready; the log has its panic")]
    Ended {
        /// The bridge.
        name: String,
    },
}

/// A running bridge. Dropping it closes its ports and ends its control thread.
pub struct RunningBridge<B: Backend> {
    handle: BridgeHandle<B>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a control thread, and waits until it reports that its bridge is ready or failed.
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
    /// Starts a bridge with the settings of `config`, without ports and controllers. `seed` keys its hash tables and
    /// should be random.
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
        let hops = Arc::<HopProblems>::default();
        let (tasks, queue) = mpsc::sync_channel(TASKS_LEN);
        let thread = {
            let (datapath, config, stop) = (Arc::clone(datapath), config.clone(), Arc::clone(&stop));
            let hops = Arc::clone(&hops);
            start_thread(&name, move |report| {
                match BridgeControl::new(&datapath, config, seed, hops) {
                    Ok(mut bridge) => {
                        // The starter waits for the report.
                        let _reported = report.send(Ok(()));
                        run(&mut bridge, &queue, &stop);
                    }
                    Err(error) => {
                        let _reported = report.send(Err(error));
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

    /// Returns a handle that sends tasks to the bridge.
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

/// Runs the bridge until `stop` is set.
fn run<B: Backend>(bridge: &mut BridgeControl<B>, tasks: &mpsc::Receiver<Task<B>>, stop: &AtomicBool) {
    bridge.update_standalone();
    let mut next_tick = bridge.datapath.now();
    while !stop.load(Ordering::Acquire) {
        let mut busy = run_tasks(bridge, tasks);
        // Read before the events, which have all frames until then.
        let received_until = bridge.datapath.received_until();
        busy |= handle_events(bridge);
        if bridge.datapath.has_changed_ports() {
            bridge.poll_links();
        }
        bridge.run_oam(received_until);
        bridge.run_lacp();
        bridge.run_rstp();
        bridge.run_lldp();
        bridge.report_lldp();
        busy |= bridge.run_sflow();
        let now = bridge.datapath.now();
        if now >= next_tick {
            next_tick = now + TICK;
            tick(bridge);
        }
        busy |= bridge.tables.expire(now, EXPIRE_BUDGET, &mut bridge.ops) == EXPIRE_BUDGET;
        bridge.publish();
        bridge.datapath.catch_up();
        if !busy {
            let rstp = bridge.rstp.as_ref().and_then(SpanningTree::deadline);
            let lldp = bridge.lldp.as_ref().and_then(Agent::deadline);
            let deadlines = [bridge.oam.deadline(), bridge.lacp_deadline(), lldp, rstp]
                .into_iter()
                .flatten();
            let wake = deadlines.fold(next_tick, Time::min);
            let mut sleep = wake.since(bridge.datapath.now());
            if bridge.oam.waits_for_workers {
                // Workers that wait for a core get it.
                sleep = sleep.max(WORKERS_INTERVAL);
            }
            std::thread::park_timeout(sleep);
        }
    }
    bridge.shut_down_all_lldp();
    bridge.shut_down_lags();
}

/// Runs one batch of tasks. Returns true if there were any.
fn run_tasks<B: Backend>(bridge: &mut BridgeControl<B>, tasks: &mpsc::Receiver<Task<B>>) -> bool {
    let mut busy = false;
    let until = bridge.datapath.now() + TASKS_TIME_MAX;
    for task in tasks.try_iter().take(TASKS_BATCH) {
        task(bridge);
        busy = true;
        // OAM frames may have become due meanwhile.
        if bridge.datapath.now() >= until {
            break;
        }
        if bridge.ops.len() > CHANGES_BATCH {
            bridge.publish();
        }
    }
    busy
}

/// Handles one batch of each type of workers' events. Returns true if there were any.
fn handle_events<B: Backend>(bridge: &mut BridgeControl<B>) -> bool {
    let mut busy = drain(
        bridge,
        LEARNS_BATCH,
        |bridge| bridge.datapath.next_learn(),
        |bridge, learn| {
            let now = bridge.datapath.now();
            bridge.tables.learn(learn, now, &mut bridge.ops);
        },
    );
    busy |= drain(
        bridge,
        PACKET_INS_BATCH,
        |bridge| bridge.datapath.next_packet_in(),
        |bridge, (info, packet)| send_packet_in(bridge, &info, &packet),
    );
    busy |= drain(
        bridge,
        NEIGHBOURS_BATCH,
        |bridge| bridge.datapath.next_neighbour(),
        |bridge, (underlay, packet)| {
            // A tunnel's link is up only while the MAC address of its next hop is known.
            if bridge.receive_neighbour_frame(underlay, &packet) {
                bridge.poll_links();
            }
        },
    );
    busy |= drain(
        bridge,
        OAM_BATCH,
        |bridge| bridge.datapath.next_oam(),
        |bridge, (port, time, packet)| bridge.receive_oam(port, time, &packet),
    );
    busy |= drain(
        bridge,
        TAPPED_BATCH,
        |bridge| bridge.datapath.next_captured(),
        |bridge, captured| bridge.deliver_captured(&captured),
    );
    busy
}

/// Handles up to `limit` items from `next`. Returns true if there were any.
fn drain<B: Backend, T>(
    bridge: &mut BridgeControl<B>,
    limit: usize,
    next: impl Fn(&BridgeControl<B>) -> Option<T>,
    handle: impl Fn(&mut BridgeControl<B>, T),
) -> bool {
    let mut busy = false;
    for _ in 0..limit {
        let Some(item) = next(bridge) else {
            break;
        };
        handle(bridge, item);
        busy = true;
    }
    busy
}

fn send_packet_in<B: Backend>(bridge: &mut BridgeControl<B>, info: &PacketInInfo, packet: &B::Packet) {
    let now = bridge.datapath.now();
    let dropped = packet_in(&mut bridge.controllers, &bridge.config, now, info, packet);
    for reason in dropped {
        bridge.datapath.count_drops(reason, 1);
    }
}

/// Does the periodic work.
fn tick<B: Backend>(bridge: &mut BridgeControl<B>) {
    let now = bridge.datapath.now();
    bridge.tables.age_fdb(now, EXPIRE_BUDGET, &mut bridge.ops);
    bridge.tables.optimize_idle_tables(now, &mut bridge.ops);
    bridge.update_tunnels(now);
    bridge.reconnect_vnics(now);
    bridge.datapath.run_offload();
    bridge.look_at_some_links();
    bridge.count_refused_frames(now);
    bridge.expire_taps(now);
    bridge.update_standalone();
    bridge.tick_chains(now);
    resume_flow_updates(&mut bridge.controllers, &bridge.tables);
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
