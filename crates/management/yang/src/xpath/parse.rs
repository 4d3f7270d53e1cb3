//! The grammar of expressions (XPath 1.0, sections 2 and 3).

use super::error::XPathError;
use super::function::Function;
use super::token::{Operator, Token, tokens};

/// The limit of the depth of parentheses and predicates.
const DEPTH_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Binary(Operator, Box<[Expression; 2]>),
    Negation(Box<Expression>),
    Literal(String),
    Number(f64),
    Call(Function, Vec<Expression>),
    Path(Origin, Vec<Step>),
}

/// The nodes with which a path begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Origin {
    Root,
    Context,
    /// Those of an expression that satisfy predicates.
    Filtered(Box<Expression>, Vec<Expression>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) axis: Axis,
    pub(super) test: Test,
    pub(super) predicates: Vec<Expression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Parent,
    Preceding,
    PrecedingSibling,
    Itself,
    /// `attribute` or `namespace`, whose nodes data does not have.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    /// `node()`
    Any,
    /// `text()`
    Text,
    /// `comment()` or `processing-instruction()`, which data does not have.
    Nothing,
    /// An element: of a namespace, if there is one; with a name, unless it is `*`.
    Element {
        namespace: Option<String>,
        name: Option<String>,
    },
}

/// Reads an expression.
pub(super) fn parse(text: &str, namespaces: &[(&str, &str)]) -> Result<Expression, XPathError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        end: text.len(),
        depth: 0,
        namespaces,
    };
    let expression = parser.expression()?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.expected("an operator or the end")),
    }
}

struct Parser<'a> {
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    end: usize,
    depth: usize,
    namespaces: &'a [(&'a str, &'a str)],
}

/// The operators with two operands, from the weakest on.
const LEVELS: [&[Operator]; 7] = [
    &[Operator::Or],
    &[Operator::And],
    &[Operator::Equal, Operator::Unequal],
    &[
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
    ],
    &[Operator::Plus, Operator::Minus],
    &[Operator::Times, Operator::Divide, Operator::Modulo],
    &[Operator::Union],
];
/// The level of `|`, which binds more than a sign.
const UNION: usize = 6;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|(_, token)| *token)
    }

    fn take(&mut self, token: &Token<'_>) -> bool {
        let is_it = self.peek().as_ref() == Some(token);
        self.at += usize::from(is_it);
        is_it
    }

    fn offset(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(at, _)| *at)
    }

    fn expected(&self, what: &str) -> XPathError {
        XPathError::Syntax {
            at: self.offset(),
            expected: what.to_owned(),
        }
    }

    fn need(&mut self, token: &Token<'_>, what: &str) -> Result<(), XPathError> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.expected(what)),
        }
    }

    fn expression(&mut self) -> Result<Expression, XPathError> {
        if self.depth == DEPTH_MAX {
            return Err(XPathError::TooLong(format!(
                "{DEPTH_MAX} levels of parentheses and predicates"
            )));
        }
        self.depth += 1;
        let expression = self.binary(0);
        self.depth -= 1;
        expression
    }

    fn binary(&mut self, level: usize) -> Result<Expression, XPathError> {
        if level == UNION && self.take(&Token::Operator(Operator::Minus)) {
            let mut negations = 1;
            while self.take(&Token::Operator(Operator::Minus)) {
                negations += 1;
            }
            let mut operand = self.binary(UNION)?;
            for _ in 0..negations {
                operand = Expression::Negation(Box::new(operand));
            }
            return Ok(operand);
        }
        let Some(operators) = LEVELS.get(level) else {
            return self.path();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(Token::Operator(operator)) = self.peek()
            && operators.contains(&operator)
        {
            self.at += 1;
            let right = self.binary(level + 1)?;
            left = Expression::Binary(operator, Box::new([left, right]));
        }
        Ok(left)
    }

    fn path(&mut self) -> Result<Expression, XPathError> {
        if self.take(&Token::Slash) {
            let steps = match self.begins_step() {
                true => self.steps(Vec::new())?,
                false => Vec::new(),
            };
            return Ok(Expression::Path(Origin::Root, steps));
        }
        if self.take(&Token::SlashSlash) {
            return Ok(Expression::Path(Origin::Root, self.steps(vec![anywhere()])?));
        }
        if self.begins_step() {
            return Ok(Expression::Path(Origin::Context, self.steps(Vec::new())?));
        }
        let primary = self.primary()?;
        let predicates = self.predicates()?;
        let steps = match self.peek() {
            Some(Token::Slash) => {
                self.at += 1;
                self.steps(Vec::new())?
            }
            Some(Token::SlashSlash) => {
                self.at += 1;
                self.steps(vec![anywhere()])?
            }
            _ if predicates.is_empty() => return Ok(primary),
            _ => Vec::new(),
        };
        Ok(Expression::Path(
            Origin::Filtered(Box::new(primary), predicates),
            steps,
        ))
    }

    fn begins_step(&self) -> bool {
        match self.peek() {
            Some(Token::Dot | Token::DotDot | Token::At | Token::Axis(_) | Token::Name { .. }) => true,
            Some(Token::Function(name)) => kind_of_node(name).is_some(),
            _ => false,
        }
    }

    fn steps(&mut self, mut steps: Vec<Step>) -> Result<Vec<Step>, XPathError> {
        loop {
            steps.push(self.step()?);
            if self.take(&Token::SlashSlash) {
                steps.push(anywhere());
            } else if !self.take(&Token::Slash) {
                return Ok(steps);
            }
        }
    }

    fn step(&mut self) -> Result<Step, XPathError> {
        let alone = |axis| Step {
            axis,
            test: Test::Any,
            predicates: Vec::new(),
        };
        if self.take(&Token::Dot) {
            return Ok(alone(Axis::Itself));
        }
        if self.take(&Token::DotDot) {
            return Ok(alone(Axis::Parent));
        }
        let axis = match self.peek() {
            Some(Token::At) => Some(Axis::Nothing),
            Some(Token::Axis(name)) => Some(axis(name).ok_or_else(|| self.expected("the name of an axis"))?),
            _ => None,
        };
        self.at += usize::from(axis.is_some());
        let test = self.test()?;
        Ok(Step {
            axis: axis.unwrap_or(Axis::Child),
            test,
            predicates: self.predicates()?,
        })
    }

    fn test(&mut self) -> Result<Test, XPathError> {
        match self.peek() {
            Some(Token::Name { prefix, local }) => {
                let namespace = match prefix {
                    None => None,
                    Some(prefix) => Some(self.namespace(prefix)?),
                };
                self.at += 1;
                let name = (local != "*").then(|| local.to_owned());
                Ok(Test::Element { namespace, name })
            }
            Some(Token::Function(name)) if let Some(test) = kind_of_node(name) => {
                self.at += 1;
                self.need(&Token::Open, "`(`")?;
                if name == "processing-instruction" && matches!(self.peek(), Some(Token::Literal(_))) {
                    self.at += 1;
                }
                self.need(&Token::Close, "`)`")?;
                Ok(test)
            }
            _ => Err(self.expected("a name, `*`, `node()` or `text()`")),
        }
    }

    fn namespace(&self, prefix: &str) -> Result<String, XPathError> {
        let declared = self.namespaces.iter().rev().find(|(known, _)| *known == prefix);
        let (_, namespace) = declared.ok_or_else(|| XPathError::Prefix {
            at: self.offset(),
            prefix: prefix.to_owned(),
        })?;
        Ok((*namespace).to_owned())
    }

    fn predicates(&mut self) -> Result<Vec<Expression>, XPathError> {
        let mut list = Vec::new();
        while self.take(&Token::OpenBracket) {
            list.push(self.expression()?);
            self.need(&Token::CloseBracket, "`]`")?;
        }
        Ok(list)
    }

    fn primary(&mut self) -> Result<Expression, XPathError> {
        let Some(token) = self.peek() else {
            return Err(self.expected("a path, a value or a function"));
        };
        match token {
            Token::Literal(text) => {
                self.at += 1;
                Ok(Expression::Literal(text.to_owned()))
            }
            Token::Number(number) => {
                self.at += 1;
                Ok(Expression::Number(number))
            }
            Token::Open => {
                self.at += 1;
                let inner = self.expression()?;
                self.need(&Token::Close, "`)`")?;
                Ok(inner)
            }
            Token::Function(name) => {
                let (function, arguments) =
                    Function::of(name).ok_or_else(|| self.expected("a function of XPath 1.0"))?;
                let begin = self.offset();
                self.at += 1;
                let given = self.arguments()?;
                match arguments.contains(&given.len()) {
                    true => Ok(Expression::Call(function, given)),
                    false => Err(XPathError::Syntax {
                        at: begin,
                        expected: format!(
                            "{name}() with {} to {} arguments",
                            arguments.start(),
                            arguments.end()
                        ),
                    }),
                }
            }
            _ => Err(self.expected("a path, a value or a function")),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, XPathError> {
        self.need(&Token::Open, "`(`")?;
        let mut list = Vec::new();
        if self.take(&Token::Close) {
            return Ok(list);
        }
        loop {
            list.push(self.expression()?);
            if self.take(&Token::Close) {
                return Ok(list);
            }
            self.need(&Token::Comma, "`,` or `)`")?;
        }
    }
}

/// Returns the step that `//` stands for.
fn anywhere() -> Step {
    Step {
        axis: Axis::DescendantOrSelf,
        test: Test::Any,
        predicates: Vec::new(),
    }
}

fn kind_of_node(name: &str) -> Option<Test> {
    match name {
        "node" => Some(Test::Any),
        "text" => Some(Test::Text),
        "comment" | "processing-instruction" => Some(Test::Nothing),
        _ => None,
    }
}

fn axis(name: &str) -> Option<Axis> {
    Some(match name {
        "ancestor" => Axis::Ancestor,
        "ancestor-or-self" => Axis::AncestorOrSelf,
        "attribute" | "namespace" => Axis::Nothing,
        "child" => Axis::Child,
        "descendant" => Axis::Descendant,
        "descendant-or-self" => Axis::DescendantOrSelf,
        "following" => Axis::Following,
        "following-sibling" => Axis::FollowingSibling,
        "parent" => Axis::Parent,
        "preceding" => Axis::Preceding,
        "preceding-sibling" => Axis::PrecedingSibling,
        "self" => Axis::Itself,
        _ => return None,
    })
}
