//! Scenarios: what other switches say, and what becomes of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test may fail"
)]

mod hostile;
mod lagopus;
mod linux;
mod peer;
mod scripts;
mod silence;

use millrace_import::{Imported, Weight};

/// Returns the findings of a weight as text, one a line.
fn findings(imported: &Imported, weight: Weight) -> String {
    let of_weight = imported
        .findings
        .iter()
        .filter(|finding| finding.weight == weight);
    of_weight
        .map(|finding| format!("{}: {}\n", finding.place, finding.text))
        .collect()
}

/// Returns the differences as text, one a line.
fn differences(imported: &Imported) -> String {
    findings(imported, Weight::Difference)
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part} in:\n{text}");
    }
}

/// Asserts that the configuration is valid as the daemon reads it: as TOML.
#[track_caller]
fn is_valid(imported: &Imported) {
    let text = imported.to_toml("a test");
    let again = millrace_model::Config::from_toml("t.toml", &text)
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert_eq!(again, imported.config, "{text}");
}
