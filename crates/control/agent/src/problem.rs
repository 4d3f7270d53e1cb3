//! Differences between the configuration and the running switch.

use core::fmt::Display;

/// A difference between the configuration and the running switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The object: `bridge br0, port p1`.
    pub object: String,
    /// The reason and the next step.
    pub reason: String,
}

impl Problem {
    pub(crate) fn new(object: impl Into<String>, reason: impl Display) -> Problem {
        Problem {
            object: object.into(),
            reason: reason.to_string(),
        }
    }

    /// Names the bridge of the object.
    pub(crate) fn of_bridge(self, bridge: &impl Display) -> Problem {
        Problem {
            object: format!("bridge {bridge}, {}", self.object),
            ..self
        }
    }
}
