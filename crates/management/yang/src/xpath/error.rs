//! The faults of an expression, and the limits of expressions.

/// The limit of an expression in bytes.
pub const LENGTH_MAX: usize = 4096;
/// The limit of visited nodes and handled bytes of strings in an evaluation: the data of 10,000 ports, some ten times.
pub const WORK_MAX: u64 = 20_000_000;

/// The reason why an expression selects nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XPathError {
    /// The text is no expression.
    #[error("at byte {at}: expected {expected}")]
    Syntax {
        /// Offset in the text.
        at: usize,
        /// The words for the parts of the grammar that may stand there.
        expected: String,
    },
    /// A prefix is not declared.
    #[error(
        "at byte {at}: the prefix `{prefix}` has no namespace: expected `xmlns:{prefix}` at the filter or around it"
    )]
    Prefix {
        /// Offset in the text.
        at: usize,
        /// Letters before the colon.
        prefix: String,
    },
    /// The value is no set of nodes.
    #[error("the expression has a {0} as its value: expected nodes")]
    NotNodes(&'static str),
    /// The text is too long, or nested too deeply.
    #[error("the expression exceeds a limit: expected at most {0}")]
    TooLong(String),
    /// The evaluation needs too many steps.
    #[error("the expression visits more than {WORK_MAX} nodes: expected a narrower one")]
    TooMuchWork,
}
