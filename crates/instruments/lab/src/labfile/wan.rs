//! The key `wan` of a `[[link]]`: the settings of an emulated path, as the options of `millrace wan between`.

use std::collections::BTreeMap;
use std::ops::Range;

use millrace_wan_control::{Setting, Settings};
use toml::{Spanned, Value};

use crate::problem::{LocatedProblem, Problem};

/// The settings by key. The settings of one direction are in a table, `a_to_b` or `b_to_a`.
pub(super) type RawWan = BTreeMap<String, Spanned<Value>>;

/// Checks the settings, and returns them as options `--key text`.
pub(super) fn options(wan: &RawWan) -> Result<Vec<String>, LocatedProblem> {
    let mut settings = Settings::default();
    let mut options = Vec::new();
    for (key, value) in wan {
        let span = value.span();
        let one_direction = match key.as_str() {
            "a_to_b" => Some(&mut settings.a_to_b),
            "b_to_a" => Some(&mut settings.b_to_a),
            _ => None,
        };
        let given = match (one_direction, value.get_ref()) {
            (Some(list), Value::Table(table)) => {
                let part = |(key, value): (&String, &Value)| Ok((key.clone(), text(key, value, &span)?));
                *list = table
                    .iter()
                    .map(part)
                    .collect::<Result<Vec<Setting>, LocatedProblem>>()?;
                let words = list.iter().map(|(key, text)| format!("{key}={text}"));
                words.collect::<Vec<_>>().join(" ")
            }
            (Some(_), _) => {
                return Err(bad(
                    key,
                    "expected a table, as in a_to_b = { loss = \"2%\" }",
                    span,
                ));
            }
            (None, value) => {
                let text = text(key, value, &span)?;
                match key.as_str() {
                    "memory" => settings.memory = Some(text.clone()),
                    "seed" => {
                        let seed = text.parse::<u64>();
                        settings.seed = seed.map_err(|_| bad(key, "expected a number", span))?;
                    }
                    _ => settings.both.push((key.clone(), text.clone())),
                }
                text
            }
        };
        options.extend([format!("--{}", key.replace('_', "-")), given]);
    }
    match settings.directions() {
        Ok(_) => Ok(options),
        Err(error) => {
            let place = error.direction.filter(|direction| wan.contains_key(*direction));
            let spanned = wan
                .get(place.unwrap_or(&error.key))
                .or_else(|| wan.values().next());
            let span = spanned.map_or(0..0, Spanned::span);
            Err(bad(&error.key, &error.reason, span))
        }
    }
}

fn bad(key: &str, reason: &str, span: Range<usize>) -> LocatedProblem {
    let (key, reason) = (key.to_owned(), reason.to_owned());
    (span, Problem::BadWan { key, reason })
}

/// Returns the text of a value.
fn text(key: &str, value: &Value, span: &Range<usize>) -> Result<String, LocatedProblem> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        _ => Err(bad(key, "expected text, as in delay = \"50ms\"", span.clone())),
    }
}
