//! The evaluation of expressions, with its work counted.

use super::error::XPathError;
use super::function::{Function, of_number, of_texts, substring};
use super::parse::{Expression, Origin, Step};
use super::token::Operator;
use super::tree::{ROOT, Tree};
use super::value::{Value, number_of, text_of};

/// The node at which an expression is evaluated, its place among those that a predicate looks at (from 1 on), and their number.
#[derive(Debug, Clone, Copy)]
struct Context {
    node: u32,
    position: usize,
    size: usize,
}

/// An evaluation over a tree.
#[derive(Debug)]
pub(super) struct Evaluation<'a> {
    tree: &'a Tree<'a>,
    left: u64,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(tree: &'a Tree<'a>, work: u64) -> Evaluation<'a> {
        Evaluation { tree, left: work }
    }

    /// Returns the nodes that are the value of an expression at the root, in document order.
    pub(super) fn nodes(&mut self, expression: &Expression) -> Result<Vec<u32>, XPathError> {
        let context = Context {
            node: ROOT,
            position: 1,
            size: 1,
        };
        let value = self.value_at(expression, context)?;
        nodes(&value).map(<[u32]>::to_vec)
    }

    fn spend(&mut self, work: u64) -> Result<(), XPathError> {
        self.left = self.left.checked_sub(work).ok_or(XPathError::TooMuchWork)?;
        Ok(())
    }

    fn value_at(&mut self, expression: &Expression, context: Context) -> Result<Value, XPathError> {
        self.spend(1)?;
        match expression {
            Expression::Literal(text) => {
                self.spend(text.len() as u64)?;
                Ok(Value::Text(text.clone()))
            }
            Expression::Number(number) => Ok(Value::Number(*number)),
            Expression::Negation(operand) => {
                let value = self.value_at(operand, context)?;
                Ok(Value::Number(-self.number(Some(&value))?))
            }
            Expression::Call(function, arguments) => self.call(*function, arguments, context),
            Expression::Path(origin, steps) => self.path(origin, steps, context).map(Value::Nodes),
            Expression::Binary(operator, operands) => self.binary(*operator, operands, context),
        }
    }

    fn binary(
        &mut self,
        operator: Operator,
        [left, right]: &[Expression; 2],
        context: Context,
    ) -> Result<Value, XPathError> {
        let left = self.value_at(left, context)?;
        match operator {
            Operator::Or if left.is_true() => return Ok(Value::Boolean(true)),
            Operator::And if !left.is_true() => return Ok(Value::Boolean(false)),
            _ => {}
        }
        let right = self.value_at(right, context)?;
        match operator {
            Operator::Or | Operator::And => Ok(Value::Boolean(right.is_true())),
            Operator::Union => {
                let (Value::Nodes(mut nodes), Value::Nodes(others)) = (left, right) else {
                    return Err(XPathError::NotNodes("value beside `|` that is no set of nodes"));
                };
                nodes.extend(others);
                self.in_order(nodes).map(Value::Nodes)
            }
            Operator::Plus | Operator::Minus | Operator::Times | Operator::Divide | Operator::Modulo => {
                let (left, right) = (self.number(Some(&left))?, self.number(Some(&right))?);
                Ok(Value::Number(match operator {
                    Operator::Plus => left + right,
                    Operator::Minus => left - right,
                    Operator::Times => left * right,
                    Operator::Divide => left / right,
                    _ => left % right,
                }))
            }
            _ => self.compare(operator, &left, &right).map(Value::Boolean),
        }
    }

    /// Compares values (XPath 1.0, section 3.4): a set of nodes compares as one of its nodes that makes the comparison true.
    fn compare(&mut self, operator: Operator, left: &Value, right: &Value) -> Result<bool, XPathError> {
        let is_boolean = |value: &Value| matches!(value, Value::Boolean(_));
        let is_equality = matches!(operator, Operator::Equal | Operator::Unequal);
        if is_boolean(left) || is_boolean(right) {
            let [left, right] = [left, right].map(Value::is_true);
            return Ok(match is_equality {
                true => (left == right) == (operator == Operator::Equal),
                false => holds(operator, f64::from(u8::from(left)), f64::from(u8::from(right))),
            });
        }
        let is_number = matches!(left, Value::Number(_)) || matches!(right, Value::Number(_));
        if is_equality && !is_number {
            let (left, right) = (self.texts(left)?, self.texts(right)?);
            for one in &left {
                for other in &right {
                    self.spend(1)?;
                    if (one == other) == (operator == Operator::Equal) {
                        return Ok(true);
                    }
                }
            }
            return Ok(false);
        }
        let (left, right) = (self.numbers(left)?, self.numbers(right)?);
        for one in &left {
            for other in &right {
                self.spend(1)?;
                if holds(operator, *one, *other) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the texts with which a value is compared: that of each node, or its own.
    fn texts(&mut self, value: &Value) -> Result<Vec<String>, XPathError> {
        match value {
            Value::Nodes(nodes) => nodes.iter().map(|node| self.text_of_node(*node)).collect(),
            other => Ok(vec![self.text(other)?]),
        }
    }

    fn numbers(&mut self, value: &Value) -> Result<Vec<f64>, XPathError> {
        match value {
            Value::Nodes(_) => Ok(self.texts(value)?.iter().map(|text| number_of(text)).collect()),
            other => Ok(vec![self.number(Some(other))?]),
        }
    }

    fn text_of_node(&mut self, node: u32) -> Result<String, XPathError> {
        let mut text = String::new();
        let visited = self.tree.text(node, &mut text);
        self.spend(visited + text.len() as u64)?;
        Ok(text)
    }

    /// Returns a value as text; nodes have that of the first.
    fn text(&mut self, value: &Value) -> Result<String, XPathError> {
        match value {
            Value::Nodes(nodes) => nodes
                .first()
                .map_or(Ok(String::new()), |node| self.text_of_node(*node)),
            Value::Number(number) => Ok(text_of(*number)),
            Value::Text(text) => {
                self.spend(text.len() as u64)?;
                Ok(text.clone())
            }
            Value::Boolean(value) => Ok(value.to_string()),
        }
    }

    /// Returns a value as number; NaN for none.
    fn number(&mut self, value: Option<&Value>) -> Result<f64, XPathError> {
        match value {
            None => Ok(f64::NAN),
            Some(Value::Number(number)) => Ok(*number),
            Some(Value::Boolean(value)) => Ok(f64::from(u8::from(*value))),
            Some(other) => Ok(number_of(&self.text(other)?)),
        }
    }

    /// Returns the value of a call. A function without arguments that needs one takes the node of the context.
    fn call(
        &mut self,
        function: Function,
        arguments: &[Expression],
        context: Context,
    ) -> Result<Value, XPathError> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.value_at(argument, context)?);
        }
        let first = match values.first() {
            Some(first) => first.clone(),
            None => Value::Nodes(vec![context.node]),
        };
        match function {
            Function::Last => Ok(Value::Number(context.size as f64)),
            Function::Position => Ok(Value::Number(context.position as f64)),
            Function::True => Ok(Value::Boolean(true)),
            // Data has no languages, and no identifiers of a document type.
            Function::False | Function::Lang => Ok(Value::Boolean(false)),
            Function::Id => Ok(Value::Nodes(Vec::new())),
            Function::Boolean => Ok(Value::Boolean(first.is_true())),
            Function::Not => Ok(Value::Boolean(!first.is_true())),
            Function::Count => Ok(Value::Number(nodes(&first)?.len() as f64)),
            Function::LocalName | Function::NamespaceUri => {
                let element = nodes(&first)?.first().and_then(|node| self.tree.element(*node));
                Ok(Value::Text(element.map_or_else(
                    String::new,
                    |element| match function {
                        Function::LocalName => element.name.clone(),
                        _ => element.namespace.clone(),
                    },
                )))
            }
            Function::Sum => {
                let mut sum = 0.0;
                for node in nodes(&first)? {
                    sum += number_of(&self.text_of_node(*node)?);
                }
                Ok(Value::Number(sum))
            }
            Function::Number | Function::Ceiling | Function::Floor | Function::Round => {
                let number = self.number(Some(&first))?;
                Ok(Value::Number(of_number(function, number)))
            }
            Function::Substring => {
                let text = self.text(&first)?;
                let from = self.number(values.get(1))?;
                let length = match values.get(2) {
                    None => None,
                    length => Some(self.number(length)?),
                };
                Ok(Value::Text(substring(&text, from, length)))
            }
            _ => {
                let mut texts = vec![self.text(&first)?];
                for value in values.iter().skip(1) {
                    texts.push(self.text(value)?);
                }
                Ok(of_texts(function, &texts))
            }
        }
    }

    fn path(&mut self, origin: &Origin, steps: &[Step], context: Context) -> Result<Vec<u32>, XPathError> {
        let mut nodes = match origin {
            Origin::Root => vec![ROOT],
            Origin::Context => vec![context.node],
            Origin::Filtered(expression, predicates) => {
                let Value::Nodes(nodes) = self.value_at(expression, context)? else {
                    return Err(XPathError::NotNodes(
                        "value before a predicate or a step that is no set of nodes",
                    ));
                };
                self.filtered(nodes, predicates)?
            }
        };
        for step in steps {
            let mut next = Vec::new();
            for node in nodes {
                let mut along = Vec::new();
                let visited = self.tree.walk(step.axis, node, &mut along);
                self.spend(1 + visited)?;
                along.retain(|node| self.tree.is_match(*node, &step.test));
                next.extend(self.filtered(along, &step.predicates)?);
            }
            nodes = self.in_order(next)?;
        }
        Ok(nodes)
    }

    /// Keeps the nodes for which the predicates hold (XPath 1.0, section 2.4); a number is the position that holds.
    fn filtered(&mut self, mut nodes: Vec<u32>, predicates: &[Expression]) -> Result<Vec<u32>, XPathError> {
        for predicate in predicates {
            let size = nodes.len();
            let mut kept = Vec::new();
            for (index, node) in nodes.into_iter().enumerate() {
                let position = index + 1;
                let context = Context { node, position, size };
                let is_kept = match self.value_at(predicate, context)? {
                    Value::Number(number) => number == position as f64,
                    other => other.is_true(),
                };
                if is_kept {
                    kept.push(node);
                }
            }
            nodes = kept;
        }
        Ok(nodes)
    }

    /// Returns nodes in document order, each once.
    fn in_order(&mut self, mut nodes: Vec<u32>) -> Result<Vec<u32>, XPathError> {
        self.spend(nodes.len() as u64)?;
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }
}

fn nodes(value: &Value) -> Result<&[u32], XPathError> {
    match value {
        Value::Nodes(nodes) => Ok(nodes),
        Value::Number(_) => Err(XPathError::NotNodes("number")),
        Value::Boolean(_) => Err(XPathError::NotNodes("boolean")),
        Value::Text(_) => Err(XPathError::NotNodes("string")),
    }
}

fn holds(operator: Operator, left: f64, right: f64) -> bool {
    match operator {
        Operator::Equal => left == right,
        Operator::Unequal => left != right,
        Operator::Less => left < right,
        Operator::LessOrEqual => left <= right,
        Operator::Greater => left > right,
        Operator::GreaterOrEqual => left >= right,
        _ => false,
    }
}
