//! Values of columns (RFC 7047, section 5.1): atoms, and sets or maps of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use thiserror::Error;

use crate::uuid::Uuid;

/// An atomic value.
#[derive(Debug, Clone, PartialEq)]
pub enum Atom {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Text(String),
    Uuid(Uuid),
    /// The name of a row that the same transaction inserts.
    Named(String),
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Atom) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Atom) -> Ordering {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a.cmp(b),
            (Atom::Real(a), Atom::Real(b)) => a.total_cmp(b),
            (Atom::Boolean(a), Atom::Boolean(b)) => a.cmp(b),
            (Atom::Text(a), Atom::Text(b)) | (Atom::Named(a), Atom::Named(b)) => a.cmp(b),
            (Atom::Uuid(a), Atom::Uuid(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// The value of a column: a set (an atom is a set of one, an unset optional value is empty), or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datum {
    Set(BTreeSet<Atom>),
    Map(BTreeMap<Atom, Atom>),
}

/// The reason why JSON is no value of a column.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found} is no value of a column: expected an atom, a set, a map or a UUID (RFC 7047, section 5.1)")]
pub struct ValueError {
    found: &'static str,
}

fn refuse<T>(json: &Json) -> Result<T, ValueError> {
    Err(ValueError {
        found: match json {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::String(_) => "a string",
            Json::Array(_) => "an array of another form",
            Json::Object(_) => "an object",
        },
    })
}

impl Atom {
    fn rank(&self) -> u8 {
        match self {
            Atom::Integer(_) => 0,
            Atom::Real(_) => 1,
            Atom::Boolean(_) => 2,
            Atom::Text(_) => 3,
            Atom::Uuid(_) => 4,
            Atom::Named(_) => 5,
        }
    }

    /// Returns the atom in the notation of RFC 7047.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn from_json(json: &Json) -> Result<Atom, ValueError> {
        match json {
            Json::Bool(value) => Ok(Atom::Boolean(*value)),
            Json::String(text) => Ok(Atom::Text(text.clone())),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Ok(Atom::Integer(integer)),
                (None, Some(real)) => Ok(Atom::Real(real)),
                (None, None) => refuse(json),
            },
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(tag), Json::String(text)] if tag == "uuid" => match text.parse() {
                    Ok(uuid) => Ok(Atom::Uuid(uuid)),
                    Err(_) => refuse(json),
                },
                [Json::String(tag), Json::String(text)] if tag == "named-uuid" => {
                    Ok(Atom::Named(text.clone()))
                }
                _ => refuse(json),
            },
            Json::Null | Json::Object(_) => refuse(json),
        }
    }

    /// Returns the notation of RFC 7047.
    pub fn to_json(&self) -> Json {
        match self {
            Atom::Integer(value) => json!(value),
            Atom::Real(value) => json!(value),
            Atom::Boolean(value) => json!(value),
            Atom::Text(value) => json!(value),
            Atom::Uuid(value) => json!(["uuid", value.to_string()]),
            Atom::Named(value) => json!(["named-uuid", value]),
        }
    }

    /// Returns the memory that the atom uses, in bytes, about.
    pub(crate) fn size(&self) -> usize {
        let text = match self {
            Atom::Text(text) | Atom::Named(text) => text.len(),
            _ => 0,
        };
        size_of::<Atom>() + text
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Atom {
            fn from(value: $type) -> Atom {
                Atom::$variant(value.into())
            }
        }

        impl From<$type> for Datum {
            fn from(value: $type) -> Datum {
                Datum::Set(BTreeSet::from([Atom::from(value)]))
            }
        }
    )*};
}

from!(i64 => Integer, u32 => Integer, bool => Boolean, &str => Text, String => Text, Uuid => Uuid);

impl<T: Into<Atom>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Datum {
        Datum::Set(value.into_iter().map(Into::into).collect())
    }
}

impl Datum {
    /// Returns a set.
    pub fn set<T: Into<Atom>>(atoms: impl IntoIterator<Item = T>) -> Datum {
        Datum::Set(atoms.into_iter().map(Into::into).collect())
    }

    /// Returns a map.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Datum {
        Datum::Map(
            pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }

    /// Returns the value in the notation of RFC 7047.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn from_json(json: &Json) -> Result<Datum, ValueError> {
        if let Json::Array(pair) = json
            && let [Json::String(tag), Json::Array(items)] = pair.as_slice()
        {
            if tag == "set" {
                return items
                    .iter()
                    .map(Atom::from_json)
                    .collect::<Result<_, _>>()
                    .map(Datum::Set);
            }
            if tag == "map" {
                let pair = |item: &Json| match item.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((Atom::from_json(key)?, Atom::from_json(value)?)),
                    _ => refuse(item),
                };
                return items.iter().map(pair).collect::<Result<_, _>>().map(Datum::Map);
            }
        }
        Ok(Datum::Set(BTreeSet::from([Atom::from_json(json)?])))
    }

    /// Returns the notation of RFC 7047.
    pub fn to_json(&self) -> Json {
        match self {
            Datum::Set(atoms) => match (atoms.len(), atoms.first()) {
                (1, Some(atom)) => atom.to_json(),
                _ => json!(["set", atoms.iter().map(Atom::to_json).collect::<Vec<_>>()]),
            },
            Datum::Map(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| json!([key.to_json(), value.to_json()]));
                json!(["map", pairs.collect::<Vec<_>>()])
            }
        }
    }

    /// Returns the value after a difference as `update2` sends it (ovsdb-server(7), section 4.1.14): elements of the
    /// difference that the set has are removed, others are added; pairs that the map has are removed, others set.
    #[must_use]
    pub fn patched(&self, difference: Datum) -> Datum {
        match (self, difference) {
            (Datum::Set(old), Datum::Set(difference)) => {
                Datum::Set(old.symmetric_difference(&difference).cloned().collect())
            }
            (Datum::Map(old), Datum::Map(difference)) => {
                let mut new = old.clone();
                for (key, value) in difference {
                    match new.get(&key) == Some(&value) {
                        true => drop(new.remove(&key)),
                        false => drop(new.insert(key, value)),
                    }
                }
                Datum::Map(new)
            }
            // An empty map and an empty set look alike only in the server's defaults.
            (_, difference) => difference,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Datum::Set(atoms) => atoms.iter().map(Atom::size).sum(),
            Datum::Map(pairs) => pairs.iter().map(|(key, value)| key.size() + value.size()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    fn datum(text: &str) -> Datum {
        Datum::from_json(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn values_print_as_they_were_written() {
        for text in [
            r#"5"#,
            r#""br0""#,
            r#"true"#,
            r#"1.5"#,
            r#"["set",[]]"#,
            r#"["set",[1,2]]"#,
            r#"["map",[["a","b"],["c","d"]]]"#,
            r#"["uuid","8a1f0c3e-0000-4bcd-9e10-00000000000f"]"#,
            r#"["named-uuid","x"]"#,
        ] {
            assert_eq!(datum(text).to_json().to_string(), text);
        }
        assert_eq!(datum(r#"["set",[7]]"#), datum("7"), "an atom is a set of one");
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in [
            r#"null"#,
            r#"{}"#,
            r#"[]"#,
            r#"["set"]"#,
            r#"["set",[[]]]"#,
            r#"["map",[["a"]]]"#,
            r#"["uuid","x"]"#,
            r#"["uuid",1]"#,
        ] {
            let error = Datum::from_json(&serde_json::from_str(text).unwrap()).unwrap_err();
            assert!(error.to_string().contains("expected"), "{text}");
        }
    }

    #[test]
    fn a_difference_adds_what_is_new_and_removes_what_is_there() {
        assert_eq!(
            datum(r#"["set",[1,2]]"#).patched(datum(r#"["set",[2,3]]"#)),
            datum(r#"["set",[1,3]]"#)
        );
        assert_eq!(
            datum(r#"["map",[["a","1"],["b","2"]]]"#)
                .patched(datum(r#"["map",[["a","1"],["b","3"],["c","4"]]]"#)),
            datum(r#"["map",[["b","3"],["c","4"]]]"#)
        );
    }
}
