//! Options that read a number from the traffic.

use std::cell::Cell;

use millrace_ips_rules::Reason;
use millrace_ips_rules::options::bytes::{ByteKind, ByteOption};
use millrace_ips_rules::options::content;

use super::super::program::{
    Endianness, JumpBase, MathOperator, NumberForm, NumberSource, Operand, Operation, TestOperator, VARIABLES,
};

/// The list that operations are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum List {
    #[default]
    Payload,
    /// The buffer test with this index.
    Buffer(usize),
}

/// A list of operations, and what it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) list: List,
    /// True if the buffer of the list is a part of a packet and not of a transaction.
    pub(super) is_of_packet: bool,
}

/// The names of the variables of a rule, in the order of their indices. A variable is known to the list of operations that sets
/// it, and to those that are evaluated behind that list.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: Vec<(String, Place)>,
    /// The place whose operations are compiled.
    place: Place,
    /// True if a list uses a variable that a buffer of a transaction sets in another list.
    are_shared: Cell<bool>,
}

impl Names {
    /// Returns the names for operations at a place.
    pub(super) fn of(&mut self, place: Place) -> &mut Names {
        self.place = place;
        self
    }

    /// Returns true if the values of variables must be kept for lists that are evaluated later, perhaps with another packet.
    pub(super) fn are_shared(&self) -> bool {
        self.are_shared.get()
    }

    /// Returns the index of a variable.
    fn find(&self, name: &str) -> Result<Option<u8>, Reason> {
        let Some(at) = self.known.iter().position(|(known, _)| known == name) else {
            return Ok(None);
        };
        let (set, used) = (self.known[at].1, self.place);
        let is_known = match (set.list, used.list) {
            (before, same) if before == same => true,
            (List::Buffer(before), List::Buffer(behind)) => {
                before < behind && set.is_of_packet == used.is_of_packet
            }
            // The payload is evaluated behind all buffers.
            (List::Buffer(_), List::Payload) => true,
            (List::Payload, _) => false,
        };
        if !is_known {
            return Err(Reason::Invalid {
                problem: format!("the variable {name} is set by operations that are evaluated later"),
                expected: "variables of the same buffer, or of a buffer before it; the payload comes behind the buffers, and \
                    headers of packets are apart from the buffers of protocols",
            });
        }
        if set.list != used.list && !set.is_of_packet {
            self.are_shared.set(true);
        }
        Ok(Some(at as u8))
    }

    /// Returns the index of a variable that the option sets.
    fn define(&mut self, name: &str) -> Result<u8, Reason> {
        if let Some(known) = self.find(name)? {
            return Ok(known);
        }
        if self.known.len() >= VARIABLES {
            return Err(Reason::Limit {
                unit: "variables of byte_extract and byte_math in a rule",
                limit: VARIABLES,
            });
        }
        self.known.push((name.to_owned(), self.place));
        Ok((self.known.len() - 1) as u8)
    }

    /// Compiles an operand.
    pub(super) fn operand(&self, operand: &content::Operand) -> Result<Operand, Reason> {
        match operand {
            content::Operand::Number(number) => Ok(Operand::Number(*number)),
            content::Operand::Name(name) => match self.find(name)? {
                Some(at) => Ok(Operand::Variable(at)),
                None => Err(Reason::Invalid {
                    problem: format!("the variable {name} is not set before it is used"),
                    expected: "byte_extract or byte_math with that name before this option",
                }),
            },
        }
    }
}

/// The optional arguments of an option, after those with fixed positions.
struct Arguments {
    is_relative: bool,
    endianness: Endianness,
    base: Option<u32>,
    multiplier: u64,
    align: u64,
    from: JumpBase,
    post_offset: Operand,
    bitmask: u64,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn arguments(option: &ByteOption, names: &Names) -> Result<Arguments, Reason> {
    const FORM: &str = "arguments with numbers, decimal or with 0x before them";
    let mut all = Arguments {
        is_relative: false,
        endianness: Endianness::Big,
        base: None,
        multiplier: 1,
        align: 0,
        from: JumpBase::Number,
        post_offset: Operand::Number(0),
        bitmask: 0,
    };
    for argument in &option.arguments {
        let wrong = || Reason::Invalid {
            problem: format!("the argument {argument}"),
            expected: FORM,
        };
        let mut parts = argument.split_whitespace();
        let (name, value) = (parts.next().unwrap_or_default(), parts.next());
        let amount = || value.and_then(number).ok_or_else(wrong);
        match name {
            "relative" => all.is_relative = true,
            "big" => all.endianness = Endianness::Big,
            "little" => all.endianness = Endianness::Little,
            "endian" if value == Some("little") => all.endianness = Endianness::Little,
            "endian" => all.endianness = Endianness::Big,
            "dce" => all.endianness = Endianness::Dce,
            "string" => {
                all.base = Some(match value {
                    Some("hex") => 16,
                    Some("oct") => 8,
                    Some("dec") => 10,
                    _ => all.base.unwrap_or(10),
                });
            }
            "hex" => all.base = Some(16),
            "oct" => all.base = Some(8),
            "dec" => all.base = Some(10),
            "align" if value.is_none() => all.align = 4,
            "align" => all.align = amount()?,
            "multiplier" => all.multiplier = amount()?,
            "from_beginning" => all.from = JumpBase::Beginning,
            "from_end" => all.from = JumpBase::End,
            "bitmask" => all.bitmask = amount()?,
            "post_offset" => {
                let text = value.ok_or_else(wrong)?;
                all.post_offset = match text.parse() {
                    Ok(number) => Operand::Number(number),
                    Err(_) => names.operand(&content::Operand::Name(text.to_owned()))?,
                };
            }
            _ => return Err(wrong()),
        }
    }
    Ok(all)
}

/// Compiles the option.
pub(super) fn compile(option: &ByteOption, names: &mut Names) -> Result<Operation, Reason> {
    let arguments = arguments(option, names)?;
    let form = match arguments.base {
        Some(base) => NumberForm::Digits(base),
        None if option.size != content::Operand::Number(0) => NumberForm::Binary(arguments.endianness),
        None if option.kind == ByteKind::Jump => NumberForm::Nothing,
        None => {
            return Err(Reason::Invalid {
                problem: format!("{} of 0 bytes", option.kind.word()),
                expected: "1 to 8 bytes; 0 for all digits of a string (string), or in byte_jump",
            });
        }
    };
    let source = NumberSource {
        size: names.operand(&option.size)?,
        offset: names.operand(&option.offset)?,
        is_relative: arguments.is_relative,
        form,
        bitmask: arguments.bitmask,
    };
    let value = match &option.value {
        Some(value) => names.operand(value)?,
        None => Operand::Number(0),
    };
    let missing = |expected| Reason::Invalid {
        problem: "an argument is missing".to_owned(),
        expected,
    };
    Ok(match option.kind {
        ByteKind::Test => {
            let text = option.operator.as_deref().unwrap_or_default();
            let (is_negated, bare) = match text.strip_prefix('!') {
                Some("") => (true, "="),
                Some(rest) => (true, rest),
                None => (false, text),
            };
            let operator = match bare {
                "<" => TestOperator::Less,
                ">" => TestOperator::Greater,
                "=" => TestOperator::Equal,
                "<=" => TestOperator::LessOrEqual,
                ">=" => TestOperator::GreaterOrEqual,
                "&" => TestOperator::And,
                "^" => TestOperator::Xor,
                _ => return Err(missing("an operator")),
            };
            Operation::ByteTest {
                source,
                operator,
                is_negated,
                value,
            }
        }
        ByteKind::Jump => Operation::ByteJump {
            source,
            multiplier: arguments.multiplier,
            align: arguments.align,
            base: arguments.from,
            post_offset: arguments.post_offset,
        },
        ByteKind::Extract => {
            let name = option.result.as_deref().ok_or_else(|| missing("a name"))?;
            Operation::ByteExtract {
                source,
                multiplier: arguments.multiplier,
                align: arguments.align,
                variable: names.define(name)?,
            }
        }
        ByteKind::Math => {
            let operator = match option.operator.as_deref().unwrap_or_default() {
                "+" => MathOperator::Add,
                "-" => MathOperator::Subtract,
                "*" => MathOperator::Multiply,
                "/" => MathOperator::Divide,
                "<<" => MathOperator::ShiftLeft,
                ">>" => MathOperator::ShiftRight,
                _ => return Err(missing("an operator")),
            };
            let name = option.result.as_deref().ok_or_else(|| missing("a name"))?;
            Operation::ByteMath {
                source,
                operator,
                value,
                variable: names.define(name)?,
            }
        }
    })
}
