//! The words of a script, as a shell (POSIX.1-2017, "Shell Command Language", section 2) splits them: quotes, escapes, comments,
//! lines that go on, and variables with texts that the script itself sets. Everything else that a shell would do is no business of
//! a configuration, and is named.

use std::collections::BTreeMap;

/// A simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    pub(super) words: Vec<String>,
    /// The reason why the words are not all known: a variable without a text here, or a substitution.
    pub(super) unknown: Option<String>,
}

/// Splits a script into its commands.
pub(super) fn commands(text: &str) -> Vec<Command> {
    let mut splitter = Splitter {
        chars: text.chars().peekable(),
        line: 1,
        variables: BTreeMap::new(),
        commands: Vec::new(),
        current: None,
        word: None,
    };
    splitter.run();
    splitter.commands
}

struct Splitter<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    variables: BTreeMap<String, String>,
    commands: Vec<Command>,
    current: Option<Command>,
    word: Option<String>,
}

impl Splitter<'_> {
    fn next(&mut self) -> Option<char> {
        let char = self.chars.next();
        self.line += usize::from(char == Some('\n'));
        char
    }

    fn push(&mut self, char: char) {
        self.word.get_or_insert_default().push(char);
    }

    fn current(&mut self) -> &mut Command {
        let line = self.line;
        self.current.get_or_insert_with(|| Command {
            line,
            words: Vec::new(),
            unknown: None,
        })
    }

    fn unknown(&mut self, reason: String) {
        self.current().unknown.get_or_insert(reason);
        // The word exists, whatever its text would be.
        self.word.get_or_insert_default();
    }

    fn end_word(&mut self) {
        if let Some(word) = self.word.take() {
            self.current().words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        let Some(mut command) = self.current.take() else {
            return;
        };
        // Assignments before the command; alone, they set variables.
        let assignments = command
            .words
            .iter()
            .take_while(|word| assignment(word).is_some())
            .count();
        if assignments == command.words.len() {
            for (name, value) in command.words.iter().filter_map(|word| assignment(word)) {
                match command.unknown {
                    None => self.variables.insert(name.to_owned(), value.to_owned()),
                    Some(_) => self.variables.remove(name),
                };
            }
            return;
        }
        command.words.drain(..assignments);
        self.commands.push(command);
    }

    fn run(&mut self) {
        while let Some(char) = self.next() {
            match char {
                '\n' | ';' | '&' | '|' => {
                    if char == '\n' {
                        // The command began on the line before.
                        self.line -= 1;
                        self.end_command();
                        self.line += 1;
                    } else {
                        self.end_command();
                    }
                }
                char if char.is_whitespace() => self.end_word(),
                '#' if self.word.is_none() => {
                    while self.chars.peek().is_some_and(|char| *char != '\n') {
                        self.next();
                    }
                }
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(char) => self.push(char),
                },
                '\'' => {
                    self.current();
                    self.word.get_or_insert_default();
                    while let Some(char) = self.next() {
                        match char {
                            '\'' => break,
                            char => self.push(char),
                        }
                    }
                }
                '"' => {
                    self.current();
                    self.word.get_or_insert_default();
                    self.quoted();
                }
                '$' => self.variable(),
                '`' => self.substitution('`'),
                '<' | '>' => self.redirection(),
                char => {
                    self.current();
                    self.push(char);
                }
            }
        }
        self.end_command();
    }

    fn quoted(&mut self) {
        while let Some(char) = self.next() {
            match char {
                '"' => return,
                '$' => self.variable(),
                '`' => self.substitution('`'),
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(char @ ('"' | '\\' | '$' | '`')) => self.push(char),
                    Some(char) => {
                        self.push('\\');
                        self.push(char);
                    }
                },
                char => self.push(char),
            }
        }
    }

    fn variable(&mut self) {
        self.current();
        let is_name = |char: &char| char.is_ascii_alphanumeric() || *char == '_';
        let mut name = String::new();
        match self.chars.peek() {
            Some('(') => return self.substitution(')'),
            Some('{') => {
                self.next();
                while let Some(char) = self.next() {
                    match char {
                        '}' => break,
                        char => name.push(char),
                    }
                }
            }
            Some(char) if is_name(char) => {
                while let Some(char) = self.chars.peek().copied().filter(|char| is_name(char)) {
                    name.push(char);
                    self.next();
                }
            }
            _ => return self.push('$'),
        }
        match self.variables.get(&name).cloned() {
            Some(value) => self.word.get_or_insert_default().push_str(&value),
            None => self.unknown(format!(
                "${name} has no text in this script: expected its value in place"
            )),
        }
    }

    fn substitution(&mut self, end: char) {
        let mut depth = 0_usize;
        while let Some(char) = self.next() {
            match char {
                '(' if end == ')' => depth += 1,
                char if char == end => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
        }
        self.unknown("the output of a command is not known here: expected its text in place".to_owned());
    }

    /// Skips a redirection and its file: `>/dev/null`, `2>&1`.
    fn redirection(&mut self) {
        if self
            .word
            .as_ref()
            .is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
        {
            self.word = None;
        }
        self.end_word();
        while self
            .chars
            .peek()
            .is_some_and(|char| matches!(char, '>' | '<' | '&' | ' '))
        {
            self.next();
        }
        while self
            .chars
            .peek()
            .is_some_and(|char| !char.is_whitespace() && !matches!(char, ';' | '|' | '&'))
        {
            self.next();
        }
    }
}

/// Returns the name and the value of an assignment.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let mut bytes = name.bytes();
    let is_name = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        commands(text).into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(
            words(
                "a 'b c' \"d \\\"e\\\" \\f\" g\\ h # comment\ni -- j \\\n  k && l; m '' >/dev/null 2>&1 | n"
            ),
            [
                vec!["a", "b c", "d \"e\" \\f", "g h"],
                vec!["i", "--", "j", "k"],
                vec!["l"],
                vec!["m", ""],
                vec!["n"],
            ]
        );
    }

    #[test]
    fn a_command_has_the_line_on_which_it_begins() {
        let found = commands("# head\n\na b\nc \\\n d\ne\n");
        assert_eq!(
            found.iter().map(|command| command.line).collect::<Vec<_>>(),
            [3, 4, 6]
        );
    }

    #[test]
    fn variables_of_the_script_have_their_texts_and_others_are_named() {
        let found = commands("BR=br0\nN='a b'\nX=$(date)\nuse $BR ${BR}x \"$N\"\nuse $X\nuse `id` y\n");
        assert_eq!(found[0].words, ["use", "br0", "br0x", "a b"]);
        assert_eq!(found[0].unknown, None);
        assert!(found[1].unknown.as_ref().unwrap().starts_with("$X"), "{found:?}");
        assert!(found[2].unknown.is_some() && found[2].words.len() == 3);
    }
}
