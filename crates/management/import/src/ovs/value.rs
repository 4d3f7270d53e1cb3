//! Values of columns as ovs-vsctl(8) reads them ("Database Values").

use std::collections::{BTreeMap, BTreeSet};

use millrace_ovsdb::{Atom, Datum, Uuid};

use super::schema::{Column, Type};

/// Returns the row of a name such as `@port`, or of a UUID.
pub(super) type Resolve<'a> = &'a dyn Fn(&str, &str) -> Result<Uuid, String>;

/// Characters that end a word in a set or a map.
const DELIMITERS: &str = ":=, []{}!<>";

/// Returns the atom of a text.
pub(super) fn atom(text: &str, kind: Type, resolve: Resolve<'_>) -> Result<Atom, String> {
    match kind {
        Type::Text if text.starts_with('"') => serde_json::from_str(text)
            .map(Atom::Text)
            .map_err(|_| format!("{text}: expected a text in quotes as in JSON")),
        Type::Text if text.is_empty() => Err("an empty text: expected \\\"\\\" for it".to_owned()),
        Type::Text => Ok(Atom::Text(text.to_owned())),
        Type::Integer => text
            .parse()
            .map(Atom::Integer)
            .map_err(|_| format!("{text}: expected an integer")),
        Type::Boolean => match text {
            "true" | "yes" | "on" | "1" => Ok(Atom::Boolean(true)),
            "false" | "no" | "off" | "0" => Ok(Atom::Boolean(false)),
            _ => Err(format!("{text}: expected true or false")),
        },
        Type::Uuid(table) => resolve(table, text).map(Atom::Uuid),
    }
}

/// Returns the value of a text: atoms or pairs with commas or spaces between them, in brackets or not.
pub(super) fn datum(text: &str, column: &Column, resolve: Resolve<'_>) -> Result<Datum, String> {
    let brackets = if column.value.is_some() {
        ('{', '}')
    } else {
        ('[', ']')
    };
    let mut reader = Reader { rest: text };
    let is_bracketed = reader.takes(brackets.0);
    let mut atoms = BTreeSet::new();
    let mut pairs = BTreeMap::new();
    loop {
        reader.skip_separators();
        if is_bracketed && reader.takes(brackets.1) {
            reader.skip_separators();
            break;
        }
        if reader.rest.is_empty() {
            match is_bracketed {
                true => return Err(format!("{text}: expected a closing {}", brackets.1)),
                false => break,
            }
        }
        let word = reader.word()?;
        let Some(value) = column.value else {
            let read: Vec<Atom> = match (column.key, range(word)) {
                (Type::Integer, Some((first, last))) if column.max > 1 => {
                    (first..=last).map(Atom::Integer).collect()
                }
                _ => vec![atom(word, column.key, resolve)?],
            };
            for atom in read {
                if !atoms.insert(atom) {
                    return Err(format!("{text}: expected each value once"));
                }
            }
            continue;
        };
        if !reader.takes('=') {
            return Err(format!("{text}: expected KEY=VALUE"));
        }
        let of_key = reader.word()?;
        let pair = (atom(word, column.key, resolve)?, atom(of_key, value, resolve)?);
        if pairs.insert(pair.0, pair.1).is_some() {
            return Err(format!("{text}: expected the key {word} once"));
        }
    }
    if !reader.rest.is_empty() {
        return Err(format!("{text}: unexpected {}", reader.rest));
    }
    match column.value {
        Some(_) => Ok(Datum::Map(pairs)),
        None if atoms.len() > column.max => Err(format!("{text}: expected at most {} values", column.max)),
        None => Ok(Datum::Set(atoms)),
    }
}

/// Returns the ends of a range of integers: `7-9`. The set of VLANs, the largest, has 4,096 values.
fn range(word: &str) -> Option<(i64, i64)> {
    let (first, last) = word.split_once('-')?;
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first.into(), last.into()))
}

/// A text that is read from its beginning.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, char: char) -> bool {
        match self.rest.strip_prefix(char) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_separators(&mut self) {
        self.rest = self.rest.trim_start_matches([',', ' ']);
    }

    /// Takes a word: a text in quotes, or all up to a delimiter.
    fn word(&mut self) -> Result<&'a str, String> {
        let end = if self.rest.starts_with('"') {
            let mut is_escaped = false;
            let end = self.rest.char_indices().skip(1).find(|(_, char)| {
                let ends = *char == '"' && !is_escaped;
                is_escaped = *char == '\\' && !is_escaped;
                ends
            });
            match end {
                Some((end, _)) => end + 1,
                None => return Err(format!("{}: expected a closing quote", self.rest)),
            }
        } else {
            self.rest
                .find(|char| DELIMITERS.contains(char))
                .unwrap_or(self.rest.len())
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word.is_empty() {
            true => Err(format!("{rest}: expected a value")),
            false => Ok(word),
        }
    }
}
