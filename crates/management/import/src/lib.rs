//! Configurations of other switches as a configuration of Millrace, without IO.
//!
//! ```text
//!  conf.db ─── ovs::database ──┐
//!  script ──── ovs::script ────┴─▶ rows ── millrace_ovs::translate ──┐
//!  *.dsl ───── lagopus::read ────────────────────────────────────────┼─▶ Imported: configuration, findings
//!  ip -j ───── linux::read ──────────────────────────────────────────┘
//! ```

#![forbid(unsafe_code)]

mod document;
mod finding;
pub mod lagopus;
pub mod linux;
mod numbers;
pub mod ovs;

use millrace_model::Config;
use thiserror::Error;

pub use finding::{Finding, Weight};

/// A configuration of another switch in the model of this one.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The configuration, which is valid.
    pub config: Config,
    /// The parts of the original that the configuration does not say.
    pub findings: Vec<Finding>,
}

/// The reason why a text is no configuration of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct ImportError {
    /// The file, and the line or the byte if one is known.
    pub place: String,
    /// The finding, what was expected, and the next step.
    pub reason: String,
}

impl ImportError {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> ImportError {
        ImportError {
            place: place.into(),
            reason: reason.into(),
        }
    }
}

impl Imported {
    /// Returns true if a finding changes what happens to packets, or who controls the switch.
    pub fn differs(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.weight == Weight::Difference)
    }

    /// Returns the configuration as TOML, after the findings as comments.
    pub fn to_toml(&self, source: &str) -> String {
        let mut text = format!("# Imported from {}.\n", one_line(source));
        for finding in &self.findings {
            text += &format!("# {}\n", one_line(&finding.to_string()));
        }
        text + "\n" + &self.config.to_toml()
    }
}

/// Returns the text without control characters, which would end a comment.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}
