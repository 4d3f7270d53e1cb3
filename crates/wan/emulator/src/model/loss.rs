//! The loss of a frame after the link, by all models of the path.

use libm::{expm1, log1p};
use millrace_types::Time;

use super::chance::{Chance, LastDraw};
use super::outcome::DropReason;
use super::renewal::{Period, Renewal};
use crate::config::{ConfigError, FourState, GilbertElliott, Loss, LossConfig, Outage};
use crate::random::{Seed, Stage, Stream};
use crate::sources::Sources;
use crate::text::Interval;

/// The parameters of one model.
#[derive(Debug, Clone)]
enum Model {
    Bernoulli(Chance),
    GilbertElliott {
        p: f64,
        r: f64,
        bad: f64,
        good: f64,
    },
    FourState(FourStateModel),
    EveryNth(u32),
    /// The logarithm of the probability that a bit arrives.
    BitErrors(f64),
    Scheduled(Schedule),
    Random {
        up: Period,
        down: Period,
    },
    Trace(Box<[bool]>),
}

/// The times of a scheduled outage in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Schedule {
    /// The start of the first outage.
    at: u64,
    length: u64,
    /// The time from one start to the next.
    every: u64,
}

#[derive(Debug, Clone, Copy)]
struct FourStateModel {
    p13: f64,
    p31: f64,
    p32: f64,
    p23: f64,
    p14: f64,
}

/// The parameters of all models of a path.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossModel(Vec<Model>);

/// The states of all models, including those that the path does not use. A change of parameters continues
/// from them.
#[derive(Debug, Clone)]
pub(crate) struct LossState {
    start: u64,
    streams: Streams,
    bernoulli: LastDraw,
    bad: bool,
    four: FourStates,
    passed: u32,
    outage: Option<Renewal>,
    /// The origin of the times of a scheduled outage: the start, or the first frame after the change that added or
    /// modified the outage. `None` before that frame.
    schedule: Option<u64>,
    traced: usize,
}

#[derive(Debug, Clone, Copy)]
struct Streams {
    bernoulli: Stream,
    gilbert_elliott: Stream,
    four_state: Stream,
    bit_errors: Stream,
    outage: Stream,
}

/// The states of netem's four-state model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FourStates {
    ReceivedInGap,
    ReceivedInBurst,
    LostInBurst,
    LostInGap,
}

/// A frame that has passed the link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) frame: u64,
    pub(crate) at: Time,
    /// The size of the frame on the link, in bytes.
    pub(crate) size: u32,
}

impl LossModel {
    pub(crate) fn compile(config: &LossConfig, sources: &dyn Sources) -> Result<LossModel, ConfigError> {
        let models = config.0.iter().map(|loss| Model::compile(loss, sources));
        models.collect::<Result<_, _>>().map(LossModel)
    }

    /// Returns the schedule of an outage.
    fn schedule(&self) -> Option<Schedule> {
        self.0.iter().find_map(|model| match model {
            Model::Scheduled(schedule) => Some(*schedule),
            _ => None,
        })
    }
}

impl Model {
    fn compile(loss: &Loss, sources: &dyn Sources) -> Result<Model, ConfigError> {
        let period = |mean: Interval| Period {
            mean: mean.nanos() as f64,
            pareto: None,
        };
        Ok(match loss {
            Loss::Bernoulli {
                probability,
                correlation,
            } => Model::Bernoulli(Chance::new(*probability, *correlation)),
            Loss::GilbertElliott(GilbertElliott { p, r, bad, good }) => Model::GilbertElliott {
                p: p.get(),
                r: r.get(),
                bad: bad.get(),
                good: good.get(),
            },
            Loss::FourState(FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
            }) => Model::FourState(FourStateModel {
                p13: p13.get(),
                p31: p31.get(),
                p32: p32.get(),
                p23: p23.get(),
                p14: p14.get(),
            }),
            Loss::EveryNth(n) => Model::EveryNth(*n),
            Loss::BitErrors(rate) => Model::BitErrors(log1p(-rate.get())),
            Loss::Outage(Outage::Scheduled { at, length, every }) => Model::Scheduled(Schedule {
                at: at.nanos(),
                length: length.nanos(),
                every: every.map_or(u64::MAX, Interval::nanos),
            }),
            Loss::Outage(Outage::Random { up, down }) => Model::Random {
                up: period(*up),
                down: period(*down),
            },
            Loss::Trace(name) => {
                let text = sources
                    .read(name)
                    .map_err(|error| ConfigError::new("loss", error))?;
                let losses = crate::tables::losses(&text);
                Model::Trace(losses.map_err(|error| ConfigError::new("loss", format!("{name}: {error}")))?)
            }
        })
    }
}

impl LossState {
    pub(crate) fn new(start: Time, seed: Seed) -> LossState {
        LossState {
            start: start.nanos(),
            streams: Streams {
                bernoulli: Stream::new(seed, Stage::Bernoulli),
                gilbert_elliott: Stream::new(seed, Stage::GilbertElliott),
                four_state: Stream::new(seed, Stage::FourState),
                bit_errors: Stream::new(seed, Stage::BitErrors),
                outage: Stream::new(seed, Stage::Outage),
            },
            bernoulli: LastDraw::default(),
            bad: false,
            four: FourStates::ReceivedInGap,
            passed: 0,
            outage: None,
            schedule: Some(start.nanos()),
            traced: 0,
        }
    }

    /// Applies a change of the models. The states continue, except that the times of a new or modified scheduled
    /// outage count from the next frame.
    pub(crate) fn change(&mut self, old: &LossModel, new: &LossModel) {
        if new.schedule() != old.schedule() {
            self.schedule = None;
        }
    }

    /// Returns the drop reason if the frame is lost. Later models do not see a frame that an earlier model
    /// drops.
    #[inline]
    pub(crate) fn pass(&mut self, model: &LossModel, sent: Sent) -> Result<(), DropReason> {
        model.0.iter().try_for_each(|model| self.pass_one(model, sent))
    }

    fn pass_one(&mut self, model: &Model, sent: Sent) -> Result<(), DropReason> {
        let frame = sent.frame;
        let (lost, reason) = match model {
            Model::Bernoulli(chance) => {
                let lost = chance.happens(self.streams.bernoulli, frame, &mut self.bernoulli);
                (lost, DropReason::LossBernoulli)
            }
            Model::GilbertElliott { p, r, bad, good } => {
                let numbers = self.streams.gilbert_elliott;
                let lost = numbers.fraction(2 * frame) < if self.bad { *bad } else { *good };
                let leaves = numbers.fraction(2 * frame + 1) < if self.bad { *r } else { *p };
                self.bad ^= leaves;
                (lost, DropReason::LossGilbertElliott)
            }
            Model::FourState(chain) => {
                self.four = self.four.next(chain, self.streams.four_state.fraction(frame));
                (self.four.is_lost(), DropReason::LossFourState)
            }
            Model::EveryNth(n) => {
                self.passed += 1;
                let lost = self.passed >= *n;
                if lost {
                    self.passed = 0;
                }
                (lost, DropReason::LossEveryNth)
            }
            Model::BitErrors(log_arrives) => {
                let probability = -expm1(f64::from(sent.size) * 8.0 * log_arrives);
                let lost = self.streams.bit_errors.fraction(frame) < probability;
                (lost, DropReason::LossBitError)
            }
            Model::Scheduled(Schedule { at, length, every }) => {
                let start = *self.schedule.get_or_insert(sent.at.nanos());
                let since = sent.at.nanos().saturating_sub(start).checked_sub(*at);
                let lost = since.is_some_and(|since| since % every < *length);
                (lost, DropReason::LossOutage)
            }
            Model::Random { up, down } => {
                let stream = self.streams.outage;
                let outage = self
                    .outage
                    .get_or_insert_with(|| Renewal::new(self.start, *up, stream));
                outage.advance(sent.at.nanos(), *up, *down, stream);
                (outage.on, DropReason::LossOutage)
            }
            Model::Trace(losses) => {
                let lost = losses[self.traced % losses.len()];
                self.traced = (self.traced + 1) % losses.len();
                (lost, DropReason::LossTrace)
            }
        };
        if lost { Err(reason) } else { Ok(()) }
    }
}

impl FourStates {
    fn next(self, chain: &FourStateModel, fraction: f64) -> FourStates {
        match self {
            FourStates::ReceivedInGap if fraction < chain.p13 => FourStates::LostInBurst,
            FourStates::ReceivedInGap if fraction < chain.p13 + chain.p14 => FourStates::LostInGap,
            FourStates::ReceivedInBurst if fraction < chain.p23 => FourStates::LostInBurst,
            FourStates::LostInBurst if fraction < chain.p31 => FourStates::ReceivedInGap,
            FourStates::LostInBurst if fraction < chain.p31 + chain.p32 => FourStates::ReceivedInBurst,
            FourStates::LostInGap => FourStates::ReceivedInGap,
            same => same,
        }
    }

    fn is_lost(self) -> bool {
        matches!(self, FourStates::LostInBurst | FourStates::LostInGap)
    }
}
