//! The checklists of ends in quarantine: what was found at each.

use std::collections::{BTreeMap, VecDeque};

use millrace_ix_model::{Coded, ConfigId, Reason, Timestamp};
use serde::Serialize;

use super::judge::{Check, Fault};

/// The largest number of findings of an end that are kept.
const FINDINGS_LEN: usize = 20;
/// The largest number of bytes of an offending frame that are kept.
const FRAME_SIZE_MAX: usize = 128;

/// A fault that was seen at an end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The time of the newest frame with this fault.
    pub at: Timestamp,
    /// The point of the checklist.
    pub check: Check,
    /// The fault and its remedy in words.
    pub text: String,
    /// The codes of the text, for words in other languages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coded: Vec<Coded>,
    /// The first 128 bytes of the newest frame with this fault.
    pub frame: Vec<u8>,
    /// The number of frames with this fault that the engine has seen; it sees at most 50 a second.
    pub count: u64,
}

/// The checklist of an end in quarantine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Quarantined {
    /// True after the first correct frame. An end that sends nothing does not pass.
    pub seen: bool,
    /// The faults, the oldest first.
    pub findings: VecDeque<Finding>,
}

impl Quarantined {
    /// Returns true if a frame of the end was seen, a correct or an offending one.
    pub fn is_seen(&self) -> bool {
        self.seen || !self.findings.is_empty()
    }

    /// Returns the newest finding, unless it is older than `clean_since`, the beginning of the end's clean
    /// time.
    pub fn failing(&self, clean_since: Timestamp) -> Option<&Finding> {
        let newest = self.findings.iter().max_by_key(|finding| finding.at);
        newest.filter(|finding| finding.at >= clean_since)
    }

    pub(super) fn add(&mut self, (check, Reason { text, coded }): Fault, frame: &[u8], at: Timestamp) {
        let frame = frame[..frame.len().min(FRAME_SIZE_MAX)].to_vec();
        let same = self
            .findings
            .iter()
            .position(|finding| finding.check == check && finding.text == text);
        let count = match same.and_then(|place| self.findings.remove(place)) {
            Some(finding) => finding.count + 1,
            None => 1,
        };
        if self.findings.len() == FINDINGS_LEN {
            self.forget_one();
        }
        self.findings.push_back(Finding {
            at,
            check,
            text,
            coded,
            frame,
            count,
        });
    }
}

impl Quarantined {
    /// Forgets the oldest finding of the check with the most findings. The sender chooses the addresses in the texts,
    /// so findings of one check must not displace those of the others.
    fn forget_one(&mut self) {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(finding.check.name()).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let oldest = most.and_then(|(name, _)| {
            let mut findings = self.findings.iter();
            findings.position(|finding| finding.check.name() == name)
        });
        self.findings.remove(oldest.unwrap_or(0));
    }
}

/// The checklists of all ends in quarantine.
pub(crate) type Checklists = BTreeMap<ConfigId, Quarantined>;
