//! A complete flow entry on one line.

use core::fmt;
use core::str::FromStr;

use millrace_types::{Cookie, Priority, TableId};

use super::action;
use super::error::{TextError, TextProblem};
use super::matching::Draft;
use super::scan::Span;
use super::value;
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
    /// The match.
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
        let whole = Span::new(text);
        let mut flow = FlowText::default();
        let mut seen = Vec::new();
        let mut draft = Draft::default();
        let mut after = None;
        for item in whole.items()? {
            let (name, number) = item.split(&['=']).unwrap_or((item, item));
            if matches!(name.text(), "actions" | "action") {
                after = Some(number.to_end_of(whole));
                break;
            }
            let max: u128 = match name.text() {
                "table" => TableId::MAX.0.into(),
                "priority" | "idle_timeout" | "hard_timeout" => 0xffff,
                "cookie" => u64::MAX.into(),
                _ => {
                    draft.take(item)?;
                    continue;
                }
            };
            if seen.contains(&name.text()) {
                return Err(item.error(TextProblem::Twice));
            }
            seen.push(name.text());
            let number = value::bounded(number, max)?;
            match name.text() {
                "table" => flow.table = TableId(number as u8),
                "priority" => flow.priority = Priority(number as u16),
                "cookie" => flow.cookie = Cookie(number as u64),
                "idle_timeout" => flow.idle_timeout = number as u16,
                _ => flow.hard_timeout = number as u16,
            }
        }
        flow.matching = draft.finish()?;
        if let Some(text) = after {
            flow.instructions = Some(action::instructions(text, &flow.matching)?);
        }
        Ok(flow)
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
