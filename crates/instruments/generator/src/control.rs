//! Commands on standard input, one per line.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// The rate of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// The highest rate at which the device accepts packets.
    Flat,
    /// Packets per second.
    Pps(f64),
}

/// The packets of a run, and the device that sends them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The index of the device among those that send.
    pub tx: usize,
    /// The indexes of the packets; `None` for all.
    pub packets: Option<Range<usize>>,
}

/// A line on standard input that controls the generator.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `start RATE [SECONDS] [tx=N] [packets=FROM+LEN]`: starts a run.
    Start {
        rate: Rate,
        /// The duration. `None` sends each packet of a given range once; without a range the run lasts until `stop`.
        length: Option<Duration>,
        /// The packets and the device.
        selection: Selection,
    },
    /// `stop`: ends the run. The report follows when the last packets have arrived.
    Stop,
    /// `quit`: ends the program, as the end of standard input does.
    Quit,
}

/// The error for a line that is not a command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{line:?} is not a command: expected `start RATE [SECONDS] [tx=N] [packets=FROM+LEN]`, `stop` or `quit`; RATE is in packets per second (1000, 1.5M) or `flat`"
)]
pub struct CommandError {
    pub line: String,
}

/// The longest duration of a run in seconds: a day.
const LENGTH_MAX: f64 = 86_400.0;
/// The highest rate in packets per second, above that of any device.
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
            .ok_or_else(|| "expected packets per second, as in 1000, 250k or 1.5M, or `flat`".to_owned())
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

/// Parses the arguments of `start`.
fn start(rate: &str, words: &[&str]) -> Option<Command> {
    let (mut length, mut selection) = (None, Selection::default());
    for (index, word) in words.iter().enumerate() {
        match word.split_once('=') {
            Some(("tx", number)) => selection.tx = number.parse().ok()?,
            Some(("packets", packets)) => {
                let (first, len) = packets.split_once('+')?;
                let (first, len) = (first.parse::<usize>().ok()?, len.parse::<usize>().ok()?);
                let end = first.checked_add(len).filter(|end| *end > first)?;
                selection.packets = Some(first..end);
            }
            None if index == 0 => {
                let seconds = word.parse::<f64>().ok()?;
                let is_valid = seconds > 0.0 && seconds <= LENGTH_MAX;
                length = Some(is_valid.then(|| Duration::from_secs_f64(seconds))?);
            }
            _ => return None,
        }
    }
    Some(Command::Start {
        rate: rate.parse().ok()?,
        length,
        selection,
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
                selection: Selection::default(),
            })
        };
        assert_eq!("start 1.5M 10".parse(), start(Rate::Pps(1.5e6), Some(10.0)));
        assert_eq!(" start  250k ".parse(), start(Rate::Pps(250e3), None));
        assert_eq!("start flat 0.5".parse(), start(Rate::Flat, Some(0.5)));
        let selection = |tx, packets| {
            Ok(Command::Start {
                rate: Rate::Pps(1e4),
                length: None,
                selection: Selection { tx, packets },
            })
        };
        assert_eq!("start 10k tx=1 packets=7+3".parse(), selection(1, Some(7..10)));
        assert_eq!("start 10k tx=2".parse(), selection(2, None));
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
