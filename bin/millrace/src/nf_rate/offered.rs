//! A measurement at a fixed packet rate. Packets wait for the function in a queue, and are lost when the
//! queue is full.
//!
//! ```text
//!  arrivals at a rate ─▶ queue of 4,096 packets ─▶ bursts of 32 ─▶ function ─▶ latency: from arrival to the end of the burst
//!                             │ full                    ▲
//!                             ▼                         └── another shared value, once it is compiled
//!                            lost
//! ```
//!
//! The clock is stopped while packets are made, because in operation the link does this work.

use core::fmt;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use millrace_nf::{Buffer, Compiled, Context, Effects, Function, Sending, Setup, SharedKind, Verdict};
use millrace_process::{OtherCores, claim_core};
use millrace_types::Time;
use serde::Serialize;

use super::traffic::{Processed, Traffic};

/// The maximum number of packets in a burst, as in a worker of the switch.
pub(super) const BURST: usize = 32;
/// The interval of the function's `tick` calls.
pub(super) const TICK: millrace_types::Duration = millrace_types::Duration::from_millis(100);
/// The maximum number of packets in the queue.
const QUEUE: u64 = 4096;
/// The divisor of the measured time: the reload starts after one quarter of it.
const RELOAD_AFTER: u32 = 4;
/// The time after the exchange of the value that still counts as part of the reload.
const SETTLE: Duration = Duration::from_millis(200);

/// The offered load.
pub(super) struct Offered {
    rate: f64,
    limit: Duration,
    /// The number of the last pass before this measurement.
    pass: u64,
    start: Time,
}

/// The result of the measurement.
pub(super) struct Outcome {
    pub(super) processed: Processed,
    pub(super) elapsed: Duration,
    pub(super) now: Time,
    pub(super) summary: Summary,
}

/// The queue in front of the function.
#[derive(Serialize)]
pub(super) struct Summary {
    offered_per_second: f64,
    /// Packets that arrived: carried, lost, or still in the queue at the end.
    arrived: u64,
    /// Packets in the queue at the end.
    waiting: u64,
    /// Packets that were lost because the queue was full.
    lost: u64,
    /// Latency outside of the reload; `None` if no packet was processed then.
    latency_us: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reload: Option<Reload>,
}

/// A reload under load.
#[derive(Serialize)]
struct Reload {
    /// Time from the start of the reload to the use of the new value, in seconds.
    seconds: f64,
    /// Packets that were lost during this time.
    lost: u64,
    /// Time in which the function exchanged the value, in microseconds.
    exchange_us: f64,
    /// Latency during the reload; `None` if no packet was processed then.
    latency_us: Option<Latency>,
}

/// Percentiles in microseconds.
#[derive(Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50, p99, p999, max } = self;
        write!(f, "p50 {p50:.1} us, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1}")
    }
}

/// Returns the text of a latency that may be unknown.
fn text(latency: Option<&Latency>) -> String {
    latency.map_or_else(|| "unknown".to_owned(), Latency::to_string)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mpps = self.offered_per_second / 1e6;
        writeln!(
            f,
            "offered {mpps:.3} Mpps, {} lost, latency {}",
            self.lost,
            text(self.latency_us.as_ref())
        )?;
        if let Some(reload) = &self.reload {
            let Reload {
                seconds,
                lost,
                exchange_us,
                latency_us,
            } = reload;
            writeln!(
                f,
                "reload in {seconds:.1} s, {lost} lost, exchanged in {exchange_us:.1} us, latency {}",
                text(latency_us.as_ref())
            )?;
        }
        Ok(())
    }
}

/// Latencies in buckets of a sixteenth of an octave.
struct Histogram {
    buckets: Vec<u64>,
    max: u64,
}

impl Histogram {
    const PARTS: u32 = 16;

    fn new() -> Histogram {
        Histogram {
            buckets: vec![0; 64 * Histogram::PARTS as usize],
            max: 0,
        }
    }

    fn record(&mut self, nanos: u64) {
        let nanos = nanos.max(Histogram::PARTS.into());
        let octave = nanos.ilog2();
        let part = (nanos >> (octave - 4)) as usize & 15;
        self.buckets[octave as usize * Histogram::PARTS as usize + part] += 1;
        self.max = self.max.max(nanos);
    }

    /// Returns the upper end of the bucket of a quantile, in microseconds.
    fn quantile(&self, quantile: f64) -> f64 {
        let all: u64 = self.buckets.iter().sum();
        let wanted = (all as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                let (octave, part) = (at / 16, at % 16);
                let upper = (1.0 + (part as f64 + 1.0) / 16.0) * 2f64.powi(octave as i32);
                return upper.min(self.max as f64) / 1e3;
            }
        }
        0.0
    }

    fn latency(&self) -> Option<Latency> {
        (self.max > 0).then(|| Latency {
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max as f64 / 1e3,
        })
    }
}

/// A clock that is stopped while packets are made.
struct Clock {
    start: Instant,
    excluded: Duration,
}

impl Clock {
    fn now(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.excluded)
    }
}

/// A reload in progress.
struct Reloading {
    compiled: Receiver<Result<Compiled, String>>,
    since: Duration,
    lost: u64,
}

impl Offered {
    pub(super) fn new(rate: f64, limit: Duration, pass: u64, start: Time) -> Offered {
        Offered {
            rate,
            limit,
            pass,
            start,
        }
    }

    /// Offers packets to a function for the configured time, and reloads its shared value if `reload` is
    /// given. If the new value is not ready by then, the measurement ends later.
    pub(super) fn run(
        &self,
        function: &mut dyn Function,
        load: &mut Traffic,
        setup: &Setup,
        reload: Option<&'static SharedKind>,
    ) -> Result<Outcome> {
        let mut clock = Clock {
            start: Instant::now(),
            excluded: Duration::ZERO,
        };
        let mut effects = Effects::new();
        // The numbers of waiting packets, as ranges.
        let mut queue: VecDeque<(u64, u64)> = VecDeque::with_capacity(QUEUE as usize);
        let (mut arrived, mut waiting, mut lost) = (0u64, 0u64, 0u64);
        let mut processed = Processed::default();
        let (mut quiet, mut busy) = (Histogram::new(), Histogram::new());
        let (mut reloading, mut reloaded): (Option<Reloading>, Option<(Reload, Duration)>) = (None, None);
        let mut pending = reload;
        // As in a switch, the compilation does not use the function's core.
        let others = reload.and_then(|_| claim_core());
        let mut next_tick = Duration::ZERO;
        let len = load.frames.len() as u64;
        loop {
            let now = clock.now();
            let due = (now.as_secs_f64() * self.rate) as u64;
            if due > arrived {
                let new = due - arrived;
                let fits = new.min(QUEUE - waiting);
                if fits > 0 {
                    match queue.back_mut() {
                        Some(last) if last.1 == arrived => last.1 += fits,
                        _ => queue.push_back((arrived, arrived + fits)),
                    }
                }
                waiting += fits;
                lost += new - fits;
                arrived = due;
            }
            if now >= self.limit && pending.is_none() && reloading.is_none() {
                break;
            }
            let time = self.start + millrace_types::Duration::from_nanos(now.as_nanos() as u64);
            if now >= next_tick {
                next_tick = now + Duration::from_nanos(TICK.as_nanos() as u64);
                function.tick(time);
                let began = Instant::now();
                while setup.outbox.receive(|_| {}) {}
                clock.excluded += began.elapsed();
            }
            if pending.is_some() && now >= self.limit / RELOAD_AFTER {
                reloading = pending.take().map(|kind| Reloading {
                    compiled: compile(kind, setup, others),
                    since: now,
                    lost,
                });
            }
            if let Some(current) = &reloading
                && let Ok(compiled) = current.compiled.try_recv()
            {
                let value = compiled.map_err(|reason| anyhow!(reason))?.value;
                let began = Instant::now();
                let old = function.share(value);
                let exchange_us = began.elapsed().as_secs_f64() * 1e6;
                spawn_on(others, move || drop(old));
                let latency_us = busy.latency();
                let seconds = clock.now().saturating_sub(current.since).as_secs_f64();
                let lost = lost - current.lost;
                reloaded = Some((
                    Reload {
                        seconds,
                        lost,
                        exchange_us,
                        latency_us,
                    },
                    now + SETTLE,
                ));
                reloading = None;
            }
            let Some((first, end)) = queue.front_mut() else {
                core::hint::spin_loop();
                continue;
            };
            let at = (*first % len) as usize;
            let most = (*end - *first).min(BURST as u64).min(len - at as u64) as usize;
            let count = load.run(at, most);
            let number = *first;
            *first += count as u64;
            if *first == *end {
                queue.pop_front();
            }
            let fill = (waiting * 255 / QUEUE).min(255) as u8;
            waiting -= count as u64;
            let began = Instant::now();
            load.renew(at..at + count, self.pass + 1 + number / len);
            let mut burst: Vec<&mut dyn Buffer> = load.frames[at..at + count]
                .iter_mut()
                .map(|frame| frame as &mut dyn Buffer)
                .collect();
            let mut verdicts = [Verdict::Next; BURST];
            effects.reset(Sending::Allowed);
            let context = Context {
                load: fill,
                ..Context::new(time, load.templates[at].0)
            };
            clock.excluded += began.elapsed();
            function.process_with_effects(&context, &mut burst, &mut verdicts[..count], &mut effects);
            let done = clock.now();
            load.count(at, &verdicts[..count], &mut processed);
            let is_settling = reloaded.as_ref().is_some_and(|(_, until)| done < *until);
            let histogram = match reloading.is_some() || is_settling {
                true => &mut busy,
                false => &mut quiet,
            };
            for packet in number..number + count as u64 {
                let arrival = packet as f64 / self.rate;
                histogram.record(((done.as_secs_f64() - arrival).max(0.0) * 1e9) as u64);
            }
        }
        let elapsed = clock.now();
        let reload = reloaded.map(|(reload, _)| Reload {
            latency_us: busy.latency(),
            ..reload
        });
        Ok(Outcome {
            processed,
            elapsed,
            now: self.start + millrace_types::Duration::from_nanos(elapsed.as_nanos() as u64),
            summary: Summary {
                offered_per_second: self.rate,
                arrived,
                waiting,
                lost,
                latency_us: quiet.latency(),
                reload,
            },
        })
    }
}

/// Starts a thread on the given cores, or on those of the caller if there are none.
fn spawn_on(cores: Option<OtherCores>, work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        if let Some(cores) = cores {
            cores.enter();
        }
        work();
    });
}

/// Compiles the shared value again, in a thread.
fn compile(
    kind: &'static SharedKind,
    setup: &Setup,
    cores: Option<OtherCores>,
) -> Receiver<Result<Compiled, String>> {
    let (sender, receiver) = mpsc::channel();
    let (settings, previous) = (setup.settings.clone(), setup.shared.clone());
    spawn_on(cores, move || {
        let compiled =
            (kind.read)(&settings).and_then(|source| (kind.compile)(&source.bytes, previous.as_ref()));
        // If the receiver is gone, the measurement has ended.
        let _ended = sender.send(compiled);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_recorded_values() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|micros| histogram.record(micros * 1000));
        for (quantile, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(quantile);
            assert!(
                (expected..=expected * 1.07).contains(&found),
                "{quantile}: {found}"
            );
        }
    }
}
