//! The size of a frame on the emulated link, the link's rate, and its queue.

use std::fmt;
use std::str::FromStr;

use millrace_types::BitRate;

use crate::text::{
    ByteSize, Grammar, Interval, Items, Probability, TextError, decimal, serde_as_text, words,
};

/// The reaction to a frame that is longer than the emulated MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverMtu {
    /// The frame is dropped.
    #[default]
    Drop,
    /// The frame is dropped, and its sender gets an ICMP error: "fragmentation needed" (RFC 1191), or "packet too big" of
    /// ICMPv6 (RFC 4443).
    TooBig,
}

words!(OverMtu, "a reaction to frames over the MTU", "drop" => Drop, "too-big" => TooBig);

/// The bytes on the emulated link besides a frame's layer-2 payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// Ethernet with its check sequence: 18 bytes, and 4 for each VLAN tag.
    #[default]
    Ethernet,
    /// Ethernet with check sequence, preamble and inter-packet gap: 38 bytes, and 4 for each VLAN tag.
    EthernetGap,
    /// PPP in HDLC-like framing (RFC 1662): flag, address, control, protocol, check sequence: 7 bytes.
    Ppp,
    /// ATM cells of 53 bytes, AAL5 with LLC/SNAP encapsulation (RFC 2684): 16 bytes are added, and the sum is
    /// padded to a multiple of 48, the payload of a cell.
    Atm,
    /// A fixed number of bytes.
    Custom(u16),
}

/// The bytes of an Ethernet header and check sequence.
const ETHERNET: u32 = 14 + 4;
const VLAN_TAG: u32 = 4;
/// The bytes of preamble, start frame delimiter and inter-packet gap (IEEE 802.3).
const PREAMBLE_AND_GAP: u32 = 7 + 1 + 12;
/// The bytes of flag, address, control, protocol and check sequence (RFC 1662, section 3.1).
const PPP: u32 = 1 + 1 + 1 + 2 + 2;
/// The bytes of LLC and SNAP headers and of the AAL5 trailer (RFC 2684, section 5.1).
const AAL5: u32 = 8 + 8;
/// The bytes of an ATM cell, and those of its payload.
const CELL: u32 = 53;
const CELL_PAYLOAD: u32 = 48;

impl Framing {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a framing",
        expected: "`ethernet`, `ethernet-gap`, `ppp`, `atm` or `custom:BYTES`",
    };

    /// Returns the bytes that a frame takes on the link. `payload` is its layer-2 payload, `tags` its number
    /// of VLAN tags.
    #[inline]
    pub fn effective_size(self, payload: u32, tags: u32) -> u32 {
        match self {
            Framing::Ethernet => payload + VLAN_TAG * tags + ETHERNET,
            Framing::EthernetGap => payload + VLAN_TAG * tags + ETHERNET + PREAMBLE_AND_GAP,
            Framing::Ppp => payload + PPP,
            Framing::Atm => (payload + AAL5).div_ceil(CELL_PAYLOAD) * CELL,
            Framing::Custom(bytes) => payload + u32::from(bytes),
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Framing::Ethernet => f.write_str("ethernet"),
            Framing::EthernetGap => f.write_str("ethernet-gap"),
            Framing::Ppp => f.write_str("ppp"),
            Framing::Atm => f.write_str("atm"),
            Framing::Custom(bytes) => write!(f, "custom:{bytes}"),
        }
    }
}

impl FromStr for Framing {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Framing, TextError> {
        match text {
            "ethernet" => Ok(Framing::Ethernet),
            "ethernet-gap" => Ok(Framing::EthernetGap),
            "ppp" => Ok(Framing::Ppp),
            "atm" => Ok(Framing::Atm),
            _ => text
                .strip_prefix("custom:")
                .and_then(|bytes| bytes.parse().ok())
                .map(Framing::Custom)
                .ok_or_else(|| Items::new(text, Framing::GRAMMAR).error("no such preset")),
        }
    }
}

/// The bandwidth of the emulated link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rate {
    /// A constant rate.
    Constant(BitRate),
    /// A file of delivery opportunities, as Mahimahi's `mm-link` reads it.
    Mahimahi(String),
}

impl Rate {
    /// The lowest rate.
    pub const MIN: BitRate = BitRate::from_bps(300);
    /// The highest rate.
    pub const MAX: BitRate = BitRate::from_bps(400_000_000_000);
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a rate",
        expected: "a number and `bps`, `kbps`, `Mbps` or `Gbps`, 300bps to 400Gbps, such as `2.5Mbps`, or `mahimahi:FILE`",
    };
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Constant(rate) => rate.fmt(f),
            Rate::Mahimahi(file) => write!(f, "mahimahi:{file}"),
        }
    }
}

impl FromStr for Rate {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Rate, TextError> {
        if let Some(file) = text.strip_prefix("mahimahi:") {
            return Ok(Rate::Mahimahi(file.to_owned()));
        }
        let units = [
            ("Gbps", 1_000_000_000),
            ("Mbps", 1_000_000),
            ("kbps", 1_000),
            ("bps", 1),
        ];
        let items = Items::new(text, Rate::GRAMMAR);
        let (number, scale) = units
            .iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), *scale)))
            .ok_or_else(|| items.error("it has no unit of a bit rate"))?;
        let bps = decimal(number, scale)
            .ok_or_else(|| items.error("the number is not a whole number of bits per second"))?;
        let rate = BitRate::from_bps(bps);
        items
            .within("the rate", rate, Rate::MIN..=Rate::MAX)
            .map(Rate::Constant)
    }
}

/// The queue in front of the link. Frames that tail drop or RED discards use no bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// The maximum length of the queue.
    pub depth: Depth,
    /// Random early detection in front of the tail drop.
    pub red: Option<Red>,
}

/// The unit in which a queue is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The waiting time of a frame until its first bit is sent.
    Time(Interval),
    /// The number of waiting frames, without the frame that is being sent.
    Packets(u32),
    /// The number of unsent bytes on the emulated link, including the new frame.
    Bytes(ByteSize),
}

/// Random early detection: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Red {
    /// The average queue up to which no frame is dropped, as a share of the depth.
    pub min: Probability,
    /// The average queue from which every frame is dropped, as a share of the depth.
    pub max: Probability,
    /// The probability of a drop just below `max`.
    pub probability: Probability,
    /// The weight of a new sample in the average.
    pub weight: Probability,
}

impl Queue {
    /// The maximum queue in packets. Each packet takes memory.
    pub const MAX_PACKETS: u32 = 1 << 24;
    /// The maximum queue in time.
    pub const MAX_TIME: Interval = Interval::from_millis(60_000);
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a queue",
        expected: "`250ms`, `100packets` or `64KiB`, and RED as in \
                   `250ms,red,min=25%,max=75%,probability=10%,weight=0.2%`",
    };
}

impl Default for Queue {
    /// Returns a queue of a quarter of a second.
    fn default() -> Queue {
        Queue {
            depth: Depth::Time(Interval::from_millis(250)),
            red: None,
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.depth {
            Depth::Time(time) => time.fmt(f)?,
            Depth::Packets(packets) => write!(f, "{packets}packets")?,
            Depth::Bytes(bytes) => bytes.fmt(f)?,
        }
        if let Some(red) = self.red {
            let (probability, weight) = (red.probability, red.weight);
            write!(
                f,
                ",red,min={},max={},probability={probability},weight={weight}",
                red.min, red.max
            )?;
        }
        Ok(())
    }
}

impl FromStr for Queue {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Queue, TextError> {
        let mut items = Items::new(text, Queue::GRAMMAR);
        let head = items.head();
        let packets = head
            .strip_suffix("packets")
            .map(|number| number.trim_end().parse::<u32>());
        let depth = if let Some(packets) = packets {
            let packets = packets.map_err(|error| items.error(format!("packets: {error}")))?;
            Depth::Packets(items.within("the depth", packets, 0..=Queue::MAX_PACKETS)?)
        } else if head.ends_with('B') {
            Depth::Bytes(head.parse().map_err(|error| items.error(error))?)
        } else {
            let time: Interval = head.parse().map_err(|error| items.error(error))?;
            Depth::Time(items.within("the depth", time, Interval::default()..=Queue::MAX_TIME)?)
        };
        let red = if items.flag("red") {
            let red = Red {
                min: items.value("min")?.unwrap_or(Probability::from_ppm(250_000)),
                max: items.value("max")?.unwrap_or(Probability::from_ppm(750_000)),
                probability: items
                    .value("probability")?
                    .unwrap_or(Probability::from_ppm(100_000)),
                weight: items.value("weight")?.unwrap_or(Probability::from_ppm(2_000)),
            };
            if red.min >= red.max || red.weight == Probability::ZERO {
                return Err(items.error("min is not below max, or the weight is 0"));
            }
            Some(red)
        } else {
            None
        };
        items.finish()?;
        Ok(Queue { depth, red })
    }
}

/// Traffic of other users on the link. It takes bandwidth and queue, and its frames are not modelled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Background {
    /// A constant share of the rate.
    Constant(Probability),
    /// A share of the rate during bursts.
    OnOff {
        /// The share of the rate during a burst.
        share: Probability,
        /// The mean length of a burst.
        on: Interval,
        /// The mean length of a pause.
        off: Interval,
        /// The shape of Pareto-distributed lengths, above 1 and up to 10. If unset, the lengths are
        /// exponentially distributed.
        pareto: Option<f64>,
    },
}

impl Background {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "background traffic",
        expected: "`30%` of the rate, `on-off:80%,on=100ms,off=400ms` or `on-off:80%,on=100ms,off=400ms,pareto=1.5`",
    };
    /// The minimum of the mean length of a burst or a pause: each of them costs work.
    pub const MIN_PERIOD: Interval = Interval::from_millis(1);
}

impl fmt::Display for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Background::Constant(share) => share.fmt(f),
            Background::OnOff {
                share,
                on,
                off,
                pareto,
            } => {
                write!(f, "on-off:{share},on={on},off={off}")?;
                pareto.map_or(Ok(()), |shape| write!(f, ",pareto={shape}"))
            }
        }
    }
}

impl FromStr for Background {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Background, TextError> {
        let mut items = Items::new(text, Background::GRAMMAR);
        let head = items.head();
        let share = |text: &str| {
            text.parse()
                .map_err(|error: TextError| TextError::new(text, "background traffic", error.problem))
        };
        let background = match head.strip_prefix("on-off:") {
            None => Background::Constant(share(head)?),
            Some(head) => {
                let share = share(head)?;
                let range = Background::MIN_PERIOD..=Interval::MAX;
                let (on, off) = (items.required("on")?, items.required("off")?);
                let on = items.within("on", on, range.clone())?;
                let off = items.within("off", off, range)?;
                let pareto = items.value("pareto")?;
                let pareto = pareto
                    .map(|shape| items.within("pareto", shape, 1.05..=10.0))
                    .transpose()?;
                Background::OnOff {
                    share,
                    on,
                    off,
                    pareto,
                }
            }
        };
        items.finish()?;
        Ok(background)
    }
}

serde_as_text!(Framing, Rate, Queue, Background);
