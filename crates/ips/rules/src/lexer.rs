//! The lexer: turns the bytes of a file into rules as text. It handles comments, disabled rules, rules over
//! several lines, and the options of a rule. Suricata and Snort 2.9 join lines that end in a backslash; Snort
//! 3 reads to the closing parenthesis.

use memchr::memchr3;

use crate::Syntax;
use crate::limits;
use crate::refusal::{Position, Reason};

/// A rule or directive of a file on one line, with the positions of its pieces in the file.
#[derive(Debug)]
pub(crate) struct Statement {
    /// The text without comments and line ends.
    pub(crate) text: String,
    /// The offset in `text` and the position in the file of each piece.
    pieces: Vec<(usize, Position)>,
    /// False for a rule that is commented out.
    pub(crate) is_enabled: bool,
    /// The reason why the statement cannot be read, with its offset.
    pub(crate) problem: Option<(usize, Reason)>,
}

impl Statement {
    fn new() -> Statement {
        Statement {
            text: String::new(),
            pieces: Vec::new(),
            is_enabled: true,
            problem: None,
        }
    }

    /// Returns the position in the file of an offset in the text.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let after = self.pieces.partition_point(|(start, _)| *start <= offset);
        let (start, position) = match after.checked_sub(1).and_then(|at| self.pieces.get(at)) {
            Some((start, position)) => (*start, *position),
            None => (0, Position { line: 1, column: 1 }),
        };
        let column = position
            .column
            .saturating_add(u32::try_from(offset - start).unwrap_or(u32::MAX));
        Position { column, ..position }
    }

    /// Appends a piece of a line; a piece past the limit is recorded as the problem.
    fn push(&mut self, piece: &[u8], line: u32, column: usize) {
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        self.pieces.push((self.text.len(), Position { line, column }));
        if self.problem.is_some() {
            return;
        }
        if self.text.len() + piece.len() > limits::RULE_SIZE {
            let limit = limits::RULE_SIZE;
            self.problem = Some((
                self.text.len(),
                Reason::Limit {
                    unit: "bytes in a rule",
                    limit,
                },
            ));
            return;
        }
        match std::str::from_utf8(piece) {
            Ok(piece) => self.text.push_str(piece),
            Err(error) => {
                let at = self.text.len() + error.valid_up_to();
                self.problem = Some((
                    at,
                    Reason::invalid(
                        "the text is not UTF-8",
                        "bytes outside ASCII as |hex| in contents",
                    ),
                ));
                self.text.push_str(&String::from_utf8_lossy(piece));
            }
        }
    }
}

/// The words with which a rule can begin.
const ACTIONS: &[&str] = &[
    "alert",
    "drop",
    "reject",
    "rejectsrc",
    "rejectdst",
    "rejectboth",
    "pass",
    "log",
    "sdrop",
    "block",
    "rewrite",
    "react",
    "activate",
    "dynamic",
    "config",
];

/// Returns the offset of the rule in a comment, if the comment is a disabled rule.
fn disabled_rule(comment: &[u8]) -> Option<usize> {
    let start = comment
        .iter()
        .position(|byte| !matches!(byte, b'#' | b' ' | b'\t'))?;
    let text = comment.get(start..)?;
    let end = text.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    let word = std::str::from_utf8(text.get(..end)?).ok()?;
    (ACTIONS.contains(&word) && text.contains(&b'(')).then_some(start)
}

/// Calls `take` for each statement of a file, until `take` returns false.
pub(crate) fn statements(syntax: Syntax, text: &[u8], take: &mut dyn FnMut(Statement) -> bool) {
    let mut current: Option<Statement> = None;
    let mut snort3 = Snort3State::default();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let number = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let start = line
            .iter()
            .position(|byte| !byte.is_ascii_whitespace())
            .unwrap_or(line.len());
        let mut piece = &line[start..];
        let mut column = start + 1;
        // A rule without a closing parenthesis ends before the next rule, so that it does not hide the rest
        // of the file.
        if syntax == Syntax::Snort3
            && !snort3.in_comment
            && let Some(mut statement) = current.take()
        {
            let is_next =
                disabled_rule(piece).is_some() || (!statement.is_enabled && !piece.starts_with(b"#"));
            if !is_next {
                current = Some(statement);
            } else {
                let at = statement.text.len();
                let reason = Reason::invalid(
                    "another rule begins before this one ends",
                    "a closing parenthesis",
                );
                statement.problem.get_or_insert((at, reason));
                if !take(statement) {
                    return;
                }
            }
        }
        if current.is_none() && !snort3.in_comment {
            if piece.is_empty() {
                continue;
            }
            let mut statement = Statement::new();
            if piece.starts_with(b"#") {
                let Some(at) = disabled_rule(piece) else {
                    continue;
                };
                piece = &piece[at..];
                column += at;
                statement.is_enabled = false;
            }
            current = Some(statement);
            snort3 = Snort3State::default();
        } else if piece.starts_with(b"#") && syntax != Syntax::Snort3 {
            // The continuation lines of a disabled rule are comments, too.
            let at = piece.iter().position(|byte| *byte != b'#').unwrap_or(piece.len());
            piece = &piece[at..];
            column += at;
        }
        let is_complete = match syntax {
            Syntax::Suricata | Syntax::Snort2 => {
                let trimmed = piece.trim_ascii_end();
                let (piece, is_complete) = match trimmed.strip_suffix(b"\\") {
                    Some(piece) => (piece, false),
                    None => (trimmed, true),
                };
                if let Some(statement) = &mut current {
                    statement.push(piece, number, column);
                }
                is_complete
            }
            Syntax::Snort3 => {
                let mut blank = Statement::new();
                let is_commented = current.as_ref().is_some_and(|statement| !statement.is_enabled);
                let statement = current.as_mut().unwrap_or(&mut blank);
                if is_commented && piece.starts_with(b"#") {
                    piece = piece.get(1..).unwrap_or_default();
                }
                let is_complete = snort3.line(statement, piece, number, column);
                if current
                    .as_ref()
                    .is_some_and(|statement| statement.text.trim().is_empty() && statement.problem.is_none())
                {
                    current = None;
                }
                is_complete
            }
        };
        if is_complete
            && let Some(statement) = current.take()
            && !take(statement)
        {
            return;
        }
    }
    if let Some(mut statement) = current.take() {
        if syntax == Syntax::Snort3 {
            let at = statement.text.len();
            let reason = Reason::invalid("the file ends inside the rule", "a closing parenthesis");
            statement.problem.get_or_insert((at, reason));
        }
        take(statement);
    }
}

/// The state of the Snort 3 lexer between two lines.
#[derive(Debug, Default)]
struct Snort3State {
    in_comment: bool,
    in_quotes: bool,
    depth: usize,
    has_body: bool,
}

impl Snort3State {
    /// Adds a line without its comments; returns true if the statement is complete.
    fn line(&mut self, statement: &mut Statement, line: &[u8], number: u32, column: usize) -> bool {
        let mut at = 0;
        let mut start = 0;
        while let Some(&byte) = line.get(at) {
            let next = line.get(at + 1).copied();
            if self.in_comment {
                if byte == b'*' && next == Some(b'/') {
                    self.in_comment = false;
                    at += 1;
                    start = at + 1;
                }
            } else if self.in_quotes {
                match byte {
                    b'\\' => at += 1,
                    b'"' => self.in_quotes = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_quotes = true,
                    b'(' => {
                        self.depth += 1;
                        self.has_body = true;
                    }
                    b')' => self.depth = self.depth.saturating_sub(1),
                    b'#' => {
                        statement.push(&line[start..at], number, column + start);
                        return self.is_complete();
                    }
                    b'/' if next == Some(b'*') => {
                        statement.push(&line[start..at], number, column + start);
                        self.in_comment = true;
                        at += 1;
                    }
                    _ => {}
                }
            }
            at += 1;
        }
        if !self.in_comment {
            statement.push(line.get(start..).unwrap_or_default(), number, column + start);
            if !self.is_complete() && statement.problem.is_none() {
                // A line end separates words.
                statement.text.push(' ');
            }
        }
        self.is_complete()
    }

    fn is_complete(&self) -> bool {
        self.has_body && self.depth == 0 && !self.in_comment && !self.in_quotes
    }
}

/// An option as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawOption<'a> {
    /// The offset of the keyword in the statement.
    pub(crate) offset: usize,
    /// The keyword.
    pub(crate) name: &'a str,
    /// The text after the colon, trimmed.
    pub(crate) value: Option<&'a str>,
}

/// Splits the body of a rule at its semicolons. Suricata and Snort 2.9 require an escape before a semicolon
/// in a text; Snort 3 requires none in double quotes.
pub(crate) fn options<'a>(
    syntax: Syntax,
    body: &'a str,
    base: usize,
) -> Result<Vec<RawOption<'a>>, (usize, Reason)> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut in_quotes = false;
    let mut from = 0;
    let next = |from: usize| Some(from + memchr3(b'\\', b'"', b';', body.as_bytes().get(from..)?)?);
    while let Some(at) = next(from) {
        from = at + 1;
        match body.as_bytes()[at] {
            // The next byte is no delimiter.
            b'\\' => from += 1,
            b'"' if syntax == Syntax::Snort3 => in_quotes = !in_quotes,
            b';' if !in_quotes => {
                let piece = &body[start..at];
                let offset = base + start + (piece.len() - piece.trim_start().len());
                start = at + 1;
                let piece = piece.trim();
                if piece.is_empty() {
                    continue;
                }
                let (name, value) = match piece.split_once(':') {
                    Some((name, value)) => (name.trim_end(), Some(value.trim())),
                    None => (piece, None),
                };
                found.push(RawOption { offset, name, value });
                if found.len() > limits::OPTIONS {
                    let limit = limits::OPTIONS;
                    return Err((
                        offset,
                        Reason::Limit {
                            unit: "options in a rule",
                            limit,
                        },
                    ));
                }
            }
            _ => {}
        }
    }
    let rest = &body[start..];
    if rest.trim().is_empty() {
        return Ok(found);
    }
    let offset = base + start + (rest.len() - rest.trim_start().len());
    Err((
        offset,
        Reason::invalid(
            "the last option does not end",
            "a semicolon after each option, and escaped quotes and semicolons in texts",
        ),
    ))
}
