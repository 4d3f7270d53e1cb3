//! The result of one check of `millrace doctor`, with the next step.

use serde::Serialize;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The check passed.
    Good,
    /// The switch runs, with restrictions.
    Note,
    /// The switch cannot run.
    Bad,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The subject of the check.
    pub(super) subject: &'static str,
    pub(super) verdict: Verdict,
    /// The state that the check found.
    pub(super) found: String,
    /// The consequence, and the command that corrects the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<String>,
}

impl Finding {
    pub(super) fn good(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Good,
            found: found.into(),
            next_step: None,
        }
    }

    pub(super) fn note(
        subject: &'static str,
        found: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Note,
            found: found.into(),
            next_step: Some(next_step.into()),
        }
    }

    pub(super) fn bad(
        subject: &'static str,
        found: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Bad,
            found: found.into(),
            next_step: Some(next_step.into()),
        }
    }
}
