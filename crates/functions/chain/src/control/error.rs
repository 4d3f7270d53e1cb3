//! The errors of changes to a chain.

use millrace_nf::MakeError;
use thiserror::Error;

/// The reason why a chain cannot be changed. The chain stays unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    /// A function cannot be created.
    #[error("hop {hop}: {source}")]
    Make {
        /// The name of the hop.
        hop: String,
        source: MakeError,
    },
    /// The function cannot run with the hop's class.
    #[error("hop {hop}: {reason}")]
    Class {
        /// The name of the hop.
        hop: String,
        /// The reason, and the next step.
        reason: String,
    },
}
