//! One path: its stages, one after the other.

use millrace_types::Time;

use super::chance::{Chance, LastDraw};
use super::corrupt::{CorruptModel, CorruptStreams};
use super::delay::{DelayModel, DelayState};
use super::link::{LinkModel, LinkState, LinkStreams, bytes_in_flight, check};
use super::loss::{LossModel, LossState, Sent};
use super::opportunities::{OpportunityModel, OpportunityState};
use super::outcome::{DropReason, Outcome, Outcomes, Release};
use super::queue::QueueModel;
use crate::config::{ConfigError, Framing, Order, OverMtu, PathConfig, Shift};
use crate::random::{Seed, Stage, Stream};
use crate::ring::records::UNIT;
use crate::sources::Sources;

/// A compiled configuration: files are read, tables are computed, memory is allocated.
#[derive(Debug, Clone)]
pub struct PathModel {
    mtu: Option<u16>,
    over_mtu: OverMtu,
    framing: Framing,
    link: Option<LinkModel>,
    opportunities: Option<OpportunityModel>,
    loss: LossModel,
    delay: DelayModel,
    order: Order,
    reorder: Option<ReorderModel>,
    duplicate: Option<DuplicateModel>,
    corrupt: Option<CorruptModel>,
    bytes_in_flight: Option<u64>,
    /// The longest time that a frame stays on the path after the link, in nanoseconds.
    stay: u64,
}

#[derive(Debug, Clone, Copy)]
struct ReorderModel {
    chance: Chance,
    shift: Shift,
    gap: u32,
}

#[derive(Debug, Clone, Copy)]
struct DuplicateModel {
    chance: Chance,
    /// The time from the first to the second copy, in nanoseconds.
    extra: u64,
}

impl PathModel {
    /// Returns the model of a configuration.
    ///
    /// # Errors
    /// [`ConfigError`] if settings contradict each other or a file cannot be read.
    pub fn compile(config: &PathConfig, sources: &dyn Sources) -> Result<PathModel, ConfigError> {
        config.validate()?;
        check(config)?;
        let delay = DelayModel::compile(config, sources)?;
        let reorder = config.reorder.map(|reorder| ReorderModel {
            chance: Chance::new(reorder.probability, reorder.correlation),
            shift: reorder.shift,
            gap: reorder.gap.unwrap_or(1),
        });
        let duplicate = config.duplicate.map(|duplicate| DuplicateModel {
            chance: Chance::new(duplicate.probability, duplicate.correlation),
            extra: duplicate.extra.nanos(),
        });
        let later = match reorder.map(|reorder| reorder.shift) {
            Some(Shift::Later(extra)) => extra.nanos(),
            Some(Shift::Ahead) | None => 0,
        };
        let stay = delay.longest() + later + duplicate.map_or(0, |duplicate| duplicate.extra);
        Ok(PathModel {
            mtu: config.mtu,
            over_mtu: config.over_mtu,
            framing: config.framing,
            link: LinkModel::compile(config),
            opportunities: OpportunityModel::compile(config, sources)?,
            loss: LossModel::compile(&config.loss, sources)?,
            delay,
            order: config.order,
            reorder,
            duplicate,
            corrupt: config.corrupt.as_ref().map(CorruptModel::new),
            bytes_in_flight: bytes_in_flight(config, stay, sources)?,
            stay,
        })
    }

    fn queue_mut(&mut self) -> Option<&mut QueueModel> {
        match (&mut self.link, &mut self.opportunities) {
            (Some(link), _) => Some(link.queue_mut()),
            (None, Some(link)) => Some(link.queue_mut()),
            (None, None) => None,
        }
    }

    /// Returns the maximum number of bytes on the link that wait or are in flight. Returns `None` without a
    /// rate.
    pub fn bytes_in_flight(&self) -> Option<u64> {
        self.bytes_in_flight
    }

    /// Returns the maximum number of bytes that frames in flight take in a ring of records. Returns `None`
    /// for a path with a delay and without a rate.
    pub(crate) fn record_bytes(&self) -> Option<u64> {
        let Some(bytes) = self.bytes_in_flight else {
            return (self.stay == 0).then_some(0);
        };
        // Records are padded to units. So the record that is largest for its size on the link has one of the
        // first sizes above the shortest. Tags take bytes in the record and, with some framings, none on the
        // link.
        let sizes = SHORTEST..SHORTEST + UNIT;
        let frames = sizes.flat_map(|size| (0..=TAGS_MAX).map(move |tags| (size, tags)));
        let share = frames.map(|(size, tags)| {
            let payload = (size - ETHERNET) as u32 - 4 * tags;
            let on_link = match &self.opportunities {
                Some(_) => OpportunityModel::on_link(payload),
                None => self.framing.effective_size(payload, tags),
            };
            (UNIT + size.next_multiple_of(UNIT)) as f64 / f64::from(on_link)
        });
        let share = share.fold(1.2, f64::max);
        // Each copy of a frame has a record. The fewer frames there are, the more the share of duplicates can
        // deviate from its mean, so all frames count as large.
        let frames = bytes as f64 / LARGE_ON_LINK;
        let copies = self
            .duplicate
            .map_or(0.0, |duplicate| duplicate.chance.largest_share(frames));
        Some((bytes as f64 * share * (1.0 + copies)) as u64)
    }

    /// Returns true if frames are released in the order in which they are offered.
    pub fn keeps_order(&self) -> bool {
        let extra = self.duplicate.is_some_and(|duplicate| duplicate.extra > 0);
        self.order == Order::Ordered && self.reorder.is_none() && !extra
    }

    /// Returns the MTU if the sender of a longer packet gets an ICMP error.
    pub fn answers_too_big(&self) -> Option<u16> {
        self.mtu.filter(|_| self.over_mtu == OverMtu::TooBig)
    }
}

/// One path of one direction, with its state.
#[derive(Debug, Clone)]
pub struct Path {
    model: PathModel,
    streams: Streams,
    /// The frames that were offered.
    offered: u64,
    last_arrival: Time,
    /// The latest release of a frame that was not reordered. In ordered mode no later frame is released
    /// before it.
    last_release: Time,
    link: LinkState,
    opportunities: OpportunityState,
    loss: LossState,
    delay: DelayState,
    reorder: LastDraw,
    since_reorder: u32,
    duplicate: LastDraw,
    corrupt: LastDraw,
}

#[derive(Debug, Clone, Copy)]
struct Streams {
    link: LinkStreams,
    delay: Stream,
    reorder: Stream,
    duplicate: Stream,
    corrupt: CorruptStreams,
}

/// The sizes and bytes of a frame, as the stages need them.
#[derive(Debug, Clone, Copy)]
struct Offered<'a> {
    /// The size in bytes, without check sequence.
    size: usize,
    /// The size of the layer-3 packet in bytes.
    payload: u32,
    /// The size on the link in bytes.
    effective: u32,
    bytes: Option<&'a [u8]>,
}

impl Path {
    /// Returns a path whose schedules and traces begin at [`Time::ZERO`].
    ///
    /// # Errors
    /// [`ConfigError`], as [`PathModel::compile`].
    pub fn new(config: &PathConfig, seed: Seed, sources: &dyn Sources) -> Result<Path, ConfigError> {
        let model = PathModel::compile(config, sources)?;
        Ok(Path::with_model(model, seed, Time::ZERO))
    }

    /// Returns a path of a model. Its schedules and traces begin at `start`.
    pub fn with_model(model: PathModel, seed: Seed, start: Time) -> Path {
        let stream = |stage| Stream::new(seed, stage);
        Path {
            model,
            streams: Streams {
                link: LinkStreams {
                    red: stream(Stage::Red),
                    background: stream(Stage::Background),
                },
                delay: stream(Stage::Delay),
                reorder: stream(Stage::Reorder),
                duplicate: stream(Stage::Duplicate),
                corrupt: CorruptStreams {
                    frames: stream(Stage::Corrupt),
                    bits: stream(Stage::CorruptBits),
                },
            },
            offered: 0,
            last_arrival: start,
            last_release: start,
            link: LinkState::new(start),
            opportunities: OpportunityState::new(start),
            loss: LossState::new(start, seed),
            delay: DelayState::new(start),
            reorder: LastDraw::default(),
            since_reorder: 0,
            duplicate: LastDraw::default(),
            corrupt: LastDraw::default(),
        }
    }

    /// Returns the model.
    pub fn model(&self) -> &PathModel {
        &self.model
    }

    /// Returns the bytes of background traffic that the link has carried until the last arrival.
    pub fn background_bytes(&self) -> u64 {
        self.link.background_bytes()
    }

    /// Changes the parameters for frames that are offered from now on. The states continue. `model` gets the
    /// old parameters, so that the caller frees their memory.
    pub fn exchange(&mut self, model: &mut PathModel) {
        std::mem::swap(&mut self.model, model);
        let (old, new) = (model, &mut self.model);
        if let Some(link) = &new.link {
            self.link.change(old.link.as_ref(), link, self.last_arrival);
        }
        self.loss.change(&old.loss, &new.loss);
        if let (Some(old), Some(new)) = (&old.opportunities, &new.opportunities) {
            self.opportunities.change(old, new);
        }
        if let (Some(old), Some(new)) = (old.queue_mut(), new.queue_mut()) {
            new.change(old);
        }
    }

    /// Returns the outcomes of a frame (Ethernet header to payload, without check sequence) that arrives at
    /// `arrival`. An arrival before the last one counts as simultaneous with the last one.
    pub fn offer(&mut self, arrival: Time, frame: &[u8]) -> Outcomes {
        let mut outcomes = Outcomes::new();
        self.offer_into(arrival, frame, &mut outcomes);
        outcomes
    }

    /// Adds the outcomes of a frame to an empty list of the caller, because a returned list is copied for each frame.
    pub(crate) fn offer_into(&mut self, arrival: Time, frame: &[u8], outcomes: &mut Outcomes) {
        let Layer2 { payload, tags } = layer_2(frame);
        let offered = Offered {
            size: frame.len(),
            payload,
            effective: self.model.framing.effective_size(payload, tags),
            bytes: Some(frame),
        };
        self.pass(arrival, offered, outcomes);
    }

    /// Returns the outcomes of a frame of `size` bytes without VLAN tags and without contents, for
    /// simulations. `undetectable` corruption needs headers, so it does not happen to this frame.
    pub fn offer_sized(&mut self, arrival: Time, size: usize) -> Outcomes {
        let payload = size.saturating_sub(ETHERNET) as u32;
        let offered = Offered {
            size,
            payload,
            effective: self.model.framing.effective_size(payload, 0),
            bytes: None,
        };
        let mut outcomes = Outcomes::new();
        self.pass(arrival, offered, &mut outcomes);
        outcomes
    }

    #[inline]
    fn pass(&mut self, arrival: Time, offered: Offered<'_>, outcomes: &mut Outcomes) {
        let arrival = arrival.max(self.last_arrival);
        self.last_arrival = arrival;
        let frame = self.offered;
        self.offered += 1;
        match self.send(arrival, frame, offered) {
            Err(reason) => outcomes.push(Outcome::Dropped(reason)),
            Ok(sent) => self.travel(sent, frame, offered, outcomes),
        }
    }

    /// Passes a frame through the stages up to loss. Returns the time at which the link has sent the frame.
    #[inline]
    fn send(&mut self, arrival: Time, frame: u64, offered: Offered<'_>) -> Result<Time, DropReason> {
        let model = &mut self.model;
        if model.mtu.is_some_and(|mtu| offered.payload > u32::from(mtu)) {
            return Err(DropReason::OverMtu);
        }
        let number = (arrival, frame);
        let sent = match (&mut model.link, &mut model.opportunities) {
            (Some(link), _) => self
                .link
                .offer(link, self.streams.link, number, offered.effective)?,
            (None, Some(link)) => {
                let red = self.streams.link.red;
                self.opportunities.offer(link, red, number, offered.payload)?
            }
            (None, None) => arrival,
        };
        let size = offered.effective;
        self.loss.pass(
            &model.loss,
            Sent {
                frame,
                at: sent,
                size,
            },
        )?;
        Ok(sent)
    }

    /// Passes a frame through the stages from the delay on.
    #[inline]
    fn travel(&mut self, sent: Time, frame: u64, offered: Offered<'_>, outcomes: &mut Outcomes) {
        let model = &self.model;
        let drawn_delay = self.delay.draw(&model.delay, self.streams.delay, frame, sent);
        let delayed = Time::from_nanos(sent.nanos().saturating_add(drawn_delay));
        let (at, reordered) = match self.reorder(frame) {
            Some(Shift::Ahead) => (sent, true),
            Some(Shift::Later(extra)) => (self.in_order(delayed) + extra.duration(), true),
            None => {
                let at = self.in_order(delayed);
                // In reordering mode an earlier frame may be released later. After a change to ordered mode,
                // later frames wait for it.
                self.last_release = self.last_release.max(at);
                (at, false)
            }
        };
        let model = &self.model;
        let release = Release {
            at,
            sent,
            drawn_delay,
            reordered,
            flips: None,
        };
        let copies = match model.duplicate {
            Some(duplicate)
                if duplicate
                    .chance
                    .happens(self.streams.duplicate, frame, &mut self.duplicate) =>
            {
                let extra = duplicate.extra;
                let second = Time::from_nanos(at.nanos().saturating_add(extra));
                [
                    Some(release),
                    Some(Release {
                        at: second,
                        ..release
                    }),
                ]
            }
            _ => [Some(release), None],
        };
        for (release, copy) in copies.into_iter().flatten().zip(2 * frame..) {
            let damage = match &model.corrupt {
                None => Ok(None),
                Some(corrupt) => {
                    let frame = (offered.size, offered.bytes);
                    corrupt.pass(self.streams.corrupt, copy, frame, &mut self.corrupt)
                }
            };
            outcomes.push(match damage {
                Ok(flips) => Outcome::Released(Release { flips, ..release }),
                Err(reason) => Outcome::Dropped(reason),
            });
        }
    }

    /// Returns the release of a frame that is not reordered.
    #[inline]
    fn in_order(&self, delayed: Time) -> Time {
        match self.model.order {
            Order::Ordered => delayed.max(self.last_release),
            Order::Reordering => delayed,
        }
    }

    /// Returns the shift of a frame that is reordered, or `None`.
    #[inline]
    fn reorder(&mut self, frame: u64) -> Option<Shift> {
        let reorder = self.model.reorder?;
        self.since_reorder += 1;
        if self.since_reorder < reorder.gap {
            return None;
        }
        self.since_reorder = 0;
        let happens = reorder
            .chance
            .happens(self.streams.reorder, frame, &mut self.reorder);
        happens.then_some(reorder.shift)
    }
}

/// The bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The bytes of the shortest frame, without check sequence.
const SHORTEST: usize = 60;
/// The bytes of a full Ethernet frame with preamble and gap. Longer frames have records that are smaller for
/// their size on the link than those for which memory is planned.
const LARGE_ON_LINK: f64 = 1538.0;
/// The maximum number of VLAN tags in the calculation of a direction's memory.
const TAGS_MAX: u32 = 2;

/// The payload of a frame.
struct Layer2 {
    /// The number of bytes after the Ethernet header and its VLAN tags.
    payload: u32,
    /// The number of VLAN tags.
    tags: u32,
}

/// Returns the payload of a frame.
#[inline]
fn layer_2(frame: &[u8]) -> Layer2 {
    let mut offset = ETHERNET;
    let mut tags = 0;
    while let Some([high, low]) = frame.get(offset - 2..offset) {
        let is_tag = matches!(u16::from_be_bytes([*high, *low]), 0x8100 | 0x88a8 | 0x9100);
        if !is_tag || frame.len() < offset + 4 {
            break;
        }
        offset += 4;
        tags += 1;
    }
    Layer2 {
        payload: frame.len().saturating_sub(offset) as u32,
        tags,
    }
}
