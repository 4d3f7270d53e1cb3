//! The reasons for a turn of the agent.

/// The reason why the agent looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The document may have changed.
    Document,
    /// The state of the switch has changed.
    Switch,
    /// The process ends.
    Stop,
}
