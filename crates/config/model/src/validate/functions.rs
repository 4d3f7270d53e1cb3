//! Check of hops against the catalogue of built-in functions: the function exists and accepts the settings. Functions
//! in files check their settings when they are loaded.

use millrace_builtin::CATALOGUE;
use millrace_nf::{SettingError, Settings};

use super::checks::with_dropped;
use super::walk::bridges;
use crate::chain::Hop;
use crate::config::Config;
use crate::decode::{UnlocatedError, nearest};
use crate::error::{Path, Problem};

/// Returns the errors of hops, except for hops with settings that could not be decoded.
pub(crate) fn check(config: &Config, decoded: &[UnlocatedError], dropped: &[Path]) -> Vec<UnlocatedError> {
    let mut issues = Vec::new();
    for (bridge, path) in bridges(config) {
        for (index, chain) in bridge.chains.iter().enumerate() {
            let path = path.key("chain").index(index);
            for (index, hop) in chain.hops.iter().enumerate() {
                let path = with_dropped(&path.key("hop").index(index), dropped);
                let settings = path.key("settings");
                if !decoded.iter().any(|error| error.path.is_within(&settings)) {
                    issues.extend(check_hop(hop, &path));
                }
            }
        }
    }
    issues
}

fn check_hop(hop: &Hop, path: &Path) -> Vec<UnlocatedError> {
    let issue = |path: Path, message: String, suggestion: Option<&str>| UnlocatedError {
        path,
        problem: Problem::Malformed {
            message,
            suggestion: suggestion.map(str::to_owned),
        },
    };
    let list = path.key("settings");
    let mut issues = Vec::new();
    let Some(name) = hop.function.name() else {
        return issues;
    };
    let names = CATALOGUE.kinds().iter().map(|kind| kind.name);
    let Ok(kind) = CATALOGUE.find(name) else {
        let known: Vec<&str> = names.clone().collect();
        let message = format!(
            "there is no function `{name}`: expected {}, wasm:PATH, library:PATH or attached:PATH",
            known.join(", ")
        );
        issues.push(issue(path.key("function"), message, nearest(name, names)));
        return issues;
    };
    let keys = || kind.settings.iter().map(|(key, _)| *key);
    let is_unknown = |key: &str| !keys().any(|known| known == key);
    let unknown = hop
        .settings
        .iter()
        .enumerate()
        .filter(|(_, setting)| is_unknown(setting.key()));
    let before = issues.len();
    for (index, setting) in unknown {
        let error = SettingError::UnknownKey {
            key: setting.key().to_owned(),
            expected: match kind.settings {
                [] => "no settings".to_owned(),
                _ => keys().collect::<Vec<_>>().join(", "),
            },
        };
        let suggestion = nearest(setting.key(), keys());
        issues.push(issue(list.index(index), format!("{name}: {error}"), suggestion));
    }
    // The check of settings stops at the first error, so it runs only if all keys are known.
    if issues.len() == before
        && let Err(error) = Settings::parse(&hop.settings).and_then(|settings| kind.check(&settings))
    {
        let at = setting_index(hop, &error).map_or_else(|| list.clone(), |index| list.index(index));
        issues.push(issue(at, format!("{name}: {error}"), None));
    }
    issues
}

/// Returns the index of the rejected setting, if the error concerns one.
fn setting_index(hop: &Hop, error: &SettingError) -> Option<usize> {
    let mut settings = hop.settings.iter();
    match error {
        SettingError::Value { key, value, .. } => {
            let exact = settings
                .clone()
                .position(|setting| setting.key() == key && setting.value().trim() == value);
            exact.or_else(|| settings.position(|setting| setting.key() == key))
        }
        SettingError::UnknownKey { key, .. } => settings.position(|setting| setting.key() == key),
        SettingError::Repeated { key } => settings.rposition(|setting| setting.key() == key),
        SettingError::NoValue { .. } | SettingError::Missing { .. } | SettingError::Refused { .. } => None,
    }
}
