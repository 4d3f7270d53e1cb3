//! The page docs/nic-interface.md: the fixed text of `interface.md`, with the tables at their places.

use core::fmt::Write as _;

use crate::bits::BitField;
use crate::command::{self, OPCODES};
use crate::register::{Access, REGISTERS, Register};
use crate::{Counter, Status, command_completion};
use crate::{completion, key, row};

const TEXT: &str = include_str!("interface.md");

/// Returns the text of the page.
#[must_use]
pub fn markdown() -> String {
    let flags =
        completion::flag::ALL.map(|(name, value, text)| (name.to_owned(), format!("{value:#06x}"), text));
    let kinds =
        completion::kind::ALL.map(|(name, value, text)| (name.to_owned(), format!("{value:#04x}"), text));
    let layers = key::layer::ALL.map(|(name, value, text)| (name.to_owned(), format!("{value:#04x}"), text));
    let counters = Counter::ALL
        .map(|(counter, name, text)| (format!("COUNT_{name}"), (counter as u8).to_string(), text));
    let statuses =
        Status::ALL.map(|(status, name, text)| (format!("STATUS_{name}"), (status as u16).to_string(), text));
    let tables = [
        ("registers", registers()),
        ("register-fields", register_fields()),
        ("key", fields(&key::FIELDS)),
        ("layers", named(&layers)),
        ("row", fields(&row::FIELDS)),
        ("command", fields(&command::FIELDS)),
        ("opcodes", opcodes()),
        ("counters", named(&counters)),
        ("command-completion", fields(&command_completion::FIELDS)),
        ("statuses", named(&statuses)),
        ("completion", fields(&completion::FIELDS)),
        ("flags", named(&flags)),
        ("kinds", named(&kinds)),
    ];
    let mut text = TEXT.to_owned();
    for (name, table) in tables {
        text = text.replace(&format!("{{{{{name}}}}}"), table.trim_end());
    }
    text
}

fn fields(fields: &[BitField]) -> String {
    let mut out = "| field | bits | content |\n| --- | --- | --- |\n".to_owned();
    for field in fields {
        let (low, high) = (field.lsb, field.lsb + field.width - 1);
        let bits = if low == high {
            low.to_string()
        } else {
            format!("{high}:{low}")
        };
        let _ = writeln!(out, "| `{}` | {bits} | {} |", field.name, field.text);
    }
    out
}

fn named(values: &[(String, String, &str)]) -> String {
    let mut out = "| name | value | meaning |\n| --- | --- | --- |\n".to_owned();
    for (name, value, text) in values {
        let _ = writeln!(out, "| `{name}` | {value} | {text} |");
    }
    out
}

fn opcodes() -> String {
    let mut out = "| opcode | command | fields | effect |\n| --- | --- | --- | --- |\n".to_owned();
    for (number, name, uses, text) in OPCODES {
        let _ = writeln!(out, "| {number} | `{name}` | {uses} | {text} |");
    }
    out
}

fn registers() -> String {
    let mut out =
        "| offset | name | number | access | content |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for Register {
        name,
        offset,
        len,
        access,
        text,
        ..
    } in REGISTERS
    {
        let access = match access {
            Access::Read => "read",
            Access::ReadWrite => "read, write",
            Access::Write => "write",
        };
        let _ = writeln!(out, "| {offset:#05x} | `{name}` | {len} | {access} | {text} |");
    }
    out
}

fn register_fields() -> String {
    let mut out = "| register | field | bits | content |\n| --- | --- | --- | --- |\n".to_owned();
    for register in REGISTERS {
        for field in register.fields {
            let (low, high) = (field.lsb, field.lsb + field.width - 1);
            let _ = writeln!(
                out,
                "| `{}` | `{}` | {high}:{low} | {} |",
                register.name, field.name, field.text
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_table_has_its_place_on_the_page() {
        let page = super::markdown();
        assert!(!page.contains("{{"), "a place without a table");
        assert!(page.contains("| `KIND_PBB` |") && page.contains("| `NO_BUFFER` |"));
    }
}
