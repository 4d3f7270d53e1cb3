//! REPORT: the sender's progress and the feedback that it has received. It tells the receiver which
//! acknowledgements need no repetition (as RTCP's sender report does, RFC 3550, section 6.4.1).
//!
//! ```text
//!  head │ next number │ RTT │ flags │ count │ feedback numbers, newest first
//!  16                   µs    1 byte          newest, then gap − 1 to each older one
//! ```
//!
//! Flag 1 requests feedback at once: after the last packets, when credit is used up, and when the path is
//! silent.

use super::{Head, PacketError, Reader, Writer, encode_control};
use crate::seal::PairwiseKey;
use millrace_types::Duration;

/// The maximum number of feedback packets that one report confirms.
pub const REPORTED_FEEDBACK_MAX: usize = 64;

/// The body of a REPORT packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// All numbers of DATA packets below this one are used.
    pub next_number: u64,
    /// The smoothed round-trip time; in µs on the wire. Zero: not known yet.
    pub rtt: Duration,
    /// The sender requests feedback at once.
    pub answer: bool,
    /// Numbers of FEEDBACK packets that arrived, descending.
    pub feedback: Vec<u64>,
}

impl Report {
    /// Returns the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.varint(self.next_number);
        body.varint(u64::try_from(self.rtt.as_micros()).unwrap_or(u64::MAX));
        body.byte(u8::from(self.answer));
        body.varint(self.feedback.len() as u64);
        let mut above = None;
        for number in &self.feedback {
            body.varint(above.map_or(*number, |above: u64| above - number - 1));
            above = Some(*number);
        }
        body.finish()
    }

    /// Returns the packet.
    pub fn packet(&self, head: &Head, key: &PairwiseKey) -> Vec<u8> {
        encode_control(head, key, &self.encode())
    }

    /// Reads a body.
    ///
    /// # Errors
    /// If it ends early or late, has unknown flags, or a number ends below zero.
    pub fn decode(body: &[u8]) -> Result<Report, PacketError> {
        let mut reader = Reader::new(body);
        let next_number = reader.varint("next number")?;
        let rtt = Duration::from_micros(reader.varint("RTT")?);
        let flags = reader.bytes(1, "flags")?[0];
        let count = reader.varint("count of feedback numbers")?;
        let out_of_range = |field, value| PacketError::Range { field, value };
        if flags > 1 {
            return Err(out_of_range("flags", u64::from(flags)));
        }
        if count > REPORTED_FEEDBACK_MAX as u64 {
            return Err(out_of_range("count of feedback numbers", count));
        }
        let mut feedback: Vec<u64> = Vec::new();
        for _ in 0..count {
            let value = reader.varint("feedback number")?;
            let number = match feedback.last() {
                None => Some(value),
                Some(above) => above.checked_sub(value + 1),
            };
            feedback.push(number.ok_or(out_of_range("feedback number", value))?);
        }
        reader.finish()?;
        Ok(Report {
            next_number,
            rtt,
            answer: flags & 1 != 0,
            feedback,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(next in 0..1_u64 << 60, micros in 0..1_u64 << 40, answer: bool, mut numbers in
            prop::collection::btree_set(0..1_u64 << 40, 0..REPORTED_FEEDBACK_MAX)) {
            let mut feedback = Vec::new();
            while let Some(number) = numbers.pop_last() {
                feedback.push(number);
            }
            let report = Report { next_number: next, rtt: Duration::from_micros(micros), answer, feedback };
            prop_assert_eq!(Report::decode(&report.encode()), Ok(report));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(body: Vec<u8>) {
            if let Ok(report) = Report::decode(&body) {
                prop_assert!(report.feedback.windows(2).all(|pair| pair[0] > pair[1]));
            }
        }
    }
}
