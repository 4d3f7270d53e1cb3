//! The lines that control a generator: one command each, read from standard input.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// How fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as the device takes packets.
    Flat,
    /// Packets a second.
    Pps(f64),
}

/// Which packets a run sends, and by which device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Portion {
    /// The device, by its place among those that send.
    pub tx: usize,
    /// The packets, by their places; none is all of them.
    pub packets: Option<Range<usize>>,
}

/// A command.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `start RATE [SECONDS] [tx=N] [packets=FROM+LEN]`: a new run.
    Start {
        /// How fast.
        rate: Rate,
        /// How long. If there is none, each packet of a portion is sent once; without a portion it is until `stop`.
        length: Option<Duration>,
        /// Which packets, and by which device.
        portion: Portion,
    },
    /// `stop`: the run ends, and is reported when the last packets are in.
    Stop,
    /// `quit`: the program ends. So it does when standard input does.
    Quit,
}

/// A line that is no command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{line:?} is no command: expected `start RATE [SECONDS] [tx=N] [packets=FROM+LEN]`, `stop` or `quit`; RATE is packets a second (1000, 1.5M) or `flat`"
)]
pub struct CommandError {
    /// The line.
    pub line: String,
}

/// The longest run, seconds: a day.
const LENGTH_MAX: f64 = 86_400.0;
/// The highest rate, packets a second: more than any device has.
const RATE_MAX: f64 = 1e9;

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "flat" {
            return Ok(Rate::Flat);
        }
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
            Some(b'M') => (&text[..text.len() - 1], 1e6),
            _ => (text, 1.0),
        };
        let rate = digits.parse::<f64>().ok().map(|rate| rate * unit);
        rate.filter(|rate| *rate > 0.0 && *rate <= RATE_MAX)
            .map(Rate::Pps)
            .ok_or_else(|| "expected packets a second, as in 1000, 250k or 1.5M, or `flat`".to_owned())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Flat => f.write_str("flat"),
            Rate::Pps(rate) => write!(f, "{rate}"),
        }
    }
}

impl FromStr for Command {
    type Err = CommandError;

    fn from_str(line: &str) -> Result<Command, CommandError> {
        let error = || CommandError {
            line: line.chars().take(80).collect(),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["start", rate, ref rest @ ..] => start(rate, rest).ok_or_else(error),
            ["stop"] => Ok(Command::Stop),
            ["quit"] => Ok(Command::Quit),
            _ => Err(error()),
        }
    }
}

/// What is behind `start`.
fn start(rate: &str, words: &[&str]) -> Option<Command> {
    let (mut length, mut portion) = (None, Portion::default());
    for (place, word) in words.iter().enumerate() {
        match word.split_once('=') {
            Some(("tx", number)) => portion.tx = number.parse().ok()?,
            Some(("packets", packets)) => {
                let (first, len) = packets.split_once('+')?;
                let (first, len) = (first.parse::<usize>().ok()?, len.parse::<usize>().ok()?);
                let end = first.checked_add(len).filter(|end| *end > first)?;
                portion.packets = Some(first..end);
            }
            None if place == 0 => {
                let seconds = word.parse::<f64>().ok()?;
                let is_legal = seconds > 0.0 && seconds <= LENGTH_MAX;
                length = Some(is_legal.then(|| Duration::from_secs_f64(seconds))?);
            }
            _ => return None,
        }
    }
    Some(Command::Start {
        rate: rate.parse().ok()?,
        length,
        portion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_read_from_lines() {
        let start = |rate, length| {
            Ok(Command::Start {
                rate,
                length: Option::map(length, Duration::from_secs_f64),
                portion: Portion::default(),
            })
        };
        assert_eq!("start 1.5M 10".parse(), start(Rate::Pps(1.5e6), Some(10.0)));
        assert_eq!(" start  250k ".parse(), start(Rate::Pps(250e3), None));
        assert_eq!("start flat 0.5".parse(), start(Rate::Flat, Some(0.5)));
        let portion = |tx, packets| {
            Ok(Command::Start {
                rate: Rate::Pps(1e4),
                length: None,
                portion: Portion { tx, packets },
            })
        };
        assert_eq!("start 10k tx=1 packets=7+3".parse(), portion(1, Some(7..10)));
        assert_eq!("start 10k tx=2".parse(), portion(2, None));
        assert_eq!("stop".parse(), Ok(Command::Stop));
        assert_eq!("quit".parse(), Ok(Command::Quit));
    }

    #[test]
    fn what_is_no_command_is_answered_with_those_that_are() {
        for line in [
            "",
            "go",
            "start",
            "start 0",
            "start -1",
            "start 1 0",
            "start 1 x",
            "stop 3",
            "start inf",
            "start 1 tx=x",
            "start 1 packets=3",
            "start 1 packets=3+0",
            "start 1 packets=3+18446744073709551615",
            "start 1 tx=0 2",
            "start 1 rx=0",
        ] {
            let error = line.parse::<Command>().unwrap_err().to_string();
            assert!(error.contains("expected `start RATE"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_harm(line: String) {
            let _ = line.parse::<Command>();
        }
    }
}
