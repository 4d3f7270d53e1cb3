//! How fast packets may leave a port, in which order, and how fast they may come.

use std::fmt;
use std::str::FromStr;

use millrace_types::{BitRate, BitRateParseError, QueueId};
use thiserror::Error;

use crate::choice::{ColorVerdict, PolicerKind};
use crate::decode::{Decoder, Detail, Field, decode_integer, text_field};
use crate::node::{Node, Value};
use crate::number::{BurstSize, CodePoint, QueueLength, QueuePriority, QueueSize, QueueWeight, TrafficClass};
use crate::schema::Shape;
use crate::section::{deserialize, section};

/// A rate that a queue, a port or a policer can have: 1 kbit/s to 400 Gbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(BitRate);

/// Text that is not a [`Rate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RateError {
    /// It is not a bit rate at all.
    #[error(transparent)]
    Malformed(#[from] BitRateParseError),
    /// It is too low or too high.
    #[error("{0} is out of range: expected 1kbps to 400Gbps")]
    OutOfRange(BitRate),
}

impl Rate {
    /// The lowest.
    pub const MIN: BitRate = BitRate::from_bps(1_000);
    /// The highest.
    pub const MAX: BitRate = BitRate::from_bps(400_000_000_000);

    /// # Errors
    /// [`RateError::OutOfRange`].
    pub fn new(rate: BitRate) -> Result<Rate, RateError> {
        if (Rate::MIN..=Rate::MAX).contains(&rate) {
            Ok(Rate(rate))
        } else {
            Err(RateError::OutOfRange(rate))
        }
    }

    /// The rate.
    pub const fn get(self) -> BitRate {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Rate, RateError> {
        Rate::new(text.parse()?)
    }
}

text_field!(Rate, "a rate from 1kbps to 400Gbps", "50Mbps");

impl Field for QueueId {
    fn shape() -> Shape {
        Shape::Integer {
            min: 0,
            max: u64::from(QueueId::ALL.0) - 1,
            unit: "",
        }
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<QueueId> {
        let value = decode_integer(decoder, node, &Self::shape())?;
        u32::try_from(value).ok().map(QueueId)
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Integer(self.0.into()).into())
    }
}

section! {
    /// A queue of the port, in which packets wait that the action `set_queue` sends there. A port with queues, or with
    /// a rate, always has queue 0, for packets that choose none or one that is not there; it need not be given. A port
    /// has at most 64 queues. Rates count frames from the Ethernet header on, without check sequence, and
    /// `frame_overhead` for each.
    pub struct Queue (live, by id) {
        required {
            /// Its number, unique on the port.
            pub id: QueueId,
        }
        optional {
            /// What it gets before any queue gets more than its own `min_rate`, whatever their priorities; at least
            /// `"1kbps"`. Unset, nothing is guaranteed.
            pub min_rate: Option<Rate> = None,
            /// What it gets at most. Unset, there is no limit but that of the port.
            pub max_rate: Option<Rate> = None,
            /// As long as queues of a higher priority have packets that may be sent, this one sends what is guaranteed
            /// to it and no more.
            pub priority: QueuePriority = QueuePriority::LOWEST,
            /// Its share among queues of one priority.
            pub weight: QueueWeight = QueueWeight::ONE,
            /// How many packets can wait. What comes when the queue is full is dropped (`queue_full`), and counted as
            /// `tx_errors` of the queue.
            pub length: QueueLength = QueueLength::DEFAULT,
            /// How many bytes can wait. Unset, only `length` holds. An empty queue takes a packet of any size.
            pub size: Option<QueueSize> = None,
        }
    }
}

section! {
    /// How fast packets may come in by the port: a meter with three colors (RFC 2697, 2698, 4115), and what becomes
    /// of packets of each. Rates count frames as those of queues do.
    pub struct Policer (live) {
        required {
            /// Which meter.
            pub kind: PolicerKind,
            /// The committed information rate: packets within it are green.
            pub cir: Rate,
        }
        optional {
            /// The committed burst size. Unset, what `cir` brings in 20 ms, at least 9,600 bytes. Packets larger than
            /// this are never green.
            pub cbs: Option<BurstSize> = None,
            /// The excess burst size (`srtcm`, `trtcm-4115`): of `srtcm`, what of `cir` was not used fills it. Unset,
            /// as `cbs`, at the excess rate where there is one.
            pub ebs: Option<BurstSize> = None,
            /// The peak information rate (`trtcm`): packets above it are red. It is needed there, and at least `cir`.
            pub pir: Option<Rate> = None,
            /// The peak burst size (`trtcm`). Unset, as `cbs`, at the peak rate.
            pub pbs: Option<BurstSize> = None,
            /// The excess information rate (`trtcm-4115`): what may come beyond `cir` and is yellow. It is needed there.
            pub eir: Option<Rate> = None,
            /// Whether packets come with a color: yellow those whose DSCP is of assured forwarding with medium drop
            /// precedence (RFC 2597), red those with high. They keep that color or get a worse one.
            pub color_aware: bool = false,
            /// What becomes of packets within the committed rate. Unset, `"pass"`.
            pub green: ColorAction = ColorAction::new(ColorVerdict::Pass),
            /// What becomes of packets above it. Unset, `"pass"`.
            pub yellow: ColorAction = ColorAction::new(ColorVerdict::Pass),
            /// What becomes of packets above all rates. Unset, `"drop"`. Dropped packets are counted as `policer`.
            pub red: ColorAction = ColorAction::new(ColorVerdict::Drop),
        }
    }
}

section! {
    /// What a policer does with packets of a color: `"pass"`, `"drop"`, or a table, as in
    /// `{ action = "pass", dscp = 12 }`. Marks are set in packets that have the header; others pass as they are.
    pub struct ColorAction (live, by action or short) {
        required {
            /// Whether they pass.
            pub action: ColorVerdict,
        }
        optional {
            /// The DSCP that IP packets get (RFC 2474).
            pub dscp: Option<CodePoint> = None,
            /// The priority that the outermost VLAN tag gets (IEEE 802.1Q).
            pub pcp: Option<TrafficClass> = None,
            /// The traffic class that the outermost MPLS shim gets (RFC 5462).
            pub mpls_tc: Option<TrafficClass> = None,
        }
    }
}

deserialize!(Queue, Policer, ColorAction);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_out_of_range_is_refused_with_the_range() {
        assert_eq!(
            "50Mbps".parse::<Rate>().unwrap().get(),
            BitRate::from_bps(50_000_000)
        );
        for (text, said) in [
            ("999bps", "999bps is out of range: expected 1kbps to 400Gbps"),
            ("1Tbps", "1Tbps is out of range: expected 1kbps to 400Gbps"),
            (
                "fast",
                "`fast` is not a bit rate: expected a whole number and bps, kbps, Mbps, Gbps or Tbps",
            ),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap_err().to_string(), said);
        }
    }
}
