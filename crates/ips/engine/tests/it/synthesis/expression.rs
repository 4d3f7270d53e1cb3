//! Texts that a regular expression matches: the expression is read to a tree, and one way through the tree is written.
//!
//! Look-around is not evaluated: the caller compares the text with the expression, and asks for another one.

use super::random::Random;

/// A part of an expression.
#[derive(Debug, Clone)]
enum Node {
    Set(Vec<u8>),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
    Group(usize, Box<Node>),
    Back(usize),
    Ahead(Box<Node>),
    Start,
    End,
    Nothing,
}

/// A text that an expression may match.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    /// True if the match begins where the subject begins.
    pub(crate) starts: bool,
    /// True if the match ends where the subject ends.
    pub(crate) ends: bool,
}

/// An expression that was read.
#[derive(Debug)]
pub(crate) struct Expression {
    root: Node,
    groups: usize,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    groups: usize,
    names: Vec<(Vec<u8>, usize)>,
    is_extended: bool,
    nocase: bool,
}

fn set(matches: impl Fn(u8) -> bool) -> Vec<u8> {
    (0..=255).filter(|byte| matches(*byte)).collect()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let is_there = self.text[self.at..].starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    fn choice(&mut self) -> Option<Node> {
        let mut branches = vec![self.sequence()?];
        while self.eat(b"|") {
            branches.push(self.sequence()?);
        }
        match branches.len() {
            1 => branches.pop(),
            _ => Some(Node::Choice(branches)),
        }
    }

    fn sequence(&mut self) -> Option<Node> {
        let mut nodes = Vec::new();
        while let Some(byte) = self.peek().filter(|byte| !matches!(byte, b'|' | b')')) {
            if self.is_extended && is_space(byte) {
                self.at += 1;
                continue;
            }
            if self.is_extended && byte == b'#' {
                while self.take().is_some_and(|byte| byte != b'\n') {}
                continue;
            }
            let atom = self.atom()?;
            nodes.push(self.repeated(atom)?);
        }
        Some(Node::Sequence(nodes))
    }

    fn repeated(&mut self, mut node: Node) -> Option<Node> {
        loop {
            let (least, most) = match self.peek() {
                Some(b'*') => (0, None),
                Some(b'+') => (1, None),
                Some(b'?') => (0, Some(1)),
                Some(b'{') => match self.bounds() {
                    Some(bounds) => bounds,
                    None => return Some(node),
                },
                _ => return Some(node),
            };
            self.at += 1;
            if matches!(self.peek(), Some(b'?' | b'+')) {
                self.at += 1;
            }
            node = Node::Repeat(Box::new(node), least, most);
        }
    }

    /// Reads `{n}`, `{n,}` or `{n,m}`, and stops before the last bracket; `None` if the bracket is a literal.
    fn bounds(&mut self) -> Option<(usize, Option<usize>)> {
        let rest = &self.text[self.at + 1..];
        let size = rest.iter().position(|byte| *byte == b'}')?;
        let inside = std::str::from_utf8(&rest[..size]).ok()?;
        let (least, most) = match inside.split_once(',') {
            Some((least, "")) => (least, None),
            Some((least, most)) => (least, Some(most.parse().ok()?)),
            None => (inside, Some(inside.parse().ok()?)),
        };
        let least = least.parse().ok()?;
        self.at += 1 + size;
        Some((least, most))
    }

    fn literal(&self, byte: u8) -> Node {
        match self.nocase {
            true => Node::Set(set(|other| other.eq_ignore_ascii_case(&byte))),
            false => Node::Set(vec![byte]),
        }
    }

    fn atom(&mut self) -> Option<Node> {
        match self.take()? {
            b'(' => self.group(),
            b'[' => self.class().map(Node::Set),
            b'.' => Some(Node::Set(set(|byte| byte != b'\n'))),
            b'^' => Some(Node::Start),
            b'$' => Some(Node::End),
            b'\\' => self.escape(),
            byte => Some(self.literal(byte)),
        }
    }

    /// Reads a name up to a byte.
    fn name(&mut self, end: u8) -> Option<Vec<u8>> {
        let size = self.text[self.at..].iter().position(|byte| *byte == end)?;
        let name = self.text[self.at..self.at + size].to_vec();
        self.at += size + 1;
        Some(name)
    }

    fn group(&mut self) -> Option<Node> {
        let nocase = self.nocase;
        if self.eat(b"?") {
            let is_ahead = self.eat(b"=");
            if is_ahead || self.eat(b"!") || self.eat(b"<=") || self.eat(b"<!") {
                let inside = self.choice()?;
                self.eat(b")").then_some(())?;
                return Some(match is_ahead {
                    true => Node::Ahead(Box::new(inside)),
                    false => Node::Nothing,
                });
            }
            if self.eat(b"P=") {
                let name = self.name(b')')?;
                let known = self.names.iter().find(|(other, _)| *other == name)?;
                return Some(Node::Back(known.1));
            } else if self.eat(b"P<") || self.eat(b"<") {
                let name = self.name(b'>')?;
                self.names.push((name, self.groups + 1));
            } else if !self.eat(b":") && !self.eat(b">") {
                let mut is_on = true;
                loop {
                    match self.take()? {
                        b'-' => is_on = false,
                        b'i' => self.nocase = is_on,
                        b'x' => self.is_extended = is_on,
                        b':' => break,
                        b')' => return Some(Node::Nothing),
                        b's' | b'm' | b'U' => {}
                        _ => return None,
                    }
                }
                let inside = self.choice();
                self.nocase = nocase;
                return self.eat(b")").then_some(inside?);
            } else {
                let inside = self.choice();
                self.nocase = nocase;
                return self.eat(b")").then_some(inside?);
            }
        }
        self.groups += 1;
        let number = self.groups;
        let inside = self.choice()?;
        self.nocase = nocase;
        self.eat(b")").then(|| Node::Group(number, Box::new(inside)))
    }

    /// Reads what follows a backslash, in a class or not; `Err` is not a set of bytes.
    fn escaped(&mut self) -> Option<Result<Vec<u8>, Node>> {
        Some(Ok(match self.take()? {
            b'd' => set(|byte| byte.is_ascii_digit()),
            b'D' => set(|byte| !byte.is_ascii_digit()),
            b'w' => set(is_word),
            b'W' => set(|byte| !is_word(byte)),
            b's' => set(is_space),
            b'S' => set(|byte| !is_space(byte)),
            b'h' => vec![b' ', b'\t'],
            b'n' => vec![b'\n'],
            b'r' => vec![b'\r'],
            b't' => vec![b'\t'],
            b'f' => vec![0x0c],
            b'v' => vec![0x0b],
            b'e' => vec![0x1b],
            b'a' => vec![7],
            b'0' => vec![0],
            b'x' => {
                let digits = &self.text[self.at..];
                let size = digits
                    .iter()
                    .take(2)
                    .take_while(|byte| byte.is_ascii_hexdigit())
                    .count();
                let text = std::str::from_utf8(&digits[..size]).ok()?;
                self.at += size;
                vec![u8::from_str_radix(text, 16).unwrap_or(0)]
            }
            b'b' | b'B' | b'K' => return Some(Err(Node::Nothing)),
            b'A' => return Some(Err(Node::Start)),
            b'z' | b'Z' => return Some(Err(Node::End)),
            b'R' => vec![b'\n'],
            digit @ b'1'..=b'9' => return Some(Err(Node::Back(usize::from(digit - b'0')))),
            byte if byte.is_ascii_alphanumeric() => return None,
            byte => vec![byte],
        }))
    }

    fn escape(&mut self) -> Option<Node> {
        if self.eat(b"Q") {
            let rest = &self.text[self.at..];
            let size = rest
                .windows(2)
                .position(|pair| pair == b"\\E")
                .unwrap_or(rest.len());
            let nodes = rest[..size].iter().map(|byte| self.literal(*byte)).collect();
            self.at = (self.at + size + 2).min(self.text.len());
            return Some(Node::Sequence(nodes));
        }
        Some(match self.escaped()? {
            Ok(one) if one.len() == 1 => self.literal(one[0]),
            Ok(set) => Node::Set(set),
            Err(node) => node,
        })
    }

    fn class(&mut self) -> Option<Vec<u8>> {
        let is_negated = self.eat(b"^");
        let mut has = [false; 256];
        let mut is_first = true;
        loop {
            let byte = self.take()?;
            if byte == b']' && !is_first {
                break;
            }
            is_first = false;
            let first = match byte {
                b'[' if self.eat(b":") => {
                    let rest = &self.text[self.at..];
                    let size = rest.windows(2).position(|pair| pair == b":]")?;
                    let matches: fn(&u8) -> bool = match &rest[..size] {
                        b"alpha" => u8::is_ascii_alphabetic,
                        b"digit" => u8::is_ascii_digit,
                        b"alnum" => u8::is_ascii_alphanumeric,
                        b"space" => u8::is_ascii_whitespace,
                        b"upper" => u8::is_ascii_uppercase,
                        b"lower" => u8::is_ascii_lowercase,
                        b"punct" => u8::is_ascii_punctuation,
                        b"xdigit" => u8::is_ascii_hexdigit,
                        b"print" | b"graph" => u8::is_ascii_graphic,
                        _ => return None,
                    };
                    self.at += size + 2;
                    (0..=255u8)
                        .filter(matches)
                        .for_each(|byte| has[usize::from(byte)] = true);
                    continue;
                }
                b'\\' if self.peek() == Some(b'b') => {
                    self.at += 1;
                    8
                }
                b'\\' => match self.escaped()?.ok()? {
                    one if one.len() == 1 => one[0],
                    many => {
                        many.iter().for_each(|byte| has[usize::from(*byte)] = true);
                        continue;
                    }
                },
                byte => byte,
            };
            let is_range =
                self.peek() == Some(b'-') && self.text.get(self.at + 1).is_some_and(|it| *it != b']');
            let last = match is_range {
                false => first,
                true => {
                    self.at += 1;
                    match self.take()? {
                        b'\\' => *self.escaped()?.ok()?.first()?,
                        byte => byte,
                    }
                }
            };
            (first..=last).for_each(|byte| has[usize::from(byte)] = true);
        }
        if self.nocase {
            for byte in 0..=255u8 {
                let other = byte.to_ascii_uppercase();
                let is_there = has[usize::from(byte)] || has[usize::from(other)];
                has[usize::from(byte)] = is_there;
                has[usize::from(other)] = is_there;
            }
        }
        Some(set(|byte| has[usize::from(byte)] != is_negated))
    }
}

struct Writer<'a> {
    out: Text,
    groups: Vec<Vec<u8>>,
    random: &'a mut Random,
}

impl Writer<'_> {
    fn write(&mut self, node: &Node) -> Option<()> {
        const LONGEST: usize = 70_000;
        if self.out.bytes.len() > LONGEST {
            return None;
        }
        match node {
            Node::Set(set) => {
                let byte = self.pick(set)?;
                self.out.bytes.push(byte);
            }
            Node::Sequence(nodes) => nodes.iter().try_for_each(|node| self.write(node))?,
            Node::Choice(branches) => {
                let at = self.random.below(branches.len());
                self.write(&branches[at])?;
            }
            Node::Repeat(node, least, most) => {
                let more = most.unwrap_or(usize::MAX).saturating_sub(*least).min(3);
                let extra = match self.random.one_in(2) {
                    true => 0,
                    false => self.random.below(more + 1),
                };
                for _ in 0..least + extra {
                    self.write(node)?;
                }
            }
            Node::Group(number, node) => {
                let from = self.out.bytes.len();
                self.write(node)?;
                self.groups[*number] = self.out.bytes[from..].to_vec();
            }
            Node::Back(number) => {
                let group = self.groups.get(*number)?.clone();
                self.out.bytes.extend(group);
            }
            Node::Ahead(node) => {
                if self.random.one_in(2) {
                    self.write(node)?;
                }
            }
            Node::Start => self.out.starts |= self.out.bytes.is_empty(),
            Node::End => self.out.ends = true,
            Node::Nothing => {}
        }
        Some(())
    }

    /// Returns a byte of a set: a letter or a digit if it has one, else one that can be printed.
    fn pick(&mut self, set: &[u8]) -> Option<u8> {
        let kinds: [fn(&&u8) -> bool; 3] = [
            |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(),
            |byte| byte.is_ascii_alphanumeric(),
            |byte| byte.is_ascii_graphic(),
        ];
        for kind in kinds {
            let some: Vec<u8> = set.iter().filter(kind).copied().collect();
            if !some.is_empty() {
                return Some(self.random.choose(&some));
            }
        }
        (!set.is_empty()).then(|| self.random.choose(set))
    }
}

impl Expression {
    /// Reads an expression with its flags; `None` if it has parts that are not known here.
    pub(crate) fn read(pattern: &str, flags: &str) -> Option<Expression> {
        // The text of a rule is read as characters of Latin-1.
        let text: Vec<u8> = pattern.bytes().collect();
        let mut reader = Reader {
            text: &text,
            at: 0,
            groups: 0,
            names: Vec::new(),
            is_extended: flags.contains('x'),
            nocase: flags.contains('i'),
        };
        let root = reader.choice()?;
        (reader.at == text.len()).then_some(Expression {
            root,
            groups: reader.groups,
        })
    }

    /// Returns a text that the expression may match.
    pub(crate) fn write(&self, random: &mut Random) -> Option<Text> {
        let mut writer = Writer {
            out: Text::default(),
            groups: vec![Vec::new(); self.groups + 1],
            random,
        };
        writer.write(&self.root)?;
        Some(writer.out)
    }
}

#[test]
fn texts_have_the_form_of_their_expression() {
    let text = |pattern, flags| {
        let expression = Expression::read(pattern, flags).unwrap();
        let text = expression.write(&mut Random(1)).unwrap();
        (String::from_utf8(text.bytes).unwrap(), text.starts, text.ends)
    };
    assert_eq!(text(r"^a\.b(c)\1\x41$", ""), ("a.bccA".to_owned(), true, true));
    assert_eq!(
        text(r"(?:x|x)[^\S\r\n\t\x0b\x0c]{2}", ""),
        ("x  ".to_owned(), false, false)
    );
    assert_eq!(text(r"[[:digit:]]{3}", "").0.len(), 3);
    assert_eq!(text(r"(?P<a>xy)(?P=a)", "").0, "xyxy");
}
