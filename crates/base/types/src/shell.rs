//! Words of a command line for a POSIX shell (IEEE Std 1003.1, section 2.2, Quoting).

/// Returns a word for a command line. The word is in single quotes if the shell would otherwise interpret a
/// character of it.
pub fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=,+@%".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_if_the_shell_would_read_it_otherwise() {
        assert_eq!(quoted("10.0.0.1/24"), "10.0.0.1/24");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
