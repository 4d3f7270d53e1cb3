//! Objects: the parts of a configuration that belong to one front end each. The schema defines them: an item of a list
//! of the root that has a name (`[[bridge]]`, with its ports and chains), or a table that exists once (`[system]`).
//! Every value of a configuration is in exactly one object.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value as Json};
use thiserror::Error;

use crate::change::Change;
use crate::config::Config;
use crate::error::ConfigErrors;
use crate::schema::Shape;
use crate::text::section_from_json;

/// The name of an object: `bridge br0`, or `system`. Its text form is `bridge/br0`, or `system`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    kind: String,
    name: Option<String>,
}

/// The reason why a text names no object of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ObjectError {
    /// The configuration has no such object.
    #[error("the configuration has no object `{text}`: expected one of {}", list(.known))]
    Unknown {
        text: String,
        /// All objects of the configuration.
        known: Vec<ObjectName>,
    },
    /// Several objects have this name.
    #[error("`{text}` is the name of {}: expected one of {}", .found.len(), list(.found))]
    Ambiguous {
        text: String,
        /// The objects with this name.
        found: Vec<ObjectName>,
    },
}

fn list(names: &[ObjectName]) -> String {
    names.iter().map(ObjectName::path).collect::<Vec<_>>().join(", ")
}

/// A key of the root: the key, and the key that identifies an item if its value is a list.
type RootKey = (&'static str, Option<&'static str>);

static ROOT: LazyLock<Vec<RootKey>> = LazyLock::new(|| {
    let identity = |shape: &Shape| match shape {
        Shape::List(item) => match &**item {
            Shape::Table(section) => section().identity,
            _ => None,
        },
        _ => None,
    };
    let keys = Config::section().keys;
    keys.iter().map(|key| (key.name, identity(&key.shape))).collect()
});

impl ObjectName {
    fn single(kind: &str) -> ObjectName {
        ObjectName {
            kind: kind.to_owned(),
            name: None,
        }
    }

    fn item(kind: &str, name: &str) -> ObjectName {
        ObjectName {
            kind: kind.to_owned(),
            name: Some(name.to_owned()),
        }
    }

    /// Returns the name of a bridge.
    pub fn bridge(name: &str) -> ObjectName {
        ObjectName::item("bridge", name)
    }

    /// Returns the text form: `bridge/br0`, `system`.
    pub fn path(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.kind),
            None => self.kind.clone(),
        }
    }

    /// Returns the shortest text that [`Config::object`] accepts if no other object has this name: `br0`, `system`.
    pub fn short(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.kind)
    }
}

impl fmt::Display for ObjectName {
    /// Writes the name in words: `bridge br0`, `system`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match &self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ObjectName {
    type Err = std::convert::Infallible;

    /// Parses the text form.
    fn from_str(text: &str) -> Result<ObjectName, Self::Err> {
        Ok(match text.split_once('/') {
            Some((kind, name)) => ObjectName::item(kind, name),
            None => ObjectName::single(text),
        })
    }
}

impl Serialize for ObjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.path())
    }
}

impl<'de> Deserialize<'de> for ObjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectName, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Change {
    /// Returns the object that the change belongs to.
    pub fn object(&self) -> ObjectName {
        let mut steps = self.path.split('/').skip(1);
        let kind = steps.next().unwrap_or("");
        let is_list = ROOT
            .iter()
            .any(|(key, identity)| *key == kind && identity.is_some());
        match steps.next().filter(|_| is_list) {
            Some(name) => ObjectName::item(kind, &name.replace("~1", "/").replace("~0", "~")),
            None => ObjectName::single(kind),
        }
    }
}

impl Config {
    /// Returns the names of all objects.
    pub fn objects(&self) -> BTreeSet<ObjectName> {
        let json = self.to_json();
        let mut names = BTreeSet::new();
        for (key, identity) in ROOT.iter() {
            match identity {
                None => drop(names.insert(ObjectName::single(key))),
                Some(identity) => {
                    names.extend(items(&json, key).iter().map(|item| named(key, identity, item)));
                }
            }
        }
        names
    }

    /// Returns the object that `text` names: `bridge/br0`, or `br0` if no other object has this name.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn object(&self, text: &str) -> Result<ObjectName, ObjectError> {
        let known = self.objects();
        if let Some(exact) = known.iter().find(|object| object.path() == text) {
            return Ok(exact.clone());
        }
        let mut found: Vec<ObjectName> = known
            .iter()
            .filter(|object| object.short() == text)
            .cloned()
            .collect();
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                found.push(last);
                Err(ObjectError::Ambiguous {
                    text: text.to_owned(),
                    found,
                })
            }
            (None, _) => Err(ObjectError::Unknown {
                text: text.to_owned(),
                known: known.into_iter().collect(),
            }),
        }
    }

    /// Returns this configuration, in which the objects that `takes` selects are as in `other`: equal, or absent.
    ///
    /// # Errors
    /// [`ConfigErrors`] if a value cannot be decoded; consistency is not checked ([`Config::validate`]).
    pub fn with_objects_of(
        &self,
        other: &Config,
        takes: impl Fn(&ObjectName) -> bool,
    ) -> Result<Config, ConfigErrors> {
        let (mine, theirs) = (self.to_json(), other.to_json());
        let mut result = Map::new();
        for (key, identity) in ROOT.iter() {
            let value = match identity {
                None if takes(&ObjectName::single(key)) => theirs.get(key).cloned(),
                None => mine.get(key).cloned(),
                Some(identity) => Some(Json::Array(merged(
                    items(&mine, key),
                    items(&theirs, key),
                    |item| named(key, identity, item),
                    &takes,
                ))),
            };
            if let Some(value) = value {
                result.insert((*key).to_owned(), value);
            }
        }
        section_from_json(&Json::Object(result))
    }
}

/// Returns `mine` with the selected items as in `theirs`: in place where both have an item, the others at the end.
fn merged(
    mine: &[Json],
    theirs: &[Json],
    name: impl Fn(&Json) -> ObjectName,
    takes: &impl Fn(&ObjectName) -> bool,
) -> Vec<Json> {
    let mut result = Vec::new();
    for item in mine {
        let wanted = name(item);
        match takes(&wanted) {
            true => result.extend(theirs.iter().find(|other| name(other) == wanted).cloned()),
            false => result.push(item.clone()),
        }
    }
    let missing = theirs.iter().filter(|item| {
        let wanted = name(item);
        takes(&wanted) && !mine.iter().any(|other| name(other) == wanted)
    });
    result.extend(missing.cloned());
    result
}

fn items<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json.get(key).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

fn named(kind: &str, identity: &str, item: &Json) -> ObjectName {
    ObjectName::item(kind, item.get(identity).and_then(Json::as_str).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;
    use crate::diff::diff;

    fn config(text: &str) -> Config {
        Config::from_toml("t.toml", text).unwrap()
    }

    fn paths(names: impl IntoIterator<Item = ObjectName>) -> Vec<String> {
        names.into_iter().map(|name| name.path()).collect()
    }

    const ONE: &str = "[system]\nmemory_mib = 600\n[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"x\"\n[[wan]]\nname = \"x\"\n";

    #[test]
    fn every_named_item_of_the_root_and_every_single_table_is_an_object() {
        let found = paths(config(ONE).objects());
        for name in ["api", "bridge/br0", "bridge/x", "system", "wan/x"] {
            assert!(found.iter().any(|path| path == name), "{name}: {found:?}");
        }
        for path in &found {
            let name: ObjectName = path.parse().unwrap();
            assert_eq!(name.path(), *path);
        }
    }

    #[test]
    fn an_object_is_found_by_its_name_alone_unless_two_have_it() {
        let config = config(ONE);
        assert_eq!(config.object("br0").unwrap().to_string(), "bridge br0");
        assert_eq!(config.object("system").unwrap().path(), "system");
        assert_eq!(config.object("wan/x").unwrap().path(), "wan/x");
        let error = config.object("x").unwrap_err().to_string();
        assert_eq!(error, "`x` is the name of 2: expected one of bridge/x, wan/x");
        let error = config.object("br9").unwrap_err().to_string();
        assert!(
            error.contains("no object `br9`") && error.contains("bridge/br0"),
            "{error}"
        );
    }

    #[test]
    fn each_change_belongs_to_the_object_that_holds_it() {
        let before = config(ONE);
        let after = config(
            "[system]\nmemory_mib = 700\n[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\n\
             device = \"memory\"\n[[bridge]]\nname = \"br1\"\n[[wan]]\nname = \"x\"\n",
        );
        let of = diff(&before, &after)
            .iter()
            .map(Change::object)
            .collect::<BTreeSet<_>>();
        assert_eq!(paths(of), ["bridge/br0", "bridge/br1", "bridge/x", "system"]);
    }

    #[test]
    fn selected_objects_are_taken_as_they_are_there_or_are_not() {
        let (mine, theirs) = (
            config(
                "[system]\nmemory_mib = 600\n[[bridge]]\nname = \"a\"\n[[bridge]]\nname = \"b\"\ntables = 3\n",
            ),
            config(
                "[[bridge]]\nname = \"b\"\ntables = 5\n[[bridge]]\nname = \"c\"\n[[bridge]]\nname = \"d\"\n",
            ),
        );
        let taken = mine
            .with_objects_of(&theirs, |object| matches!(object.short(), "a" | "b" | "c"))
            .unwrap();
        let expected = config(
            "[system]\nmemory_mib = 600\n[[bridge]]\nname = \"b\"\ntables = 5\n[[bridge]]\nname = \"c\"\n",
        );
        assert_eq!(taken, expected);
        assert_eq!(mine.with_objects_of(&theirs, |_| true).unwrap(), theirs);
        assert_eq!(mine.with_objects_of(&theirs, |_| false).unwrap(), mine);
    }
}
