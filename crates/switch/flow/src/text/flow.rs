//! A complete flow entry on one line.

use core::fmt;
use core::str::FromStr;

use millrace_types::{Cookie, Priority, TableId};

use super::error::TextError;
use super::items::{ENTRY_ITEMS, Items};
use crate::action::Instructions;
use crate::matching::Match;

/// A flow entry in the syntax of ovs-ofctl. Absent properties have the defaults of OpenFlow, and the priority is 32768
/// as in Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowText {
    /// The table; 0 by default.
    pub table: TableId,
    /// The priority; 32768 by default.
    pub priority: Priority,
    /// The cookie; 0 by default.
    pub cookie: Cookie,
    /// The idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// The hard timeout in seconds; 0 for none.
    pub hard_timeout: u16,
    pub matching: Match,
    /// The instructions after `actions=`; `None` if the text has no `actions=`.
    pub instructions: Option<Instructions>,
}

impl Default for FlowText {
    fn default() -> FlowText {
        FlowText {
            table: TableId(0),
            priority: Priority(0x8000),
            cookie: Cookie(0),
            idle_timeout: 0,
            hard_timeout: 0,
            matching: Match::any(),
            instructions: None,
        }
    }
}

impl FromStr for FlowText {
    type Err = TextError;

    fn from_str(text: &str) -> Result<FlowText, TextError> {
        let entry = Items::parse(text, &ENTRY_ITEMS)?;
        let default = FlowText::default();
        Ok(FlowText {
            table: entry.table.unwrap_or(default.table),
            priority: entry.priority.unwrap_or(default.priority),
            cookie: entry.cookie.map_or(default.cookie, |cookie| cookie.value),
            idle_timeout: entry.idle_timeout,
            hard_timeout: entry.hard_timeout,
            matching: entry.matching,
            instructions: entry.instructions,
        })
    }
}

impl fmt::Display for FlowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = FlowText::default();
        if self.cookie != default.cookie {
            write!(f, "cookie={},", self.cookie)?;
        }
        write!(f, "table={}", self.table)?;
        for (name, seconds) in [
            ("idle_timeout", self.idle_timeout),
            ("hard_timeout", self.hard_timeout),
        ] {
            if seconds != 0 {
                write!(f, ",{name}={seconds}")?;
            }
        }
        write!(f, ",priority={}", self.priority)?;
        if !self.matching.is_any() {
            write!(f, ",{}", self.matching)?;
        }
        match &self.instructions {
            Some(instructions) => write!(f, " actions={instructions}"),
            None => Ok(()),
        }
    }
}
