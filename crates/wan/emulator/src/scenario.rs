//! Scheduled changes: `at 10s loss 1%`, one a line.
//!
//! ```text
//! # A comment. Times count from the start and do not decrease.
//! at 10s loss 1%
//! at 20s forward rate 10Mbps       # one direction; both without it
//! at 30s loss none
//! repeat 60s                       # the last line: starts again after this time
//! ```

use std::time::Duration;

use thiserror::Error;

use crate::config::{ConfigError, DirectionId, PathConfig};
use crate::text::Interval;

/// The largest number of steps.
const MAX_STEPS: usize = 1 << 20;

/// The steps of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scenario {
    /// The steps, in the order of time.
    pub steps: Vec<Step>,
    /// The time after which the steps begin again.
    pub repeat: Option<Duration>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The time from the start.
    pub at: Duration,
    /// The direction. `None` means both.
    pub toward: Option<DirectionId>,
    /// The key of [`PathConfig`].
    pub key: String,
    /// The value, or `none` to remove the setting.
    pub value: String,
}

/// The error for a line that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct ScenarioError {
    /// The line, from 1.
    pub line: usize,
    /// The error, and the expected form.
    pub problem: String,
}

impl Scenario {
    /// Reads a file. Each value is checked separately. Settings that contradict each other are refused when
    /// they are applied.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first line that is not valid.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario::default();
        for (number, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let words: Vec<_> = content.split_whitespace().collect();
            if !words.is_empty() {
                let read = scenario.line(&words);
                read.map_err(|problem| ScenarioError {
                    line: number + 1,
                    problem,
                })?;
            }
        }
        Ok(scenario)
    }

    fn line(&mut self, words: &[&str]) -> Result<(), String> {
        if self.repeat.is_some() {
            return Err("`repeat` is not the last line; expected nothing after it".to_owned());
        }
        let last = self.steps.last().map_or(Duration::ZERO, |step| step.at);
        match *words {
            ["repeat", time] => {
                let time: Interval = time.parse().map_err(|error| format!("{error}"))?;
                if time.duration() <= last {
                    return Err(format!("`repeat {time}` is not after the last step"));
                }
                self.repeat = Some(time.duration());
            }
            ["at", time, ref change @ ..] => {
                let at = time
                    .parse::<Interval>()
                    .map_err(|error| error.to_string())?
                    .duration();
                if at < last {
                    return Err(format!(
                        "`{time}` is before the step above; expected times that do not decrease"
                    ));
                }
                if self.steps.len() == MAX_STEPS {
                    return Err(format!("more than {MAX_STEPS} steps"));
                }
                self.steps.push(step(at, change)?);
            }
            _ => {
                return Err(format!(
                    "`{}`: expected `at TIME [forward|backward] KEY VALUE` or `repeat TIME`",
                    words.join(" ")
                ));
            }
        }
        Ok(())
    }
}

fn step(at: Duration, change: &[&str]) -> Result<Step, String> {
    let (toward, change) = match change.split_first() {
        Some((&"forward", rest)) => (Some(DirectionId::Forward), rest),
        Some((&"backward", rest)) => (Some(DirectionId::Backward), rest),
        _ => (None, change),
    };
    let Some((key, value)) = change.split_first().filter(|(_, value)| !value.is_empty()) else {
        return Err("expected a key and a value after the time, such as `loss 1%`".to_owned());
    };
    let step = Step {
        at,
        toward,
        key: (*key).to_owned(),
        value: value.join(" "),
    };
    step.apply(&mut PathConfig::default())
        .map_err(|error| error.to_string())?;
    Ok(step)
}

impl Step {
    /// Returns true if the step changes this direction.
    pub fn concerns(&self, toward: DirectionId) -> bool {
        self.toward.is_none_or(|own| own == toward)
    }

    /// Changes a path.
    ///
    /// # Errors
    /// [`ConfigError`], as [`PathConfig::set`].
    pub fn apply(&self, path: &mut PathConfig) -> Result<(), ConfigError> {
        path.set(&self.key, &self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_change_a_path_at_their_times() {
        let scenario = Scenario::parse(
            "# up\nat 10s loss 1% \n\nat 20s forward delay 50ms # later\nat 20s loss none\nrepeat 60s",
        )
        .unwrap();
        assert_eq!(scenario.repeat, Some(Duration::from_secs(60)));
        let mut path = PathConfig::default();
        let [loss, delay, none] = scenario.steps.as_slice() else {
            panic!("{scenario:?}");
        };
        loss.apply(&mut path).unwrap();
        assert_eq!(
            (path.text("loss").unwrap(), path.text("delay").unwrap()),
            ("1%".to_owned(), "0ns".to_owned())
        );
        assert!([loss, none].iter().all(|step| step.toward.is_none()));
        assert!(delay.concerns(DirectionId::Forward) && !delay.concerns(DirectionId::Backward));
        assert_eq!([loss, delay, none].map(|step| step.at.as_secs()), [10, 20, 20]);
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        for (text, expected) in [
            ("at 10s", "line 1: expected a key and a value"),
            ("at 10s speed 3", "line 1: speed: there is no such setting"),
            (
                "at 10s loss 1%\nat 5s loss 2%",
                "line 2: `5s` is before the step above",
            ),
            ("\nloss 1%", "line 2: `loss 1%`: expected `at TIME"),
            ("at soon loss 1%", "line 1: `soon` is not a duration"),
            ("at 5s loss 1%\nrepeat 5s", "line 2: `repeat 5s` is not after"),
            (
                "repeat 5s\nat 1s loss 1%",
                "line 2: `repeat` is not the last line",
            ),
        ] {
            let error = Scenario::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
