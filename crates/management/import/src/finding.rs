//! Findings: parts of the original that the configuration does not say.

use std::fmt;

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// A name, a statistic, a setting of another program: packets and control are as before.
    Note,
    /// The treatment of packets differs, or who controls the switch.
    Difference,
}

/// A part of the original that the configuration does not say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub weight: Weight,
    /// The file, and the line, the row or the object.
    pub place: String,
    /// The part, and the closest counterpart.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Note => "note",
            Weight::Difference => "difference",
        };
        write!(f, "{weight}: {}: {}", self.place, self.text)
    }
}

/// The findings of a reader, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    pub(crate) fn note(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.add(Weight::Note, place.into(), text.into());
    }

    pub(crate) fn difference(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.add(Weight::Difference, place.into(), text.into());
    }

    pub(crate) fn add(&mut self, weight: Weight, place: String, text: String) {
        let finding = Finding { weight, place, text };
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }
}
