//! Actions and instructions in the syntax of Open vSwitch.

use core::fmt;
use core::str::FromStr;

use millrace_types::{GroupId, MeterId, PortNo, QueueId, TableId};
use millrace_wire::EtherType;

use super::error::{TextError, TextProblem, nearest};
use super::matching::{candidates, field_named};
use super::scan::Span;
use super::value::{self, VID_PRESENT, Value};
use crate::action::{Action, Instructions, SetField, WriteMetadata};
use crate::field::{Field, Prerequisite};
use crate::matching::Match;

/// Actions without an argument; the first name of an action is the one that is printed.
const WORDS: [(&str, Action); 8] = [
    ("dec_ttl", Action::DecNwTtl),
    ("dec_nw_ttl", Action::DecNwTtl),
    ("dec_mpls_ttl", Action::DecMplsTtl),
    ("copy_ttl_out", Action::CopyTtlOut),
    ("copy_ttl_in", Action::CopyTtlIn),
    ("pop_vlan", Action::PopVlan),
    ("strip_vlan", Action::PopVlan),
    ("pop_pbb", Action::PopPbb),
];

/// An action with one number as its argument.
struct Numbered {
    name: &'static str,
    max: u32,
    action: fn(u32) -> Action,
}

const fn numbered(name: &'static str, max: u32, action: fn(u32) -> Action) -> Numbered {
    Numbered { name, max, action }
}

const NUMBERED: [Numbered; 9] = [
    numbered("group", u32::MAX, |id| Action::Group(GroupId(id))),
    numbered("set_queue", u32::MAX, |id| Action::SetQueue(QueueId(id))),
    numbered("set_mpls_ttl", 0xff, |ttl| Action::SetMplsTtl(ttl as u8)),
    numbered("mod_nw_ttl", 0xff, |ttl| Action::SetNwTtl(ttl as u8)),
    numbered("set_nw_ttl", 0xff, |ttl| Action::SetNwTtl(ttl as u8)),
    numbered("push_vlan", 0xffff, |kind| {
        Action::PushVlan(EtherType(kind as u16))
    }),
    numbered("push_mpls", 0xffff, |kind| {
        Action::PushMpls(EtherType(kind as u16))
    }),
    numbered("pop_mpls", 0xffff, |kind| Action::PopMpls(EtherType(kind as u16))),
    numbered("push_pbb", 0xffff, |kind| Action::PushPbb(EtherType(kind as u16))),
];

/// The `mod_*` actions of OpenFlow 1.0, each with its candidate fields.
const MODS: [(&str, &[Field]); 10] = [
    ("mod_dl_src", &[Field::EthSrc]),
    ("mod_dl_dst", &[Field::EthDst]),
    ("mod_vlan_vid", &[Field::VlanVid]),
    ("mod_vlan_pcp", &[Field::VlanPcp]),
    ("mod_nw_src", &[Field::Ipv4Src]),
    ("mod_nw_dst", &[Field::Ipv4Dst]),
    ("mod_nw_ecn", &[Field::IpEcn]),
    ("mod_nw_dscp", &[Field::IpDscp]),
    ("mod_tp_src", &[Field::TcpSrc, Field::UdpSrc, Field::SctpSrc]),
    ("mod_tp_dst", &[Field::TcpDst, Field::UdpDst, Field::SctpDst]),
];

/// The other words that may begin an item after `actions=`.
const OTHERS: [&str; 17] = [
    "output",
    "set_field",
    "mod_nw_tos",
    "drop",
    "meter",
    "apply_actions",
    "clear_actions",
    "write_actions",
    "write_metadata",
    "goto_table",
    "normal",
    "flood",
    "all",
    "in_port",
    "local",
    "controller",
    "table",
];

fn names() -> impl Iterator<Item = &'static str> {
    let words = WORDS.iter().map(|(name, _)| *name);
    let numbered = NUMBERED.iter().map(|row| row.name);
    let mods = MODS.iter().map(|(name, _)| *name);
    words.chain(numbered).chain(mods).chain(OTHERS)
}

/// One item: `name`, `name:argument` or `name(argument)`.
struct Call<'a> {
    item: Span<'a>,
    name: Span<'a>,
    argument: Option<Span<'a>>,
}

impl<'a> Call<'a> {
    fn new(item: Span<'a>) -> Result<Call<'a>, TextError> {
        let Some((name, argument)) = item.split(&[':', '(']) else {
            return Ok(Call {
                item,
                name: item,
                argument: None,
            });
        };
        let in_parentheses = item.text()[name.text().len()..].trim_start().starts_with('(');
        let argument = if in_parentheses {
            argument
                .strip_suffix(')')
                .ok_or_else(|| item.expected("a `)` at its end"))?
        } else {
            argument
        };
        Ok(Call {
            item,
            name,
            argument: Some(argument),
        })
    }

    fn argument(&self, expected: &str) -> Result<Span<'a>, TextError> {
        self.argument.ok_or_else(|| {
            self.item
                .expected(format!("`{}:` and {expected}", self.name.text()))
        })
    }

    fn no_argument(&self) -> Result<(), TextError> {
        match self.argument {
            Some(_) => Err(self.item.expected(format!("`{}` alone", self.name.text()))),
            None => Ok(()),
        }
    }

    fn number(&self, max: u32) -> Result<u32, TextError> {
        Ok(value::bounded(self.argument("a number")?, max.into())? as u32)
    }

    /// Returns the action, if the item is one.
    fn action(&self, context: &Match) -> Result<Option<Action>, TextError> {
        let name = self.name.text();
        if let Some((_, action)) = WORDS.iter().find(|(word, _)| *word == name) {
            self.no_argument()?;
            return Ok(Some(*action));
        }
        if let Some(row) = NUMBERED.iter().find(|row| row.name == name) {
            return Ok(Some((row.action)(self.number(row.max)?)));
        }
        if let Some((_, fields)) = MODS.iter().find(|(word, _)| *word == name) {
            let text = self.argument("a value")?;
            return self.set_field(meant(fields, context), text).map(Some);
        }
        match name {
            "set_field" => {
                let text = self.argument("VALUE->FIELD")?;
                let (text, name) = text.rsplit("->").ok_or_else(|| text.expected("VALUE->FIELD"))?;
                let field = match candidates(name.text()) {
                    Some(fields) => Some(meant(fields, context)),
                    None => field_named(name.text()),
                };
                let unknown = || {
                    let names = Field::ALL.into_iter().map(Field::name);
                    name.error(TextProblem::UnknownName {
                        kind: "field",
                        nearest: nearest(name.text(), names),
                    })
                };
                self.set_field(field.ok_or_else(unknown)?, text).map(Some)
            }
            "mod_nw_tos" => {
                let dscp = value::type_of_service(self.argument("a number")?)?;
                SetField::new(Field::IpDscp, dscp)
                    .map(|set| Some(Action::SetField(set)))
                    .map_err(|error| self.item.error(error))
            }
            "output" => {
                let port = self.argument("a port")?;
                let (port, max_len) = match port.split(&[':']) {
                    Some((port, len)) => (port, value::bounded(len, 0xffff)? as u16),
                    None => (port, 0xffff),
                };
                let port = value::exact(Field::InPort, port)?;
                Ok(Some(Action::Output {
                    port: PortNo::from_raw(port as u32),
                    max_len,
                }))
            }
            _ if name.eq_ignore_ascii_case("controller") => {
                let max_len = match self
                    .argument
                    .map(|text| (text, text.text().strip_prefix("max_len=")))
                {
                    None => 0xffff,
                    Some((text, None)) => value::bounded(text, 0xffff)? as u16,
                    Some((text, Some(len))) => value::number(len)
                        .and_then(|len| u16::try_from(len).ok())
                        .ok_or_else(|| text.expected("max_len= and a number from 0 to 65535"))?,
                };
                Ok(Some(Action::Output {
                    port: PortNo::CONTROLLER,
                    max_len,
                }))
            }
            _ => match name.parse::<PortNo>() {
                Ok(port) => self.no_argument().map(|()| Some(Action::output(port))),
                Err(_) => Ok(None),
            },
        }
    }

    fn set_field(&self, field: Field, text: Span<'a>) -> Result<Action, TextError> {
        let value = value::exact(field, text)?;
        // The VLAN identifier of an untagged packet cannot be set, so `OFPVID_PRESENT` may be left out.
        let value = if field == Field::VlanVid {
            value | VID_PRESENT
        } else {
            value
        };
        SetField::new(field, value)
            .map(Action::SetField)
            .map_err(|error| self.item.error(error))
    }

    fn unknown(&self) -> TextError {
        let nearest = nearest(self.name.text(), names());
        self.name.error(TextProblem::UnknownName {
            kind: "action",
            nearest,
        })
    }
}

/// Returns the field among `fields` that a packet of this match has.
fn meant(fields: &'static [Field], context: &Match) -> Field {
    let allowed = fields.iter().find(|field| match field.prerequisite() {
        Prerequisite::OneOf(needed, values) => context
            .field(needed)
            .is_some_and(|given| values.iter().any(|value| u128::from(*value) == given.value)),
        _ => true,
    });
    allowed.or(fields.first()).copied().unwrap_or(Field::TcpSrc)
}

/// Parses a list of actions without instructions; `context` resolves the names that several protocols share.
fn actions(text: Span<'_>, context: &Match) -> Result<Box<[Action]>, TextError> {
    let mut actions = Vec::new();
    let items = text.items()?;
    for item in &items {
        let call = Call::new(*item)?;
        if call.name.text() == "drop" && items.len() == 1 {
            call.no_argument()?;
        } else {
            actions.push(call.action(context)?.ok_or_else(|| call.unknown())?);
        }
    }
    Ok(actions.into())
}

fn once<T>(place: &mut Option<T>, value: T, item: Span<'_>) -> Result<(), TextError> {
    match place.replace(value) {
        Some(_) => Err(item.error(TextProblem::Twice)),
        None => Ok(()),
    }
}

/// Parses the text after `actions=`. Actions in the text form apply_actions. Instructions may come in any
/// order, because OpenFlow fixes the order of their execution (OpenFlow 1.3.5, section 5.9).
pub(super) fn instructions(text: Span<'_>, context: &Match) -> Result<Instructions, TextError> {
    let mut given = Instructions::default();
    let mut applied = Vec::new();
    let items = text.items()?;
    for item in &items {
        let call = Call::new(*item)?;
        match call.name.text() {
            "drop" if items.len() == 1 => call.no_argument()?,
            "drop" => return Err(item.expected("`drop` alone, or no `drop`")),
            "meter" => once(&mut given.meter, MeterId(call.number(u32::MAX)?), *item)?,
            "goto_table" => {
                let table = TableId(call.number(TableId::MAX.0.into())? as u8);
                once(&mut given.goto_table, table, *item)?;
            }
            "clear_actions" => {
                call.no_argument()?;
                if core::mem::replace(&mut given.clear_actions, true) {
                    return Err(item.error(TextProblem::Twice));
                }
            }
            "apply_actions" => {
                let list = actions(call.argument("actions in parentheses")?, context)?;
                once(&mut given.apply_actions, list, *item)?;
            }
            "write_actions" => {
                let list = actions(call.argument("actions in parentheses")?, context)?;
                once(&mut given.write_actions, list, *item)?;
            }
            "write_metadata" => {
                let (value, mask) = value::masked(Field::Metadata, call.argument("VALUE or VALUE/MASK")?)?;
                let change = WriteMetadata {
                    value: value as u64,
                    mask: mask.map_or(u64::MAX, |mask| mask as u64),
                };
                once(&mut given.write_metadata, change, *item)?;
            }
            _ => applied.push(call.action(context)?.ok_or_else(|| call.unknown())?),
        }
    }
    if !applied.is_empty() {
        if given.apply_actions.is_some() {
            return Err(text.expected("either apply_actions(…) or bare actions, not both"));
        }
        given.apply_actions = Some(applied.into());
    }
    Ok(given)
}

impl FromStr for Instructions {
    type Err = TextError;

    /// Parses the syntax of ovs-ofctl after `actions=`, such as `set_field:7->ip_dscp,output:2,goto_table:1`.
    ///
    /// There is no match to resolve the names that several protocols share (`mod_tp_dst`), so such names mean
    /// TCP.
    fn from_str(text: &str) -> Result<Instructions, TextError> {
        instructions(Span::new(text), &Match::any())
    }
}

impl fmt::Display for SetField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, value) = (self.field(), self.value());
        write!(f, "set_field:{}->{field}", Value { field, value })
    }
}

impl fmt::Display for Action {
    /// Writes the action in the syntax of ovs-ofctl. `max_len` is printed for outputs to the controller only, because
    /// it has no effect on other ports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Output {
                port: PortNo::CONTROLLER,
                max_len,
            } => write!(f, "CONTROLLER:{max_len}"),
            Action::Output { port, .. } if port.is_reserved() && port != PortNo::ANY => write!(f, "{port}"),
            Action::Output { port, .. } => write!(f, "output:{port}"),
            Action::Group(group) => write!(f, "group:{group}"),
            Action::SetQueue(queue) => write!(f, "set_queue:{queue}"),
            Action::SetMplsTtl(ttl) => write!(f, "set_mpls_ttl:{ttl}"),
            Action::SetNwTtl(ttl) => write!(f, "mod_nw_ttl:{ttl}"),
            Action::PushVlan(kind) => write!(f, "push_vlan:{kind}"),
            Action::PushMpls(kind) => write!(f, "push_mpls:{kind}"),
            Action::PopMpls(kind) => write!(f, "pop_mpls:{kind}"),
            Action::PushPbb(kind) => write!(f, "push_pbb:{kind}"),
            Action::SetField(set) => write!(f, "{set}"),
            Action::DecNwTtl
            | Action::DecMplsTtl
            | Action::CopyTtlOut
            | Action::CopyTtlIn
            | Action::PopVlan
            | Action::PopPbb => {
                let word = WORDS.iter().find(|(_, action)| action == self);
                f.write_str(word.map_or("", |(name, _)| *name))
            }
        }
    }
}

/// A list of actions, separated by commas.
pub(super) struct List<'a>(pub(super) &'a [Action]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, action) in self.0.iter().enumerate() {
            write!(f, "{}{action}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for Instructions {
    /// Writes the instructions in the order of execution; `drop` if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Instructions::default() {
            return f.write_str("drop");
        }
        let mut parts = Vec::new();
        if let Some(meter) = self.meter {
            parts.push(format!("meter:{meter}"));
        }
        match self.apply_actions.as_deref() {
            Some([]) => parts.push("apply_actions()".to_owned()),
            Some(list) => parts.push(List(list).to_string()),
            None => {}
        }
        if self.clear_actions {
            parts.push("clear_actions".to_owned());
        }
        if let Some(list) = &self.write_actions {
            parts.push(format!("write_actions({})", List(list)));
        }
        if let Some(WriteMetadata { value, mask }) = self.write_metadata {
            let mask = if mask == u64::MAX {
                String::new()
            } else {
                format!("/{mask:#x}")
            };
            parts.push(format!("write_metadata:{value:#x}{mask}"));
        }
        if let Some(table) = self.goto_table {
            parts.push(format!("goto_table:{table}"));
        }
        f.write_str(&parts.join(","))
    }
}
