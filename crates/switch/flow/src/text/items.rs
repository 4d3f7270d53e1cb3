//! The items of a flow entry or flow_mod that are neither match fields nor actions.

use millrace_types::{Cookie, GroupId, PortNo, Priority, TableId};

use super::action;
use super::cookie::CookieMatch;
use super::error::{TextError, TextProblem};
use super::matching::ParsedMatch;
use super::scan::Span;
use super::value;
use crate::action::Instructions;
use crate::matching::Match;

/// Items that a flow entry has.
pub(super) const ENTRY_ITEMS: [&str; 5] = ["table", "priority", "cookie", "idle_timeout", "hard_timeout"];

/// The flags of a flow_mod and their bits (`ofp_flow_mod_flags`, OpenFlow 1.3.5, section 7.3.4.1), under the
/// names of ovs-ofctl.
pub(super) const FLAGS: [(&str, u16); 5] = [
    ("send_flow_rem", 1),
    ("check_overlap", 1 << 1),
    ("reset_counts", 1 << 2),
    ("no_packet_counts", 1 << 3),
    ("no_byte_counts", 1 << 4),
];

/// Every item that a text may have besides match fields and actions.
const KNOWN: [&str; 7] = [
    "table",
    "priority",
    "cookie",
    "idle_timeout",
    "hard_timeout",
    "out_port",
    "out_group",
];

/// The items of a text.
#[derive(Default)]
pub(super) struct Items {
    pub(super) table: Option<TableId>,
    pub(super) priority: Option<Priority>,
    pub(super) cookie: Option<CookieMatch>,
    pub(super) idle_timeout: u16,
    pub(super) hard_timeout: u16,
    pub(super) out_port: Option<PortNo>,
    pub(super) out_group: Option<GroupId>,
    pub(super) flags: u16,
    pub(super) matching: Match,
    pub(super) instructions: Option<Instructions>,
}

impl Items {
    /// Parses a text. Its items other than match fields and actions must be in `allowed`. This list has names
    /// of [`KNOWN`] and [`FLAGS`], and `cookie/mask` if a cookie may have a mask.
    pub(super) fn parse(text: &str, allowed: &[&str]) -> Result<Items, TextError> {
        let whole = Span::new(text);
        let mut items = Items::default();
        let mut seen = Vec::new();
        let mut draft = ParsedMatch::default();
        let mut actions = None;
        for item in whole.items()? {
            let (name, value) = item.split(&['=']).unwrap_or((item, item));
            if matches!(name.text(), "actions" | "action") {
                actions = Some(value.to_end_of(whole));
                break;
            }
            let flag = FLAGS.iter().find(|(flag, _)| *flag == item.text());
            if flag.is_none() && !KNOWN.contains(&name.text()) {
                draft.take(item)?;
                continue;
            }
            if !allowed.contains(&name.text()) {
                return Err(name.error(TextProblem::NotHere {
                    expected: expected(allowed),
                }));
            }
            if seen.contains(&name.text()) {
                return Err(item.error(TextProblem::Twice));
            }
            seen.push(name.text());
            match flag {
                Some((_, bit)) => items.flags |= bit,
                None => items.take(name.text(), value, allowed.contains(&"cookie/mask"))?,
            }
        }
        items.matching = draft.finish()?;
        if let Some(text) = actions {
            items.instructions = Some(action::instructions(text, &items.matching)?);
        }
        Ok(items)
    }

    fn take(&mut self, name: &str, text: Span<'_>, takes_mask: bool) -> Result<(), TextError> {
        let seconds = |text| value::bounded(text, 0xffff).map(|seconds| seconds as u16);
        match name {
            "table" => self.table = Some(TableId(value::bounded(text, TableId::MAX.0.into())? as u8)),
            "priority" => self.priority = Some(Priority(value::bounded(text, 0xffff)? as u16)),
            "cookie" if takes_mask => self.cookie = Some(CookieMatch::parse(text)?),
            "cookie" => {
                let value = Cookie(value::bounded(text, u64::MAX.into())? as u64);
                self.cookie = Some(CookieMatch::exact(value));
            }
            "idle_timeout" => self.idle_timeout = seconds(text)?,
            "hard_timeout" => self.hard_timeout = seconds(text)?,
            "out_port" => {
                let port = text.text().parse();
                self.out_port = Some(port.map_err(|_| text.expected("a port number or LOCAL"))?);
            }
            _ => self.out_group = Some(GroupId(value::bounded(text, u32::MAX.into())? as u32)),
        }
        Ok(())
    }
}

fn expected(allowed: &[&str]) -> String {
    let names = allowed.iter().filter(|name| !name.contains('/'));
    names.copied().collect::<Vec<_>>().join(", ")
}
