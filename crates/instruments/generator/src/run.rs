//! The state of a run, and the processing of a received packet.
//!
//! The states of a run:
//!
//! ```text
//!            start               duration over, all sent, or stop              quiet, or DRAIN_MAX over
//!    Idle ───────────> Sending ─────────────────────────────────> Draining ──────────────────────────> Idle
//!                      sends and receives                         receives only              final report
//! ```

use std::time::Duration;

use millrace_dpdk::{Mbuf, clock};

use crate::control::Rate;
use crate::messages::IntervalLatencies;
use crate::pace::Pacer;
use crate::report::Counters;
use crate::settings::Settings;
use crate::stamp::{self, Stamp, StampLocation, TIME_SHIFT};
use crate::templates::Templates;
use crate::track::Tracker;

/// The longest wait for the last packets of a run.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// The phase of a run; the head of this file draws the transitions. Times are in ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Phase {
    Idle,
    Sending { until: Option<u64> },
    Draining { quiet_since: u64, until: u64 },
}

/// The state of a run.
pub(crate) struct Run {
    pub(crate) number: u64,
    pub(crate) id: u16,
    pub(crate) rate: Rate,
    pub(crate) pacer: Pacer,
    pub(crate) phase: Phase,
    pub(crate) start: u64,
    pub(crate) sending: u64,
    pub(crate) next_report: u64,
    pub(crate) seq: u64,
    pub(crate) index: usize,
    /// The transmit queue, and the range of packets that are sent repeatedly.
    pub(crate) tx: usize,
    pub(crate) first: usize,
    pub(crate) len: usize,
    /// The sequence number at which the run ends.
    pub(crate) seq_end: u64,
    pub(crate) counters: Counters,
    /// The number of received packets without a stamp that count as packets of the run.
    pub(crate) unstamped: u64,
    /// True if some packets of the run carry no stamp, so that a packet without one may belong to the run.
    pub(crate) counts_unstamped: bool,
    pub(crate) tracker: Tracker,
    pub(crate) latencies: Box<IntervalLatencies>,
    /// The time of the last poll of the queues, and of the end of the last absence, in ticks.
    pub(crate) polled_at: u64,
    pub(crate) resumed_at: u64,
    pub(crate) absent: u64,
    pub(crate) absence_max: u64,
}

/// Pauses of the sender at a fixed interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SleepTicks {
    /// The time from one sleep to the next, in ticks.
    pub(crate) every: u64,
    pub(crate) length: Duration,
}

/// The durations of the settings, in ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    pub(crate) ns_per_tick: f64,
    pub(crate) absence: u64,
    pub(crate) drain: u64,
    pub(crate) drain_max: u64,
    pub(crate) interval: u64,
    pub(crate) sleep: Option<SleepTicks>,
}

impl Ticks {
    pub(crate) fn new(settings: &Settings, hz: u64) -> Ticks {
        Ticks {
            ns_per_tick: 1e9 / hz.max(1) as f64,
            absence: ticks(settings.absence, hz),
            drain: ticks(settings.drain, hz),
            drain_max: ticks(DRAIN_MAX, hz),
            interval: ticks(settings.interval, hz),
            sleep: settings.sleep.map(|sleep| SleepTicks {
                every: ticks(sleep.every, hz),
                length: sleep.length,
            }),
        }
    }

    pub(crate) fn next_report(&self, now: u64) -> u64 {
        match self.interval {
            0 => u64::MAX,
            interval => now + interval,
        }
    }

    #[inline]
    pub(crate) fn nanoseconds(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// Returns a duration in ticks.
pub(crate) fn ticks(duration: Duration, hz: u64) -> u64 {
    (duration.as_nanos() * u128::from(hz) / 1_000_000_000) as u64
}

/// Ends the sending phase of a run; packets in flight may still arrive.
pub(crate) fn stop(run: &mut Run, times: &Ticks) {
    if let Phase::Sending { until } = run.phase {
        let now = clock::rdtsc();
        // If the loop was absent at the end of the duration, it sent no packets after that end.
        let end = until.map_or(now, |until| until.min(now));
        run.sending = end - run.start;
        if run.seq < run.seq_end {
            run.pacer.close(end);
        }
        run.phase = Phase::Draining {
            quiet_since: now,
            until: now + times.drain_max,
        };
    }
}

impl Run {
    /// Records a poll of the queues, and an absence if the previous poll is too long ago.
    #[inline]
    pub(crate) fn record_poll(&mut self, now: u64, absence: u64) {
        let since_poll = now.saturating_sub(self.polled_at);
        self.polled_at = now;
        if since_poll > absence {
            self.resumed_at = now;
            if self.phase != Phase::Idle {
                self.counters.absences += 1;
                self.absent += since_poll;
                self.absence_max = self.absence_max.max(since_poll);
            }
        }
    }

    #[inline]
    pub(crate) fn take(
        &mut self,
        packet: &Mbuf,
        device: usize,
        now: u64,
        times: &Ticks,
        templates: &Templates,
        verify: bool,
    ) {
        let frame = packet.head();
        let stamped =
            StampLocation::of(frame).and_then(|location| Some((location, Stamp::read(frame, location)?)));
        let Some((location, stamp)) = stamped else {
            if self.counts_unstamped {
                self.unstamped += 1;
            } else {
                self.counters.foreign += 1;
            }
            return;
        };
        if stamp.run != self.id {
            self.counters.stale += 1;
            return;
        }
        let seq = stamp::widen(stamp.seq, self.seq);
        let Some((template, sent)) = templates.get(self.first + (seq % self.len as u64) as usize) else {
            return;
        };
        let unique = self.tracker.counts.unique;
        self.tracker.arrive(seq, template.flow);
        if self.tracker.counts.unique == unique {
            return;
        }
        if let Some(count) = self.counters.received_by.get_mut(device) {
            *count += 1;
        }
        // The poll that received this packet is not recorded yet.
        let since_poll = now.saturating_sub(self.polled_at);
        let then = stamp::widen(stamp.time, now >> TIME_SHIFT) << TIME_SHIFT;
        let ns = times.nanoseconds(now.saturating_sub(then));
        self.latencies.all.record(ns);
        if then >= self.resumed_at && since_poll <= times.absence {
            self.latencies.attended.record(ns);
        }
        if verify && !is_intact(packet, location, sent, template.location) {
            self.counters.corrupted += 1;
        }
    }
}

/// Returns true if the header checksum is valid and the payload equals the sent payload. VLAN tags may
/// differ.
fn is_intact(
    packet: &Mbuf,
    location: StampLocation,
    sent: &[u8],
    sent_location: Option<StampLocation>,
) -> bool {
    let Some(payload) = sent_location.and_then(|location| sent.get(location.end()..)) else {
        return true;
    };
    let mut offset = location.end();
    if packet.len() != offset + payload.len() {
        return false;
    }
    let mut left = payload;
    for segment in packet.segments() {
        let Some(bytes) = segment.get(offset.min(segment.len())..) else {
            return false;
        };
        offset = offset.saturating_sub(segment.len());
        let (here, rest) = left.split_at(bytes.len().min(left.len()));
        if bytes != here {
            return false;
        }
        left = rest;
    }
    left.is_empty() && stamp::has_valid_ipv4_checksum(packet.head())
}
