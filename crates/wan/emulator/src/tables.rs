//! Files that describe a path: quantile tables of netem, traces of delay and of loss, delivery opportunities of Mahimahi.
//!
//! Every reader reports the line of an error, and accepts at most [`MAX_LEN`] values.

use thiserror::Error;

use crate::config::DelayConfig;
use crate::text::{Interval, decimal};

/// The maximum number of values in a file.
pub const MAX_LEN: usize = 1 << 24;

/// The error for a file that does not follow its format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileError {
    /// A value does not follow the format.
    #[error("line {line}: `{value}` is not {expected}")]
    Value {
        /// The line, from 1.
        line: usize,
        /// The invalid word.
        value: String,
        /// The format.
        expected: &'static str,
    },
    /// There is no value in the file.
    #[error("the file is empty: expected {expected}")]
    Empty {
        /// The format.
        expected: &'static str,
    },
    /// The file has more than [`MAX_LEN`] values.
    #[error("line {line}: more than {MAX_LEN} values")]
    TooLong {
        /// The line of the first value beyond the limit.
        line: usize,
    },
}

/// Returns the words of each line, without its comment (`# …`), and the line's number. Lines without words
/// are left out.
fn lines(text: &str) -> impl Iterator<Item = (usize, impl Iterator<Item = &str>)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace().peekable();
        words.peek().is_some().then_some((at + 1, words))
    })
}

fn value_error(line: usize, value: &str, expected: &'static str) -> FileError {
    let value = value.chars().take(40).collect();
    FileError::Value {
        line,
        value,
        expected,
    }
}

/// Reads a list of values, each by `parse`.
fn list<T>(
    text: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, FileError> {
    let mut values = Vec::new();
    for (line, words) in lines(text) {
        for word in words {
            if values.len() == MAX_LEN {
                return Err(FileError::TooLong { line });
            }
            values.push(parse(word).ok_or_else(|| value_error(line, word, expected))?);
        }
    }
    if values.is_empty() {
        return Err(FileError::Empty { expected });
    }
    Ok(values)
}

/// Reads a table of netem (`/usr/lib/tc/*.dist`): whole numbers, the quantiles in units of 1/8192 standard deviation.
///
/// # Errors
/// [`FileError`].
pub fn distribution(text: &str) -> Result<Box<[f64]>, FileError> {
    /// `NETEM_DIST_SCALE` of Linux.
    const SCALE: f64 = 8192.0;
    let number = |word: &str| Some(f64::from(word.parse::<i16>().ok()?) / SCALE);
    let mut values = list(
        text,
        "a whole number from -32768 to 32767, in units of 1/8192 deviation",
        number,
    )?;
    values.sort_by(f64::total_cmp);
    Ok(values.into_boxed_slice())
}

/// Reads a trace of losses: `0` (arrives) and `1` (is lost), with or without blanks between them.
///
/// # Errors
/// [`FileError`].
pub fn losses(text: &str) -> Result<Box<[bool]>, FileError> {
    let expected = "a row of `0` (arrives) and `1` (is lost)";
    let mut values = Vec::new();
    for (line, words) in lines(text) {
        for word in words {
            if values.len() + word.len() > MAX_LEN {
                return Err(FileError::TooLong { line });
            }
            if !word.bytes().all(|byte| matches!(byte, b'0' | b'1')) {
                return Err(value_error(line, word, expected));
            }
            values.extend(word.bytes().map(|byte| byte == b'1'));
        }
    }
    if values.is_empty() {
        return Err(FileError::Empty { expected });
    }
    Ok(values.into_boxed_slice())
}

/// A trace of delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delays {
    /// A delay in nanoseconds for each frame. After the last one the list starts again.
    PerFrame(Box<[u64]>),
    /// Pairs (time, delay) in nanoseconds. A delay applies from its time until the next one. The first time
    /// is 0. The last time is the period, after which the list starts again. The delay of the last pair is
    /// not used.
    Timed(Box<[(u64, u64)]>),
}

/// Reads a duration with its unit, or a number of milliseconds.
fn duration(word: &str) -> Option<u64> {
    let nanos = match word.parse::<Interval>() {
        Ok(interval) => interval.nanos(),
        Err(_) => decimal(word, 1_000_000)?,
    };
    (nanos <= Interval::MAX.nanos()).then_some(nanos)
}

/// Reads a trace of delays: one delay a line for each frame, or a time and a delay a line. A number without unit is in
/// milliseconds.
///
/// # Errors
/// [`FileError`].
pub fn delays(text: &str) -> Result<Delays, FileError> {
    let expected = "a delay (`12.5ms`, 10s at most), or a time and a delay, in lines of one kind with growing times from 0";
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut timed = None;
    for (line, words) in lines(text) {
        let words: Vec<_> = words.take(3).collect();
        let error = || value_error(line, &words.join(" "), expected);
        let numbers: Option<Vec<u64>> = words.iter().map(|word| duration(word)).collect();
        let row = match numbers.as_deref() {
            Some(&[delay]) => (0, delay),
            Some(&[time, delay]) => (time, delay),
            _ => return Err(error()),
        };
        let has_time = words.len() == 2;
        let follows = match rows.last() {
            None => row.0 == 0,
            Some(last) => !has_time || last.0 < row.0,
        };
        if *timed.get_or_insert(has_time) != has_time || !follows || row.1 > DelayConfig::MAX.nanos() {
            return Err(error());
        }
        if rows.len() == MAX_LEN {
            return Err(FileError::TooLong { line });
        }
        rows.push(row);
    }
    match timed {
        None => Err(FileError::Empty { expected }),
        Some(true) if rows.len() > 1 => Ok(Delays::Timed(rows.into_boxed_slice())),
        _ => Ok(Delays::PerFrame(
            rows.into_iter().map(|(_, delay)| delay).collect(),
        )),
    }
}

/// Reads delivery opportunities of Mahimahi: the milliseconds at which the link delivers a packet, in
/// ascending order. The last one is the period, after which the list starts again. Netravali et al.,
/// "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015.
///
/// # Errors
/// [`FileError`].
pub fn opportunities(text: &str) -> Result<Box<[u32]>, FileError> {
    let expected = "a whole number of milliseconds, not below the one before, and the last above 0";
    let values: Vec<u32> = list(text, expected, |word| word.parse().ok())?;
    let (mut last, mut last_line): (u32, usize) = (0, 0);
    for (line, words) in lines(text) {
        for word in words {
            let value = word.parse().unwrap_or(0);
            if value < last {
                return Err(value_error(line, word, expected));
            }
            (last, last_line) = (value, line);
        }
    }
    if last == 0 {
        return Err(value_error(last_line, "0", expected));
    }
    Ok(values.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_netem_is_scaled_and_sorted() {
        let table = distribution("# a comment\n 8192 -8192\n0\n").unwrap();
        assert_eq!(*table, [-1.0, 0.0, 1.0]);
        let error = distribution("1\n2 x\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: `x` is not a whole number"), "{error}");
        assert!(distribution("# nothing\n").is_err());
    }

    #[test]
    fn losses_may_be_written_in_one_row() {
        assert_eq!(*losses("0 1\n001").unwrap(), [false, true, false, false, true]);
        assert!(losses("012").unwrap_err().to_string().contains("`012`"));
    }

    #[test]
    fn delays_are_for_frames_or_from_times_on() {
        assert_eq!(
            delays("10ms\n2.5\n"),
            Ok(Delays::PerFrame([10_000_000, 2_500_000].into()))
        );
        let timed = delays("0 10\n1s 20\n2s 20").unwrap();
        assert_eq!(
            timed,
            Delays::Timed(
                [
                    (0, 10_000_000),
                    (1_000_000_000, 20_000_000),
                    (2_000_000_000, 20_000_000)
                ]
                .into()
            )
        );
        for bad in ["", "1ms\n1 2", "1 2", "0 1\n0 2", "11s", "1 2 3", "-1"] {
            assert!(delays(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn opportunities_never_go_back() {
        assert_eq!(*opportunities("0\n0\n5\n").unwrap(), [0, 0, 5]);
        let error = opportunities("1\n5\n3\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: `3` is not"), "{error}");
        let error = opportunities("0\n0\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: `0` is not"), "{error}");
        let error = opportunities("# nothing\n").unwrap_err().to_string();
        assert!(error.starts_with("the file is empty"), "{error}");
        // A time beyond 2^31 ms is valid, too.
        let error = opportunities("0\n3103110001\n5\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: `5`"), "{error}");
    }
}
