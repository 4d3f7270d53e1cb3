//! Settings of a path by key and direction.
//!
//! A setting is a key and a text, the same in TOML, in JSON and on the command line: `delay` and `100ms`.
//! Settings of both directions apply first, then those of one direction. `preset` and `netem` set several
//! keys and apply before the others.

use millrace_wan_emulator::{DirectionConfig, PathConfig, netem, preset};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A key and its text.
pub type Setting = (String, String);

/// Keys that set several other keys.
const BASES: [&str; 2] = ["preset", "netem"];

/// Returns all keys of settings.
pub fn keys() -> impl Iterator<Item = &'static str> {
    BASES
        .into_iter()
        .chain(PathConfig::KEYS.iter().map(|key| key.name))
}

/// The settings of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The seed of all random draws.
    pub seed: u64,
    /// The memory of each direction, `1GiB`. If unset, it is computed from rate, delay and queue.
    pub memory: Option<String>,
    /// The settings of both directions.
    pub both: Vec<Setting>,
    /// The settings of frames that enter at end a.
    pub a_to_b: Vec<Setting>,
    /// The settings of frames that enter at end b.
    pub b_to_a: Vec<Setting>,
}

/// Settings that replace others of the same key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// The settings of both directions.
    pub both: Vec<Setting>,
    /// The settings of frames that enter at end a.
    pub a_to_b: Vec<Setting>,
    /// The settings of frames that enter at end b.
    pub b_to_a: Vec<Setting>,
}

/// The error for a refused setting: its key and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{reason}", direction.map(|direction| format!("{direction}: ")).unwrap_or_default())]
pub struct SettingsError {
    /// `a_to_b` or `b_to_a`, if the setting applies to one direction.
    pub direction: Option<&'static str>,
    pub key: String,
    /// The key, the problem, and the expected form.
    pub reason: String,
}

impl Settings {
    /// Returns the configuration of both directions, a to b first.
    ///
    /// # Errors
    /// [`SettingsError`] for the first setting that is invalid.
    pub fn directions(&self) -> Result<[DirectionConfig; 2], SettingsError> {
        let direction = |own: &[Setting], name| {
            let path = path(&self.both, None)
                .and_then(|both| with(both, own, Some(name)))
                .and_then(|path| valid(path, name))?;
            let mut config = DirectionConfig {
                path,
                ..DirectionConfig::default()
            };
            if let Some(memory) = &self.memory {
                config.memory = Some(memory.parse().map_err(|error| SettingsError {
                    direction: None,
                    key: "memory".to_owned(),
                    reason: format!("memory: {error}"),
                })?);
            }
            Ok(config)
        };
        Ok([
            direction(&self.a_to_b, "a_to_b")?,
            direction(&self.b_to_a, "b_to_a")?,
        ])
    }

    /// Replaces settings. A setting of both directions also replaces that of each direction. A preset or a
    /// text of netem sets all keys. So it replaces all earlier settings, whatever its position in the change.
    pub fn change(&mut self, change: &Change) {
        for setting in bases_first(&change.both) {
            for list in [&mut self.a_to_b, &mut self.b_to_a] {
                let is_base = is_base(&setting.0);
                list.retain(|(key, _)| !is_base && *key != setting.0);
            }
            replace(&mut self.both, setting);
        }
        for (own, changed) in [
            (&mut self.a_to_b, &change.a_to_b),
            (&mut self.b_to_a, &change.b_to_a),
        ] {
            bases_first(changed).for_each(|setting| replace(own, setting));
        }
    }

    /// Returns notes on the text of `netem` that applies to each direction, a to b first. A note names an option that
    /// has another meaning here. A later preset or text of netem replaces an earlier one.
    pub fn notes(&self) -> [Vec<String>; 2] {
        [&self.a_to_b, &self.b_to_a].map(|own| {
            let mut bases = self.both.iter().chain(own).filter(|(key, _)| is_base(key));
            let netem = bases.next_back().filter(|(key, _)| key == "netem");
            let parsed = netem.and_then(|(_, text)| netem::parse(text).ok());
            parsed.map(|parsed| parsed.notes).unwrap_or_default()
        })
    }
}

/// Returns true for a key that sets all other keys.
pub fn is_base(key: &str) -> bool {
    BASES.contains(&key)
}

/// Returns the settings, with the keys that set all others first.
pub fn bases_first(settings: &[Setting]) -> impl Iterator<Item = &Setting> {
    let (bases, others): (Vec<&Setting>, Vec<&Setting>) = settings.iter().partition(|(key, _)| is_base(key));
    bases.into_iter().chain(others)
}

fn replace(list: &mut Vec<Setting>, setting: &Setting) {
    if is_base(&setting.0) {
        list.clear();
    }
    list.retain(|(key, _)| *key != setting.0);
    list.push(setting.clone());
}

/// Returns the path of these settings.
fn path(settings: &[Setting], direction: Option<&'static str>) -> Result<PathConfig, SettingsError> {
    with(PathConfig::default(), settings, direction)
}

/// Returns a path with changed settings.
fn with(
    mut path: PathConfig,
    settings: &[Setting],
    direction: Option<&'static str>,
) -> Result<PathConfig, SettingsError> {
    let refuse = |key: &str, reason: String| SettingsError {
        direction,
        key: key.to_owned(),
        reason,
    };
    for (key, text) in bases_first(settings) {
        match key.as_str() {
            "preset" => {
                let known = || {
                    let names: Vec<_> = millrace_wan_emulator::PRESETS
                        .iter()
                        .map(|preset| preset.name)
                        .collect();
                    refuse(
                        key,
                        format!(
                            "preset: `{text}` is not known: expected one of {}",
                            names.join(", ")
                        ),
                    )
                };
                path = preset(text).ok_or_else(known)?.path();
            }
            "netem" => {
                let parsed = netem::parse(text).map_err(|error| refuse(key, format!("netem: {error}")))?;
                path = parsed.path;
            }
            other => {
                let key = other.replace('_', "-");
                path.set(&key, text)
                    .map_err(|error| refuse(other, error.to_string()))?;
            }
        }
    }
    Ok(path)
}

fn valid(path: PathConfig, direction: &'static str) -> Result<PathConfig, SettingsError> {
    path.validate().map_err(|error| SettingsError {
        direction: Some(direction),
        key: error.key.to_string(),
        reason: error.to_string(),
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[(&str, &str)]) -> Vec<Setting> {
        list.iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn a_direction_has_the_settings_of_both_and_its_own_in_their_place() {
        let settings = Settings {
            both: settings(&[("delay", "50ms"), ("loss", "1%")]),
            b_to_a: settings(&[("loss", "none"), ("over_mtu", "too-big")]),
            ..Settings::default()
        };
        let [forward, backward] = settings.directions().unwrap();
        let mut expected = PathConfig::default();
        expected.set("delay", "50ms").unwrap();
        expected.set("over-mtu", "too-big").unwrap();
        assert_eq!(backward.path, expected);
        expected.set("over-mtu", "none").unwrap();
        expected.set("loss", "1%").unwrap();
        assert_eq!(forward.path, expected);
    }

    #[test]
    fn a_change_of_both_directions_replaces_what_one_of_them_had() {
        let mut held = Settings {
            both: settings(&[("delay", "50ms")]),
            a_to_b: settings(&[("delay", "70ms"), ("loss", "1%")]),
            ..Settings::default()
        };
        held.change(&Change {
            both: settings(&[("delay", "10ms")]),
            ..Change::default()
        });
        assert_eq!(held.both, settings(&[("delay", "10ms")]));
        assert_eq!(held.a_to_b, settings(&[("loss", "1%")]));
        held.change(&Change {
            a_to_b: settings(&[("loss", "2%")]),
            ..Change::default()
        });
        assert_eq!(held.a_to_b, settings(&[("loss", "2%")]));
    }

    #[test]
    fn a_preset_of_both_directions_replaces_all_that_was_set_before() {
        let mut held = Settings {
            both: settings(&[("delay", "50ms")]),
            a_to_b: settings(&[("delay", "70ms")]),
            b_to_a: settings(&[("preset", "leo"), ("loss", "1%")]),
            ..Settings::default()
        };
        // The preset applies first, whatever its position in the change.
        held.change(&Change {
            both: settings(&[("loss", "3%"), ("preset", "geo")]),
            a_to_b: settings(&[("rate", "1Mbps")]),
            ..Change::default()
        });
        assert_eq!(held.both, settings(&[("preset", "geo"), ("loss", "3%")]));
        assert_eq!(held.a_to_b, settings(&[("rate", "1Mbps")]));
        assert!(held.b_to_a.is_empty());
    }

    #[test]
    fn a_preset_comes_before_the_keys_that_change_it() {
        let list = Settings {
            both: settings(&[("loss", "3%"), ("preset", "geo")]),
            ..Settings::default()
        };
        let mut expected = preset("geo").unwrap().path();
        expected.set("loss", "3%").unwrap();
        assert_eq!(list.directions().unwrap()[0].path, expected);
    }

    #[test]
    fn notes_are_those_of_the_netem_text_that_a_direction_has() {
        let netem = ("netem", "rate 1mbit limit 5");
        let counts = |list: &Settings| list.notes().map(|notes| notes.len());
        let mut list = Settings {
            a_to_b: settings(&[netem]),
            ..Settings::default()
        };
        assert_eq!(counts(&list), [1, 0]);
        list.both = settings(&[("netem", "limit 5"), ("loss", "1%")]);
        list.b_to_a = settings(&[("preset", "geo")]);
        assert_eq!(counts(&list), [1, 0]);
        assert!(list.notes()[0][0].contains("5 packets"));
        list.a_to_b.clear();
        assert!(list.notes()[0][0].contains("without a rate"));
    }

    #[test]
    fn a_wrong_setting_is_refused_with_direction_key_and_what_was_expected() {
        let wrong = |key: &str, text: &str| {
            let list = Settings {
                a_to_b: settings(&[(key, text)]),
                ..Settings::default()
            };
            list.directions().unwrap_err().to_string()
        };
        for (key, text) in [
            ("delay", "-1ms"),
            ("rate", "0bps"),
            ("jitter", "5ms,cauchy"),
            ("preset", "moon"),
            ("netem", "delay"),
            ("color", "red"),
        ] {
            let message = wrong(key, text);
            assert!(
                message.starts_with("a_to_b: ") && message.contains(key) && message.contains("expected"),
                "{message}"
            );
        }
        let list = Settings {
            memory: Some("much".to_owned()),
            ..Settings::default()
        };
        assert!(list.directions().unwrap_err().to_string().starts_with("memory: "));
    }
}
