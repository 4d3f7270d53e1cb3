//! Sets of values (`dataset`, `datarep`): the values of files, which all lanes share, and the changes by rules, which belong to
//! a lane.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashMap;
use std::sync::Arc;

use data_encoding::{BASE64, BASE64_NOPAD};
use millrace_ips_rules::Reason;
use millrace_ips_rules::options::dataset::{Enrichment, JsonForm, SetCommand, SetTest, SetType};

pub use super::program::{JsonSet, Values};
use super::program::{SetLookup, compare};

/// The JSON value of a set that a rule looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJson {
    /// True for an object in `extra` of the alert, false for one in `context`.
    pub is_extra: bool,
    /// The key of the object.
    pub key: Vec<u8>,
    /// The JSON text.
    pub json: Vec<u8>,
}

/// Largest size of the JSON text of a value in bytes.
const JSON_SIZE: usize = 1024;
/// Largest number of JSON values that an evaluation of a rule finds.
const FOUND_JSON: usize = 8;

/// A change of a set whose values are written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetChange {
    /// The name of the set.
    pub set: Arc<str>,
    /// The value in the form of its type.
    pub value: Vec<u8>,
    /// True for a value that was added, false for one that was removed.
    pub is_added: bool,
}

/// A set whose values are written to a file.
#[derive(Debug, Clone)]
pub struct SavedSet {
    pub name: Arc<str>,
    pub kind: SetType,
    /// The name of the file, beneath the directory for data.
    pub file: String,
    /// The values with which the set begins.
    pub values: Arc<Values>,
}

/// Largest size of a name with a dot before it in bytes (RFC 1035, section 2.3.4): the bound of the work for a value.
const NAME_SIZE: usize = 256;

/// Largest number of values that rules add to or remove from one set in a lane.
const CHANGES: usize = 1 << 16;

/// The changes of sets by rules in a lane, by the name of the set: true for a value that was added, false for one that was
/// removed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    sets: HashMap<Arc<str>, HashMap<Vec<u8>, bool>>,
    /// Changes of sets that are written to files, until the detector reports them.
    pub(super) reported: Vec<SetChange>,
    /// The JSON values that the rule in evaluation has found.
    pub(super) found: Vec<FoundJson>,
    /// Number of changes that were not made because a set had too many.
    pub(super) lost: u64,
}

impl Changes {
    /// Removes all changes.
    pub(super) fn clear(&mut self) {
        self.sets.clear();
    }

    /// Returns true if the bytes satisfy a look-up, and makes its change.
    pub(super) fn look_up(&mut self, set: &SetLookup, bytes: &[u8]) -> bool {
        let Some(key) = key(set.kind, bytes) else {
            return false;
        };
        let command = match set.test {
            SetTest::Member(command) => command,
            SetTest::Reputation(comparison) => {
                return set
                    .values
                    .get(&key)
                    .is_some_and(|reputation| compare(comparison, u64::from(*reputation)));
            }
        };
        let changes = self.sets.get(&set.name);
        let is_in = |key: &[u8]| {
            let changed = changes.and_then(|changes| changes.get(key).copied());
            changed.unwrap_or_else(|| set.values.contains_key(key))
        };
        let found = match is_in(&key) {
            true => Some(&key[..]),
            false if set.has_subdomains => parents(&key).find(|parent| is_in(parent)),
            false => None,
        };
        let has = found.is_some();
        if let Some(json) = &set.json
            && let Some(text) = found.and_then(|found| json.values.get(found))
            && self.found.len() < FOUND_JSON
        {
            self.found.push(FoundJson {
                is_extra: json.is_extra,
                key: json.key.as_bytes().to_vec(),
                json: text.as_bytes().to_vec(),
            });
        }
        match command {
            SetCommand::IsSet => has,
            SetCommand::IsNotSet => !has,
            SetCommand::Set => !has && self.change(set, key, true),
            SetCommand::Unset => has && self.change(set, key, false),
        }
    }

    fn change(&mut self, set: &SetLookup, key: Vec<u8>, value: bool) -> bool {
        let changes = self.sets.entry(Arc::clone(&set.name)).or_default();
        if changes.len() >= CHANGES && !changes.contains_key(&key) {
            self.lost += 1;
            return false;
        }
        if set.is_saved {
            self.reported.push(SetChange {
                set: Arc::clone(&set.name),
                value: key.clone(),
                is_added: value,
            });
        }
        changes.insert(key, value);
        true
    }
}

/// Returns the ends of a name, each from a dot on, the longest first.
fn parents(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = &name[name.len().saturating_sub(NAME_SIZE)..];
    memchr::memchr_iter(b'.', last).map(move |at| &last[at..])
}

/// Returns the key of a value; `None` if the bytes are no value of the type.
fn key(kind: SetType, bytes: &[u8]) -> Option<Vec<u8>> {
    match kind {
        SetType::String => Some(bytes.to_vec()),
        SetType::Md5 => (bytes.len() == 16).then(|| bytes.to_vec()),
        SetType::Sha256 => (bytes.len() == 32).then(|| bytes.to_vec()),
        SetType::Ipv4 | SetType::Ip => address_of(bytes)
            .filter(|address| kind == SetType::Ip || address.is_ipv4())
            .map(octets),
    }
}

/// Returns the address of four or sixteen bytes, or of a text.
fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    if let Ok(octets) = <[u8; 16]>::try_from(bytes) {
        return Some(IpAddr::from(Ipv6Addr::from(octets)).to_canonical());
    }
    let text = core::str::from_utf8(bytes).ok()?;
    text.trim()
        .parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the bytes of hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .bytes()
        .map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Reads the file of a set: a value on each line, in reputation lists with a comma and the reputation.
///
/// # Errors
/// The reason with the number of the first wrong line.
pub(super) fn read(kind: SetType, has_reputation: bool, text: &[u8]) -> Result<Values, Reason> {
    let mut values = Values::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let wrong = || Reason::Invalid {
            problem: format!("line {} of the file", number + 1),
            expected: "a value on each line: Base64 for string, hexadecimal digits for md5 and sha256, an address for ipv4 and ip; \
                and for datarep a comma and a number to 65535",
        };
        let text = core::str::from_utf8(line).map_err(|_| wrong())?;
        let (value, reputation) = match text.split_once(',') {
            Some((value, reputation)) => (value.trim(), Some(reputation.trim())),
            None => (text, None),
        };
        let reputation = match (has_reputation, reputation) {
            (true, Some(reputation)) => reputation.parse().map_err(|_| wrong())?,
            (true, None) | (false, Some(_)) => return Err(wrong()),
            (false, None) => 0,
        };
        let value = match kind {
            SetType::String => strict_base64(value).filter(|decoded| !decoded.is_empty()),
            SetType::Md5 | SetType::Sha256 => unhex(value).and_then(|value| key(kind, &value)),
            SetType::Ipv4 | SetType::Ip => key(kind, value.as_bytes()),
        };
        values.insert(value.ok_or_else(wrong)?, reputation);
    }
    Ok(values)
}

/// Returns what a text in Base64 stands for (RFC 4648, section 4); `None` if a character, the length or the padding is wrong.
fn strict_base64(text: &str) -> Option<Vec<u8>> {
    if text.trim_end_matches('=').contains('=') {
        return None;
    }
    let encoding = if text.len().is_multiple_of(4) {
        &BASE64
    } else {
        &BASE64_NOPAD
    };
    encoding.decode(text.as_bytes()).ok()
}

/// Returns the value of a key with dots between nested keys.
fn nested<'a>(value: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    key.split('.').try_fold(value, |value, key| value.get(key))
}

/// Removes the value of a key with dots between nested keys.
fn remove(value: &mut serde_json::Value, key: &str) {
    let (object, last) = match key.rsplit_once('.') {
        Some((parents, last)) => (
            parents
                .split('.')
                .try_fold(value, |value, key| value.get_mut(key)),
            last,
        ),
        None => (Some(value), key),
    };
    if let Some(serde_json::Value::Object(members)) = object {
        members.remove(last);
    }
}

/// Reads the file of a set with JSON values.
///
/// # Errors
/// The reason, with the number of the first wrong line or object.
pub(super) fn read_json(
    kind: SetType,
    name: &str,
    form: &Enrichment,
    text: &[u8],
) -> Result<(Values, JsonSet), Reason> {
    use serde_json::Value;
    let wrong = |problem: String| Reason::Invalid {
        problem,
        expected: "objects of JSON of at most 1,024 bytes with the value at value_key: one on each line (ndjson), or in an array, which \
            is the file or at array_key (json)",
    };
    let objects: Vec<Value> = match form.form {
        JsonForm::Lines => {
            let lines = text.split(|byte| *byte == b'\n').enumerate();
            let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
            let read = |(at, line): (usize, &[u8])| {
                serde_json::from_slice(line)
                    .map_err(|error| wrong(format!("line {} of the file: {error}", at + 1)))
            };
            lines.map(read).collect::<Result<_, _>>()?
        }
        JsonForm::Array => {
            let whole: Value = serde_json::from_slice(text)
                .map_err(|error| wrong(format!("the file is no JSON: {error}")))?;
            let array = match &form.array_key {
                Some(key) => nested(&whole, key),
                None => Some(&whole),
            };
            match array {
                Some(Value::Array(objects)) => objects.clone(),
                _ => return Err(wrong("the file has no array there".to_owned())),
            }
        }
    };
    let mut values = Values::new();
    let mut json = JsonSet {
        key: form.key.clone().unwrap_or_else(|| name.to_owned()),
        is_extra: form.is_extra,
        values: HashMap::new(),
    };
    for (at, mut object) in objects.into_iter().enumerate() {
        // Objects without the value are left out, as Suricata documents.
        let Some(value) = nested(&object, &form.value_key) else {
            continue;
        };
        let value = value
            .as_str()
            .ok_or_else(|| wrong(format!("the value of object {} is no text", at + 1)))?;
        let value = match kind {
            SetType::String => Some(value.as_bytes().to_vec()),
            SetType::Md5 | SetType::Sha256 => unhex(value).and_then(|value| key(kind, &value)),
            SetType::Ipv4 | SetType::Ip => key(kind, value.as_bytes()),
        };
        let value = value.ok_or_else(|| wrong(format!("the value of object {}", at + 1)))?;
        if form.removes_key {
            remove(&mut object, &form.value_key);
        }
        let text = object.to_string();
        if text.len() > JSON_SIZE {
            return Err(wrong(format!("object {} has {} bytes", at + 1, text.len())));
        }
        values.insert(value.clone(), 0);
        // Of equal values, the first object counts.
        json.values.entry(value).or_insert(text);
    }
    match values.is_empty() {
        true => Err(wrong(format!("no object has the key {}", form.value_key))),
        false => Ok((values, json)),
    }
}

/// Reads a list of digests (`filemd5`): hexadecimal digits at the beginning of each line.
///
/// # Errors
/// The reason with the number of the first wrong line.
pub(super) fn digests(size: usize, text: &[u8]) -> Result<std::collections::HashSet<Vec<u8>>, Reason> {
    let mut list = std::collections::HashSet::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let digits = line
            .get(..2 * size)
            .and_then(|digits| core::str::from_utf8(digits).ok());
        let digest = digits.and_then(unhex).ok_or_else(|| Reason::Invalid {
            problem: format!("line {} of the file", number + 1),
            expected: "a digest in hexadecimal digits at the beginning of each line, as md5sum writes it",
        })?;
        list.insert(digest);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(kind: SetType, command: SetCommand, values: Values) -> SetLookup {
        SetLookup {
            name: "a".into(),
            kind,
            test: SetTest::Member(command),
            values: Arc::new(values),
            has_subdomains: false,
            json: None,
            is_saved: true,
        }
    }

    #[test]
    fn a_value_is_set_once_and_can_be_removed() {
        let mut changes = Changes::default();
        let set = lookup(SetType::String, SetCommand::Set, Values::new());
        let of = |command| SetLookup {
            test: SetTest::Member(command),
            ..set.clone()
        };
        assert!(changes.look_up(&set, b"x"));
        assert!(!changes.look_up(&set, b"x"));
        assert!(changes.look_up(&of(SetCommand::IsSet), b"x"));
        assert!(changes.look_up(&of(SetCommand::Unset), b"x"));
        assert!(changes.look_up(&of(SetCommand::IsNotSet), b"x"));
        let reported: Vec<bool> = changes.reported.iter().map(|change| change.is_added).collect();
        assert_eq!(reported, [true, false]);
    }

    #[test]
    fn a_name_beneath_one_of_the_set_is_found() {
        let values = read(SetType::String, false, b"LmV2aWwuZXhhbXBsZQ==\n").unwrap();
        let exact = lookup(SetType::String, SetCommand::IsSet, values);
        let beneath = SetLookup {
            has_subdomains: true,
            ..exact.clone()
        };
        let is_in = |set: &SetLookup, name: &str| Changes::default().look_up(set, name.as_bytes());
        for (name, is_exact, is_beneath) in [
            (".evil.example", true, true),
            (".mail.evil.example", false, true),
            ("sub.mail.evil.example", false, true),
            (&format!("{}.evil.example", "a.".repeat(40_000)), false, true),
            (".notevil.example", false, false),
            (".evil.example.net", false, false),
            ("evil.example", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_in(&exact, name), is_exact, "{name}");
            assert_eq!(is_in(&beneath, name), is_beneath, "{name}");
        }
    }

    #[test]
    fn a_full_set_takes_no_more_values_and_counts_them() {
        let mut changes = Changes::default();
        let set = lookup(SetType::String, SetCommand::Set, Values::new());
        for number in 0..CHANGES as u32 {
            assert!(changes.look_up(&set, &number.to_be_bytes()));
        }
        assert!(!changes.look_up(&set, b"more"));
        assert_eq!(changes.lost, 1);
    }

    #[test]
    fn a_line_that_is_no_value_of_the_set_is_refused() {
        let strings = |text: &str| read(SetType::String, false, text.as_bytes());
        for right in ["Y3VybC83", "YWJj\n# comment\n", "YQ==", "YQ"] {
            assert!(strings(right).is_ok(), "{right}");
        }
        // A character that is none of Base64, a wrong length, a padding inside, and a list of a set with numbers.
        for wrong in [
            "Y3VybC83Lj!QzLjA=",
            "Z29vZ2xlLm;NvbQ==",
            "Y",
            "YQ==YQ==",
            "YQ==,1",
            "YR==",
        ] {
            assert!(strings(wrong).is_err(), "{wrong}");
        }
        let scored = |text: &str| read(SetType::String, true, text.as_bytes());
        assert!(scored("YQ==,1").is_ok() && scored("YQ==").is_err());
        let twice = b"{\"host\":{\"name\":\"a\"},\"year\":2005}\n{\"host\":{\"name\":\"a\"},\"year\":2010}\n";
        let form = Enrichment {
            form: JsonForm::Lines,
            key: None,
            is_extra: false,
            value_key: "host.name".to_owned(),
            array_key: None,
            removes_key: true,
        };
        let (_, json) = read_json(SetType::String, "set", &form, twice).unwrap();
        assert!(
            json.values[&b"a"[..]].contains("2005"),
            "of two, the first counts"
        );
    }

    #[test]
    fn json_values_are_read_by_their_keys_and_found_with_the_value() {
        let form = |form, array_key: Option<&str>, removes_key| Enrichment {
            form,
            key: None,
            is_extra: false,
            value_key: "host.name".to_owned(),
            array_key: array_key.map(str::to_owned),
            removes_key,
        };
        let lines = b"{\"host\":{\"name\":\"a\"},\"n\":1}\n\n{\"other\":2}\n";
        let array = b"{\"r\":{\"list\":[{\"host\":{\"name\":\"a\"},\"n\":1}]}}";
        for (text, form) in [
            (&lines[..], form(JsonForm::Lines, None, true)),
            (&array[..], form(JsonForm::Array, Some("r.list"), true)),
        ] {
            let (values, json) = read_json(SetType::String, "set", &form, text).unwrap();
            let set = SetLookup {
                json: Some(Arc::new(json)),
                ..lookup(SetType::String, SetCommand::IsSet, values)
            };
            let mut changes = Changes::default();
            assert!(changes.look_up(&set, b"a") && !changes.look_up(&set, b"b"));
            let found = FoundJson {
                is_extra: false,
                key: b"set".to_vec(),
                json: b"{\"host\":{},\"n\":1}".to_vec(),
            };
            assert_eq!(changes.found, [found]);
        }
        for (text, wrong) in [
            (&b"{}\n"[..], form(JsonForm::Lines, None, false)),
            (b"[1", form(JsonForm::Array, None, false)),
            (b"{}", form(JsonForm::Array, None, false)),
            (
                b"{\"host\":{\"name\":\"a\"}}\n{\"host\":{\"name\":5}}\n",
                form(JsonForm::Lines, None, false),
            ),
        ] {
            assert!(read_json(SetType::String, "set", &wrong, text).is_err());
        }
        let address = form(JsonForm::Lines, None, false);
        assert!(read_json(SetType::Ip, "set", &address, b"{\"host\":{\"name\":\"x\"}}\n").is_err());
    }

    #[test]
    fn files_have_the_forms_of_their_types() {
        let found = |kind, text: &[u8], value: &[u8]| {
            let values = read(kind, false, text).unwrap();
            Changes::default().look_up(&lookup(kind, SetCommand::IsSet, values), value)
        };
        assert!(found(
            SetType::String,
            b"TW96aWxsYS80LjAgKGNvbXBhdGlibGU7ICk=\n",
            b"Mozilla/4.0 (compatible; )"
        ));
        assert!(found(
            SetType::Md5,
            b"00112233445566778899aabbccddeeff\n",
            b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"
        ));
        assert!(found(SetType::Ipv4, b"10.0.0.1\n", &[10, 0, 0, 1]));
        assert!(found(SetType::Ip, b"::ffff:10.0.0.1\n", &[10, 0, 0, 1]));
        assert!(found(SetType::Ip, b"2001:db8::1\n", b"2001:db8::1"));
        assert!(!found(SetType::Ip, b"2001:db8::1\n", &[10, 0, 0, 1]));
        assert!(read(SetType::Md5, false, b"0011\n").is_err());
        assert!(read(SetType::String, true, b"YQ==\n").is_err());
        assert_eq!(read(SetType::String, true, b"YQ==,7\n").unwrap()[&b"a"[..]], 7);
        assert_eq!(digests(2, b"00ff  name\n").unwrap().len(), 1);
        assert!(digests(2, b"00f\n").is_err());
    }
}
