//! Counters of a hop: written by the lane's worker, read by any thread.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::cgroup::Limit;
use crate::shared::SharedStatus;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        let value = self.0.load(Ordering::Relaxed).wrapping_add(amount);
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The availability of the functions of a hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HopState {
    /// All functions of the hop work.
    #[default]
    Up,
    /// No function is down, but the process of at least one has not sent a heartbeat yet.
    Starting,
    /// At least one function does not work.
    Down,
    /// An operator has drained the hop: packets bypass it.
    Drained,
}

impl HopState {
    /// Returns the name for people and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            HopState::Up => "up",
            HopState::Starting => "starting",
            HopState::Down => "down",
            HopState::Drained => "drained",
        }
    }
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const STARTING: u8 = 2;

/// The reason why a function went down last, until the control side takes it.
#[derive(Debug)]
struct Reason(ArrayQueue<String>);

impl Default for Reason {
    fn default() -> Reason {
        Reason(ArrayQueue::new(1))
    }
}

/// The counters of one instance of a hop in one lane. A restarted function continues them.
#[derive(Debug, Default)]
pub(crate) struct InstanceCounters {
    state: AtomicU8,
    reason: Reason,
    pub(crate) packets: Count,
    /// Bytes of the processed packets, in all segments.
    pub(crate) bytes: Count,
    pub(crate) next: Count,
    pub(crate) skipped: Count,
    pub(crate) dropped: Count,
    pub(crate) to_port: Count,
    /// Packets forwarded although the hop was down.
    pub(crate) passed: Count,
    /// Packets dropped because the hop was down.
    pub(crate) lost: Count,
    pub(crate) sampled_packets: Count,
    pub(crate) sampled_nanos: Count,
    pub(crate) latency_samples: Count,
    pub(crate) latency_nanos: Count,
    /// Packets that the function's process has now.
    pub(crate) depth: Count,
    /// Flows that the function shuns now.
    pub(crate) shunned_flows: Count,
    /// Packets of shunned flows that were forwarded.
    pub(crate) shunned_passed: Count,
    /// Packets of shunned flows that were dropped.
    pub(crate) shunned_dropped: Count,
    /// Packets that the function sent.
    pub(crate) sent: Count,
    /// Packets that the function could not send.
    pub(crate) not_sent: Count,
    /// The number of the source of the value that the function's process uses; 0 without a value.
    value: Count,
    /// The number of the last source that the process could not compile; 0 if there is none.
    value_failed: Count,
}

impl InstanceCounters {
    /// Sets two source numbers: that of the value in use, and that of the last source that could not be
    /// compiled.
    pub(crate) fn set_value(&self, [value, failed]: [u64; 2]) {
        self.value.set(value);
        self.value_failed.set(failed);
    }

    /// Returns two source numbers: that of the value in use, and that of the last source that could not be
    /// compiled.
    pub(crate) fn value(&self) -> [u64; 2] {
        [self.value.read(), self.value_failed.read()]
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state.load(Ordering::Acquire) == DOWN
    }

    /// Sets the state to up.
    pub(crate) fn set_up(&self) {
        self.state.store(UP, Ordering::Release);
    }

    /// Sets the state to starting.
    pub(crate) fn set_starting(&self) {
        self.state.store(STARTING, Ordering::Release);
    }

    fn state(&self) -> HopState {
        match self.state.load(Ordering::Acquire) {
            UP => HopState::Up,
            STARTING => HopState::Starting,
            _ => HopState::Down,
        }
    }

    /// Sets the state to down, with the reason.
    pub(crate) fn set_down(&self, reason: String) {
        self.reason.0.force_push(reason);
        self.state.store(DOWN, Ordering::Release);
    }

    /// Takes the reason why the function went down, if there is a new one.
    pub(crate) fn take_reason(&self) -> Option<String> {
        self.reason.0.pop()
    }
}

/// Sums of samples: nanoseconds, and the number by which they are divided. `work` counts packets, and `latency` counts
/// samples.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    work: (u64, u64),
    latency: (u64, u64),
}

/// The statistics of a hop, over all lanes and instances.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HopStats {
    /// The name of the hop.
    pub name: String,
    /// The name of the function.
    pub function: String,
    /// The class: `inline`, `ring` or `isolated`.
    pub class: &'static str,
    /// The state over all functions.
    pub state: HopState,
    /// The number of the group of parallel hops, from 1; `None` if the hop is in none.
    pub parallel: Option<usize>,
    /// The number of functions over all lanes.
    pub instances: usize,
    /// The number of restarts of functions.
    pub restarts: u64,
    /// The reason why a function went down last, or why the shared value could not be compiled; empty if neither
    /// happened.
    pub failure: String,
    /// The limits of each function, and the mechanisms that enforce them.
    pub limits: Vec<Limit>,
    /// The state of the shared value; `None` for kinds without one.
    pub shared: Option<SharedStatus>,
    /// Packets that the hop's functions processed.
    pub packets: u64,
    /// Bytes of the processed packets.
    pub bytes: u64,
    /// Packets with the verdict *next*.
    pub next: u64,
    /// Packets that skipped hops.
    pub skipped: u64,
    /// Packets that functions dropped.
    pub dropped: u64,
    /// Packets that functions sent out of a port.
    pub to_port: u64,
    /// Packets forwarded although the hop was down.
    pub passed: u64,
    /// Packets dropped because the hop was down.
    pub lost: u64,
    /// Packets that processes have now.
    pub depth: u64,
    /// Flows that the functions shun now.
    pub shunned_flows: u64,
    /// Packets of shunned flows that were forwarded without a call of a function.
    pub shunned_passed: u64,
    /// Packets of shunned flows that were dropped without a call of a function.
    pub shunned_dropped: u64,
    /// Packets that functions sent.
    pub sent: u64,
    /// Packets that functions could not send, because no buffer was free or because of a limit.
    pub not_sent: u64,
    /// The processing time of a packet in nanoseconds, from one of 64 bursts; `None` without samples.
    pub nanos_per_packet: Option<f64>,
    /// The latency that the hop adds in nanoseconds, from one of 64 bursts; `None` without samples.
    pub latency_nanos: Option<f64>,
    /// The function's own counters, summed.
    pub counters: Vec<(&'static str, u64)>,
    /// The reports of the functions in lines, such as the top senders of a monitor.
    pub report: String,
}

impl HopStats {
    /// Adds the state of the shared value: functions that have none yet do not work as configured.
    pub(crate) fn add_shared(&mut self, status: SharedStatus) {
        if !status.is_in_use && self.state == HopState::Up {
            self.state = match status.failure.is_empty() {
                true => HopState::Starting,
                false => HopState::Down,
            };
        }
        if !status.failure.is_empty() {
            self.failure.clone_from(&status.failure);
        }
        self.shared = Some(status);
    }

    pub(crate) fn add(&mut self, counters: &InstanceCounters, sampled: &mut Sampled) {
        self.instances += 1;
        self.state = match (self.state, counters.state()) {
            (HopState::Drained, _) => HopState::Drained,
            (HopState::Down, _) | (_, HopState::Down) => HopState::Down,
            (HopState::Starting, _) | (_, HopState::Starting) => HopState::Starting,
            (HopState::Up, _) => HopState::Up,
        };
        self.packets += counters.packets.read();
        self.bytes += counters.bytes.read();
        self.next += counters.next.read();
        self.skipped += counters.skipped.read();
        self.dropped += counters.dropped.read();
        self.to_port += counters.to_port.read();
        self.passed += counters.passed.read();
        self.lost += counters.lost.read();
        self.depth += counters.depth.read();
        self.shunned_flows += counters.shunned_flows.read();
        self.shunned_passed += counters.shunned_passed.read();
        self.shunned_dropped += counters.shunned_dropped.read();
        self.sent += counters.sent.read();
        self.not_sent += counters.not_sent.read();
        let mean = |(nanos, len): (u64, u64)| (len != 0).then(|| nanos as f64 / len as f64);
        sampled.work.0 += counters.sampled_nanos.read();
        sampled.work.1 += counters.sampled_packets.read();
        self.nanos_per_packet = mean(sampled.work);
        sampled.latency.0 += counters.latency_nanos.read();
        sampled.latency.1 += counters.latency_samples.read();
        self.latency_nanos = mean(sampled.latency);
    }
}

/// The statistics of a chain.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChainStats {
    /// The name of the chain.
    pub name: String,
    /// The port number of the near end.
    pub near: u32,
    /// The port number of the far end.
    pub far: u32,
    /// The number of workers that run the chain.
    pub lanes: usize,
    /// The hops, in order.
    pub hops: Vec<HopStats>,
}
