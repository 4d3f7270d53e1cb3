//! A setting of a network function: `key=value`. Each function defines its keys.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::decode::text_field;
use crate::node::shorten;

/// The length limit of a setting, in bytes.
const SIZE_MAX: usize = 512;

/// The error for a text that is not a setting.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a setting: {reason}", shorten(.text))]
pub struct SettingError {
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: &'static str,
}

/// A key and a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Setting {
    text: String,
    key_size: usize,
}

impl Setting {
    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.text[..self.key_size]
    }

    /// Returns the value.
    pub fn value(&self) -> &str {
        &self.text[self.key_size + 1..]
    }
}

impl AsRef<str> for Setting {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Setting, SettingError> {
        let refuse = |reason| {
            Err(SettingError {
                text: text.to_owned(),
                reason,
            })
        };
        if text.len() > SIZE_MAX || text.chars().any(char::is_control) {
            return refuse("expected at most 512 bytes, and no control characters");
        }
        match text.split_once('=') {
            Some((key, _)) if is_key(key) => Ok(Setting {
                text: text.to_owned(),
                key_size: key.len(),
            }),
            _ => refuse("expected key=value, the key of small letters, digits and `_`"),
        }
    }
}

fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

text_field!(Setting, "key=value", "default=allow");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_key_and_a_value() {
        let setting: Setting = "rule=allow tcp port 80".parse().unwrap();
        assert_eq!((setting.key(), setting.value()), ("rule", "allow tcp port 80"));
        assert_eq!(setting.to_string(), "rule=allow tcp port 80");
        for wrong in ["", "rule", "=x", "Rule=x", "a b=c", "a=b\n"] {
            assert!(wrong.parse::<Setting>().is_err(), "{wrong}");
        }
    }
}
