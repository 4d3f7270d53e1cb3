//! Origins of changes: the front end whose desired state a change carries, and the owners of objects.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use millrace_model::{Change, Config, ObjectName, diff};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The front end whose desired state a change carries: `local` for people and tools that use REST and the command
/// line; any other name for a front end that follows a desired state elsewhere, such as `ovsdb` and `etcd`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(Cow<'static, str>);

/// The reason why a text is no origin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an origin: expected 1 to {max} lower-case letters, digits and hyphens, the first a letter, as in `ovsdb`", max = Origin::MAX_LEN)]
pub struct OriginError(String);

impl Origin {
    /// REST and the command line.
    pub const LOCAL: Origin = Origin(Cow::Borrowed("local"));
    /// An Open vSwitch database.
    pub const OVSDB: Origin = Origin(Cow::Borrowed("ovsdb"));
    /// A document in etcd.
    pub const ETCD: Origin = Origin(Cow::Borrowed("etcd"));
    /// The length limit, in characters.
    pub const MAX_LEN: usize = 32;

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for [`Origin::LOCAL`]. Every other origin is a machine: its revisions replace each other.
    pub fn is_local(&self) -> bool {
        *self == Origin::LOCAL
    }

    /// Returns the way to change an object of this origin, as an instruction.
    fn way(&self) -> &'static str {
        match self.as_str() {
            "ovsdb" => "use ovs-vsctl",
            "etcd" => "change its document in etcd",
            _ => "change it there",
        }
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::LOCAL
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Origin, OriginError> {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_valid = text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.len() <= Origin::MAX_LEN
            && text.chars().all(is_inner);
        match is_valid {
            true => Ok(Origin(Cow::Owned(text.to_owned()))),
            false => Err(OriginError(
                text.chars().take(64).flat_map(char::escape_debug).collect(),
            )),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Origin, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An object and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub object: ObjectName,
    /// The origin that it belongs to.
    pub owner: Origin,
}

impl Owned {
    /// Returns the refusal of a change by `by`, with the remedy.
    pub fn refusal(&self, by: &Origin) -> String {
        let Owned { object, owner } = self;
        let name = object.short();
        match by.is_local() {
            true => format!(
                "{object} belongs to {owner}: {}, or `millrace own {name} --local` to take it over",
                owner.way()
            ),
            false => {
                format!("{object} belongs to {owner}: `millrace own {name} --origin {by}` gives it to {by}")
            }
        }
    }
}

impl fmt::Display for Owned {
    /// Writes `bridge br0 belongs to ovsdb and stays as it is`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} belongs to {} and stays as it is", self.object, self.owner)
    }
}

/// The owners of the objects of one configuration. An object without an entry belongs to [`Origin::LOCAL`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owners(BTreeMap<ObjectName, Origin>);

impl Owners {
    /// Returns the owner of an object.
    pub fn owner(&self, object: &ObjectName) -> &Origin {
        static LOCAL: Origin = Origin::LOCAL;
        self.0.get(object).unwrap_or(&LOCAL)
    }

    /// Returns true if every object belongs to [`Origin::LOCAL`].
    pub fn is_all_local(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the owners with `object` given to `owner`.
    pub(crate) fn set(&mut self, object: ObjectName, owner: &Origin) {
        match owner.is_local() {
            true => drop(self.0.remove(&object)),
            false => drop(self.0.insert(object, owner.clone())),
        }
    }

    /// Returns the owners after a change of `origin` from `before` to `after`: objects that are new belong to `origin`.
    pub(crate) fn after(&self, before: &Config, after: &Config, origin: &Origin) -> Owners {
        if self.is_all_local() && origin.is_local() {
            return Owners::default();
        }
        let known = before.objects();
        let mut owners = Owners::default();
        for object in after.objects() {
            let owner = match known.contains(&object) {
                true => self.owner(&object),
                false => origin,
            };
            owners.set(object, owner);
        }
        owners
    }

    /// Returns the objects of other origins than `origin` that differ between `before`, to which these owners belong,
    /// and `after`.
    pub(crate) fn foreign_changes(&self, before: &Config, after: &Config, origin: &Origin) -> Vec<Owned> {
        if self.is_all_local() && origin.is_local() {
            return Vec::new();
        }
        let known = before.objects();
        let changed: BTreeSet<ObjectName> = diff(before, after).iter().map(Change::object).collect();
        changed
            .into_iter()
            .filter(|object| known.contains(object) && self.owner(object) != origin)
            .map(|object| Owned {
                owner: self.owner(&object).clone(),
                object,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_short_word_and_nothing_else() {
        for good in ["local", "ovsdb", "k8s", "a", "my-controller-2"] {
            assert_eq!(
                good.parse::<Origin>().map(|origin| origin.to_string()),
                Ok(good.to_owned())
            );
        }
        let long = "a".repeat(33);
        for bad in ["", "Ovsdb", "2a", "-a", "a b", "a/b", "ä", "a\n", &long] {
            let error = bad.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains("is not an origin: expected 1 to 32 "), "{error}");
        }
        assert_eq!("local".parse(), Ok(Origin::LOCAL));
    }
}
