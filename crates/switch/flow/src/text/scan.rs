//! Splits a text into items at commas and blanks; parentheses keep their content together.

use super::error::{TextError, TextProblem};

/// A part of the whole text, with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

impl<'a> Span<'a> {
    pub(crate) fn new(whole: &'a str) -> Span<'a> {
        Span {
            whole,
            start: 0,
            end: whole.len(),
        }
    }

    pub(crate) fn text(self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    /// Returns the part of `self` from byte `from` to byte `to`, both at character boundaries.
    fn sub(self, from: usize, to: usize) -> Span<'a> {
        Span {
            whole: self.whole,
            start: self.start + from,
            end: self.start + to,
        }
    }

    fn trimmed(self) -> Span<'a> {
        let text = self.text();
        let from = text.len() - text.trim_start().len();
        self.sub(from, from + text.trim().len())
    }

    /// Returns the texts before and after the first of the characters `at`.
    pub(crate) fn split(self, at: &[char]) -> Option<(Span<'a>, Span<'a>)> {
        let text = self.text();
        let found = text.find(at)?;
        let after = found + text[found..].chars().next().map_or(0, char::len_utf8);
        Some((
            self.sub(0, found).trimmed(),
            self.sub(after, text.len()).trimmed(),
        ))
    }

    /// Returns the texts before and after the last `at`.
    pub(crate) fn rsplit(self, at: &str) -> Option<(Span<'a>, Span<'a>)> {
        let text = self.text();
        let found = text.rfind(at)?;
        Some((
            self.sub(0, found).trimmed(),
            self.sub(found + at.len(), text.len()).trimmed(),
        ))
    }

    /// Returns the text without its last character, if that is `tail`.
    pub(crate) fn strip_suffix(self, tail: char) -> Option<Span<'a>> {
        self.text()
            .strip_suffix(tail)
            .map(|rest| self.sub(0, rest.len()).trimmed())
    }

    /// Returns the empty span at the end of the text, for an error about a missing token.
    pub(crate) fn end(self) -> Span<'a> {
        self.sub(self.text().len(), self.text().len())
    }

    /// Returns the error that this token has `problem`.
    pub(crate) fn error(self, problem: impl Into<TextProblem>) -> TextError {
        TextError {
            token: self.text().chars().take(64).collect(),
            column: self.whole[..self.start].chars().count() + 1,
            problem: problem.into(),
        }
    }

    /// Returns the error that the parser expected `expected` instead of this token.
    pub(crate) fn expected(self, expected: impl Into<String>) -> TextError {
        self.error(TextProblem::Expected {
            expected: expected.into(),
        })
    }

    /// Returns the non-empty items between commas, blanks and line ends outside of parentheses.
    ///
    /// # Errors
    /// [`TextProblem::Unbalanced`].
    pub(crate) fn items(self) -> Result<Vec<Span<'a>>, TextError> {
        let (mut items, mut depth, mut start) = (Vec::new(), 0_usize, None);
        for (at, c) in self.text().char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth == 0 => return Err(self.sub(at, at + 1).error(TextProblem::Unbalanced)),
                ')' => depth -= 1,
                _ => {}
            }
            let separates = depth == 0 && (c == ',' || c.is_whitespace());
            match (separates, start) {
                (true, Some(from)) => {
                    items.push(self.sub(from, at));
                    start = None;
                }
                (false, None) => start = Some(at),
                _ => {}
            }
        }
        if let Some(from) = start {
            let last = self.sub(from, self.text().len());
            if depth > 0 {
                return Err(last.error(TextProblem::Unbalanced));
            }
            items.push(last);
        }
        Ok(items)
    }

    /// Returns the span from the beginning of this one to the end of `outer`.
    pub(crate) fn to_end_of(self, outer: Span<'a>) -> Span<'a> {
        Span {
            whole: self.whole,
            start: self.start,
            end: outer.end.max(self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        Span::new(text)
            .items()
            .unwrap()
            .into_iter()
            .map(Span::text)
            .collect()
    }

    #[test]
    fn items_end_at_commas_and_blanks_outside_of_parentheses() {
        assert_eq!(texts(" a=1,, b(c, d(e))\n,f"), ["a=1", "b(c, d(e))", "f"]);
        assert!(texts(" ,\t").is_empty());
    }

    #[test]
    fn a_lonely_parenthesis_is_pointed_at() {
        assert_eq!(Span::new("a),b").items().unwrap_err().column, 2);
        assert_eq!(Span::new("ä,b(c").items().unwrap_err().column, 3);
    }
}
