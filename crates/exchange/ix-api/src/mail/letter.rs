//! A letter as it waits for the relay.

use std::time::Duration;

use millrace_ix_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::words::Text;

/// The time after which a letter without another end is given up.
const TRIED_FOR: Duration = Duration::from_secs(48 * 3600);

/// A letter that waits for the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The mail address.
    pub(crate) to: String,
    pub(crate) text: Text,
    /// An iCalendar object (RFC 5545) that is attached.
    pub(crate) calendar: Option<String>,
    /// The time at which the letter was posted.
    pub(crate) posted: Timestamp,
    /// The time after which the letter is given up.
    pub(crate) until: Timestamp,
}

impl Letter {
    /// Returns a letter without a calendar, which is tried for 48 hours.
    pub(crate) fn new(to: String, text: Text, posted: Timestamp) -> Letter {
        Letter {
            to,
            text,
            calendar: None,
            posted,
            until: posted.after(TRIED_FOR),
        }
    }
}
