//! What is counted at a hop: written by the lane's worker, read by anybody.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::cgroup::Limit;

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

/// Whether a hop works.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HopState {
    /// All of its functions work.
    #[default]
    Up,
    /// None is down, but the process of at least one has not shown life yet.
    Starting,
    /// At least one does not.
    Down,
    /// Packets pass over it, because somebody wants so.
    Drained,
}

impl HopState {
    /// A word for people and metrics.
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

/// Why a function went down last, until the control side has taken it.
#[derive(Debug)]
struct Reason(ArrayQueue<String>);

impl Default for Reason {
    fn default() -> Reason {
        Reason(ArrayQueue::new(1))
    }
}

/// Of one instance of a hop in one lane. Outlives the function: a restarted one counts on.
#[derive(Debug, Default)]
pub(crate) struct InstanceCounters {
    state: AtomicU8,
    reason: Reason,
    pub(crate) packets: Count,
    /// Of those packets, in all segments.
    pub(crate) bytes: Count,
    pub(crate) next: Count,
    pub(crate) skipped: Count,
    pub(crate) dropped: Count,
    pub(crate) to_port: Count,
    /// Went on although the hop was down.
    pub(crate) passed: Count,
    /// Dropped because the hop was down.
    pub(crate) lost: Count,
    pub(crate) sampled_packets: Count,
    pub(crate) sampled_nanos: Count,
    pub(crate) latency_samples: Count,
    pub(crate) latency_nanos: Count,
    /// Packets that are with the function's process now.
    pub(crate) depth: Count,
}

impl InstanceCounters {
    pub(crate) fn is_down(&self) -> bool {
        self.state.load(Ordering::Acquire) == DOWN
    }

    /// The function works.
    pub(crate) fn set_up(&self) {
        self.state.store(UP, Ordering::Release);
    }

    /// The function's process was started, and has not shown life.
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

    /// The function does not work, and why.
    pub(crate) fn set_down(&self, reason: String) {
        self.reason.0.force_push(reason);
        self.state.store(DOWN, Ordering::Release);
    }

    /// Why it went down, once.
    pub(crate) fn take_reason(&self) -> Option<String> {
        self.reason.0.pop()
    }
}

/// Sums of what was sampled: nanoseconds, and over how many.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    work: (u64, u64),
    latency: (u64, u64),
}

/// What a hop did, over all lanes and instances.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HopStats {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: String,
    /// Where that runs: `inline`, `ring`, `isolated`.
    pub class: &'static str,
    /// Whether it works.
    pub state: HopState,
    /// Which group of hops it is given packets together with, counted from 1; `None` if with none.
    pub parallel: Option<usize>,
    /// Functions over all lanes.
    pub instances: usize,
    /// Functions that were made again after they had failed.
    pub restarts: u64,
    /// Why one of its functions went down last; empty if none ever did.
    pub failure: String,
    /// What each of its functions may use, and what sees to that.
    pub limits: Vec<Limit>,
    /// Packets that it was given.
    pub packets: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Those that went on to the next hop, or out.
    pub next: u64,
    /// Those that skipped hops.
    pub skipped: u64,
    /// Those that it dropped.
    pub dropped: u64,
    /// Those that it sent out of a port.
    pub to_port: u64,
    /// Those that went on although it was down.
    pub passed: u64,
    /// Those that were dropped because it was down.
    pub lost: u64,
    /// Packets that are with processes now.
    pub depth: u64,
    /// What a packet costs here in nanoseconds, from one burst in 64; `None` if none was measured.
    pub nanos_per_packet: Option<f64>,
    /// How much later packets go on because of this hop, in nanoseconds, from one burst in 64; `None` if none was
    /// measured.
    pub latency_nanos: Option<f64>,
    /// The function's own counters, summed.
    pub counters: Vec<(&'static str, u64)>,
    /// What its functions report, a line for each thing: of a monitor, the largest senders and their bytes.
    pub report: String,
}

impl HopStats {
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
        let mean = |(nanos, len): (u64, u64)| (len != 0).then(|| nanos as f64 / len as f64);
        sampled.work.0 += counters.sampled_nanos.read();
        sampled.work.1 += counters.sampled_packets.read();
        self.nanos_per_packet = mean(sampled.work);
        sampled.latency.0 += counters.latency_nanos.read();
        sampled.latency.1 += counters.latency_samples.read();
        self.latency_nanos = mean(sampled.latency);
    }
}

/// What a chain did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChainStats {
    /// Its name.
    pub name: String,
    /// The ends.
    pub near: u32,
    /// The ends.
    pub far: u32,
    /// Workers that run it.
    pub lanes: usize,
    /// Its hops, in order.
    pub hops: Vec<HopStats>,
}
