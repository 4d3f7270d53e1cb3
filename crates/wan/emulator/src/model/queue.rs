//! The queue in front of a link: tail drop at exactly the configured depth, and random early detection.

use std::collections::VecDeque;

use libm::pow;
use millrace_types::Time;

use super::outcome::DropReason;
use crate::config::{Depth, Queue, Red};
use crate::random::Stream;

/// The parameters of a queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueModel {
    depth: Depth,
    red: Option<Red>,
    /// The times at which the link begins to send the waiting frames. There are at most as many as the depth
    /// in packets. The memory is allocated with the parameters. A change of parameters moves the contents
    /// into the new memory.
    starts: VecDeque<u64>,
}

/// The backlog that a frame finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Nanoseconds until the frame's first bit is sent.
    pub(crate) wait: u64,
    /// Unsent bytes including the frame, rounded up.
    pub(crate) bytes: u64,
    /// The idle time of the link, in transmission times of frames of this size.
    pub(crate) idle_frames: f64,
}

/// The state of random early detection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueState {
    /// The average queue as a share of the depth.
    average: f64,
    /// Frames since the last drop.
    since_drop: u32,
}

impl QueueModel {
    pub(crate) fn new(config: Queue) -> QueueModel {
        let len = match config.depth {
            Depth::Packets(packets) => packets as usize,
            Depth::Time(_) | Depth::Bytes(_) => 0,
        };
        QueueModel {
            depth: config.depth,
            red: config.red,
            starts: VecDeque::with_capacity(len),
        }
    }

    /// Moves the start times of the waiting frames here from `old`. If there are more frames than the depth,
    /// the oldest are left out, because they are sent first.
    pub(crate) fn change(&mut self, old: &mut QueueModel) {
        if let Depth::Packets(depth) = self.depth {
            let surplus = old.starts.len().saturating_sub(depth as usize);
            self.starts.extend(old.starts.drain(..).skip(surplus));
        }
    }

    /// Returns the maximum number of bytes that wait, at a rate in bits per second and with frames of `frame`
    /// bytes.
    pub(crate) fn most_bytes(&self, rate: u64, frame: u64) -> u64 {
        match self.depth {
            Depth::Time(depth) => {
                let bytes = u128::from(rate) * u128::from(depth.nanos()) / 8_000_000_000;
                u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(frame)
            }
            Depth::Packets(packets) => (u64::from(packets) + 1) * frame,
            Depth::Bytes(bytes) => bytes.0,
        }
    }
}

impl QueueState {
    /// Admits a frame, or drops it.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        model: &mut QueueModel,
        stream: Stream,
        (arrival, frame): (Time, u64),
        load: Load,
    ) -> Result<(), DropReason> {
        if let Some(red) = model.red {
            self.detect(model, red, stream, (arrival, frame), load)?;
        }
        match model.depth {
            Depth::Time(depth) if load.wait > depth.nanos() => Err(DropReason::QueueFull),
            Depth::Bytes(depth) if load.bytes > depth.0 => Err(DropReason::QueueFull),
            Depth::Packets(depth) if load.wait > 0 => {
                if model.waiting(arrival) >= depth {
                    return Err(DropReason::QueueFull);
                }
                model.starts.push_back(arrival.nanos().saturating_add(load.wait));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn detect(
        &mut self,
        model: &mut QueueModel,
        red: Red,
        stream: Stream,
        (arrival, frame): (Time, u64),
        load: Load,
    ) -> Result<(), DropReason> {
        let share = match model.depth {
            Depth::Time(depth) => load.wait as f64 / depth.nanos().max(1) as f64,
            Depth::Bytes(depth) => load.bytes as f64 / depth.0.max(1) as f64,
            Depth::Packets(depth) => f64::from(model.waiting(arrival)) / f64::from(depth.max(1)),
        };
        let weight = red.weight.get();
        // While the link is idle, the average falls as if that many frames had found an empty queue.
        if load.idle_frames > 0.0 {
            self.average *= pow(1.0 - weight, load.idle_frames);
        }
        self.average += weight * (share - self.average);
        let (min, max) = (red.min.get(), red.max.get());
        if self.average < min {
            self.since_drop = 0;
            return Ok(());
        }
        let base = red.probability.get() * (self.average - min) / (max - min);
        // Drops are spread evenly: the probability grows with the number of frames since the last drop.
        let spread = 1.0 - f64::from(self.since_drop) * base;
        let drop = self.average >= max || spread <= 0.0 || stream.fraction(frame) < base / spread;
        self.since_drop = if drop {
            0
        } else {
            self.since_drop.saturating_add(1)
        };
        if drop { Err(DropReason::RedEarly) } else { Ok(()) }
    }
}

impl QueueModel {
    /// Returns the number of frames that the link has not begun to send, exact up to the depth.
    fn waiting(&mut self, arrival: Time) -> u32 {
        while self.starts.front().is_some_and(|start| *start <= arrival.nanos()) {
            self.starts.pop_front();
        }
        self.starts.len() as u32
    }
}
