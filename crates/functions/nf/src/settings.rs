//! The settings of a function: `key=value` texts of the configuration, in order. A key may occur several times.

use core::str::FromStr;

use thiserror::Error;

/// The reason why a setting is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingError {
    /// The text is not `key=value`.
    #[error("`{text}` is not a setting: expected key=value")]
    NoValue { text: String },
    /// The function has no setting with this key.
    #[error("`{key}` is not known: expected {expected}")]
    UnknownKey {
        key: String,
        /// The keys of the function.
        expected: String,
    },
    /// A key that takes one value occurs several times.
    #[error("`{key}` is given more than once")]
    Repeated { key: String },
    /// A required key is missing.
    #[error("`{key}` is missing: expected {expected}")]
    Missing {
        key: &'static str,
        /// The values that the key takes.
        expected: String,
    },
    /// A function from a file rejects its settings.
    #[error("{reason}")]
    Refused {
        /// The reason that the function gives.
        reason: String,
    },
    /// The key does not take the value.
    #[error("`{key}={value}`: {reason}")]
    Value {
        key: String,
        value: String,
        /// The reason, and the expected values.
        reason: String,
    },
}

/// The settings of one function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Parses `key=value` texts.
    ///
    /// # Errors
    /// [`SettingError::NoValue`].
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Settings, SettingError> {
        let pair = |text: T| match text.as_ref().split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => Err(SettingError::NoValue {
                text: text.as_ref().to_owned(),
            }),
        };
        texts
            .into_iter()
            .map(pair)
            .collect::<Result<_, _>>()
            .map(Settings)
    }

    /// Rejects keys that are not in `keys`.
    ///
    /// # Errors
    /// [`SettingError::UnknownKey`].
    pub fn only(&self, keys: &[&str]) -> Result<(), SettingError> {
        match self.0.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => Err(SettingError::UnknownKey {
                key: key.clone(),
                expected: match keys {
                    [] => "no setting at all".to_owned(),
                    keys => keys.join(", "),
                },
            }),
        }
    }

    /// Returns the settings whose keys satisfy a condition, in order.
    pub fn filtered(&self, mut is_wanted: impl FnMut(&str) -> bool) -> Settings {
        let pairs = self.0.iter().filter(|(key, _)| is_wanted(key));
        Settings(pairs.cloned().collect())
    }

    /// Returns the values of a key, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(held, _)| held == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the value of a key that takes one value.
    ///
    /// # Errors
    /// [`SettingError::Repeated`].
    pub fn one<'a>(&'a self, key: &'a str) -> Result<Option<&'a str>, SettingError> {
        let mut values = self.all(key);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(SettingError::Repeated { key: key.to_owned() }),
            (value, None) => Ok(value),
        }
    }

    /// Returns the parsed value of a key, or `default`.
    ///
    /// # Errors
    /// [`SettingError::Repeated`], and [`SettingError::Value`] with the reason that the type gives.
    pub fn value<T: FromStr<Err: core::fmt::Display>>(
        &self,
        key: &str,
        default: T,
    ) -> Result<T, SettingError> {
        match self.one(key)? {
            None => Ok(default),
            Some(value) => value.parse().map_err(|error: T::Err| wrong(key, value, error)),
        }
    }

    /// Returns the number of a key, or `default`, if it is within a range.
    ///
    /// # Errors
    /// As [`Settings::value`], and for a number out of range.
    pub fn within<T>(
        &self,
        key: &str,
        default: T,
        range: core::ops::RangeInclusive<T>,
    ) -> Result<T, SettingError>
    where
        T: FromStr<Err: core::fmt::Display> + PartialOrd + core::fmt::Display,
    {
        let value = self.value(key, default)?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(wrong(
            key,
            &value.to_string(),
            format!("expected {} to {}", range.start(), range.end()),
        ))
    }

    /// Returns the settings as `key=value` texts.
    pub fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(key, value)| format!("{key}={value}"))
    }
}

/// Returns the error for a value that its key does not take.
pub(crate) fn wrong(key: &str, value: &str, reason: impl core::fmt::Display) -> SettingError {
    SettingError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
        reason: reason.to_string(),
    }
}

impl SettingError {
    /// Returns the error for a value that its key does not take.
    pub fn value(key: &str, value: &str, reason: impl core::fmt::Display) -> SettingError {
        wrong(key, value, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_pairs_in_order() {
        let settings = Settings::parse(["rule=a=b", "limit=5", "rule= c"]).unwrap();
        assert_eq!(settings.all("rule").collect::<Vec<_>>(), ["a=b", "c"]);
        assert_eq!(settings.within("limit", 1_u32, 1..=10), Ok(5));
        assert_eq!(settings.value("other", 3_u8), Ok(3));
        assert_eq!(
            settings.texts().collect::<Vec<_>>(),
            ["rule=a=b", "limit=5", "rule=c"]
        );
    }

    #[test]
    fn errors_name_the_key_and_the_expected_values() {
        assert!(matches!(
            Settings::parse(["x"]),
            Err(SettingError::NoValue { .. })
        ));
        let settings = Settings::parse(["a=1", "a=2", "b=x", "c=11"]).unwrap();
        let text = |error: SettingError| error.to_string();
        assert_eq!(
            text(settings.one("a").unwrap_err()),
            "`a` is given more than once"
        );
        assert!(text(settings.value("b", 0_u8).unwrap_err()).starts_with("`b=x`: "));
        assert_eq!(
            text(settings.within("c", 0_u8, 1..=10).unwrap_err()),
            "`c=11`: expected 1 to 10"
        );
        assert_eq!(
            text(settings.only(&["a", "b"]).unwrap_err()),
            "`c` is not known: expected a, b"
        );
    }
}
