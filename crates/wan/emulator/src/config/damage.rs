//! Reordering, duplication and corruption of single frames.

use std::fmt;
use std::str::FromStr;

use crate::text::{BitErrorRate, Grammar, Interval, Items, Probability, TextError, serde_as_text};

/// The reordering of single frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reorder {
    /// The share of frames, or of every `gap`-th frame.
    pub probability: Probability,
    /// The correlation of the Gaussian draws for two consecutive frames.
    pub correlation: Probability,
    /// The direction in which the frames move.
    pub shift: Shift,
    /// If set, only every n-th frame may be reordered.
    pub gap: Option<u32>,
}

/// The direction in which a reordered frame moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The frame is released this much later. Frames after it overtake it.
    Later(Interval),
    /// The frame is released without the delay, as in netem. It overtakes frames before it.
    Ahead,
}

impl Reorder {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a reordering",
        expected: "`1%,extra=5ms` or `25%,ahead`, and `gap=5` for every fifth frame only",
    };
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.probability.fmt(f)?;
        match self.shift {
            Shift::Later(extra) => write!(f, ",extra={extra}")?,
            Shift::Ahead => f.write_str(",ahead")?,
        }
        if self.correlation != Probability::ZERO {
            write!(f, ",correlation={}", self.correlation)?;
        }
        self.gap.map_or(Ok(()), |gap| write!(f, ",gap={gap}"))
    }
}

impl FromStr for Reorder {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Reorder, TextError> {
        let mut items = Items::new(text, Reorder::GRAMMAR);
        let probability = items.head().parse().map_err(|error| items.error(error))?;
        let correlation = Probability::correlation(&mut items)?;
        let shift = match (items.flag("ahead"), items.value("extra")?) {
            (true, None) => Shift::Ahead,
            (false, Some(extra)) => {
                Shift::Later(items.within("extra", extra, Interval::default()..=super::DelayConfig::MAX)?)
            }
            _ => return Err(items.error("neither `extra=` nor `ahead`, or both")),
        };
        let gap = items.value("gap")?;
        if gap == Some(0) {
            return Err(items.error("a gap of 0"));
        }
        items.finish()?;
        Ok(Reorder {
            probability,
            correlation,
            shift,
            gap,
        })
    }
}

/// The duplication of single frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// The share of frames.
    pub probability: Probability,
    /// The correlation of the Gaussian draws for two consecutive frames.
    pub correlation: Probability,
    /// The time from the first to the second copy.
    pub extra: Interval,
}

impl Duplicate {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a duplication",
        expected: "`0.1%` or `0.1%,extra=1ms`",
    };
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.probability.fmt(f)?;
        if self.correlation != Probability::ZERO {
            write!(f, ",correlation={}", self.correlation)?;
        }
        if self.extra == Interval::default() {
            Ok(())
        } else {
            write!(f, ",extra={}", self.extra)
        }
    }
}

impl FromStr for Duplicate {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Duplicate, TextError> {
        let mut items = Items::new(text, Duplicate::GRAMMAR);
        let probability = items.head().parse().map_err(|error| items.error(error))?;
        let correlation = Probability::correlation(&mut items)?;
        let extra = items.value("extra")?.unwrap_or_default();
        let extra = items.within("extra", extra, Interval::default()..=super::DelayConfig::MAX)?;
        items.finish()?;
        Ok(Duplicate {
            probability,
            correlation,
            extra,
        })
    }
}

/// Frames with inverted bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrupt {
    /// The selection of corrupted frames and bits.
    pub errors: Errors,
    /// The treatment of a corrupted frame.
    pub action: CorruptAction,
}

/// The model of inverted bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Errors {
    /// A share of frames is corrupted, each with the same number of random bits.
    Frames {
        /// The share of frames.
        probability: Probability,
        /// The correlation of the Gaussian draws for two consecutive frames.
        correlation: Probability,
        /// The number of different bits that are inverted in each frame, 1 to 64.
        bits: u8,
    },
    /// Each bit is inverted with a probability.
    Bits(BitErrorRate),
}

/// The result of corruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CorruptAction {
    /// The check sequence of the link fails: the frame is dropped.
    #[default]
    Drop,
    /// The frame is released with the inverted bits. Its checksums stay unchanged.
    Deliver,
    /// Bits of the TCP or UDP payload are inverted, and the checksum is updated: only an end-to-end integrity
    /// check can detect this. Other frames stay unchanged.
    Undetectable,
}

impl Corrupt {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a corruption",
        expected: "`0.1%`, `0.1%,bits=3` or `ber:1e-9`, and `drop`, `deliver` or `undetectable`",
    };
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors {
            Errors::Bits(rate) => write!(f, "ber:{rate}")?,
            Errors::Frames {
                probability,
                correlation,
                bits,
            } => {
                write!(f, "{probability},bits={bits}")?;
                if correlation != Probability::ZERO {
                    write!(f, ",correlation={correlation}")?;
                }
            }
        }
        f.write_str(match self.action {
            CorruptAction::Drop => ",drop",
            CorruptAction::Deliver => ",deliver",
            CorruptAction::Undetectable => ",undetectable",
        })
    }
}

impl FromStr for Corrupt {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Corrupt, TextError> {
        let mut items = Items::new(text, Corrupt::GRAMMAR);
        let head = items.head();
        let errors = match head.strip_prefix("ber:") {
            Some(rate) => Errors::Bits(rate.parse().map_err(|error| items.error(error))?),
            None => {
                let probability = head.parse().map_err(|error| items.error(error))?;
                let bits = items.value("bits")?.unwrap_or(1);
                Errors::Frames {
                    probability,
                    correlation: Probability::correlation(&mut items)?,
                    bits: items.within("bits", bits, 1..=64)?,
                }
            }
        };
        let flags = (
            items.flag("drop"),
            items.flag("deliver"),
            items.flag("undetectable"),
        );
        let action = match flags {
            (_, false, false) => CorruptAction::Drop,
            (false, true, false) => CorruptAction::Deliver,
            (false, false, true) => CorruptAction::Undetectable,
            _ => return Err(items.error("more than one of `drop`, `deliver` and `undetectable`")),
        };
        items.finish()?;
        Ok(Corrupt { errors, action })
    }
}

serde_as_text!(Reorder, Duplicate, Corrupt);
