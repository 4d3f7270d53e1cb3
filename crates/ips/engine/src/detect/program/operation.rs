//! The operations of a rule over bytes: of a payload, a stream, or a buffer of a transaction.

use core::hash::{Hash, Hasher};
use std::sync::Arc;

use memchr::memmem::Finder;
use millrace_ips_pcre::Regex;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::dataset::{SetTest, SetType};
use millrace_ips_rules::options::entropy::Entropy;
use millrace_ips_rules::options::number::Comparison;
use millrace_ips_rules::options::transform::Transform;

use super::values::{JsonSet, Values};
use crate::flow::Direction;

/// A number of a rule: known when the rule is loaded, or read from the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    Number(i64),
    /// The variable with this index.
    Variable(u8),
}

/// A pattern and the positions at which it may be.
#[derive(Debug)]
pub struct ContentTest {
    /// The bytes; in lower case if case does not matter.
    pub pattern: Box<[u8]>,
    /// The searcher for the pattern; `None` if case does not matter.
    pub finder: Option<Box<Finder<'static>>>,
    /// True if the pattern must not be there.
    pub is_negated: bool,
    /// True if ASCII letters match in upper and lower case.
    pub nocase: bool,
    /// First byte at which the pattern may begin.
    pub offset: Option<Operand>,
    /// Number of bytes from the offset within which the pattern must be.
    pub depth: Option<Operand>,
    /// Smallest distance from the end of the last match.
    pub distance: Option<Operand>,
    /// Number of bytes within which the pattern must be, counted from the end of the last match plus the distance.
    pub within: Option<Operand>,
    /// True if the pattern ends the buffer.
    pub endswith: bool,
}

impl ContentTest {
    /// Returns true if the position depends on the end of the last match.
    pub fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// A regular expression.
#[derive(Debug)]
pub struct PcreTest {
    /// The expression.
    pub regex: Arc<Regex>,
    /// The expression as the rule writes it.
    pub text: Box<str>,
    /// True if the expression must not match.
    pub is_negated: bool,
    /// True if the subject begins at the end of the last match.
    pub is_relative: bool,
    /// The groups that records show, in their order.
    pub captures: Box<[Capture]>,
}

/// A group of an expression that records show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// Number of the group, from 1.
    pub group: u32,
    pub scope: CaptureScope,
    pub name: CaptureName,
}

/// The records that show a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureScope {
    /// All records of the flow from then on.
    Flow,
    /// The alerts of the packet.
    Packet,
    /// The alerts of the rule.
    Alert,
}

/// The name of a group in records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureName {
    Name(Arc<str>),
    /// The group is the name of the next one.
    Key,
    /// The group before is the name.
    Value,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endianness {
    /// The most significant byte is first.
    Big,
    /// The least significant byte is first.
    Little,
    /// The byte order that the DCE/RPC header announces.
    Dce,
}

/// The form of a number in the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberForm {
    /// Bytes.
    Binary(Endianness),
    /// Digits in base 8, 10 or 16; with base 0, the prefix gives the base, as in C.
    Digits(u32),
    /// No bytes: the number is 0. `byte_jump:0,…` moves the cursor by its `post_offset` alone.
    Nothing,
}

/// A number in the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberSource {
    /// Number of bytes; 0 for all digits, if the form is [`NumberForm::Digits`].
    pub size: Operand,
    /// The offset of the first byte.
    pub offset: Operand,
    /// True if the offset counts from the end of the last match.
    pub is_relative: bool,
    pub form: NumberForm,
    /// Mask of the bits that are kept. They are shifted right by the trailing zeros of the mask. 0 keeps all bits.
    pub bitmask: u64,
}

/// An operator of `byte_test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOperator {
    Less,
    Greater,
    Equal,
    /// Less or equal.
    LessOrEqual,
    /// Greater or equal.
    GreaterOrEqual,
    /// At least one common bit.
    And,
    /// At least one different bit.
    Xor,
}

/// An operator of `byte_math`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathOperator {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient.
    Divide,
    /// Shift to the left.
    ShiftLeft,
    /// Shift to the right.
    ShiftRight,
}

/// The position from which `byte_jump` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpBase {
    /// The end of the number.
    Number,
    /// The first byte.
    Beginning,
    /// The end of the bytes.
    End,
}

/// An operation over bytes, with a cursor that is the end of the last match.
#[derive(Debug)]
pub enum Operation {
    /// Search a pattern; the cursor moves to its end.
    Content(ContentTest),
    /// Search an expression; the cursor moves to the end of the match.
    Pcre(PcreTest),
    /// Compare a number.
    ByteTest {
        /// The number.
        source: NumberSource,
        operator: TestOperator,
        /// True if the comparison must fail.
        is_negated: bool,
        value: Operand,
    },
    /// Move the cursor by a number.
    ByteJump {
        /// The number.
        source: NumberSource,
        /// Factor of the number.
        multiplier: u64,
        /// The number is rounded up to a multiple of this size; 0 and 1 do not round.
        align: u64,
        /// The position from which the number counts.
        base: JumpBase,
        /// Bytes that are added after the jump.
        post_offset: Operand,
    },
    /// Store a number.
    ByteExtract {
        /// The number.
        source: NumberSource,
        /// Factor of the number.
        multiplier: u64,
        /// The number is rounded up to a multiple of this size; 0 and 1 do not round.
        align: u64,
        /// Index of the variable.
        variable: u8,
    },
    /// Compute with a number, and store the result.
    ByteMath {
        /// The number.
        source: NumberSource,
        operator: MathOperator,
        /// The other value.
        value: Operand,
        /// Index of the variable.
        variable: u8,
    },
    /// Test that there are data at a position.
    IsDataAt {
        /// The offset of the tested byte; if `is_relative`, the number of bytes that must follow the last match.
        position: Operand,
        /// True if the position counts from the end of the last match.
        is_relative: bool,
        /// True if there must be no data.
        is_negated: bool,
    },
    /// Compare the number of bytes.
    Size(Comparison),
    /// Compare the number of bytes after the cursor.
    RemainingSize(Comparison),
    /// Compare the entropy of a part of the bytes.
    Entropy(Entropy),
    /// Look the bytes up in a set.
    Set(SetLookup),
    /// Decode Base64, and apply operations to the result.
    Base64 {
        /// Largest number of bytes to decode; `None` for all.
        bytes: Option<u32>,
        /// Offset of the first byte.
        offset: u32,
        /// True if the offset counts from the end of the last match.
        is_relative: bool,
        /// The operations.
        then: Vec<Operation>,
    },
}

impl Operation {
    /// Returns true if the operation depends on the end of the last match.
    pub fn is_relative(&self) -> bool {
        match self {
            Operation::Content(content) => content.is_relative(),
            Operation::Pcre(pcre) => pcre.is_relative,
            Operation::ByteTest { source, .. }
            | Operation::ByteJump { source, .. }
            | Operation::ByteExtract { source, .. }
            | Operation::ByteMath { source, .. } => source.is_relative,
            Operation::IsDataAt { is_relative, .. } | Operation::Base64 { is_relative, .. } => *is_relative,
            Operation::Size(_) | Operation::Set(_) | Operation::Entropy(_) => false,
            Operation::RemainingSize(_) => true,
        }
    }
}

/// Operations over a buffer of a transaction. One instance of the buffer must satisfy all of them.
#[derive(Debug)]
pub struct BufferTest {
    pub buffer: Buffer,
    /// Transforms that are applied to the bytes before the operations.
    pub transforms: Vec<Step>,
    pub operations: Vec<Operation>,
    /// The meaning of a buffer that is not there.
    pub absence: Absence,
    /// The only direction whose buffers are inspected; `None` for that of the packet.
    pub side: Option<Direction>,
    /// Index of the hook, which is a buffer with transforms.
    pub hook: u16,
}

/// The meaning of a buffer that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Absence {
    /// The test fails.
    #[default]
    Fails,
    /// The test holds, and fails if the buffer is there.
    Required,
    /// The test holds, and also if the operations match.
    Allowed,
}

/// A transform, ready to be applied.
#[derive(Debug, Clone)]
pub enum Step {
    Plain(Transform),
    /// The first group of an expression: the text and the compiled expression.
    Group(String, Arc<Regex>),
}

impl Step {
    /// Returns the keyword.
    pub fn word(&self) -> &'static str {
        match self {
            Step::Plain(transform) => transform.word(),
            Step::Group(..) => "pcrexform",
        }
    }

    /// Returns the expression of `pcrexform`.
    fn text(&self) -> Option<&str> {
        match self {
            Step::Plain(_) => None,
            Step::Group(text, _) => Some(text),
        }
    }

    /// Returns true if the result for the first bytes of a buffer says nothing about the whole.
    pub fn needs_whole(&self) -> bool {
        matches!(
            self,
            Step::Plain(
                Transform::ToMd5
                    | Transform::ToSha1
                    | Transform::ToSha256
                    | Transform::Gunzip
                    | Transform::ZlibDeflate
            )
        )
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Step) -> bool {
        match (self, other) {
            (Step::Plain(one), Step::Plain(two)) => one == two,
            _ => self.text().is_some() && self.text() == other.text(),
        }
    }
}

impl Eq for Step {}

impl Hash for Step {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Step::Plain(transform) => transform.hash(state),
            Step::Group(text, _) => text.hash(state),
        }
    }
}

/// A look-up in a set of values.
#[derive(Debug, Clone)]
pub struct SetLookup {
    /// The name of the set.
    pub name: Arc<str>,
    pub kind: SetType,
    pub test: SetTest,
    /// The values of the file with which the set begins.
    pub values: Arc<Values>,
    /// True if a value that ends with one of the set is found, from one of its dots on.
    pub has_subdomains: bool,
    /// The JSON values, which alerts show.
    pub json: Option<Arc<JsonSet>>,
    /// True if the values are written to a file.
    pub is_saved: bool,
}
