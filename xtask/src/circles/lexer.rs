//! Splits Rust source text into the tokens of paths. Comments and literals are left out.

/// An identifier, `::`, or a single character of punctuation, with its line, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// Returns the tokens of `source`.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while !rest.is_empty() {
        let (size, is_token) = next(rest);
        let (text, after) = rest.split_at(size);
        if is_token {
            tokens.push(Token { text, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Returns the size in bytes of the element at the start of `text`, and true if it is a token.
fn next(text: &str) -> (usize, bool) {
    let first = text.chars().next().unwrap_or_default();
    if text.starts_with("//") {
        return (text.find('\n').unwrap_or(text.len()), false);
    }
    if text.starts_with("/*") {
        return (block_comment(text), false);
    }
    if text.starts_with("::") {
        return (2, true);
    }
    if let Some(size) = string(text) {
        return (size, false);
    }
    if first == '\'' {
        return (quote(text), false);
    }
    if first.is_ascii_digit() {
        return (word(text), false);
    }
    if first == '_' || first.is_alphabetic() {
        return (word(text), true);
    }
    (first.len_utf8(), !first.is_whitespace())
}

/// Returns the size in bytes of the identifier or number at the start of `text`.
fn word(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(text.len())
}

/// Returns the size in bytes of a block comment, including nested ones.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the size in bytes of a string literal of any kind (`"…"`, `b"…"`, `c"…"`, `r#"…"#`). Returns
/// `None` if `text` does not begin with one.
fn string(text: &str) -> Option<usize> {
    let prefix = text.len() - text.trim_start_matches(['b', 'c', 'r']).len();
    if !matches!(&text[..prefix], "" | "b" | "c" | "r" | "br" | "cr") {
        return None;
    }
    let body = &text[prefix..];
    if !text[..prefix].ends_with('r') {
        let inner = body.strip_prefix('"')?;
        let mut escaped = false;
        let end = inner.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return Some(end.map_or(text.len(), |end| prefix + end + 2));
    }
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inner.find(&close);
    Some(end.map_or(text.len(), |end| prefix + hashes + 1 + end + close.len()))
}

/// Returns the size in bytes of a character literal or a lifetime.
fn quote(text: &str) -> usize {
    let inner = &text[1..];
    if inner.starts_with('\\') {
        // The escaped character may itself be a quote.
        let after = inner.char_indices().nth(2).map_or(inner.len(), |(at, _)| at);
        return inner[after..]
            .find('\'')
            .map_or(text.len(), |end| 1 + after + end + 1);
    }
    match inner.char_indices().nth(1) {
        Some((at, '\'')) => 1 + at + 1,
        _ => 1 + word(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_left_out() {
        let source = r###"a /* b /* c */ d */ "e::\"f" r#"g"h"# b"i" 'j' '\'' '\u{41}' 1_000u64 k // l"###;
        assert_eq!(texts(source), ["a", "k"]);
    }

    #[test]
    fn lifetimes_are_left_out_and_what_follows_them_is_not() {
        assert_eq!(texts("&'a str <'b>"), ["&", "str", "<", ">"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let tokens = tokens("a\n/*\n*/ b\n\"\n\" c::d");
        let lines: Vec<(&str, usize)> = tokens.iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(lines, [("a", 1), ("b", 3), ("c", 5), ("::", 5), ("d", 5)]);
    }

    #[test]
    fn no_prefix_of_a_source_makes_it_panic() {
        let source = "r#\"a\"# 'x' '\\n' \"\\\"\" /* ä */ b'c' r#type";
        for end in 0..=source.len() {
            if source.is_char_boundary(end) {
                tokens(&source[..end]);
            }
        }
    }
}
