//! A flow_mod on one line, as the commands of ovs-ofctl take it.

use millrace_types::{GroupId, PortNo, Priority, TableId};

use super::cookie::CookieMatch;
use super::error::{TextError, TextProblem};
use super::items::Items;
use super::scan::Span;
use crate::action::Instructions;
use crate::matching::Match;

/// The command of a flow_mod (`ofp_flow_mod_command`, OpenFlow 1.3.5, section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowCommand {
    /// Adds an entry, or replaces the one with the same table, match and priority.
    Add,
    /// Changes the instructions of all entries whose match is the given one or narrower.
    Modify,
    /// Changes the instructions of the entry with this match and priority.
    ModifyStrict,
    /// Removes all entries whose match is the given one or narrower.
    Delete,
    /// Removes the entry with this match and priority.
    DeleteStrict,
}

impl FlowCommand {
    const fn is_delete(self) -> bool {
        matches!(self, FlowCommand::Delete | FlowCommand::DeleteStrict)
    }

    /// Returns the items that a text of this command may have besides match fields and actions. Items that
    /// the command would ignore are not among them, because the author of such an item expects an effect.
    const fn items(self) -> &'static [&'static str] {
        match self {
            FlowCommand::Add => &[
                "table",
                "priority",
                "cookie",
                "idle_timeout",
                "hard_timeout",
                "send_flow_rem",
                "check_overlap",
                "reset_counts",
                "no_packet_counts",
                "no_byte_counts",
            ],
            FlowCommand::Modify => &["table", "cookie", "cookie/mask", "reset_counts"],
            FlowCommand::ModifyStrict => &["table", "priority", "cookie", "cookie/mask", "reset_counts"],
            FlowCommand::Delete => &["table", "cookie", "cookie/mask", "out_port", "out_group"],
            FlowCommand::DeleteStrict => &[
                "table",
                "priority",
                "cookie",
                "cookie/mask",
                "out_port",
                "out_group",
            ],
        }
    }
}

/// A flow_mod. Absent items have the defaults of OpenFlow, except for the priority, which is 32768 as in Open
/// vSwitch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowModText {
    pub command: FlowCommand,
    /// The table; unless given, 0 for additions and changes, and all tables for removals.
    pub table: TableId,
    /// The priority; without effect on the commands that are not strict.
    pub priority: Priority,
    /// The cookie of a new entry, or of the entries to change or remove.
    pub cookie: Option<CookieMatch>,
    /// Seconds without a packet after which the entry is removed; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which the entry is removed; 0 for never.
    pub hard_timeout: u16,
    /// Removes only entries with an output to this port; [`PortNo::ANY`] is no restriction.
    pub out_port: PortNo,
    /// Removes only entries with an output to this group; [`GroupId::ANY`] is no restriction.
    pub out_group: GroupId,
    /// `OFPFF_*` (OpenFlow 1.3.5, section 7.3.4.1).
    pub flags: u16,
    pub matching: Match,
    /// The instructions; empty for removals.
    pub instructions: Instructions,
}

impl FlowModText {
    /// Parses the text of a flow_mod.
    ///
    /// # Errors
    /// [`TextError`] if the text is malformed, lacks `actions=` although the command needs it, or has an item
    /// that the command would ignore.
    pub fn parse(command: FlowCommand, text: &str) -> Result<FlowModText, TextError> {
        let items = Items::parse(text, command.items())?;
        let at_end = Span::new(text).end();
        let instructions = match (items.instructions, command.is_delete()) {
            (Some(_), true) => {
                return Err(at_end.error(TextProblem::NotHere {
                    expected: "a match without actions".to_owned(),
                }));
            }
            (None, false) => return Err(at_end.expected("actions=…, or actions=drop")),
            (instructions, _) => instructions.unwrap_or_default(),
        };
        let all_or_first = if command.is_delete() {
            TableId::ALL
        } else {
            TableId(0)
        };
        Ok(FlowModText {
            command,
            table: items.table.unwrap_or(all_or_first),
            priority: items.priority.unwrap_or(Priority(0x8000)),
            cookie: items.cookie,
            idle_timeout: items.idle_timeout,
            hard_timeout: items.hard_timeout,
            out_port: items.out_port.unwrap_or(PortNo::ANY),
            out_group: items.out_group.unwrap_or(GroupId::ANY),
            flags: items.flags,
            matching: items.matching,
            instructions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::Cookie;

    fn parse(command: FlowCommand, text: &str) -> Result<FlowModText, String> {
        FlowModText::parse(command, text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_addition_has_timeouts_flags_and_the_defaults_of_open_vswitch() {
        let add = parse(
            FlowCommand::Add,
            "cookie=7,idle_timeout=5,send_flow_rem,no_byte_counts,tcp,tp_dst=80 actions=output:2",
        )
        .unwrap();
        assert_eq!((add.table, add.priority), (TableId(0), Priority(0x8000)));
        assert_eq!((add.flags, add.idle_timeout), (0x11, 5));
        assert_eq!(add.cookie, Some(CookieMatch::exact(Cookie(7))));
        assert_eq!(add.instructions.actions().count(), 1);
    }

    #[test]
    fn a_removal_without_a_table_is_of_all_tables_and_may_name_bits_of_the_cookie() {
        let delete = parse(FlowCommand::Delete, "cookie=0x10/0xf0,out_port=3,arp").unwrap();
        assert_eq!(
            (delete.table, delete.out_port),
            (TableId::ALL, PortNo::from_raw(3))
        );
        assert_eq!(delete.cookie.unwrap().mask, 0xf0);
        assert_eq!(parse(FlowCommand::Delete, "table=3").unwrap().table, TableId(3));
    }

    #[test]
    fn items_that_the_command_would_ignore_are_refused_by_name() {
        for (command, text, words) in [
            (FlowCommand::Delete, "priority=5,arp", "`priority`"),
            (FlowCommand::Delete, "arp,actions=drop", "without actions"),
            (FlowCommand::Add, "arp", "actions=drop"),
            (FlowCommand::Add, "out_port=1,actions=drop", "`out_port`"),
            (FlowCommand::Add, "cookie=1/2,actions=drop", "a number"),
            (
                FlowCommand::Modify,
                "idle_timeout=3,actions=drop",
                "`idle_timeout`",
            ),
            (
                FlowCommand::Add,
                "check_overlap,check_overlap,actions=drop",
                "appears twice",
            ),
        ] {
            let error = parse(command, text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(parse(FlowCommand::DeleteStrict, "priority=5,arp").is_ok());
    }
}
