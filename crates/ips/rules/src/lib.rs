//! Parser for intrusion prevention rules: texts in, a syntax tree out.
//!
//! ```text
//!  file ──lexer──▶ statements ──┬─header──▶ Header ─────┐
//!  (Suricata, Snort 2.9, 3)     └─options─▶ RuleOption ─┴─▶ Rule ──▶ RuleSet (variables, duplicate sids)
//!                                    │
//!                                    └─▶ Refusal: file, line, column, option, reason
//! ```
//!
//! The crate reads no file and has no clock. It is written from the documentation of the rule languages and
//! from existing rules.

#![forbid(unsafe_code)]

pub mod address;
pub mod buffers;
mod consistency;
pub mod countries;
pub mod explain;
pub mod files;
pub mod frames;
pub mod header;
pub mod keywords;
mod lexer;
pub mod limits;
pub mod options;
pub mod refusal;
pub mod reputation;
mod requirements;
pub mod rule;
pub mod set;
pub mod suricata_yaml;
mod text;
pub mod variables;

pub use refusal::{Position, Reason, Refusal};
pub use rule::{ParsedRule, Rule};
pub use set::RuleSet;
pub use variables::Variables;

text::words! {
    /// The syntax of a rule file.
    Syntax "suricata, snort2 or snort3" {
        /// Suricata 5 to 8.
        Suricata "suricata";
        /// Snort 2.9.
        Snort2 "snort2";
        /// Snort 3.
        Snort3 "snort3";
    }
}

impl std::str::FromStr for Syntax {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Syntax, Reason> {
        Syntax::from_word(text)
    }
}
