//! The output of `iperf3 --json`. Every value is checked, and an error names the value that is missing or wrong.

use serde_json::Value;
use thiserror::Error;

/// The error of a report of iperf3.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IperfError {
    /// The output is not JSON.
    #[error("iperf3 wrote no JSON: {problem}; it begins with {begins:?}")]
    NotJson {
        /// The error of the parser.
        problem: String,
        /// The first characters of the output.
        begins: String,
    },
    /// The test did not run.
    #[error("iperf3: {0}")]
    Failed(String),
    /// A number is missing.
    #[error("iperf3 wrote no number at {0} of its JSON: expected iperf3 3.1 or later")]
    Missing(String),
}

/// An interval of the sender, usually one second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The start of the interval, in seconds after the start of the transfer.
    pub start: f64,
    /// The duration in seconds.
    pub seconds: f64,
    /// TCP payload in bits per second.
    pub bps: f64,
    /// The number of retransmitted segments.
    pub retransmits: u64,
}

/// A transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The intervals in order of time, without those that iperf3 marks as omitted.
    pub intervals: Vec<Interval>,
    /// The duration in seconds.
    pub seconds: f64,
    /// TCP payload that arrived, in bytes.
    pub bytes: f64,
    /// The number of retransmitted segments.
    pub retransmits: u64,
    /// The CPU seconds of the sending and of the receiving iperf3.
    pub cpu_s: [f64; 2],
}

impl Report {
    /// Parses the output of a client with one stream.
    ///
    /// # Errors
    /// [`IperfError`].
    pub fn parse(text: &str) -> Result<Report, IperfError> {
        let json: Value = serde_json::from_str(text).map_err(|error| IperfError::NotJson {
            problem: error.to_string(),
            begins: text.chars().take(60).collect(),
        })?;
        if let Some(error) = json.get("error").and_then(Value::as_str) {
            return Err(IperfError::Failed(error.to_owned()));
        }
        let at = |path: &str| number(&json, path);
        let list = json.get("intervals").and_then(Value::as_array);
        let list = list.ok_or_else(|| IperfError::Missing("/intervals".to_owned()))?;
        let omitted = |interval: &&Value| interval.pointer("/sum/omitted") != Some(&Value::Bool(true));
        let intervals = list.iter().filter(omitted).map(interval);
        let seconds = at("/end/sum_received/seconds")?;
        let cpu = |path: &str| Ok(at(path)? / 100.0 * seconds);
        Ok(Report {
            intervals: intervals.collect::<Result<_, _>>()?,
            seconds,
            bytes: at("/end/sum_received/bytes")?,
            retransmits: json
                .pointer("/end/sum_sent/retransmits")
                .and_then(Value::as_u64)
                .unwrap_or(0),
            cpu_s: [
                cpu("/end/cpu_utilization_percent/host_total")?,
                cpu("/end/cpu_utilization_percent/remote_total")?,
            ],
        })
    }
}

fn interval(interval: &Value) -> Result<Interval, IperfError> {
    Ok(Interval {
        start: number(interval, "/sum/start")?,
        seconds: number(interval, "/sum/seconds")?,
        bps: number(interval, "/sum/bits_per_second")?,
        // Some operating systems do not count retransmissions.
        retransmits: interval
            .pointer("/sum/retransmits")
            .and_then(Value::as_u64)
            .unwrap_or(0),
    })
}

/// Returns the number at a JSON pointer; it must be finite and not negative.
fn number(json: &Value, path: &str) -> Result<f64, IperfError> {
    json.pointer(path)
        .and_then(Value::as_f64)
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| IperfError::Missing(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of iperf 3.12, shortened.
    const ANSWER: &str = r#"{
        "start": {"version": "iperf 3.12", "test_start": {"protocol": "TCP", "num_streams": 1, "duration": 2}},
        "intervals": [
            {"streams": [], "sum": {"start": 0, "end": 0.5, "seconds": 0.5, "bytes": 1,
                "bits_per_second": 16, "retransmits": 7, "omitted": true, "sender": true}},
            {"streams": [], "sum": {"start": 0, "end": 1.00004, "seconds": 1.00004, "bytes": 125000000,
                "bits_per_second": 999960001.5, "retransmits": 3, "omitted": false, "sender": true}},
            {"streams": [], "sum": {"start": 1.00004, "end": 2.0, "seconds": 0.99996, "bytes": 250000000,
                "bits_per_second": 2000080003.2, "omitted": false, "sender": true}}
        ],
        "end": {
            "sum_sent": {"start": 0, "end": 2, "seconds": 2, "bytes": 375000000, "bits_per_second": 1.5e9,
                "retransmits": 3, "sender": true},
            "sum_received": {"start": 0, "end": 2.01, "seconds": 2.0, "bytes": 374000000,
                "bits_per_second": 1.49e9, "sender": true},
            "cpu_utilization_percent": {"host_total": 50.0, "host_user": 1, "host_system": 49,
                "remote_total": 25.0, "remote_user": 1, "remote_system": 24}
        }
    }"#;

    #[test]
    fn a_transfer_is_read_second_by_second() {
        let report = Report::parse(ANSWER).unwrap();
        assert_eq!(report.intervals.len(), 2);
        assert_eq!(report.intervals[0].retransmits, 3);
        assert_eq!(
            (report.intervals[1].start, report.intervals[1].bps),
            (1.000_04, 2_000_080_003.2)
        );
        assert_eq!(
            (report.seconds, report.bytes, report.retransmits),
            (2.0, 374e6, 3)
        );
        assert_eq!(report.cpu_s, [1.0, 0.5]);
    }

    #[test]
    fn an_error_of_iperf3_is_passed_on() {
        let error = Report::parse(
            r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect to server: Connection refused"}"#,
        );
        assert_eq!(
            error,
            Err(IperfError::Failed(
                "unable to connect to server: Connection refused".to_owned()
            ))
        );
    }

    #[test]
    fn a_missing_number_is_named_by_its_json_pointer() {
        let text = ANSWER.replace(
            "\"bits_per_second\": 999960001.5",
            "\"bits_per_second\": \"fast\"",
        );
        assert_eq!(
            Report::parse(&text),
            Err(IperfError::Missing("/sum/bits_per_second".to_owned()))
        );
        let text = ANSWER.replace("host_total", "host");
        let error = Report::parse(&text).unwrap_err().to_string();
        assert!(
            error.contains("/end/cpu_utilization_percent/host_total"),
            "{error}"
        );
        let negative = ANSWER.replace("374000000", "-1");
        assert!(matches!(Report::parse(&negative), Err(IperfError::Missing(_))));
        assert!(matches!(Report::parse("{}"), Err(IperfError::Missing(path)) if path == "/intervals"));
    }

    #[test]
    fn text_that_is_not_json_is_shown() {
        let error = Report::parse("iperf3: error - unknown option")
            .unwrap_err()
            .to_string();
        assert!(error.contains("iperf3: error - unknown option"), "{error}");
        assert!(Report::parse("").is_err());
    }

    #[test]
    fn no_text_makes_the_reader_panic() {
        for end in 0..ANSWER.len() {
            if ANSWER.is_char_boundary(end) {
                assert!(Report::parse(&ANSWER[..end]).is_err());
            }
        }
    }
}
