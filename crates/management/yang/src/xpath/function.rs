//! The functions of XPath 1.0, section 4.

use std::ops::RangeInclusive;

use super::value::{Value, rounded};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Boolean,
    Ceiling,
    Concat,
    Contains,
    Count,
    False,
    Floor,
    Id,
    Lang,
    Last,
    LocalName,
    NamespaceUri,
    NormalizeSpace,
    Not,
    Number,
    Position,
    Round,
    StartsWith,
    String,
    StringLength,
    Substring,
    SubstringAfter,
    SubstringBefore,
    Sum,
    Translate,
    True,
}

impl Function {
    /// Returns the function with a name, and the number of its arguments.
    pub(super) fn of(name: &str) -> Option<(Function, RangeInclusive<usize>)> {
        Some(match name {
            "boolean" => (Function::Boolean, 1..=1),
            "ceiling" => (Function::Ceiling, 1..=1),
            "concat" => (Function::Concat, 2..=usize::MAX),
            "contains" => (Function::Contains, 2..=2),
            "count" => (Function::Count, 1..=1),
            "false" => (Function::False, 0..=0),
            "floor" => (Function::Floor, 1..=1),
            "id" => (Function::Id, 1..=1),
            "lang" => (Function::Lang, 1..=1),
            "last" => (Function::Last, 0..=0),
            // Data has no prefixes, so a name is a local one.
            "local-name" | "name" => (Function::LocalName, 0..=1),
            "namespace-uri" => (Function::NamespaceUri, 0..=1),
            "normalize-space" => (Function::NormalizeSpace, 0..=1),
            "not" => (Function::Not, 1..=1),
            "number" => (Function::Number, 0..=1),
            "position" => (Function::Position, 0..=0),
            "round" => (Function::Round, 1..=1),
            "starts-with" => (Function::StartsWith, 2..=2),
            "string" => (Function::String, 0..=1),
            "string-length" => (Function::StringLength, 0..=1),
            "substring" => (Function::Substring, 2..=3),
            "substring-after" => (Function::SubstringAfter, 2..=2),
            "substring-before" => (Function::SubstringBefore, 2..=2),
            "sum" => (Function::Sum, 1..=1),
            "translate" => (Function::Translate, 3..=3),
            "true" => (Function::True, 0..=0),
            _ => return None,
        })
    }
}

/// Returns the value of a function of numbers; `number()` returns its argument.
pub(super) fn of_number(function: Function, number: f64) -> f64 {
    match function {
        Function::Ceiling => number.ceil(),
        Function::Floor => number.floor(),
        Function::Round => rounded(number),
        _ => number,
    }
}

/// Returns the value of a function of texts; `string()` returns its argument.
pub(super) fn of_texts(function: Function, texts: &[String]) -> Value {
    let text = |at: usize| texts.get(at).map_or("", String::as_str);
    let (first, second) = (text(0), text(1));
    let result = match function {
        Function::Contains => return Value::Boolean(first.contains(second)),
        Function::StartsWith => return Value::Boolean(first.starts_with(second)),
        Function::StringLength => return Value::Number(first.chars().count() as f64),
        Function::Concat => texts.concat(),
        Function::NormalizeSpace => {
            let words = first
                .split([' ', '\t', '\r', '\n'])
                .filter(|word| !word.is_empty());
            words.collect::<Vec<_>>().join(" ")
        }
        Function::SubstringBefore => first
            .split_once(second)
            .map_or("", |(before, _)| before)
            .to_owned(),
        Function::SubstringAfter => first.split_once(second).map_or("", |(_, after)| after).to_owned(),
        Function::Translate => {
            let to: Vec<char> = text(2).chars().collect();
            let translated = |character: char| match second.chars().position(|from| from == character) {
                None => Some(character),
                Some(at) => to.get(at).copied(),
            };
            first.chars().filter_map(translated).collect()
        }
        _ => first.to_owned(),
    };
    Value::Text(result)
}

/// Returns the characters of a text from a position on, which counts from 1, as many as a length says.
pub(super) fn substring(text: &str, from: f64, length: Option<f64>) -> String {
    let begin = rounded(from);
    let end = length.map_or(f64::INFINITY, |length| begin + rounded(length));
    let is_in = |at: usize| (at + 1) as f64 >= begin && ((at + 1) as f64) < end;
    let kept = text.chars().enumerate().filter(|(at, _)| is_in(*at));
    kept.map(|(_, character)| character).collect()
}
