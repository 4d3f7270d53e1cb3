//! The configuration of a path: one text for each stage, in the order in which frames pass the stages.

mod damage;
mod delay;
mod direction;
mod loss;
mod rate;
mod warnings;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::Grammar;

pub use damage::{Corrupt, CorruptAction, Duplicate, Errors, Reorder, Shift};
pub use delay::{Correlation, DelayConfig, Distribution, Jitter, Order};
pub use direction::{Bypass, ClassConfig, DirectionConfig, DirectionId};
pub use loss::{FourState, GilbertElliott, Loss, LossConfig, Outage};
pub use rate::{Background, Depth, Framing, OverMtu, Queue, Rate, Red};

/// One path in one direction. Without settings it is a wire without delay.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PathConfig {
    /// The maximum size of a layer-3 packet in bytes, 68 to 65535.
    #[serde(skip_serializing_if = "is_default")]
    pub mtu: Option<u16>,
    /// The treatment of a longer packet.
    #[serde(skip_serializing_if = "is_default")]
    pub over_mtu: OverMtu,
    /// The bytes that the link adds to a packet.
    #[serde(skip_serializing_if = "is_default")]
    pub framing: Framing,
    /// The rate of the link. Without a rate, sending takes no time and there is no queue.
    #[serde(skip_serializing_if = "is_default")]
    pub rate: Option<Rate>,
    /// The queue in front of the link.
    #[serde(skip_serializing_if = "is_default")]
    pub queue: Queue,
    /// Traffic of other users on the link.
    #[serde(skip_serializing_if = "is_default")]
    pub background: Option<Background>,
    /// Loss after the link: lost frames used bandwidth.
    #[serde(skip_serializing_if = "is_default")]
    pub loss: LossConfig,
    /// The delay after the link.
    #[serde(skip_serializing_if = "is_default")]
    pub delay: DelayConfig,
    /// The variation of the delay.
    #[serde(skip_serializing_if = "is_default")]
    pub jitter: Option<Jitter>,
    /// The order of release.
    #[serde(skip_serializing_if = "is_default")]
    pub order: Order,
    /// The reordering of single frames.
    #[serde(skip_serializing_if = "is_default")]
    pub reorder: Option<Reorder>,
    /// The duplication of single frames.
    #[serde(skip_serializing_if = "is_default")]
    pub duplicate: Option<Duplicate>,
    /// The corruption of single frames.
    #[serde(skip_serializing_if = "is_default")]
    pub corrupt: Option<Corrupt>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The error for a path that cannot be emulated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key, as in [`PathConfig::KEYS`].
    pub key: String,
    /// The value, the problem, and the expected range or grammar.
    pub problem: String,
}

impl ConfigError {
    #[allow(clippy::needless_pass_by_value, reason = "takes texts and errors alike")]
    pub(crate) fn new(key: &str, problem: impl ToString) -> ConfigError {
        ConfigError {
            key: key.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// A setting of a path, for command lines and documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The name, in the configuration and, after `--`, on a command line.
    pub name: &'static str,
    /// The grammar of the value.
    pub grammar: Grammar,
    /// One line of help.
    pub help: &'static str,
}

const fn key(name: &'static str, grammar: Grammar, help: &'static str) -> Key {
    Key { name, grammar, help }
}

const fn choice(what: &'static str, expected: &'static str) -> Grammar {
    Grammar { what, expected }
}

impl PathConfig {
    /// The smallest MTU: RFC 791, section 3.2.
    pub const MIN_MTU: u16 = 68;

    /// Every key, in the order in which frames pass the stages.
    pub const KEYS: [Key; 13] = [
        key(
            "mtu",
            choice("an MTU", "a number from 68 to 65535"),
            "the longest layer-3 packet in bytes",
        ),
        key(
            "over-mtu",
            choice("a reaction to frames over the MTU", "`drop` or `too-big`"),
            "the reaction to a longer packet: a drop, or a drop and an ICMP error to its sender",
        ),
        key(
            "framing",
            Framing::GRAMMAR,
            "the bytes that the link adds to a packet",
        ),
        key("rate", Rate::GRAMMAR, "the rate of the link"),
        key(
            "queue",
            Queue::GRAMMAR,
            "the queue in front of the link, 250ms if not set",
        ),
        key("background", Background::GRAMMAR, "traffic of others on the link"),
        key(
            "loss",
            Loss::GRAMMAR,
            "loss after the link; several models are separated by `;`",
        ),
        key(
            "delay",
            DelayConfig::GRAMMAR,
            "the delay after the link, the mean if there is jitter",
        ),
        key(
            "jitter",
            Jitter::GRAMMAR,
            "the standard deviation of the delay (uniform: half its width), and its distribution",
        ),
        key(
            "order",
            choice("an order", "`ordered` or `reordering`"),
            "frames keep their order, or each has its own delay",
        ),
        key("reorder", Reorder::GRAMMAR, "frames that leave their place"),
        key("duplicate", Duplicate::GRAMMAR, "frames that arrive twice"),
        key("corrupt", Corrupt::GRAMMAR, "frames with inverted bits"),
    ];

    /// Sets the value of a key from its text; `none` removes the setting.
    ///
    /// # Errors
    /// [`ConfigError`] if the key does not exist or the text does not follow its grammar. The path is then
    /// unchanged.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), ConfigError> {
        fn read<T: Default + std::str::FromStr<Err: ToString>>(
            key: &str,
            text: &str,
        ) -> Result<T, ConfigError> {
            if text == "none" {
                return Ok(T::default());
            }
            text.parse().map_err(|error: T::Err| ConfigError::new(key, error))
        }
        fn read_option<T: std::str::FromStr<Err: ToString>>(
            key: &str,
            text: &str,
        ) -> Result<Option<T>, ConfigError> {
            if text == "none" {
                return Ok(None);
            }
            text.parse()
                .map(Some)
                .map_err(|error: T::Err| ConfigError::new(key, error))
        }
        match key {
            "mtu" => {
                let mtu = read_option(key, text).map_err(|_| ConfigError::new(key, mtu_problem(text)))?;
                self.mtu = check_mtu(mtu)?;
            }
            "over-mtu" => self.over_mtu = read(key, text)?,
            "framing" => self.framing = read(key, text)?,
            "rate" => self.rate = read_option(key, text)?,
            "queue" => self.queue = read(key, text)?,
            "background" => self.background = read_option(key, text)?,
            "loss" => self.loss = read(key, text)?,
            "delay" => self.delay = read(key, text)?,
            "jitter" => self.jitter = read_option(key, text)?,
            "order" => self.order = read(key, text)?,
            "reorder" => self.reorder = read_option(key, text)?,
            "duplicate" => self.duplicate = read_option(key, text)?,
            "corrupt" => self.corrupt = read_option(key, text)?,
            _ => {
                let names: Vec<_> = PathConfig::KEYS.iter().map(|key| key.name).collect();
                let problem = format!("there is no such setting; expected one of {}", names.join(", "));
                return Err(ConfigError::new(key, problem));
            }
        }
        Ok(())
    }

    /// Returns the text of a key's value, or `none` if the value is not set. Returns `None` if the key does
    /// not exist.
    pub fn text(&self, key: &str) -> Option<String> {
        fn option<T: ToString>(value: Option<&T>) -> String {
            value.map_or_else(|| "none".to_owned(), ToString::to_string)
        }
        Some(match key {
            "mtu" => option(self.mtu.as_ref()),
            "over-mtu" => self.over_mtu.to_string(),
            "framing" => self.framing.to_string(),
            "rate" => option(self.rate.as_ref()),
            "queue" => self.queue.to_string(),
            "background" => option(self.background.as_ref()),
            "loss" if self.loss.0.is_empty() => "none".to_owned(),
            "loss" => self.loss.to_string(),
            "delay" => self.delay.to_string(),
            "jitter" => option(self.jitter.as_ref()),
            "order" => self.order.to_string(),
            "reorder" => option(self.reorder.as_ref()),
            "duplicate" => option(self.duplicate.as_ref()),
            "corrupt" => option(self.corrupt.as_ref()),
            _ => return None,
        })
    }

    /// Checks combinations of settings.
    ///
    /// # Errors
    /// [`ConfigError`] with the first problem.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_mtu(self.mtu)?;
        if self.background.is_some() && !matches!(self.rate, Some(Rate::Constant(_))) {
            let problem = "background traffic is a share of a constant rate; to fix it: set `rate`";
            return Err(ConfigError::new("background", problem));
        }
        if let (DelayConfig::Constant(delay), Some(jitter)) = (&self.delay, &self.jitter) {
            let is_truncated =
                jitter.distribution == Distribution::Normal && jitter.spread > crate::Interval::default();
            if is_truncated && *delay == crate::Interval::default() {
                let problem = format!(
                    "`{jitter}` is truncated to 0 to 2 × delay, and the delay is 0; expected a delay above 0, or another distribution"
                );
                return Err(ConfigError::new("jitter", problem));
            }
        }
        if let (DelayConfig::Trace(_), Some(jitter)) = (&self.delay, &self.jitter) {
            let problem = format!("`{jitter}` is added to a trace of delays; expected one of the two");
            return Err(ConfigError::new("jitter", problem));
        }
        Ok(())
    }
}

fn mtu_problem(text: &str) -> String {
    format!(
        "`{text}` is not an MTU: expected a number from {} to 65535",
        PathConfig::MIN_MTU
    )
}

fn check_mtu(mtu: Option<u16>) -> Result<Option<u16>, ConfigError> {
    match mtu {
        Some(mtu) if mtu < PathConfig::MIN_MTU => Err(ConfigError::new("mtu", mtu_problem(&mtu.to_string()))),
        mtu => Ok(mtu),
    }
}
