//! A link that sends at the times of a file, as Mahimahi's `mm-link` does.
//!
//! Each time is an opportunity to send 1,504 bytes of layer-3 packets with 4 bytes of overhead each. A packet
//! may need several opportunities, and several packets may share one. An opportunity without a waiting packet
//! is lost.

use millrace_types::Time;

use super::outcome::DropReason;
use super::queue::{Load, QueueModel, QueueState};
use crate::config::{ConfigError, PathConfig, Rate};
use crate::random::Stream;
use crate::sources::Sources;

/// The bytes of an opportunity: Mahimahi's `PACKET_SIZE`.
const OPPORTUNITY: u32 = 1504;
/// The bytes that Mahimahi counts besides a layer-3 packet: the header of its tun device.
const OVERHEAD: u32 = 4;
const MILLISECOND: u64 = 1_000_000;

/// The parameters of the link.
#[derive(Debug, Clone)]
pub(crate) struct OpportunityModel {
    /// The times of the opportunities in milliseconds, not decreasing. The last one is the period.
    times: Box<[u32]>,
    queue: QueueModel,
}

/// The state of the link.
#[derive(Debug, Clone)]
pub(crate) struct OpportunityState {
    start: u64,
    /// The number of the next opportunity with unused bytes, counted from the start.
    next: u64,
    /// The number of its bytes that are used.
    used: u32,
    queue: QueueState,
}

impl OpportunityModel {
    /// Returns the link of a path, if its rate is a file.
    pub(crate) fn compile(
        config: &PathConfig,
        sources: &dyn Sources,
    ) -> Result<Option<OpportunityModel>, ConfigError> {
        let Some(Rate::Mahimahi(name)) = &config.rate else {
            return Ok(None);
        };
        let text = sources
            .read(name)
            .map_err(|error| ConfigError::new("rate", error))?;
        let times = crate::tables::opportunities(&text);
        Ok(Some(OpportunityModel {
            times: times.map_err(|error| ConfigError::new("rate", format!("{name}: {error}")))?,
            queue: QueueModel::new(config.queue),
        }))
    }

    pub(crate) fn queue_mut(&mut self) -> &mut QueueModel {
        &mut self.queue
    }

    /// Returns the bytes of opportunities that a layer-3 packet of `payload` bytes uses.
    pub(crate) fn on_link(payload: u32) -> u32 {
        payload + OVERHEAD
    }

    fn period(&self) -> u64 {
        self.times.last().map_or(1, |last| u64::from(*last)) * MILLISECOND
    }

    /// Returns the time of an opportunity, in nanoseconds from the start.
    fn time(&self, number: u64) -> u64 {
        let len = self.times.len() as u64;
        let within = self.times[(number % len) as usize];
        (number / len)
            .saturating_mul(self.period())
            .saturating_add(u64::from(within) * MILLISECOND)
    }

    /// Returns the first opportunity at or after a time in nanoseconds from the start.
    fn first_from(&self, time: u64) -> u64 {
        let (cycle, within) = (time / self.period(), time % self.period());
        let before = self
            .times
            .partition_point(|at| u64::from(*at) * MILLISECOND < within) as u64;
        let first = cycle * self.times.len() as u64 + before;
        // The last opportunity of a cycle may be at the same time as the first of the next.
        match first.checked_sub(1) {
            Some(earlier) if self.time(earlier) >= time => self.first_at(time, earlier),
            _ => first,
        }
    }

    /// Returns the first opportunity with the same time as `number`, searching backwards.
    fn first_at(&self, time: u64, mut number: u64) -> u64 {
        while number > 0 && self.time(number - 1) >= time {
            number -= 1;
        }
        number
    }

    /// Returns the maximum number of bytes that wait or are in flight. They stay on the path for `stay`
    /// nanoseconds after the link.
    pub(crate) fn bytes_in_flight(&self, stay: u64) -> u64 {
        let len = self.times.len() as u64;
        let most = (0..len)
            .map(|first| self.first_from(self.time(first).saturating_add(stay + 1)) - first)
            .max();
        let sent = most.unwrap_or(len).saturating_mul(u64::from(OPPORTUNITY));
        let mean_rate = u128::from(len) * u128::from(OPPORTUNITY) * 8_000_000_000 / u128::from(self.period());
        // If the queue is limited by time, frames from the fastest part of the file may wait. Twice the mean
        // rate suffices for all but the most uneven files.
        let queued = self
            .queue
            .most_bytes(2 * mean_rate as u64, u64::from(OPPORTUNITY));
        sent.saturating_add(queued)
    }
}

impl OpportunityState {
    pub(crate) fn new(start: Time) -> OpportunityState {
        OpportunityState {
            start: start.nanos(),
            next: 0,
            used: 0,
            queue: QueueState::default(),
        }
    }

    /// Continues with another file. Its first opportunity is at the time at which the link would send next.
    pub(crate) fn change(&mut self, old: &OpportunityModel, new: &OpportunityModel) {
        if old.times != new.times {
            self.next = new.first_from(old.time(self.next));
            self.used = 0;
        }
    }

    /// Accepts a layer-3 packet of `payload` bytes, or drops it. Returns the time at which the last byte of
    /// an accepted packet is sent.
    pub(crate) fn offer(
        &mut self,
        model: &mut OpportunityModel,
        red: Stream,
        (arrival, frame): (Time, u64),
        payload: u32,
    ) -> Result<Time, DropReason> {
        let now = arrival.nanos().saturating_sub(self.start);
        let first = model.first_from(now);
        let idle = first > self.next;
        let (next, used) = if idle { (first, 0) } else { (self.next, self.used) };
        let size = OpportunityModel::on_link(payload);
        let end = u64::from(used) + u64::from(size);
        // The opportunity that sends the last byte.
        let last = next + (end - 1) / u64::from(OPPORTUNITY);
        let sent = Time::from_nanos(self.start.saturating_add(model.time(last)).max(arrival.nanos()));
        let load = Load {
            wait: sent.nanos() - arrival.nanos(),
            bytes: (next - first) * u64::from(OPPORTUNITY) + end,
            idle_frames: if idle { (first - self.next) as f64 } else { 0.0 },
        };
        self.queue.admit(&mut model.queue, red, (arrival, frame), load)?;
        (self.next, self.used) = (
            next + end / u64::from(OPPORTUNITY),
            (end % u64::from(OPPORTUNITY)) as u32,
        );
        Ok(sent)
    }
}
