//! Errors of the text parsers: the token, its column, and the expected text.

use thiserror::Error;

use crate::action::SetFieldError;
use crate::matching::MatchError;

/// A text that is not a match, an action or a flow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", located(.token, *.column, .problem))]
pub struct TextError {
    /// The wrong token; empty if a token is missing.
    pub token: String,
    /// Column of the token's first character, in characters, from 1 on.
    pub column: usize,
    /// The problem with the token.
    pub problem: TextProblem,
}

fn located(token: &str, column: usize, problem: &TextProblem) -> String {
    if token.is_empty() {
        format!("column {column}: {problem}")
    } else {
        format!("column {column}, `{token}`: {problem}")
    }
}

/// The problem with a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextProblem {
    /// No field, shorthand, action or instruction has this name.
    #[error("there is no such {kind}{}", did_you_mean(.nearest))]
    UnknownName {
        /// The type of item that the name should be.
        kind: &'static str,
        /// The known names that are most similar.
        nearest: Vec<&'static str>,
    },
    /// The value is missing or malformed.
    #[error("expected {expected}")]
    Expected {
        /// Description of the expected value.
        expected: String,
    },
    /// The item is known but has no meaning in this text.
    #[error("it has no effect here: expected {expected}")]
    NotHere {
        /// The items that have a meaning in this text, or a description of the expected item.
        expected: String,
    },
    /// The numbers of opening and closing parentheses differ.
    #[error("unbalanced parentheses: expected as many `)` as `(`")]
    Unbalanced,
    /// The item repeats an earlier one.
    #[error("appears twice: expected it once")]
    Twice,
    /// Each token is well formed, but the match is invalid.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// Each token is well formed, but the action is invalid.
    #[error(transparent)]
    SetField(#[from] SetFieldError),
}

fn did_you_mean(nearest: &[&str]) -> String {
    if nearest.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", nearest.join(" or "))
    }
}

/// Returns the names with the least edit distance from `wrong`: at most three, and none if that distance
/// exceeds two.
pub(super) fn nearest(wrong: &str, names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    // The longest name has 14 characters, so that longer texts have no similar names, and the cost is bounded.
    if wrong.len() > 24 {
        return Vec::new();
    }
    let wrong = wrong.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> = names
        .map(|name| {
            (
                distance(wrong.as_bytes(), name.to_ascii_lowercase().as_bytes()),
                name,
            )
        })
        .filter(|(edits, name)| *edits <= 2 && *edits < name.len())
        .collect();
    near.sort_unstable();
    near.dedup();
    let best = near.first().map_or(0, |(edits, _)| *edits);
    near.into_iter()
        .filter(|(edits, _)| *edits == best)
        .map(|(_, name)| name)
        .take(3)
        .collect()
}

/// Returns the Levenshtein distance: the number of insertions, deletions and substitutions that turn `a` into `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_the_name_that_was_meant() {
        let names = || ["tcp_dst", "tcp_src", "in_port", "ip"].into_iter();
        assert_eq!(nearest("tcp_dts", names()), ["tcp_dst"]);
        assert_eq!(nearest("inport", names()), ["in_port"]);
        assert!(nearest("x", names()).is_empty());
        assert!(nearest(&"x".repeat(1000), names()).is_empty());
    }

    #[test]
    fn an_error_names_token_column_and_expectation() {
        let error = TextError {
            token: "tp_dst=http".to_owned(),
            column: 5,
            problem: TextProblem::Expected {
                expected: "a number".to_owned(),
            },
        };
        assert_eq!(error.to_string(), "column 5, `tp_dst=http`: expected a number");
    }
}
