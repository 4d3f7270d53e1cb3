//! Egress queues, rates and policers of a port.

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

/// The rate of a queue, a port or a policer: 1 kbit/s to 400 Gbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(BitRate);

/// The error for a text that is not a [`Rate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RateError {
    /// The text is not a bit rate.
    #[error(transparent)]
    Malformed(#[from] BitRateParseError),
    /// The rate is below or above the range.
    #[error("{0} is out of range: expected 1kbps to 400Gbps")]
    OutOfRange(BitRate),
}

impl Rate {
    /// The lowest rate.
    pub const MIN: BitRate = BitRate::from_bps(1_000);
    /// The highest rate.
    pub const MAX: BitRate = BitRate::from_bps(400_000_000_000);

    /// Returns the rate if it is in range.
    ///
    /// # Errors
    /// [`RateError::OutOfRange`].
    pub fn new(rate: BitRate) -> Result<Rate, RateError> {
        if (Rate::MIN..=Rate::MAX).contains(&rate) {
            Ok(Rate(rate))
        } else {
            Err(RateError::OutOfRange(rate))
        }
    }

    /// Returns the rate.
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
    /// An egress queue of the port; the action `set_queue` selects it. A port with queues or with a `rate` always has
    /// queue 0, which takes packets that select no queue or one that does not exist; it need not be configured. A port
    /// has at most 64 queues. Rates count frames from the Ethernet header on, without frame check sequence, plus
    /// `frame_overhead` for each frame.
    pub struct Queue (live, by id) {
        required {
            /// The queue id, unique on the port.
            pub id: QueueId,
        }
        optional {
            /// The guaranteed rate, served before any queue exceeds its own `min_rate`, regardless of priority; at
            /// least `"1kbps"`. Unset, nothing is guaranteed.
            pub min_rate: Option<Rate> = None,
            /// The maximum rate. Unset, only the limit of the port applies.
            pub max_rate: Option<Rate> = None,
            /// The priority. While queues of a higher priority have packets that may be sent, this queue sends at its
            /// guaranteed rate only.
            pub priority: QueuePriority = QueuePriority::LOWEST,
            /// The weight of the queue among the queues of the same priority.
            pub weight: QueueWeight = QueueWeight::ONE,
            /// The capacity in packets. A packet that arrives at a full queue is dropped (`queue_full`) and counted in
            /// `tx_errors` of the queue.
            pub length: QueueLength = QueueLength::DEFAULT,
            /// The capacity in bytes. Unset, only `length` limits the queue. An empty queue accepts a packet of any
            /// size.
            pub size: Option<QueueSize> = None,
        }
    }
}

section! {
    /// The ingress policer of the port: a three-color meter (RFC 2697, 2698, 4115) and an action for packets of each
    /// color. Rates count frames as the rates of queues do.
    pub struct Policer (live) {
        required {
            /// The metering algorithm.
            pub kind: PolicerKind,
            /// The committed information rate: packets within it are green.
            pub cir: Rate,
        }
        optional {
            /// The committed burst size. Unset, 200 ms at `cir`, at least 9,600 bytes. Packets larger than this are
            /// never green.
            pub cbs: Option<BurstSize> = None,
            /// The excess burst size (`srtcm`, `trtcm-4115`). With `srtcm`, the unused part of `cir` fills
            /// it. Unset, computed like `cbs`, from the excess rate if there is one.
            pub ebs: Option<BurstSize> = None,
            /// The peak information rate (`trtcm`): packets above it are red. It is required with `trtcm`, and at
            /// least `cir`.
            pub pir: Option<Rate> = None,
            /// The peak burst size (`trtcm`). Unset, computed like `cbs`, from the peak rate.
            pub pbs: Option<BurstSize> = None,
            /// The excess information rate (`trtcm-4115`): packets above `cir` and within `eir` are yellow. It is
            /// required with `trtcm-4115`.
            pub eir: Option<Rate> = None,
            /// If true, packets arrive precolored: yellow if the DSCP is assured forwarding with medium drop
            /// precedence (RFC 2597), red with high drop precedence. They keep that color or get a worse one.
            pub color_aware: bool = false,
            /// The action for packets within the committed rate. Unset, `"pass"`.
            pub green: ColorAction = ColorAction::new(ColorVerdict::Pass),
            /// The action for packets above the committed rate. Unset, `"pass"`.
            pub yellow: ColorAction = ColorAction::new(ColorVerdict::Pass),
            /// The action for packets above all rates. Unset, `"drop"`. Dropped packets are counted as `policer`.
            pub red: ColorAction = ColorAction::new(ColorVerdict::Drop),
        }
    }
}

section! {
    /// The action of a policer for packets of one color: `"pass"`, `"drop"`, or a table, as in `{ action = "pass",
    /// dscp = 12 }`. Marks are set in packets that have the header; other packets pass unchanged.
    pub struct ColorAction (live, by action or short) {
        required {
            /// The verdict: pass or drop.
            pub action: ColorVerdict,
        }
        optional {
            /// The DSCP to set in IP packets (RFC 2474).
            pub dscp: Option<CodePoint> = None,
            /// The priority to set in the outermost VLAN tag (IEEE 802.1Q).
            pub pcp: Option<TrafficClass> = None,
            /// The traffic class to set in the outermost MPLS label stack entry (RFC 5462).
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
