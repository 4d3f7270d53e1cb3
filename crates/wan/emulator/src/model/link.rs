//! The emulated link in virtual time: the waiting time of a frame, and the time at which its last bit is
//! sent.
//!
//! The backlog is counted in billionths of a bit. A rate in bits a second times nanoseconds is an integer in
//! this unit (ADR 6), so that no rounding error accumulates, at 300 bit/s as at 400 Gbit/s. A frame finds a
//! backlog, waits for it, and adds to it:
//!
//! ```text
//! backlog ^      .|
//!         |  |\. | \.          a frame of size s arrives: + s
//!         |  |  \|   \.        time passes: - rate (- the background's share)
//!         +--+---+-----\---> time
//! ```

use millrace_types::Time;

use super::background::{BackgroundModel, BackgroundState, Section};
use super::outcome::DropReason;
use super::queue::{Load, QueueModel, QueueState};
use crate::config::{Background, ConfigError, Framing, PathConfig, Rate};
use crate::random::Stream;
use crate::sources::Sources;

/// Billionths of a bit in a byte.
const BYTE: u128 = 8_000_000_000;

/// The parameters of a link.
#[derive(Debug, Clone)]
pub(crate) struct LinkModel {
    rate: u64,
    background: Option<BackgroundModel>,
    queue: QueueModel,
}

/// The streams of random numbers of the link's stages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkStreams {
    pub(crate) red: Stream,
    pub(crate) background: Stream,
}

/// The state of a link at the last arrival.
#[derive(Debug, Clone)]
pub(crate) struct LinkState {
    now: u64,
    /// The unsent backlog, in billionths of a bit.
    backlog: u128,
    queue: QueueState,
    background: BackgroundState,
}

impl LinkModel {
    /// Returns the link of a path, if it has a constant rate.
    pub(crate) fn compile(config: &PathConfig) -> Option<LinkModel> {
        let Some(Rate::Constant(rate)) = &config.rate else {
            return None;
        };
        Some(LinkModel {
            rate: rate.bps(),
            background: config
                .background
                .as_ref()
                .map(|given| BackgroundModel::new(given, rate.bps())),
            queue: QueueModel::new(config.queue),
        })
    }

    pub(crate) fn queue_mut(&mut self) -> &mut QueueModel {
        &mut self.queue
    }
}

impl LinkState {
    pub(crate) fn new(start: Time) -> LinkState {
        LinkState {
            now: start.nanos(),
            backlog: 0,
            queue: QueueState::default(),
            background: BackgroundState::new(start),
        }
    }

    /// Changes the rate of the link. The backlog is scaled, so that earlier frames take the same time as
    /// before. If there was no link, the new link begins at the last arrival.
    pub(crate) fn change(&mut self, old: Option<&LinkModel>, new: &LinkModel, last_arrival: Time) {
        let Some(old) = old else {
            self.backlog = 0;
            self.now = last_arrival.nanos();
            return;
        };
        if old.rate != new.rate {
            self.backlog = (self.backlog * u128::from(new.rate)).div_ceil(u128::from(old.rate));
        }
    }

    /// Returns the bytes of background traffic so far.
    pub(crate) fn background_bytes(&self) -> u64 {
        self.background.bytes()
    }

    /// Accepts a frame of `size` bytes on the link, or drops it. Returns the time at which the last bit of an
    /// accepted frame is sent, rounded up.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        model: &mut LinkModel,
        streams: LinkStreams,
        (arrival, frame): (Time, u64),
        size: u32,
    ) -> Result<Time, DropReason> {
        let idle = self.advance(model, streams.background, arrival.nanos());
        let bits = u128::from(size) * BYTE;
        let wait = to_nanos(self.backlog, model.rate);
        let load = Load {
            wait,
            bytes: self.backlog.saturating_add(bits).div_ceil(BYTE) as u64,
            idle_frames: idle as f64 * model.rate as f64 / bits.max(1) as f64,
        };
        self.queue
            .admit(&mut model.queue, streams.red, (arrival, frame), load)?;
        self.backlog += bits;
        Ok(Time::from_nanos(
            arrival.nanos().saturating_add(to_nanos(self.backlog, model.rate)),
        ))
    }

    /// Advances the link to `now`. Returns the nanoseconds without a backlog.
    fn advance(&mut self, model: &LinkModel, stream: Stream, now: u64) -> u64 {
        let Some(background) = &model.background else {
            let elapsed = now - self.now;
            self.now = now;
            return drain(&mut self.backlog, elapsed, model.rate);
        };
        let mut idle = 0;
        while self.now < now {
            if self.backlog == 0 {
                let skipped = self.background.skip(background, self.now, now);
                idle += skipped;
                self.now += skipped;
            }
            let Section { rate, until } = self.background.until(background, stream, self.now, now);
            idle += drain(&mut self.backlog, until - self.now, model.rate - rate);
            self.now = until;
        }
        idle
    }
}

/// Subtracts the bits that are sent in `elapsed` nanoseconds from the backlog. Returns the nanoseconds in
/// which the backlog was empty.
#[inline]
fn drain(backlog: &mut u128, elapsed: u64, rate: u64) -> u64 {
    if *backlog == 0 {
        return elapsed;
    }
    let sent = u128::from(elapsed) * u128::from(rate);
    if sent < *backlog {
        *backlog -= sent;
        return 0;
    }
    let idle = to_nanos(sent - *backlog, rate);
    *backlog = 0;
    idle
}

/// Returns the nanoseconds that `amount` takes at a rate, rounded up.
#[inline]
fn to_nanos(amount: u128, rate: u64) -> u64 {
    // A division of 128 bits is a function call. The backlog rarely needs it.
    match u64::try_from(amount) {
        Ok(amount) => amount.div_ceil(rate.max(1)),
        Err(_) => u64::try_from(amount.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX),
    }
}

/// The MTU of Ethernet, in bytes.
const ETHERNET_MTU: u16 = 1500;

/// Returns the maximum number of bytes that wait in front of a link or are in flight after it, counted as on
/// the link. Frames stay on the path for `stay` nanoseconds after the link.
pub(crate) fn bytes_in_flight(
    config: &PathConfig,
    stay: u64,
    sources: &dyn Sources,
) -> Result<Option<u64>, ConfigError> {
    Ok(match &config.rate {
        None => None,
        Some(Rate::Constant(rate)) => {
            let queue = QueueModel::new(config.queue);
            let mtu = config.mtu.unwrap_or(ETHERNET_MTU);
            let frame = u64::from(Framing::EthernetGap.effective_size(mtu.into(), 0));
            let queued = queue.most_bytes(rate.bps(), frame);
            let on_the_way = u128::from(rate.bps()) * u128::from(stay) / BYTE;
            Some(
                u64::try_from(on_the_way)
                    .unwrap_or(u64::MAX)
                    .saturating_add(queued),
            )
        }
        Some(Rate::Mahimahi(_)) => {
            let link = super::opportunities::OpportunityModel::compile(config, sources)?;
            link.map(|link| link.bytes_in_flight(stay))
        }
    })
}

/// Checks that the queue allows the background traffic.
pub(crate) fn check(config: &PathConfig) -> Result<(), ConfigError> {
    let in_packets = matches!(config.queue.depth, crate::config::Depth::Packets(_));
    if in_packets
        && matches!(
            config.background,
            Some(Background::Constant(_) | Background::OnOff { .. })
        )
    {
        let problem =
            "background traffic is a flow without packets; expected a queue in milliseconds or bytes";
        return Err(ConfigError::new("background", problem));
    }
    Ok(())
}
