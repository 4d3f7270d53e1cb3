//! `requires`: conditions on the program that loads a rule. A rule whose conditions do not hold is skipped, and is no error.

use crate::keywords;
use crate::text::list;

/// The version of Suricata whose rules are read: 8.0.
const VERSION: [u32; 3] = [8, 0, 0];
/// Features of Suricata that exist here.
const FEATURES: &[&str] = &["output::file-store", "true"];

/// Returns true if all conditions of a value of `requires` hold; unknown conditions do not.
pub(crate) fn hold(value: &str) -> bool {
    list(value).all(|condition| {
        let (word, rest) = condition
            .split_once(char::is_whitespace)
            .unwrap_or((condition, ""));
        let rest = rest.trim();
        match word {
            "version" => rest.split('|').any(version),
            "feature" => FEATURES.contains(&rest),
            "keyword" => keywords::keywords()
                .iter()
                .any(|keyword| keyword.name == rest && keyword.refused.is_none()),
            _ => false,
        }
    })
}

/// Returns true if the version satisfies comparisons such as `>= 7.0.4 < 8`, all of them.
fn version(text: &str) -> bool {
    let mut words = text.split_whitespace().peekable();
    if words.peek().is_none() {
        return false;
    }
    while let Some(word) = words.next() {
        let split = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
        let (operator, number) = word.split_at(split);
        let number = match number {
            "" => words.next().unwrap_or_default(),
            number => number,
        };
        let Some(number) = parts(number) else {
            return false;
        };
        let holds = match operator {
            ">=" => VERSION >= number,
            ">" => VERSION > number,
            "<" => VERSION < number,
            "<=" => VERSION <= number,
            _ => false,
        };
        if !holds {
            return false;
        }
    }
    true
}

/// Returns the parts of a version; missing ones are 0.
fn parts(text: &str) -> Option<[u32; 3]> {
    let mut all = [0; 3];
    let mut places = all.iter_mut();
    for part in text.split('.') {
        *places.next()? = part.parse().ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_documentation_hold_as_it_says() {
        for (value, expected) in [
            ("version >= 7.0.0", true),
            ("version >= 7.0.4 < 8", false),
            ("version >= 7.0.4 < 8 | >= 8.0.0", true),
            ("version >= 7.0.10 < 8 | >= 8.0.5 < 9 | >= 9.0.3", false),
            ("version >=7", true),
            ("version <8", false),
            ("version", false),
            ("version ~ 8", false),
            ("keyword content", true),
            ("keyword foobar", false),
            ("keyword lua", false),
            ("feature geoip, version >= 7.0.0", false),
            ("moon full", false),
        ] {
            assert_eq!(hold(value), expected, "{value}");
        }
    }
}
