//! `dataset` and `datarep`: sets of values that a buffer is looked up in.

use std::fmt;

use super::number::Comparison;
use crate::Syntax;
use crate::refusal::Reason;
use crate::text::{is_name, list, quote, required, words};

words! {
    /// The command of `dataset`.
    SetCommand "set, unset, isset or isnotset" {
        /// Add the value; matches if the set did not have it.
        Set "set";
        /// Remove the value; matches if the set had it.
        Unset "unset";
        /// The set has the value.
        IsSet "isset";
        /// The set does not have the value.
        IsNotSet "isnotset";
    }
}

words! {
    /// The type of the values of a set.
    SetType "string, md5, sha256, ipv4 or ip" {
        /// Bytes; in files as Base64.
        String "string";
        /// 16 bytes; in files as hexadecimal digits.
        Md5 "md5";
        /// 32 bytes; in files as hexadecimal digits.
        Sha256 "sha256";
        /// An IPv4 address.
        Ipv4 "ipv4";
        /// An IPv4 or IPv6 address.
        Ip "ip" | "ipv6";
    }
}

/// The test of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTest {
    /// The set has the value, or gets it.
    Member(SetCommand),
    /// The reputation of the value compares with a number.
    Reputation(Comparison),
}

words! {
    /// The form of a file with JSON values.
    JsonForm "json, ndjson or jsonline" {
        /// One array, or an object with an array.
        Array "json";
        /// One object on each line.
        Lines "ndjson" | "jsonline";
    }
}

/// The JSON values of a set, which alerts show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrichment {
    pub form: JsonForm,
    /// The key of the object in alerts; `None` for the name of the set.
    pub key: Option<String>,
    /// True if alerts have the object in `extra` (`enrichment_key`), false for `context` (`context_key`).
    pub is_extra: bool,
    /// The key of the value in each object, with dots between nested keys.
    pub value_key: String,
    /// The key of the array in the file, with dots between nested keys.
    pub array_key: Option<String>,
    /// True if alerts show the object without the value.
    pub removes_key: bool,
}

/// An option `dataset` or `datarep`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    pub name: String,
    pub test: SetTest,
    /// The type; `None` if another rule names it.
    pub kind: Option<SetType>,
    /// The file with the first values, as the rule names it.
    pub load: Option<String>,
    /// The file with the first values, which need not exist, and to which the values are written.
    pub state: Option<String>,
    /// The file to which the values are written.
    pub save: Option<String>,
    /// True if a value that ends with one of the set is found, from one of its dots on (`match subdomain`).
    pub has_subdomains: bool,
    /// The JSON values of the file.
    pub enrichment: Option<Enrichment>,
    /// The other arguments, which have no effect: `memcap` and `hashsize`.
    others: Vec<(String, String)>,
}

/// Largest size of the name of a set, in bytes.
const NAME_SIZE: usize = 63;
/// Largest size of a key of JSON values, in bytes.
const KEY_SIZE: usize = 127;
/// Largest size of the name of a file that is written, in bytes.
const FILE_NAME_SIZE: usize = 255;

/// Returns true if the text is the key of a JSON value.
fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= KEY_SIZE
        && !text.contains(|c: char| c.is_control() || matches!(c, '"' | ';' | ','))
}

impl Dataset {
    /// Reads the value of `dataset`, or of `datarep`.
    pub(crate) fn parse(is_reputation: bool, value: Option<&str>) -> Result<Dataset, Reason> {
        const SET: &str = "set|unset|isset|isnotset,NAME and type, match, load, save, state, memcap, hashsize, format, value_key, array_key, context_key, enrichment_key, each with its value, and remove_key, with commas between them";
        const REPUTATION: &str = "NAME,>|<|=,NUMBER and type, load, memcap, hashsize, each with its value, with commas between them";
        let form = if is_reputation { REPUTATION } else { SET };
        let text = required(value, form)?;
        let wrong = |text: &str| Reason::invalid(format!("the value {}", quote(text)), form);
        let mut parts = list(text);
        let mut next = || parts.next().ok_or_else(|| wrong(text));
        let (name, test) = if is_reputation {
            let name = next()?;
            let (operator, number) = (next()?, next()?);
            let comparison = match operator {
                "=" | "<" | ">" => Comparison::parse(Syntax::Suricata, &format!("{operator}{number}"))?,
                _ => return Err(wrong(operator)),
            };
            (name, SetTest::Reputation(comparison))
        } else {
            let command = SetCommand::from_word(next()?)?;
            (next()?, SetTest::Member(command))
        };
        if !is_name(name) || name.len() > NAME_SIZE {
            return Err(wrong(name));
        }
        let mut set = Dataset {
            name: name.to_owned(),
            test,
            kind: None,
            load: None,
            state: None,
            save: None,
            has_subdomains: false,
            enrichment: None,
            others: Vec::new(),
        };
        let mut form_of_file = None;
        let mut json = Enrichment {
            form: JsonForm::Array,
            key: None,
            is_extra: true,
            value_key: String::new(),
            array_key: None,
            removes_key: false,
        };
        for part in parts.filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let value = value.trim();
            match key {
                "type" => set.kind = Some(SetType::from_word(value)?),
                "match" if value == "subdomain" && !is_reputation => set.has_subdomains = true,
                "load" if !value.is_empty() => set.load = Some(value.to_owned()),
                "state" if !value.is_empty() => set.state = Some(value.to_owned()),
                "save" if !value.is_empty() => set.save = Some(value.to_owned()),
                "memcap" | "hashsize" if !value.is_empty() => {
                    set.others.push((key.to_owned(), value.to_owned()));
                }
                "format" if value == "csv" => {}
                "format" => form_of_file = Some(JsonForm::from_word(value)?),
                "enrichment_key" | "context_key" if is_key(value) => {
                    (json.key, json.is_extra) = (Some(value.to_owned()), key == "enrichment_key");
                }
                "value_key" if is_key(value) => value.clone_into(&mut json.value_key),
                "array_key" if is_key(value) => json.array_key = Some(value.to_owned()),
                "remove_key" if value.is_empty() => json.removes_key = true,
                _ => return Err(wrong(part)),
            }
        }
        match form_of_file {
            Some(form) if json.value_key.is_empty() => {
                return Err(Reason::invalid(
                    format!("the format {form} without value_key"),
                    "value_key KEY",
                ));
            }
            Some(_) if set.is_changed() || is_reputation => {
                return Err(Reason::invalid(
                    "JSON values of a set that rules change",
                    "isset or isnotset with the formats json and ndjson",
                ));
            }
            Some(form) => set.enrichment = Some(Enrichment { form, ..json }),
            None if json.key.is_some()
                || !json.value_key.is_empty()
                || json.array_key.is_some()
                || json.removes_key =>
            {
                return Err(Reason::invalid(
                    "a key of JSON values without a format",
                    "format json or format ndjson",
                ));
            }
            None => {}
        }
        let is_string = set.kind.is_none_or(|kind| kind == SetType::String);
        if set.has_subdomains && (set.is_changed() || !is_string) {
            return Err(Reason::invalid(
                "match subdomain with a type or a command that has none",
                "isset or isnotset, and type string",
            ));
        }
        if set.state.is_some() && (set.load.is_some() || set.save.is_some()) {
            return Err(Reason::invalid("state with load or save", form));
        }
        if is_reputation && set.saved_file().is_some() {
            return Err(Reason::invalid(
                "state or save, and no rule changes a reputation",
                form,
            ));
        }
        if let Some(name) = set.saved_file().filter(|name| !is_beneath(name)) {
            return Err(Reason::invalid(
                format!("the file {} for the values", quote(name)),
                "a name beneath the directory for data, without .. and not absolute",
            ));
        }
        Ok(set)
    }

    /// Returns true if the rule adds or removes values.
    fn is_changed(&self) -> bool {
        matches!(self.test, SetTest::Member(SetCommand::Set | SetCommand::Unset))
    }

    /// Returns the file to which the values are written.
    pub fn saved_file(&self) -> Option<&str> {
        self.save.as_deref().or(self.state.as_deref())
    }

    /// Returns the file with the first values, and true if it must exist.
    pub fn file(&self) -> Option<(&str, bool)> {
        let load = self.load.as_deref().map(|name| (name, true));
        load.or_else(|| self.state.as_deref().map(|name| (name, false)))
    }
}

/// Returns true if the name of a file leads to no place outside of its directory.
fn is_beneath(name: &str) -> bool {
    use std::path::{Component, Path};
    let mut parts = Path::new(name).components();
    parts.all(|part| matches!(part, Component::Normal(_))) && name.len() <= FILE_NAME_SIZE
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.test {
            SetTest::Member(command) => write!(f, "dataset:{command},{}", self.name)?,
            SetTest::Reputation(comparison) => {
                let text = comparison.to_string();
                let (operator, number) = match text.split_at_checked(1) {
                    Some((operator @ ("<" | ">"), number)) => (operator, number),
                    _ => ("=", text.as_str()),
                };
                write!(f, "datarep:{},{operator},{number}", self.name)?;
            }
        }
        if let Some(kind) = self.kind {
            write!(f, ",type {kind}")?;
        }
        if self.has_subdomains {
            f.write_str(",match subdomain")?;
        }
        if let Some(load) = &self.load {
            write!(f, ",load {load}")?;
        }
        if let Some(state) = &self.state {
            write!(f, ",state {state}")?;
        }
        if let Some(save) = &self.save {
            write!(f, ",save {save}")?;
        }
        if let Some(json) = &self.enrichment {
            write!(f, ",format {},value_key {}", json.form, json.value_key)?;
            if let Some(key) = &json.key {
                let name = if json.is_extra {
                    "enrichment_key"
                } else {
                    "context_key"
                };
                write!(f, ",{name} {key}")?;
            }
            if let Some(key) = &json.array_key {
                write!(f, ",array_key {key}")?;
            }
            if json.removes_key {
                f.write_str(",remove_key")?;
            }
        }
        self.others
            .iter()
            .try_for_each(|(key, value)| write!(f, ",{key} {value}"))?;
        f.write_str(";")
    }
}
