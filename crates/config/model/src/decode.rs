//! The decoder from the syntax tree to typed values, which collects every error. [`Field`] is the interface
//! of a type that can be the value of a key; sections implement it by the [`section!`](crate::section) macro,
//! leaves by the macros at the end of this file.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::change::{Change, ChangeKind};
use crate::error::{Path, Problem};
use crate::node::{Node, Table, Value, shorten};
use crate::schema::{self, Shape, TakesEffect};

/// The keys of a configuration that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Every key that has a value.
    Full,
    /// Only the keys whose values differ from the defaults, in the shortest form.
    Sparse,
}

/// The number of errors up to which the decoder searches for suggestions ("did you mean"). A file that is not
/// a configuration has an error on each line.
const SUGGESTED_LEN: usize = 100;

/// An error before its location in the text is known.
#[derive(Debug, Clone)]
pub(crate) struct UnlocatedError {
    pub(crate) path: Path,
    pub(crate) problem: Problem,
}

/// The position of the decoder and the errors found so far.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub(crate) path: Path,
    pub(crate) issues: Vec<UnlocatedError>,
    /// The paths of list items that could not be decoded; later checks ignore consequences of their absence.
    pub(crate) dropped: Vec<Path>,
}

impl Decoder {
    pub(crate) fn problem(&mut self, problem: Problem) {
        self.issues.push(UnlocatedError {
            path: self.path.clone(),
            problem,
        });
    }

    pub(crate) fn wrong_type(&mut self, node: &Node, shape: &Shape) {
        self.problem(Problem::WrongType {
            found: node.describe(),
            expected: shape.expected(),
        });
    }

    /// Decodes `node` as the value of `key`.
    pub(crate) fn at_key<T: Field>(&mut self, key: &str, node: &Node) -> Option<T> {
        let longer = self.path.key(key);
        let outer = std::mem::replace(&mut self.path, longer);
        let value = T::decode(self, node);
        self.path = outer;
        value
    }

    pub(crate) fn unknown_keys(&mut self, table: &Table, known: &[&'static str]) {
        for entry in table
            .entries
            .iter()
            .filter(|entry| !known.contains(&entry.key.as_str()))
        {
            let is_early = self.issues.len() < SUGGESTED_LEN;
            let places = match is_early {
                true => schema::places(&entry.key),
                false => Vec::new(),
            };
            let suggestion = is_early
                .then(|| synonym(&entry.key, known).or_else(|| nearest(&entry.key, known.iter().copied())))
                .flatten()
                .map(str::to_owned);
            self.issues.push(UnlocatedError {
                path: self.path.key(&entry.key),
                problem: Problem::UnknownKey {
                    key: shorten(&entry.key),
                    suggestion,
                    known: known.to_vec(),
                    places,
                },
            });
        }
    }

    pub(crate) fn required<T: Field>(&mut self, table: &Table, key: &'static str) -> Option<T> {
        match table.find(key) {
            Some(entry) => self.at_key(key, &entry.node),
            None => {
                self.problem(Problem::MissingKey {
                    key,
                    expected: T::shape().expected(),
                });
                None
            }
        }
    }

    /// Returns the value of `key`, or its default if the key is absent, null, or wrong (which is recorded).
    pub(crate) fn optional<T: Field>(&mut self, table: &Table, key: &str, default: impl FnOnce() -> T) -> T {
        match table.find(key) {
            Some(entry) if entry.node.value != Value::Null => {
                self.at_key(key, &entry.node).unwrap_or_else(default)
            }
            _ => default(),
        }
    }
}

/// A type that can be the value of a key.
pub(crate) trait Field: Sized + PartialEq {
    fn shape() -> Shape;

    /// Decodes a value; `None` after an error was recorded.
    fn decode(decoder: &mut Decoder, node: &Node) -> Option<Self>;

    /// Encodes the value; `None` if it is unset.
    fn encode(&self, detail: Detail) -> Option<Node>;

    /// Returns the identity of this value among the items of a list, if items have an identity key.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Returns true if the order of such values in a list matters, so that another order is a change.
    fn is_ordered() -> bool {
        false
    }

    /// Appends the changes from `old` to `self` at `path` (a path of names, not of indices).
    fn diff(&self, old: &Self, path: &str, applies: TakesEffect, out: &mut Vec<Change>) {
        if self != old {
            let json = |value: &Self| value.encode(Detail::Sparse).map(|node| node.to_json());
            out.push(Change::new(
                path,
                ChangeKind::Changed,
                json(old),
                json(self),
                applies,
            ));
        }
    }
}

impl<T: Field> Field for Option<T> {
    fn shape() -> Shape {
        T::shape()
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<Option<T>> {
        T::decode(decoder, node).map(Some)
    }

    fn encode(&self, detail: Detail) -> Option<Node> {
        self.as_ref().and_then(|value| value.encode(detail))
    }
}

impl Field for bool {
    fn shape() -> Shape {
        Shape::Bool
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<bool> {
        match node.value {
            Value::Bool(value) => Some(value),
            _ => {
                decoder.wrong_type(node, &Self::shape());
                None
            }
        }
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Bool(*self).into())
    }
}

impl<T: Field> Field for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    /// Decodes every valid item; an invalid one is recorded and omitted.
    fn decode(decoder: &mut Decoder, node: &Node) -> Option<Vec<T>> {
        let Value::List(items) = &node.value else {
            decoder.wrong_type(node, &Self::shape());
            return None;
        };
        let outer = decoder.path.clone();
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            decoder.path = outer.index(index);
            match T::decode(decoder, item) {
                Some(value) => values.push(value),
                None => decoder.dropped.push(decoder.path.clone()),
            }
        }
        decoder.path = outer;
        Some(values)
    }

    fn encode(&self, detail: Detail) -> Option<Node> {
        Some(Value::List(self.iter().filter_map(|value| value.encode(detail)).collect()).into())
    }

    /// Matches items by identity; a list of plain values changes as a whole. If the order of items matters,
    /// another order of the items that are in both lists is one change, from the old to the new order of
    /// names.
    fn diff(&self, old: &Vec<T>, path: &str, applies: TakesEffect, out: &mut Vec<Change>) {
        let json = |value: &T| value.encode(Detail::Sparse).map(|node| node.to_json());
        let named = |items: &[T]| -> Option<Vec<String>> { items.iter().map(T::identity).collect() };
        let (Some(new_names), Some(old_names)) = (named(self), named(old)) else {
            if self != old {
                let json = |value: &Vec<T>| value.encode(Detail::Sparse).map(|node| node.to_json());
                out.push(Change::new(
                    path,
                    ChangeKind::Changed,
                    json(old),
                    json(self),
                    applies,
                ));
            }
            return;
        };
        let (is_new, is_old) = (places(&new_names), places(&old_names));
        let at = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        for (name, removed) in old_names
            .iter()
            .zip(old)
            .filter(|(name, _)| !is_new.contains_key(name.as_str()))
        {
            out.push(Change::new(
                &at(name),
                ChangeKind::Removed,
                json(removed),
                None,
                applies,
            ));
        }
        for (name, item) in new_names.iter().zip(self) {
            match is_old.get(name.as_str()).and_then(|index| old.get(*index)) {
                Some(other) => item.diff(other, &at(name), applies, out),
                None => out.push(Change::new(
                    &at(name),
                    ChangeKind::Added,
                    None,
                    json(item),
                    applies,
                )),
            }
        }
        if T::is_ordered() {
            let common = |names: &[String], others: &HashMap<&str, usize>| -> Vec<String> {
                names
                    .iter()
                    .filter(|name| others.contains_key(name.as_str()))
                    .cloned()
                    .collect()
            };
            let before = common(&old_names, &is_new);
            let after = common(&new_names, &is_old);
            if before != after {
                let (before, after) = (Some(before.into()), Some(after.into()));
                out.push(Change::new(path, ChangeKind::Changed, before, after, applies));
            }
        }
    }
}

/// Returns the place of each name; of names that are equal, the first.
fn places(names: &[String]) -> HashMap<&str, usize> {
    let places = names.iter().enumerate().rev();
    places.map(|(place, name)| (name.as_str(), place)).collect()
}

/// The names that Open vSwitch gives to keys, and the keys.
const SYNONYMS: [(&str, &str); 13] = [
    ("tag", "vlan"),
    ("tags", "vlan"),
    ("vlans", "trunks"),
    ("ofport", "number"),
    ("ofport_request", "number"),
    ("interface", "device"),
    ("type", "device"),
    ("mtu_request", "mtu"),
    ("datapath_id", "dpid"),
    ("datapath-id", "dpid"),
    ("protocols", "listen"),
    ("target", "controllers"),
    ("ssl", "tls"),
];

/// Returns the known key that Open vSwitch calls `text`.
fn synonym(text: &str, known: &[&'static str]) -> Option<&'static str> {
    let (_, key) = SYNONYMS
        .iter()
        .find(|(name, key)| *name == text && known.contains(key))?;
    Some(key)
}

/// Returns the candidate that `text` probably misspells; `None` if none is similar enough.
pub(crate) fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text: String = text.chars().take(64).collect::<String>().to_lowercase();
    let allowed = (text.chars().count() / 3).clamp(1, 3);
    candidates
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&text, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| {
            *distance <= allowed
                || (text.len() >= 4
                    && candidate.len() >= 4
                    && (candidate.contains(&text) || text.contains(candidate)))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Decodes text with a parser whose error names the found and the expected text.
pub(crate) fn decode_text<T, E: ToString>(
    decoder: &mut Decoder,
    node: &Node,
    shape: &Shape,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let Value::Text(text) = &node.value else {
        decoder.wrong_type(node, shape);
        return None;
    };
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            decoder.problem(Problem::Malformed {
                message: error.to_string(),
                suggestion: None,
            });
            None
        }
    }
}

/// Decodes an integer in a range.
pub(crate) fn decode_integer(decoder: &mut Decoder, node: &Node, shape: &Shape) -> Option<u64> {
    let (Value::Integer(found), Shape::Integer { min, max, unit }) = (&node.value, shape) else {
        decoder.wrong_type(node, shape);
        return None;
    };
    match u64::try_from(*found) {
        Ok(value) if (*min..=*max).contains(&value) => Some(value),
        _ => {
            decoder.problem(Problem::OutOfRange {
                found: *found,
                min: *min,
                max: *max,
                unit,
            });
            None
        }
    }
}

/// Decodes one of a fixed set of words.
pub(crate) fn decode_choice<T>(
    decoder: &mut Decoder,
    node: &Node,
    shape: &Shape,
    values: &[(&'static str, T)],
) -> Option<T>
where
    T: Copy,
{
    let Value::Text(text) = &node.value else {
        decoder.wrong_type(node, shape);
        return None;
    };
    if let Some((_, value)) = values.iter().find(|(word, _)| word == text) {
        return Some(*value);
    }
    let suggestion = nearest(text, values.iter().map(|(word, _)| *word)).map(str::to_owned);
    let message = format!(
        "`{}` is not a choice: expected {}",
        shorten(text),
        shape.expected()
    );
    decoder.problem(Problem::Malformed { message, suggestion });
    None
}

/// Implements [`Field`] for a type with `FromStr` and `Display`: a key that takes text.
macro_rules! text_field {
    ($name:ty, $form:literal, $example:literal) => {
        impl $crate::decode::Field for $name {
            fn shape() -> $crate::schema::Shape {
                $crate::schema::Shape::Text {
                    form: $form,
                    example: $example,
                }
            }

            fn decode(decoder: &mut $crate::decode::Decoder, node: &$crate::node::Node) -> Option<Self> {
                $crate::decode::decode_text(decoder, node, &Self::shape(), str::parse::<$name>)
            }

            fn encode(&self, _: $crate::decode::Detail) -> Option<$crate::node::Node> {
                Some($crate::node::Value::Text(self.to_string()).into())
            }
        }
    };
}
pub(crate) use text_field;

text_field!(millrace_types::Dpid, "1 to 16 hex digits", "0000000000000001");

impl Field for IpAddr {
    fn shape() -> Shape {
        Shape::Text {
            form: "an IP address",
            example: "169.254.1.1",
        }
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<IpAddr> {
        decode_text(decoder, node, &Self::shape(), |text| {
            text.parse().map_err(|_| {
                format!(
                    "`{}` is not an IP address: expected one as in 169.254.1.1 or fe80::1",
                    shorten(text)
                )
            })
        })
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Text(self.to_string()).into())
    }
}

impl Field for SocketAddr {
    fn shape() -> Shape {
        Shape::Text {
            form: "an IP address and a port",
            example: "127.0.0.1:8080",
        }
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<SocketAddr> {
        decode_text(decoder, node, &Self::shape(), |text| {
            text.parse().map_err(|_| {
                format!(
                    "`{}` is not a socket address: expected IP:PORT as in 127.0.0.1:8080 or [::1]:8080",
                    shorten(text)
                )
            })
        })
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Text(self.to_string()).into())
    }
}

impl Field for PathBuf {
    fn shape() -> Shape {
        Shape::Text {
            form: "a path",
            example: "/path/to/it",
        }
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<PathBuf> {
        decode_text(decoder, node, &Self::shape(), |text| match text {
            "" => Err("the path is empty: expected a path".to_owned()),
            _ if text.contains('\0') => Err("the path holds a NUL character: expected a path".to_owned()),
            _ => Ok(PathBuf::from(text)),
        })
    }

    fn encode(&self, _: Detail) -> Option<Node> {
        Some(Value::Text(self.to_string_lossy().into_owned()).into())
    }
}
