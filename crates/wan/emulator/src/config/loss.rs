//! The models of loss that settings can ask for.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use crate::text::{BitErrorRate, Grammar, Interval, Items, Probability, TextError, serde_as_text};

/// One model of loss.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Each frame is lost with a probability, which may depend on the previous frame's draw.
    Bernoulli {
        /// The share of frames that are lost.
        probability: Probability,
        /// The correlation of the Gaussian draws for two consecutive frames. It differs from the correlation
        /// of netem's draws.
        correlation: Probability,
    },
    /// A good and a bad state, each with a loss probability of its own (Gilbert 1960, Elliott 1963).
    GilbertElliott(GilbertElliott),
    /// Loss inside and outside of bursts, each with two states: Salsano, Ludovici, Ordine and Giannuzzi,
    /// "Definition of a general and intuitive loss model for packet networks and its implementation in the
    /// Netem module in the Linux kernel", 2012.
    FourState(FourState),
    /// Every n-th frame is lost.
    EveryNth(u32),
    /// A frame is lost if one of its bits is inverted.
    BitErrors(BitErrorRate),
    /// Every frame is lost during an outage.
    Outage(Outage),
    /// A file of `0` (arrives) and `1` (is lost), one for each frame. After the last it starts again.
    Trace(String),
}

/// The four parameters of a Gilbert-Elliott channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GilbertElliott {
    /// The probability, at each frame, to go from the good to the bad state.
    pub p: Probability,
    /// The probability, at each frame, to go from the bad to the good state.
    pub r: Probability,
    /// The loss probability in the bad state (1-h).
    pub bad: Probability,
    /// The loss probability in the good state (1-k).
    pub good: Probability,
}

impl GilbertElliott {
    /// Returns the channel that loses `loss` of all frames in bursts of a mean length. It loses no frame in
    /// the good state, and every frame in the bad state.
    pub fn with_burst(loss: Probability, burst: f64) -> GilbertElliott {
        let r = 1.0 / burst;
        let share = loss.get();
        GilbertElliott {
            p: Probability::from_f64(r * share / (1.0 - share)),
            r: Probability::from_f64(r),
            bad: Probability::CERTAIN,
            good: Probability::ZERO,
        }
    }
}

/// The transitions of netem's model of four states. State 1: received in a gap. State 2: received in a burst.
/// State 3: lost in a burst. State 4: lost in a gap; the next state is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FourState {
    /// The probability to go from 1 to 3.
    pub p13: Probability,
    /// The probability to go from 3 to 1.
    pub p31: Probability,
    /// The probability to go from 3 to 2.
    pub p32: Probability,
    /// The probability to go from 2 to 3.
    pub p23: Probability,
    /// The probability to go from 1 to 4.
    pub p14: Probability,
}

/// Periods in which nothing arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// At a time after the start, once or periodically. If a change under traffic adds or modifies the outage, its
    /// times count from the first frame after the change.
    Scheduled {
        /// The start of the first outage.
        at: Interval,
        /// The length of each outage.
        length: Interval,
        /// The time between the starts of two outages.
        every: Option<Interval>,
    },
    /// At random: the lengths of outages and of the times between them are exponentially distributed.
    Random {
        /// The mean time without outage.
        up: Interval,
        /// The mean length of an outage.
        down: Interval,
    },
}

impl Loss {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a loss",
        expected: "`1%`, `ge:1%,burst=8`, `ge:p=1%,r=10%,bad=100%,good=0%`, `4-state:p13=1%,p31=50%,p32=10%,p23=50%,p14=0%`, \
                   `every:100`, `ber:1e-9`, `outage:at=10s,for=2s,every=60s`, `outage:up=30s,down=2s` or `trace:FILE`",
    };
    /// The minimum of the mean length of a random outage, and of the mean time between two.
    pub const MIN_PERIOD: Interval = Interval::from_millis(1);

    fn gilbert_elliott(items: &mut Items<'_>, head: &str) -> Result<Loss, TextError> {
        let Some((first, p)) = head.split_once('=') else {
            let loss: Probability = head.parse().map_err(|error| items.error(error))?;
            let burst = items.value("burst")?.unwrap_or(1.0);
            let burst = items.within("burst", burst, 1.0..=1e9)?;
            let channel = GilbertElliott::with_burst(loss, burst);
            // p = r × loss / (1 - loss) is a probability only up to this loss.
            if loss.get() > burst / (burst + 1.0) {
                return Err(items.error(format!("bursts of {burst} frames cannot lose {loss}")));
            }
            if channel.p == Probability::ZERO && loss > Probability::ZERO {
                return Err(items.error(format!("{loss} in bursts of {burst} frames is too rare")));
            }
            return Ok(Loss::GilbertElliott(channel));
        };
        if first.trim() != "p" {
            return Err(items.error("p is not the first"));
        }
        let p: Probability = p.parse().map_err(|error| items.error(error))?;
        Ok(Loss::GilbertElliott(GilbertElliott {
            p,
            r: items.required("r")?,
            bad: items.value("bad")?.unwrap_or(Probability::CERTAIN),
            good: items.value("good")?.unwrap_or(Probability::ZERO),
        }))
    }

    fn four_state(items: &mut Items<'_>, head: &str) -> Result<Loss, TextError> {
        let Some(("p13", p13)) = head.split_once('=') else {
            return Err(items.error("p13 is not the first"));
        };
        let chain = FourState {
            p13: p13.parse().map_err(|error| items.error(error))?,
            p31: items.required("p31")?,
            p32: items.required("p32")?,
            p23: items.required("p23")?,
            p14: items.required("p14")?,
        };
        let leaves = |a: Probability, b: Probability| a.get() + b.get();
        if leaves(chain.p13, chain.p14) > 1.0 || leaves(chain.p31, chain.p32) > 1.0 {
            return Err(items.error("p13 + p14 or p31 + p32 is above 100%"));
        }
        Ok(Loss::FourState(chain))
    }

    fn outage(items: &mut Items<'_>, head: &str) -> Result<Loss, TextError> {
        let interval =
            |text: &str, items: &Items<'_>| text.parse::<Interval>().map_err(|error| items.error(error));
        let range = Loss::MIN_PERIOD..=Interval::MAX;
        let outage = match head.split_once('=') {
            Some(("at", at)) => {
                let at = interval(at, items)?;
                let (length, every) = (items.required("for")?, items.value("every")?);
                if every.is_some_and(|every| every <= length) {
                    return Err(items.error("`every` is not longer than `for`"));
                }
                Outage::Scheduled { at, length, every }
            }
            Some(("up", up)) => {
                let up = interval(up, items)?;
                let down = items.required("down")?;
                Outage::Random {
                    up: items.within("up", up, range.clone())?,
                    down: items.within("down", down, range)?,
                }
            }
            _ => return Err(items.error("neither `at=` nor `up=`")),
        };
        Ok(Loss::Outage(outage))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Bernoulli {
                probability,
                correlation,
            } => {
                probability.fmt(f)?;
                if *correlation != Probability::ZERO {
                    write!(f, ",correlation={correlation}")?;
                }
                Ok(())
            }
            Loss::GilbertElliott(GilbertElliott { p, r, bad, good }) => {
                write!(f, "ge:p={p},r={r},bad={bad},good={good}")
            }
            Loss::FourState(FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
            }) => write!(f, "4-state:p13={p13},p31={p31},p32={p32},p23={p23},p14={p14}"),
            Loss::EveryNth(n) => write!(f, "every:{n}"),
            Loss::BitErrors(rate) => write!(f, "ber:{rate}"),
            Loss::Outage(Outage::Scheduled { at, length, every }) => {
                write!(f, "outage:at={at},for={length}")?;
                every.map_or(Ok(()), |every| write!(f, ",every={every}"))
            }
            Loss::Outage(Outage::Random { up, down }) => write!(f, "outage:up={up},down={down}"),
            Loss::Trace(file) => write!(f, "trace:{file}"),
        }
    }
}

impl FromStr for Loss {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Loss, TextError> {
        if let Some(file) = text.strip_prefix("trace:") {
            return Ok(Loss::Trace(file.to_owned()));
        }
        let mut items = Items::new(text, Loss::GRAMMAR);
        let head = items.head();
        let loss = match head.split_once(':') {
            None => Loss::Bernoulli {
                probability: head.parse().map_err(|error| items.error(error))?,
                correlation: Probability::correlation(&mut items)?,
            },
            Some(("ge", head)) => Loss::gilbert_elliott(&mut items, head)?,
            Some(("4-state", head)) => Loss::four_state(&mut items, head)?,
            Some(("every", n)) => match n.parse() {
                Ok(n) if n > 0 => Loss::EveryNth(n),
                _ => return Err(items.error("no whole number above 0")),
            },
            Some(("ber", rate)) => Loss::BitErrors(rate.parse().map_err(|error| items.error(error))?),
            Some(("outage", head)) => Loss::outage(&mut items, head)?,
            Some((model, _)) => return Err(items.error(format!("there is no model `{model}`"))),
        };
        items.finish()?;
        Ok(loss)
    }
}

serde_as_text!(Loss);

/// Models of loss that a frame passes one after the other. The first model that drops the frame names the
/// reason. Each kind of model may occur once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LossConfig(pub Vec<Loss>);

impl fmt::Display for LossConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, loss) in self.0.iter().enumerate() {
            write!(f, "{}{loss}", if at == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}

impl LossConfig {
    /// Returns the models if each kind occurs once: two models of a kind would draw the same numbers.
    fn new(models: Vec<Loss>) -> Result<LossConfig, TextError> {
        for (at, model) in models.iter().enumerate() {
            let kind = std::mem::discriminant(model);
            if models[..at]
                .iter()
                .any(|other| std::mem::discriminant(other) == kind)
            {
                let problem = "this model is there already; expected each model once";
                return Err(TextError::new(&model.to_string(), "a further loss", problem));
            }
        }
        Ok(LossConfig(models))
    }
}

impl FromStr for LossConfig {
    type Err = TextError;

    fn from_str(text: &str) -> Result<LossConfig, TextError> {
        let models = text.split(';').map(|model| model.trim().parse());
        LossConfig::new(models.collect::<Result<_, _>>()?)
    }
}

impl serde::Serialize for LossConfig {
    /// Writes one model as a text, and several as a list of texts.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [model] => model.serialize(serializer),
            models => models.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LossConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LossConfig, D::Error> {
        struct TextOrList;

        impl<'de> Visitor<'de> for TextOrList {
            type Value = LossConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a loss such as `1%`, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LossConfig, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LossConfig, A::Error> {
                let mut models = Vec::new();
                while let Some(model) = list.next_element()? {
                    models.push(model);
                }
                LossConfig::new(models).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(TextOrList)
    }
}
