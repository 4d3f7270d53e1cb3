//! Limits on rule files, which are untrusted input. A refusal names the limit that caused it.

/// The largest file, in bytes.
pub const FILE_SIZE: usize = 256 << 20;
/// The most rules of one file.
pub const RULES: usize = 1_000_000;
/// The most refusals that one file lists; reading ends at this limit.
pub const REFUSALS: usize = 100_000;
/// The longest rule, in bytes, after its lines are joined.
pub const RULE_SIZE: usize = 128 << 10;
/// The most rows of the reputation of addresses.
pub const REPUTATION: usize = 4_000_000;
/// The most options of a rule.
pub const OPTIONS: usize = 1_000;
/// The longest pattern of a content, in bytes.
pub const PATTERN_SIZE: usize = 16 << 10;
/// The most elements of one list of addresses or ports, including elements of nested lists.
pub const LIST_LEN: usize = 20_000;
/// The deepest nesting of lists, negations and variables.
pub const NESTING: usize = 16;
/// The most ranges of an address or port set after all variables are replaced.
pub const RANGES: usize = 100_000;
/// The most files of one rule set. An included file counts at each inclusion.
pub const FILES: usize = 1_000;
/// The deepest chain of files that include each other.
pub const INCLUDE_DEPTH: usize = 8;
/// The most buffers with different transforms in one rule set.
pub const HOOKS: usize = 4_096;
