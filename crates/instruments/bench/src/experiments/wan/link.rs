//! The emulated path between two sites, for experiments over a WAN (E3, E5 in docs/gates.md). Its settings are those of
//! `wan = { … }` in lab files.

use std::fmt;
use std::str::FromStr;

use millrace_wan_emulator::PathConfig;
use thiserror::Error;

/// The keys of a link that are not keys of a path. The emulator checks their values.
const OTHERS: [&str; 4] = ["preset", "netem", "memory", "seed"];

/// The settings of an emulated path: `delay=10ms rate=1Gbps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WanLink(Vec<(String, String)>);

/// The error of a text that does not consist of valid settings of a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0}; expected key=text with blanks or commas between, as in \"delay=10ms,jitter=1ms,normal,rate=1Gbps\""
)]
pub struct WanLinkError(String);

fn is_key(word: &str) -> bool {
    let key = word.replace('_', "-");
    OTHERS.contains(&key.as_str())
        || PathConfig::KEYS
            .iter()
            .any(|known| known.name == word || known.name == key)
}

impl FromStr for WanLink {
    type Err = WanLinkError;

    /// Parses `key=text` pairs. A text may contain commas: a new pair begins only where a comma or a blank is
    /// followed by a known key and `=`.
    fn from_str(text: &str) -> Result<WanLink, WanLinkError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            match (word.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) if is_key(key) => {
                    pairs.push((key.replace('-', "_"), value.to_owned()));
                }
                (_, Some((_, value))) => *value = format!("{value},{word}"),
                (_, None) => return Err(WanLinkError(format!("`{word}` is no setting of a path"))),
            }
        }
        let mut path = PathConfig::default();
        for (key, value) in pairs.iter().filter(|(key, _)| !OTHERS.contains(&key.as_str())) {
            path.set(&key.replace('_', "-"), value)
                .map_err(|error| WanLinkError(error.to_string()))?;
        }
        path.validate().map_err(|error| WanLinkError(error.to_string()))?;
        if pairs.is_empty() {
            return Err(WanLinkError("there is no setting".to_owned()));
        }
        Ok(WanLink(pairs))
    }
}

impl fmt::Display for WanLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(key, text)| format!("{key}={text}")).collect();
        f.write_str(&pairs.join(" "))
    }
}

impl WanLink {
    /// Returns the value of the key `wan` in a lab file.
    pub fn toml(&self) -> String {
        let pairs: Vec<String> = self
            .0
            .iter()
            .map(|(key, text)| format!("{key} = {text:?}"))
            .collect();
        format!("{{ {} }}", pairs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_settings_and_stay_within_their_texts() {
        let link: WanLink = "delay=10ms,jitter=1ms,normal,half-life=50ms,rate=1Gbps loss=ge:1%,burst=8"
            .parse()
            .unwrap();
        assert_eq!(
            link.to_string(),
            "delay=10ms jitter=1ms,normal,half-life=50ms rate=1Gbps loss=ge:1%,burst=8"
        );
        assert_eq!(
            link.toml(),
            r#"{ delay = "10ms", jitter = "1ms,normal,half-life=50ms", rate = "1Gbps", loss = "ge:1%,burst=8" }"#
        );
    }

    #[test]
    fn what_is_no_setting_is_refused_with_what_was_expected() {
        for text in ["", "10ms", "latency=10ms", "delay=-1ms", "rate=0bps"] {
            let error = text.parse::<WanLink>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
