//! A rule: its header and its options, read from a statement and printed again.

use std::fmt;

use crate::Syntax;
use crate::consistency;
use crate::header::{self, Header};
use crate::keywords;
use crate::lexer::{self, Statement};
use crate::options::RuleOption;
use crate::options::content::{Content, MODIFIERS};
use crate::refusal::{Position, Reason, Refusal};
use crate::requirements;

/// A rule as it was written: header and options, without replacement of variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The syntax in which the rule is printed.
    pub syntax: Syntax,
    /// Action, protocol and endpoints.
    pub header: Header,
    /// The options in their order, each content with its modifiers.
    pub options: Vec<RuleOption>,
}

/// A rule with its position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedRule {
    pub rule: Rule,
    /// The line of the action.
    pub line: u32,
    /// The position of each option.
    pub positions: Vec<Position>,
    /// False for a rule that is commented out.
    pub is_enabled: bool,
}

impl Rule {
    /// Reads one rule that is not part of a file.
    ///
    /// # Errors
    /// Returns the refusal, with `file` as the name of the file.
    pub fn parse(syntax: Syntax, file: &str, text: &str) -> Result<Rule, Box<Refusal>> {
        let mut found = None;
        lexer::statements(syntax, text.as_bytes(), &mut |statement| {
            found = Some(parse(syntax, file, &statement));
            false
        });
        let missing = || {
            Err(Box::new(Refusal {
                file: file.to_owned(),
                position: Position { line: 1, column: 1 },
                sid: None,
                option: "rule".to_owned(),
                reason: Reason::invalid("there is no rule", "ACTION PROTOCOL … (OPTIONS)"),
            }))
        };
        found.unwrap_or_else(missing).map(|parsed| parsed.rule)
    }

    /// Returns the number of the rule.
    pub fn sid(&self) -> Option<u32> {
        self.options.iter().find_map(|option| match option {
            RuleOption::Sid(sid) => Some(*sid),
            _ => None,
        })
    }

    /// Returns the generator, which is 1 unless the rule has another.
    pub fn gid(&self) -> u32 {
        let given = self.options.iter().find_map(|option| match option {
            RuleOption::Gid(gid) => Some(*gid),
            _ => None,
        });
        given.unwrap_or(1)
    }

    /// Returns the revision, which is 0 unless the rule has one.
    pub fn rev(&self) -> u32 {
        let given = self.options.iter().find_map(|option| match option {
            RuleOption::Rev(rev) => Some(*rev),
            _ => None,
        });
        given.unwrap_or(0)
    }

    /// Returns the message.
    pub fn msg(&self) -> Option<&str> {
        self.options.iter().find_map(|option| match option {
            RuleOption::Msg(msg) => Some(msg.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.header)?;
        for (at, option) in self.options.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            option.print(self.syntax, f)?;
        }
        f.write_str(")")
    }
}

/// Returns the sid in the body of a rule, even if the body is wrong elsewhere.
fn sid_of(text: &str) -> Option<u32> {
    let (_, rest) = text.rsplit_once("sid:")?;
    let digits = rest.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Reads a rule from a statement.
pub(crate) fn parse(syntax: Syntax, file: &str, statement: &Statement) -> Result<ParsedRule, Box<Refusal>> {
    let text = statement.text.as_str();
    let refuse = |offset: usize, option: &str, reason: Reason| {
        Box::new(Refusal {
            file: file.to_owned(),
            position: statement.position(offset),
            sid: sid_of(text),
            option: option.to_owned(),
            reason,
        })
    };
    if let Some((offset, reason)) = &statement.problem {
        return Err(refuse(*offset, "rule", reason.clone()));
    }
    const FORM: &str = "ACTION PROTOCOL ADDRESSES PORTS -> ADDRESSES PORTS (OPTIONS)";
    let open = text.find('(').ok_or_else(|| {
        refuse(
            0,
            "rule",
            Reason::invalid("there is no option in parentheses", FORM),
        )
    })?;
    let header =
        header::parse(syntax, &text[..open]).map_err(|(offset, part, reason)| refuse(offset, part, reason));
    let body = without_trailer(text[open + 1..].trim_end());
    let body = body.strip_suffix(')').ok_or_else(|| {
        refuse(
            text.len(),
            "rule",
            Reason::invalid("the closing parenthesis is missing", FORM),
        )
    });
    let raw = body.and_then(|body| {
        let options = lexer::options(syntax, body, open + 1);
        options.map_err(|(offset, reason)| refuse(offset, "rule", reason))
    });
    // A rule for other versions may have protocols, actions and keywords that are not known here.
    let is_unmet = |option: &&lexer::RawOption<'_>| {
        let is_it = keywords::normal(syntax, option.name) == "requires";
        is_it && syntax == Syntax::Suricata && !requirements::hold(option.value.unwrap_or_default())
    };
    if let Some(option) = raw.iter().flatten().find(is_unmet) {
        return Err(refuse(option.offset, "requires", Reason::Requirements));
    }
    let (header, raw) = (header?, raw?);
    let mut options: Vec<RuleOption> = Vec::with_capacity(raw.len());
    let mut positions = Vec::with_capacity(raw.len());
    for option in raw {
        let name = keywords::normal(syntax, option.name);
        let at = |reason| refuse(option.offset, &name, reason);
        if syntax != Syntax::Snort3 && modify(syntax, &mut options, &name, option.value).map_err(at)? {
            continue;
        }
        let parsed = RuleOption::parse(syntax, &name, option.value).map_err(at)?;
        let is_single = matches!(
            parsed,
            RuleOption::Sid(_) | RuleOption::Rev(_) | RuleOption::Gid(_)
        );
        let is_same = |before: &RuleOption| std::mem::discriminant(before) == std::mem::discriminant(&parsed);
        if is_single && options.iter().any(is_same) {
            return Err(at(Reason::invalid("it is given twice", "one for each rule")));
        }
        options.push(parsed);
        positions.push(statement.position(option.offset));
    }
    if let Err((at, option, reason)) = consistency::check(syntax, &options) {
        let mut refusal = refuse(open, option, reason);
        refusal.position = positions.get(at).copied().unwrap_or(refusal.position);
        return Err(refusal);
    }
    let rule = Rule {
        syntax,
        header,
        options,
    };
    match rule.sid() {
        Some(sid) if sid > 0 => {}
        Some(_) => return Err(refuse(open, "sid", Reason::invalid("it is 0", "a number from 1"))),
        None => {
            return Err(refuse(
                open,
                "sid",
                Reason::invalid("it is missing", "sid:NUMBER; in each rule"),
            ));
        }
    }
    Ok(ParsedRule {
        rule,
        line: statement.position(0).line,
        positions,
        is_enabled: statement.is_enabled,
    })
}

/// Returns the body of a rule up to its closing parenthesis, if only a semicolon or a comment follows that.
fn without_trailer(body: &str) -> &str {
    if body.ends_with(')') {
        return body;
    }
    // A comment may have parentheses, too.
    for (at, _) in body.rmatch_indices(')') {
        let trailer = body[at + 1..].trim_start_matches([';', ' ', '\t']);
        if trailer.is_empty() || trailer.starts_with('#') {
            return &body[..=at];
        }
    }
    body
}

/// Applies a modifier to the last content; returns false if the keyword is no modifier.
fn modify(
    syntax: Syntax,
    options: &mut [RuleOption],
    name: &str,
    value: Option<&str>,
) -> Result<bool, Reason> {
    let last = options.iter_mut().rev().find_map(|option| match option {
        RuleOption::Content(content) => Some(content),
        _ => None,
    });
    match last {
        Some(content) => content.modify(syntax, name, value),
        None => {
            // A modifier without a content is applied to an empty content, to distinguish it from other
            // keywords.
            match Content::default().modify(syntax, name, value) {
                Ok(false) => Ok(false),
                _ => Err(Reason::invalid("no content precedes the modifier", MODIFIERS)),
            }
        }
    }
}
