//! The tokens of an expression (XPath 1.0, section 3.7).

use super::error::XPathError;

/// The limit of tokens, which bounds the depth of an expression, too.
const TOKENS_MAX: usize = 256;

/// An operator; a slash is one for the rules by which names and asterisks are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    Union,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    Open,
    Close,
    OpenBracket,
    CloseBracket,
    Dot,
    DotDot,
    At,
    Comma,
    Slash,
    SlashSlash,
    Operator(Operator),
    Literal(&'a str),
    Number(f64),
    /// `NAME::`
    Axis(&'a str),
    /// The name before an opening parenthesis: that of a function, or of a kind of node.
    Function(&'a str),
    /// `name`, `prefix:name`, `*` or `prefix:*`.
    Name {
        prefix: Option<&'a str>,
        local: &'a str,
    },
}

/// Returns the tokens of a text with their offsets.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, XPathError> {
    let mut list: Vec<(usize, Token<'_>)> = Vec::new();
    let mut at = 0;
    loop {
        at += blank(&text[at..]);
        if at == text.len() {
            return Ok(list);
        }
        if list.len() == TOKENS_MAX {
            return Err(XPathError::TooLong(format!(
                "{TOKENS_MAX} names, values and signs"
            )));
        }
        let is_operand_next = list.last().is_none_or(|(_, before)| {
            matches!(
                before,
                Token::At
                    | Token::Axis(_)
                    | Token::Open
                    | Token::OpenBracket
                    | Token::Comma
                    | Token::Slash
                    | Token::SlashSlash
                    | Token::Operator(_)
            )
        });
        let (token, size) = token(text, at, is_operand_next)?;
        list.push((at, token));
        at += size;
    }
}

fn blank(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t', '\r', '\n']).len()
}

/// Returns the token at an offset, and its size.
fn token(text: &str, at: usize, is_operand_next: bool) -> Result<(Token<'_>, usize), XPathError> {
    let rest = &text[at..];
    let expected = |what: &str| XPathError::Syntax {
        at,
        expected: what.to_owned(),
    };
    let signs = [
        ("::", None),
        ("//", Some(Token::SlashSlash)),
        ("..", Some(Token::DotDot)),
        ("!=", Some(Token::Operator(Operator::Unequal))),
        ("<=", Some(Token::Operator(Operator::LessOrEqual))),
        (">=", Some(Token::Operator(Operator::GreaterOrEqual))),
        ("/", Some(Token::Slash)),
        ("(", Some(Token::Open)),
        (")", Some(Token::Close)),
        ("[", Some(Token::OpenBracket)),
        ("]", Some(Token::CloseBracket)),
        ("@", Some(Token::At)),
        (",", Some(Token::Comma)),
        ("=", Some(Token::Operator(Operator::Equal))),
        ("<", Some(Token::Operator(Operator::Less))),
        (">", Some(Token::Operator(Operator::Greater))),
        ("+", Some(Token::Operator(Operator::Plus))),
        ("-", Some(Token::Operator(Operator::Minus))),
        ("|", Some(Token::Operator(Operator::Union))),
    ];
    for (sign, token) in signs {
        if rest.starts_with(sign) {
            return token
                .map(|token| (token, sign.len()))
                .ok_or_else(|| expected("the name of an axis before `::`"));
        }
    }
    let digits = |from: usize| {
        let after = rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        from + after
    };
    match rest.as_bytes() {
        [b'*', ..] if !is_operand_next => return Ok((Token::Operator(Operator::Times), 1)),
        [b'*', ..] => {
            let token = Token::Name {
                prefix: None,
                local: "*",
            };
            return Ok((token, 1));
        }
        [quote @ (b'"' | b'\''), ..] => {
            let end = rest[1..].find(char::from(*quote));
            let end = end.ok_or_else(|| expected("the end of the literal"))?;
            return Ok((Token::Literal(&rest[1..1 + end]), end + 2));
        }
        [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => {
            let whole = digits(0);
            let size = match rest.as_bytes().get(whole) {
                Some(b'.') => digits(whole + 1),
                _ => whole,
            };
            let number = rest[..size].trim_end_matches('.').parse();
            let number = number.map_err(|_| expected("a number"))?;
            return Ok((Token::Number(number), size));
        }
        [b'.', ..] => return Ok((Token::Dot, 1)),
        _ => {}
    }
    let size = name(rest);
    if size == 0 {
        return Err(expected("a name, a value or an operator"));
    }
    let first = &rest[..size];
    if !is_operand_next {
        let operator = match first {
            "and" => Operator::And,
            "or" => Operator::Or,
            "mod" => Operator::Modulo,
            "div" => Operator::Divide,
            _ => return Err(expected("an operator, `/`, `[` or the end")),
        };
        return Ok((Token::Operator(operator), size));
    }
    let next = rest[size..].trim_start_matches([' ', '\t', '\r', '\n']);
    if next.starts_with("::") {
        let skipped = rest.len() - next.len();
        return Ok((Token::Axis(first), skipped + 2));
    }
    if let Some(local) = rest[size..].strip_prefix(':') {
        let length = match local.starts_with('*') {
            true => 1,
            false => name(local),
        };
        if length == 0 {
            return Err(expected("a name behind the prefix"));
        }
        let token = Token::Name {
            prefix: Some(first),
            local: &local[..length],
        };
        return Ok((token, size + 1 + length));
    }
    match next.starts_with('(') {
        true => Ok((Token::Function(first), size)),
        false => {
            let token = Token::Name {
                prefix: None,
                local: first,
            };
            Ok((token, size))
        }
    }
}

/// Returns the size of the name without a colon at the begin of a text; 0 if there is none.
fn name(text: &str) -> usize {
    let is_first = |character: char| character.is_alphabetic() || character == '_';
    let is_later = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    let mut characters = text.char_indices();
    match characters.next() {
        Some((_, first)) if is_first(first) => {}
        _ => return 0,
    }
    let end = characters.find(|(_, character)| !is_later(*character));
    end.map_or(text.len(), |(at, _)| at)
}
