//! `byte_test`, `byte_jump`, `byte_extract`, `byte_math`, `isdataat` and `base64_decode`.

use std::fmt;

use super::content::Operand;
use crate::refusal::Reason;
use crate::text::{is_name, list, negation, number, number32, quote, required, words};

words! {
    /// The kind of option that reads a number from the payload.
    ByteKind "byte_test, byte_jump, byte_extract or byte_math" {
        /// Compare.
        Test "byte_test";
        /// Move the cursor.
        Jump "byte_jump";
        /// Store in a variable.
        Extract "byte_extract";
        /// Compute, and store in a variable.
        Math "byte_math";
    }
}

/// An option that reads a number from the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteOption {
    pub kind: ByteKind,
    /// The number of bytes to read; 0 for all digits of a string.
    pub size: Operand,
    /// The operator of a test (`<`, `&`, `!=`…) or of a computation (`+`, `<<`…).
    pub operator: Option<String>,
    /// The value of a test or of a computation.
    pub value: Option<Operand>,
    /// The offset of the first byte.
    pub offset: Operand,
    /// The variable that is set.
    pub result: Option<String>,
    /// The other arguments, as written: `relative`, `big`, `string`, `hex`, `multiplier 4`…
    pub arguments: Vec<String>,
}

const ARGUMENTS: &str = "relative, big, little, string, hex, dec, oct, dce, align, from_beginning, from_end, post_offset N, \
    multiplier N, bitmask N, align N or endian big|little";

/// Returns the argument if it is known.
fn argument(text: &str) -> Result<String, Reason> {
    let unknown = || Reason::invalid(format!("the argument {} is not known", quote(text)), ARGUMENTS);
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let value = words.next();
    if words.next().is_some() {
        return Err(unknown());
    }
    match (name, value) {
        (
            "relative" | "big" | "little" | "string" | "hex" | "dec" | "oct" | "dce" | "align"
            | "from_beginning" | "from_end",
            None,
        ) => {}
        ("post_offset", Some(value)) => drop(Operand::parse(value)?),
        ("multiplier" | "align" | "bitmask", Some(value)) => drop(number(value, ARGUMENTS)?),
        ("endian", Some("big" | "little")) | ("string", Some("hex" | "dec" | "oct")) => {}
        _ => return Err(unknown()),
    }
    Ok(match value {
        Some(value) => format!("{name} {value}"),
        None => name.to_owned(),
    })
}

/// Returns the name of a variable, if it is valid.
fn variable(text: &str) -> Result<String, Reason> {
    let is_variable = is_name(text) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    is_variable
        .then(|| text.to_owned())
        .ok_or_else(|| Reason::invalid(format!("{} is not a name", quote(text)), "the name of a variable"))
}

impl ByteOption {
    /// Parses the value of an option.
    pub(crate) fn parse(kind: ByteKind, value: Option<&str>) -> Result<ByteOption, Reason> {
        let form = match kind {
            ByteKind::Test => "BYTES, [!]OPERATOR, VALUE, OFFSET and arguments",
            ByteKind::Jump => "BYTES, OFFSET and arguments",
            ByteKind::Extract => "BYTES, OFFSET, NAME and arguments",
            ByteKind::Math => "bytes N, offset N, oper OPERATOR, rvalue VALUE, result NAME and arguments",
        };
        let value = required(value, form)?;
        if kind == ByteKind::Math {
            return ByteOption::parse_math(value, form);
        }
        let mut parts = list(value);
        let mut part = || {
            parts
                .next()
                .filter(|part| !part.is_empty())
                .ok_or_else(|| Reason::invalid("an argument is missing", form))
        };
        let size = Operand::parse(part()?)?;
        let mut option = ByteOption {
            kind,
            size,
            operator: None,
            value: None,
            offset: Operand::Number(0),
            result: None,
            arguments: Vec::new(),
        };
        if kind == ByteKind::Test {
            let operator: String = part()?.split_whitespace().collect();
            let bare = operator.strip_prefix('!').unwrap_or(&operator);
            if !matches!(bare, "<" | ">" | "=" | "<=" | ">=" | "&" | "^") && operator != "!" {
                return Err(Reason::invalid(
                    format!("the operator {}", quote(&operator)),
                    "<, >, =, <=, >=, & or ^, or ! and one of them",
                ));
            }
            option.operator = Some(operator);
            option.value = Some(Operand::parse(part()?)?);
        }
        option.offset = Operand::parse(part()?)?;
        if kind == ByteKind::Extract {
            option.result = Some(variable(part()?)?);
        }
        option.arguments = parts.map(argument).collect::<Result<_, _>>()?;
        Ok(option)
    }

    fn parse_math(value: &str, form: &'static str) -> Result<ByteOption, Reason> {
        let mut option = ByteOption {
            kind: ByteKind::Math,
            size: Operand::Number(0),
            operator: None,
            value: None,
            offset: Operand::Number(0),
            result: None,
            arguments: Vec::new(),
        };
        let mut has_size = false;
        for part in list(value) {
            let (name, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let rest = rest.trim();
            match name {
                "bytes" => {
                    option.size = Operand::parse(rest)?;
                    has_size = true;
                }
                "offset" => option.offset = Operand::parse(rest)?,
                "oper" if matches!(rest, "+" | "-" | "*" | "/" | "<<" | ">>") => {
                    option.operator = Some(rest.to_owned());
                }
                "oper" => {
                    return Err(Reason::invalid(
                        format!("the operator {}", quote(rest)),
                        "+, -, *, /, << or >>",
                    ));
                }
                "rvalue" => option.value = Some(Operand::parse(rest)?),
                "result" => option.result = Some(variable(rest)?),
                _ => option.arguments.push(argument(part)?),
            }
        }
        let is_whole =
            has_size && option.operator.is_some() && option.value.is_some() && option.result.is_some();
        is_whole
            .then_some(option)
            .ok_or_else(|| Reason::invalid("an argument is missing", form))
    }

    /// Returns the option in plain words.
    pub fn words(&self) -> String {
        let empty = Operand::Number(0);
        let place = match self.size == empty {
            true => format!("the number in all digits at {}", self.offset),
            false => format!("the number in {} bytes at {}", self.size, self.offset),
        };
        let value = self.value.as_ref().unwrap_or(&empty);
        let operator = self.operator.as_deref().unwrap_or_default();
        let result = self.result.as_deref().unwrap_or_default();
        let main = match self.kind {
            ByteKind::Test => format!("{place} {operator} {value}"),
            ByteKind::Jump => format!("the cursor moves by {place}"),
            ByteKind::Extract => format!("{result} becomes {place}"),
            ByteKind::Math => format!("{result} becomes {place} {operator} {value}"),
        };
        match self.arguments.is_empty() {
            true => main,
            false => format!("{main} ({})", self.arguments.join(", ")),
        }
    }
}

impl fmt::Display for ByteOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ByteOption {
            kind, size, offset, ..
        } = self;
        let empty = Operand::Number(0);
        let value = self.value.as_ref().unwrap_or(&empty);
        let operator = self.operator.as_deref().unwrap_or_default();
        let result = self.result.as_deref().unwrap_or_default();
        match kind {
            ByteKind::Test => write!(f, "{kind}:{size},{operator},{value},{offset}")?,
            ByteKind::Jump => write!(f, "{kind}:{size},{offset}")?,
            ByteKind::Extract => write!(f, "{kind}:{size},{offset},{result}")?,
            ByteKind::Math => {
                write!(
                    f,
                    "{kind}:bytes {size},offset {offset},oper {operator},rvalue {value},result {result}"
                )?;
            }
        }
        for argument in &self.arguments {
            write!(f, ",{argument}")?;
        }
        f.write_str(";")
    }
}

/// A test for data at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsDataAt {
    /// True if there must be no data.
    pub is_negated: bool,
    /// The offset of the tested byte; with `relative`, the number of bytes that must follow the previous match.
    pub position: Operand,
    /// True if the position counts from the end of the previous match.
    pub relative: bool,
    /// True if the test applies to the bytes before any decoding.
    pub rawbytes: bool,
}

impl IsDataAt {
    /// Parses the value of an `isdataat` option.
    pub(crate) fn parse(value: Option<&str>) -> Result<IsDataAt, Reason> {
        const FORM: &str = "[!]POSITION and relative or rawbytes";
        let (is_negated, value) = negation(required(value, FORM)?);
        let mut parts = list(value);
        let position = Operand::parse(parts.next().unwrap_or_default())?;
        let mut test = IsDataAt {
            is_negated,
            position,
            relative: false,
            rawbytes: false,
        };
        for part in parts {
            match part {
                "relative" => test.relative = true,
                "rawbytes" => test.rawbytes = true,
                part => return Err(Reason::invalid(quote(part), FORM)),
            }
        }
        Ok(test)
    }
}

impl fmt::Display for IsDataAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "isdataat:{}{}",
            if self.is_negated { "!" } else { "" },
            self.position
        )?;
        if self.relative {
            f.write_str(",relative")?;
        }
        if self.rawbytes {
            f.write_str(",rawbytes")?;
        }
        f.write_str(";")
    }
}

/// Decoding of Base64 data, which `base64_data` inspects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base64Decode {
    /// The number of bytes to decode.
    pub bytes: Option<u32>,
    /// The offset of the first byte.
    pub offset: Option<u32>,
    /// True if the offset counts from the end of the previous match.
    pub relative: bool,
}

impl Base64Decode {
    /// Parses the value of a `base64_decode` option.
    pub(crate) fn parse(value: Option<&str>) -> Result<Base64Decode, Reason> {
        const FORM: &str = "bytes N, offset N, relative, or nothing";
        let mut decode = Base64Decode::default();
        for part in list(value.unwrap_or_default()).filter(|part| !part.is_empty()) {
            match part.split_once(char::is_whitespace) {
                Some(("bytes", n)) => decode.bytes = Some(number32(n, FORM)?),
                Some(("offset", n)) => decode.offset = Some(number32(n, FORM)?),
                None if part == "relative" => decode.relative = true,
                _ => return Err(Reason::invalid(quote(part), FORM)),
            }
        }
        Ok(decode)
    }
}

impl fmt::Display for Base64Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.bytes.map(|n| format!("bytes {n}")),
            self.offset.map(|n| format!("offset {n}")),
            self.relative.then(|| "relative".to_owned()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => f.write_str("base64_decode;"),
            false => write!(f, "base64_decode:{};", parts.join(",")),
        }
    }
}
