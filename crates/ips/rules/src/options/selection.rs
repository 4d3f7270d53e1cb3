//! The values of a field with several values that a comparison refers to: `any`, `all`, an index, a part.

use super::number::Comparison;
use crate::Syntax;
use crate::refusal::Reason;

/// The values of a field with several values that a comparison must hold for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// One of them.
    Any,
    /// All of them, and there is at least one.
    All,
    /// All of them.
    AllOrAbsent,
    /// One of them, or there is none.
    OrAbsent,
    /// The one at an index; a negative index counts from the end.
    At(i32),
    /// The one at an index, or there is none at the index.
    OutOfBoundsOr(i32),
    /// The number of values for which the comparison holds.
    Times(Comparison),
    /// The number of values, in place of a value.
    Count,
}

/// The part of the values of a field to which an index refers: from the first position to the one behind the last. Negative
/// positions count from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub first: i32,
    pub end: i32,
}

/// An index, and the part of the values to which it refers; all of them without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    pub index: Index,
    pub part: Option<Part>,
}

impl Selection {
    /// One of all values.
    pub const ANY: Selection = Selection {
        index: Index::Any,
        part: None,
    };
}

impl Part {
    /// Returns the part of the values; none of them if a position is out of bounds.
    pub fn of(self, values: &[u64]) -> &[u64] {
        let position = |at: i32| match usize::try_from(at) {
            Ok(at) => Some(at),
            Err(_) => values.len().checked_sub(at.unsigned_abs() as usize),
        };
        let range = position(self.first).zip(position(self.end));
        range
            .and_then(|(first, end)| values.get(first..end))
            .unwrap_or_default()
    }
}

impl Index {
    /// Reads the text after the comparison, with the part of the values to which it refers: `any,2:4`.
    ///
    /// # Errors
    /// The reason, if the text has another form.
    pub fn parse_with_part(text: &str) -> Result<Selection, Reason> {
        const FORM: &str = "an index, and FIRST:END with positions that may be negative";
        let Some((index, part)) = text.split_once(',') else {
            return Index::parse(text).map(|index| Selection { index, part: None });
        };
        let wrong = || Reason::invalid(format!("the part \"{part}\""), FORM);
        let (first, end) = part.split_once(':').ok_or_else(wrong)?;
        let position = |text: &str| text.trim().parse().map_err(|_| wrong());
        let part = Part {
            first: position(first)?,
            end: position(end)?,
        };
        Ok(Selection {
            index: Index::parse(index)?,
            part: Some(part),
        })
    }

    /// Reads the text after the comparison.
    ///
    /// # Errors
    /// The reason, if the text has another form.
    pub fn parse(text: &str) -> Result<Index, Reason> {
        const FORM: &str = "any, all, all_or_absent, or_absent, count, nb and a comparison, oob_or and an index, or an index";
        let text = text.trim();
        let wrong = || Reason::invalid(format!("the index \"{text}\""), FORM);
        Ok(match text {
            "any" => Index::Any,
            "all" | "all1" => Index::All,
            "all_or_absent" => Index::AllOrAbsent,
            "or_absent" => Index::OrAbsent,
            "count" => Index::Count,
            _ => {
                if let Some(rest) = text.strip_prefix("nb") {
                    return Comparison::parse(Syntax::Suricata, rest).map(Index::Times);
                }
                if let Some(rest) = text.strip_prefix("oob_or") {
                    return rest.trim().parse().map(Index::OutOfBoundsOr).map_err(|_| wrong());
                }
                return text.parse().map(Index::At).map_err(|_| wrong());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_values_is_named_by_positions_from_either_end() {
        // The examples of Suricata's documentation.
        let values = [1, 2, 3, 4, 5, 6];
        for (text, expected) in [
            ("2:4", &[3, 4][..]),
            ("-4:-1", &[3, 4, 5]),
            ("3:-1", &[4, 5]),
            ("-4:4", &[3, 4]),
            ("2:9", &[]),
            ("-9:2", &[]),
            ("4:2", &[]),
        ] {
            let selection = Index::parse_with_part(&format!("any, {text}")).unwrap();
            assert_eq!(selection.part.unwrap().of(&values), expected, "{text}");
        }
        for wrong in ["any,2", "any,a:b", "any,1:2:3"] {
            assert!(Index::parse_with_part(wrong).is_err(), "{wrong}");
        }
    }
}
