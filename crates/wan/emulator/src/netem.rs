//! The grammar of `tc qdisc … netem`, as in tc-netem(8).
//!
//! A draw with netem's kind of correlation is converted into a draw with the correlation of Gaussian draws.
//! Here the share of affected frames does not depend on the correlation; in netem it does (Jurgelionis et
//! al., "An Empirical Study of NetEm Network Emulation Functionalities", ICCCN 2011). Every such difference
//! is a note.

mod numbers;

use numbers::{percent, rate, size, time};

use crate::config::{
    Correlation, Corrupt, CorruptAction, DelayConfig, Depth, Distribution, Duplicate, Errors, FourState,
    Framing, GilbertElliott, Jitter, Loss, LossConfig, Order, PathConfig, Queue, Rate, Reorder, Shift,
};
use crate::text::{Interval, Probability, TextError};

/// The directory of iproute2's distribution tables.
const TABLES: &str = "/usr/lib/tc";
const WHAT: &str = "a netem setting";
const DISTRIBUTION: &str =
    "`uniform`, `normal`, `pareto`, `paretonormal`, or a table's name or path without `,` and `=`";

/// Returns the name of a distribution. Returns `None` if it contains `,` or `=`, which separate the items of
/// a jitter.
fn distribution(word: &str) -> Option<String> {
    (!word.contains([',', '='])).then(|| word.to_owned())
}

/// A path in netem's terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub path: PathConfig,
    /// Differences from netem, one sentence each.
    pub notes: Vec<String>,
}

/// Reads the words after `netem` on the command line of `tc`.
///
/// # Errors
/// [`TextError`] with the unknown word and the expected form.
pub fn parse(text: &str) -> Result<Parsed, TextError> {
    let mut words = Words {
        words: text.split_whitespace().collect(),
        at: 0,
    };
    let mut netem = Netem::default();
    // A user may paste the complete command `tc qdisc add dev eth0 root netem …`.
    if let Some(at) = words.words.iter().position(|word| *word == "netem") {
        words.at = at + 1;
    }
    while let Some(word) = words.next() {
        match word {
            "delay" => netem.delay(&mut words)?,
            "distribution" => netem.distribution = Some(words.read(DISTRIBUTION, distribution)?),
            "loss" | "drop" if netem.loss.is_some() => {
                return Err(TextError::new(
                    word,
                    WHAT,
                    "expected one loss model; this is a second one",
                ));
            }
            "loss" | "drop" => netem.loss(&mut words)?,
            "duplicate" => netem.duplicate = Some(words.share()?),
            "corrupt" => netem.corrupt = Some(words.share()?),
            "reorder" => netem.reorder = Some(words.share()?),
            "gap" => netem.gap = Some(words.number("a gap, a whole number above 0")?),
            "rate" => netem.rate(&mut words)?,
            "limit" => netem.limit = Some(words.read("a limit in packets, such as `1000` or `10k`", size)?),
            "slot" | "ecn" | "seed" => {
                let problem = "netem's slots, marks and seeds have no like here; expected the other settings";
                return Err(TextError::new(word, WHAT, problem));
            }
            _ => {
                let problem = "expected `delay`, `distribution`, `loss`, `duplicate`, `corrupt`, `reorder`, `gap`, `rate` or \
                               `limit`, as in tc-netem(8)";
                return Err(TextError::new(word, WHAT, problem));
            }
        }
    }
    let parsed = netem.into_path()?;
    check_ranges(&parsed.path)?;
    Ok(parsed)
}

/// Refuses values that netem allows, but that are outside the range of the path's key.
fn check_ranges(path: &PathConfig) -> Result<(), TextError> {
    let mut checked = PathConfig::default();
    for key in PathConfig::KEYS {
        let text = path.text(key.name).unwrap_or_default();
        checked
            .set(key.name, &text)
            .map_err(|error| TextError::new(&text, WHAT, error.problem))?;
    }
    Ok(())
}

/// The words of the command line.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// Removes the next word and returns its value, if the word can be read.
    fn optional<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = read(self.words.get(self.at)?)?;
        self.at += 1;
        Some(value)
    }

    fn required(&mut self, expected: &'static str) -> Result<&'a str, TextError> {
        let before = self
            .words
            .get(self.at.wrapping_sub(1))
            .copied()
            .unwrap_or_default();
        self.next()
            .ok_or_else(|| TextError::new(before, WHAT, format!("expected {expected} after it")))
    }

    fn read<T>(&mut self, expected: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, TextError> {
        let word = self.required(expected)?;
        read(word).ok_or_else(|| TextError::new(word, WHAT, format!("expected {expected}")))
    }

    fn number(&mut self, expected: &'static str) -> Result<u32, TextError> {
        self.read(expected, |word| word.parse().ok())
    }

    fn percent(&mut self) -> Result<Probability, TextError> {
        self.read("a percentage such as `1%`", percent)
    }

    /// Reads a probability, and a correlation if one follows.
    fn share(&mut self) -> Result<Share, TextError> {
        Ok(Share {
            probability: self.percent()?,
            correlation: self.optional(percent).unwrap_or_default(),
        })
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Share {
    probability: Probability,
    correlation: Probability,
}

#[derive(Default)]
struct Netem {
    delay: Interval,
    jitter: Option<Interval>,
    delay_correlation: Probability,
    distribution: Option<String>,
    loss: Option<Loss>,
    duplicate: Option<Share>,
    corrupt: Option<Share>,
    reorder: Option<Share>,
    gap: Option<u32>,
    rate: Option<u64>,
    overhead: Option<u16>,
    limit: Option<u32>,
    notes: Vec<String>,
}

impl Netem {
    fn delay(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        self.delay = words.read("a time such as `100ms`", time)?;
        self.jitter = words.optional(time);
        if self.jitter.is_some() {
            self.delay_correlation = words.optional(percent).unwrap_or_default();
        }
        Ok(())
    }

    fn loss(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        let model = words.optional(|word| {
            ["random", "state", "gemodel"]
                .iter()
                .position(|model| *model == word)
        });
        self.loss = Some(match model {
            Some(1) => {
                // The defaults of tc-netem(8): p31 = 1 - p13, p32 = 0, p23 = 1, p14 = 0.
                let p13 = words.percent()?;
                let rest = Probability::from_f64(1.0 - p13.get());
                Loss::FourState(FourState {
                    p13,
                    p31: words.optional(percent).unwrap_or(rest),
                    p32: words.optional(percent).unwrap_or(Probability::ZERO),
                    p23: words.optional(percent).unwrap_or(Probability::CERTAIN),
                    p14: words.optional(percent).unwrap_or(Probability::ZERO),
                })
            }
            Some(2) => {
                let p = words.percent()?;
                let rest = Probability::from_f64(1.0 - p.get());
                Loss::GilbertElliott(GilbertElliott {
                    p,
                    r: words.optional(percent).unwrap_or(rest),
                    bad: words.optional(percent).unwrap_or(Probability::CERTAIN),
                    good: words.optional(percent).unwrap_or(Probability::ZERO),
                })
            }
            _ => {
                let share = words.share()?;
                Loss::Bernoulli {
                    probability: share.probability,
                    correlation: share.correlation,
                }
            }
        });
        Ok(())
    }

    fn rate(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        self.rate = Some(words.read("a rate such as `10mbit`", rate)?);
        self.overhead = words.optional(|word| word.parse().ok());
        let next = words.words.get(words.at).copied().unwrap_or_default();
        if self.overhead.is_none() && next.parse::<i32>().is_ok_and(|overhead| overhead < 0) {
            let problem = "a negative overhead is not supported; expected 0 to 65535 bytes";
            return Err(TextError::new(next, WHAT, problem));
        }
        if words.optional(|word| word.parse::<i32>().ok()).is_some() {
            let word = words
                .words
                .get(words.at.wrapping_sub(1))
                .copied()
                .unwrap_or_default();
            return Err(TextError::new(
                word,
                WHAT,
                "a cell size has no like here; expected `framing atm` instead of `rate … CELL`",
            ));
        }
        Ok(())
    }

    fn into_path(mut self) -> Result<Parsed, TextError> {
        let jitter = self.jitter();
        let rate = self
            .rate
            .map(|bps| format!("{bps}bps").parse::<Rate>())
            .transpose()?;
        let chance = |share: Share| (share.probability, share.correlation);
        let mut path = PathConfig {
            delay: DelayConfig::Constant(self.delay),
            // netem releases each packet after its own delay, unless a rate keeps the packets in order.
            order: if jitter.is_some() && rate.is_none() {
                Order::Reordering
            } else {
                Order::Ordered
            },
            jitter,
            loss: LossConfig(self.loss.take().into_iter().collect()),
            duplicate: self
                .duplicate
                .map(chance)
                .map(|(probability, correlation)| Duplicate {
                    probability,
                    correlation,
                    extra: Interval::default(),
                }),
            corrupt: self
                .corrupt
                .map(chance)
                .map(|(probability, correlation)| Corrupt {
                    errors: Errors::Frames {
                        probability,
                        correlation,
                        bits: 1,
                    },
                    action: CorruptAction::Deliver,
                }),
            reorder: self.reorder(),
            rate,
            ..PathConfig::default()
        };
        if path.rate.is_some() {
            // netem counts the bytes of the frame without check sequence.
            path.framing = Framing::Custom(self.overhead.unwrap_or(0).saturating_add(14));
            let limit = self.limit.unwrap_or(1000).min(Queue::MAX_PACKETS);
            path.queue.depth = Depth::Packets(limit);
            self.notes.push(format!(
                "limit: netem's counts delayed packets, too; here {limit} packets wait for the link, and those on their way have \
                 memory of their own"
            ));
        } else if self.limit.is_some() {
            self.notes
                .push("limit: without a rate nothing waits for the link; memory is the limit".to_owned());
        }
        let has_mean = self.delay > Interval::default();
        if self.distribution.is_some() && (path.jitter.is_none() || !has_mean) {
            let reason = "expected `delay TIME JITTER` with it, as in `delay 100ms 10ms distribution normal`";
            return Err(TextError::new("distribution", WHAT, reason));
        }
        if self.gap.is_some() && path.reorder.is_none() {
            return Err(TextError::new("gap", WHAT, "expected `reorder` with it"));
        }
        if path.reorder.is_some() && self.delay == Interval::default() {
            let reason =
                "expected `delay TIME` with it: packets that are reordered leave before delayed ones";
            return Err(TextError::new("reorder", WHAT, reason));
        }
        let problem = |error: crate::ConfigError| TextError::new(&error.key, WHAT, error.problem);
        path.validate().map_err(problem)?;
        Ok(Parsed {
            path,
            notes: self.notes,
        })
    }

    fn jitter(&mut self) -> Option<Jitter> {
        let spread = self.jitter.filter(|jitter| *jitter > Interval::default())?;
        let distribution = match self.distribution.as_deref() {
            None | Some("uniform") => Distribution::Uniform,
            Some("normal") => Distribution::Normal,
            Some("pareto") => Distribution::Pareto,
            Some("paretonormal") => Distribution::ParetoNormal,
            Some(name) => {
                let file = if name.contains('/') {
                    name.to_owned()
                } else {
                    format!("{TABLES}/{name}.dist")
                };
                Distribution::Table(file)
            }
        };
        let correlation = if self.delay_correlation == Probability::ZERO {
            Correlation::None
        } else {
            self.notes.push(
                "delay: a correlation from packet to packet changes with the load; `half-life=` does not. The spread stays as asked, \
                 while netem's shrinks"
                    .to_owned(),
            );
            Correlation::PerFrame(self.delay_correlation)
        };
        Some(Jitter {
            spread,
            distribution,
            correlation,
        })
    }

    fn reorder(&mut self) -> Option<Reorder> {
        let share = self.reorder?;
        if self.gap.is_some_and(|gap| gap > 1) && share.probability < Probability::CERTAIN {
            self.notes.push(
                "reorder: with `gap N` each N-th packet has the chance; netem, once N - 1 packets are delayed, gives it to each \
                 packet until one is reordered"
                    .to_owned(),
            );
        }
        Some(Reorder {
            probability: share.probability,
            correlation: share.correlation,
            shift: Shift::Ahead,
            gap: self.gap.filter(|gap| *gap > 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(&'static str, String)> {
        let path = parse(text).unwrap().path;
        let plain = PathConfig::default();
        let changed = PathConfig::KEYS
            .iter()
            .filter(|key| path.text(key.name) != plain.text(key.name));
        changed
            .map(|key| (key.name, path.text(key.name).unwrap()))
            .collect()
    }

    #[test]
    fn the_examples_of_the_manual_are_understood() {
        for (text, expected) in [
            ("delay 100ms", &[("delay", "100ms")][..]),
            (
                "delay 100ms 10ms 25% distribution normal",
                &[
                    ("delay", "100ms"),
                    ("jitter", "10ms,normal,correlation=25%"),
                    ("order", "reordering"),
                ],
            ),
            ("loss random 0.3% 25%", &[("loss", "0.3%,correlation=25%")]),
            (
                "loss gemodel 1% 10% 70% 0.1%",
                &[("loss", "ge:p=1%,r=10%,bad=70%,good=0.1%")],
            ),
            ("loss gemodel 1%", &[("loss", "ge:p=1%,r=99%,bad=100%,good=0%")]),
            (
                "loss state 1 50 10 50",
                &[("loss", "4-state:p13=1%,p31=50%,p32=10%,p23=50%,p14=0%")],
            ),
            ("duplicate 1%", &[("duplicate", "1%")]),
            ("corrupt 0.1%", &[("corrupt", "0.1%,bits=1,deliver")]),
            (
                "delay 10ms reorder 25% 50% gap 5",
                &[("delay", "10ms"), ("reorder", "25%,ahead,correlation=50%,gap=5")],
            ),
            (
                "tc qdisc add dev eth0 root netem rate 5kbit 20 limit 50",
                &[
                    ("framing", "custom:34"),
                    ("rate", "5kbps"),
                    ("queue", "50packets"),
                ],
            ),
        ] {
            let texts = texts(text);
            let texts: Vec<_> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
            assert_eq!(texts, expected, "{text}");
        }
    }

    #[test]
    fn a_jitter_above_the_delay_is_taken_and_no_frame_leaves_before_it_came() {
        let path = parse("delay 10ms 15ms").unwrap().path;
        assert!(
            path.warnings().iter().any(|text| text.contains("below 0")),
            "{:?}",
            path.warnings()
        );
        let mut path = crate::Path::new(&path, crate::Seed::new(1), &crate::NoSources).unwrap();
        let mut delay = |number| match path.offer_sized(millrace_types::Time::from_secs(number), 60)[0] {
            crate::Outcome::Released(release) => release.drawn_delay,
            crate::Outcome::Dropped(_) => panic!("there is no loss"),
        };
        let delays: Vec<u64> = (0..10_000).map(&mut delay).collect();
        let early = delays.iter().filter(|delay| **delay == 0).count();
        // The delays are uniform from -5 to 25 ms, and those below 0 are 0.
        assert!((1_550..1_780).contains(&early), "{early}");
        assert!(
            delays
                .iter()
                .max()
                .is_some_and(|delay| (24_900_000..=25_000_000).contains(delay))
        );
    }

    #[test]
    fn a_pareto_delay_is_longer_than_the_mean_by_four_deviations_at_most_as_in_netem() {
        let path = parse("delay 100ms 10ms distribution pareto").unwrap().path;
        let mut path = crate::Path::new(&path, crate::Seed::new(1), &crate::NoSources).unwrap();
        let mut delay = |number| match path.offer_sized(millrace_types::Time::from_secs(number), 60)[0] {
            crate::Outcome::Released(release) => release.drawn_delay,
            crate::Outcome::Dropped(_) => 0,
        };
        let delays: Vec<u64> = (0..10_000).map(&mut delay).collect();
        assert_eq!(delays.iter().max(), Some(&140_000_000));
        assert!(delays.iter().all(|delay| *delay > 93_300_000));
    }

    #[test]
    fn a_gap_with_less_than_all_packets_is_a_note() {
        let notes = |text| parse(text).unwrap().notes;
        assert!(
            notes("delay 10ms reorder 25% gap 5")
                .iter()
                .any(|note| note.contains("gap"))
        );
        assert!(notes("delay 10ms reorder 100% gap 5").is_empty());
    }

    #[test]
    fn a_word_that_is_not_understood_is_named() {
        for (text, word) in [
            ("delay", "`delay`"),
            ("delay soon", "`soon`"),
            ("loss 101%", "`101%`"),
            ("loss gemodel", "`gemodel`"),
            ("slot 1ms", "`slot`"),
            ("delay 1ms gap 5", "`gap`"),
            ("reorder 25% 50%", "`reorder`"),
            ("delay 0 reorder 25%", "`reorder`"),
            ("delay 0 5ms distribution normal", "`distribution`"),
            ("loss 1% loss 2%", "`loss`"),
            ("limit -1", "`-1`"),
            ("delay 1ms distribution gauss", "`distribution`"),
            ("distribution normal loss 1%", "`distribution`"),
            ("rate 1mbit 20 48", "`48`"),
            ("rate 1mbit -20", "a negative overhead"),
            ("fast", "`fast`"),
            ("delay 100ms 101s distribution normal", "101s"),
            ("delay 10ms 1ms 100%", "100%"),
            ("loss 1% 100%", "correlation of 100%"),
            ("delay 10ms 1ms distribution no-rma=l", "`no-rma=l`"),
            ("delay 10ms 1ms distribution a,b", "`a,b`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("expected"), "{error}");
        }
    }
}
