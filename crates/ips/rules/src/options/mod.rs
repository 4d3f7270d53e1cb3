//! The options of a rule, with one variant for each family. The module of a family has its syntax.

pub mod bytes;
pub mod content;
pub mod dataset;
pub mod entropy;
pub mod enumerations;
pub mod number;
pub mod protocols;
pub mod selection;
pub mod settings;
pub mod state;
pub mod transform;
pub mod words;

use std::fmt::{self, Display};

use crate::Syntax;
use crate::buffers::Buffer;
use crate::keywords;
use crate::refusal::Reason;
use crate::text::{escape, inside_quotes, list, no_value, number32, quote, required, unescape};

use bytes::{Base64Decode, ByteKind, ByteOption, IsDataAt};
use content::{Content, Pcre};
use dataset::Dataset;
use number::{Comparison, NumberField};
use selection::Index;
use state::{BitScope, Bits, FlowInt, FlowState, Rate};
use transform::Transform;
use words::TextField;

/// An option of a rule: one keyword and its value, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOption {
    /// The message of the alert.
    Msg(String),
    /// The number of the rule.
    Sid(u32),
    /// The revision of the rule.
    Rev(u32),
    /// The generator of the rule.
    Gid(u32),
    /// The priority; 1 is the highest.
    Priority(u32),
    /// The class, which the classification table describes.
    Classtype(String),
    /// A link to more information about the rule.
    Reference {
        /// The reference system, which the reference table describes.
        system: String,
        /// The identifier in the reference system.
        id: String,
    },
    /// Keys and values for people and tools.
    Metadata(Vec<String>),
    /// The services to which the rule applies (Snort 3).
    Service(Vec<String>),
    /// A remark (Snort 3).
    Remark(String),
    /// A pattern with its modifiers.
    Content(Content),
    /// The buffer that the following options inspect, with an argument in Snort 3.
    Buffer(Buffer, Option<String>),
    /// The frame that the following options inspect, by its name.
    Frame(String),
    /// A transform of the buffer before its inspection.
    Transform(Transform),
    /// A regular expression.
    Pcre(Pcre),
    /// An option that reads a number from the payload.
    Byte(ByteOption),
    /// A test for data at a position.
    IsDataAt(IsDataAt),
    /// Decoding of Base64 data.
    Base64Decode(Base64Decode),
    /// Conditions on the flow.
    Flow(Vec<FlowState>),
    /// Bits of the flow, of address pairs or of hosts.
    Bits(Bits),
    /// A counter of the flow.
    FlowInt(FlowInt),
    /// A threshold or a detection filter.
    Rate(Rate),
    /// A comparison with a number.
    Number(NumberField, Comparison, Option<String>),
    /// A condition or annotation with a text value.
    Text(TextField, String),
    /// A look-up of a buffer in a set of values.
    Dataset(Dataset),
    /// A match raises no alert.
    NoAlert,
    /// Source and destination address are equal.
    SameIp,
}

impl RuleOption {
    /// Reads an option. A modifier is part of its content, and not an option. Suricata reads most values in quotes, too.
    pub(crate) fn parse(syntax: Syntax, name: &str, value: Option<&str>) -> Result<RuleOption, Reason> {
        let reason = match RuleOption::parse_value(syntax, name, value) {
            Err(reason) if syntax == Syntax::Suricata => reason,
            read => return read,
        };
        match value.and_then(|value| inside_quotes(value).ok()) {
            Some(inside) if !inside.contains('"') => {
                RuleOption::parse_value(syntax, name, Some(inside.trim())).map_err(|_| reason)
            }
            _ => Err(reason),
        }
    }

    /// Reads an option with its value as it is.
    fn parse_value(syntax: Syntax, name: &str, value: Option<&str>) -> Result<RuleOption, Reason> {
        const NUMBER: &str = "a number of 32 bits";
        let positive = |value| number32(required(value, NUMBER)?, NUMBER);
        Ok(match name {
            "msg" => RuleOption::Msg(unescape(inside_quotes(required(
                value,
                "a text in double quotes",
            )?)?)),
            "rem" if syntax == Syntax::Snort3 => RuleOption::Remark(unescape(inside_quotes(required(
                value,
                "a text in double quotes",
            )?)?)),
            "sid" => RuleOption::Sid(positive(value)?),
            "rev" => RuleOption::Rev(positive(value)?),
            "gid" => RuleOption::Gid(positive(value)?),
            "priority" => RuleOption::Priority(positive(value)?),
            "classtype" => {
                let class = required(value, "the name of a class")?;
                if class.contains(char::is_whitespace) {
                    return Err(Reason::invalid(
                        format!("{} has blanks", quote(class)),
                        "the name of a class",
                    ));
                }
                RuleOption::Classtype(class.to_owned())
            }
            "reference" => {
                const FORM: &str = "SYSTEM,IDENTIFIER, as in url,example.org/advisory";
                let split = required(value, FORM)?.split_once(',');
                let (system, id) = split.ok_or_else(|| Reason::invalid("the identifier is missing", FORM))?;
                let (system, id) = (system.trim(), id.trim());
                if system.is_empty() || id.is_empty() {
                    return Err(Reason::invalid("a part is empty", FORM));
                }
                RuleOption::Reference {
                    system: system.to_owned(),
                    id: id.to_owned(),
                }
            }
            "metadata" => RuleOption::Metadata(texts(value)),
            "service" if syntax == Syntax::Snort3 => RuleOption::Service(texts(value)),
            "content" => RuleOption::Content(Content::parse(syntax, value)?),
            "uricontent" if syntax != Syntax::Snort3 => {
                let mut content = Content::parse(syntax, value)?;
                content.buffer = Some(Buffer::HttpUri);
                RuleOption::Content(content)
            }
            "pcre" => RuleOption::Pcre(Pcre::parse(value)?),
            "byte_test" | "byte_jump" | "byte_extract" | "byte_math" => {
                RuleOption::Byte(ByteOption::parse(ByteKind::from_word(name)?, value)?)
            }
            "isdataat" => RuleOption::IsDataAt(IsDataAt::parse(value)?),
            "base64_decode" => RuleOption::Base64Decode(Base64Decode::parse(value)?),
            "flow" => RuleOption::Flow(state::flow(value)?),
            "flowbits" | "xbits" | "hostbits" => {
                RuleOption::Bits(Bits::parse(BitScope::from_word(name)?, value)?)
            }
            "flowint" => RuleOption::FlowInt(FlowInt::parse(value)?),
            "threshold" | "detection_filter" => RuleOption::Rate(Rate::parse(name == "threshold", value)?),
            "dataset" | "datarep" => RuleOption::Dataset(Dataset::parse(name == "datarep", value)?),
            "frame" if syntax == Syntax::Suricata => {
                const FORM: &str = "the name of a frame, such as tls.pdu";
                let name = required(value, FORM)?;
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
                match name.chars().all(is_name) {
                    true => RuleOption::Frame(name.to_owned()),
                    false => return Err(Reason::invalid(format!("the name {}", quote(name)), FORM)),
                }
            }
            "ike.vendor" if value.is_some_and(|value| !value.is_empty()) => {
                return ike_vendor(value.unwrap_or_default());
            }
            "noalert" | "sameip" => {
                no_value(value)?;
                if name == "noalert" {
                    RuleOption::NoAlert
                } else {
                    RuleOption::SameIp
                }
            }
            _ => return RuleOption::parse_table(syntax, name, value),
        })
    }

    /// Returns the file that the option names, and true if it must exist.
    pub fn data_file(&self) -> Option<(&str, bool)> {
        match self {
            RuleOption::Dataset(set) => set.file(),
            RuleOption::Text(TextField::FileMd5 | TextField::FileSha1 | TextField::FileSha256, text) => {
                Some((crate::text::negation(text).1, true))
            }
            _ => None,
        }
    }

    /// Reads an option that is in one of the tables.
    fn parse_table(syntax: Syntax, name: &str, value: Option<&str>) -> Result<RuleOption, Reason> {
        if let Some(buffer) = Buffer::sticky(syntax, name) {
            if syntax != Syntax::Snort3 && !matches!(value, Some("to_server" | "to_client")) {
                no_value(value)?;
            }
            return Ok(RuleOption::Buffer(
                buffer,
                value.filter(|value| !value.is_empty()).map(str::to_owned),
            ));
        }
        if let Some(field) = NumberField::from_keyword(name) {
            return number(syntax, field, value);
        }
        if let Some(transform) = Transform::parse(name, value) {
            return transform.map(RuleOption::Transform);
        }
        if let Some(field) = TextField::from_keyword(name) {
            return Ok(RuleOption::Text(field, field.check(value)?));
        }
        Err(keywords::refusal(name))
    }

    /// Prints the option in a syntax.
    pub(crate) fn print(&self, syntax: Syntax, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleOption::Msg(text) => write!(f, "msg:{};", escape(text)),
            RuleOption::Remark(text) => write!(f, "rem:{};", escape(text)),
            RuleOption::Sid(n) => write!(f, "sid:{n};"),
            RuleOption::Rev(n) => write!(f, "rev:{n};"),
            RuleOption::Gid(n) => write!(f, "gid:{n};"),
            RuleOption::Priority(n) => write!(f, "priority:{n};"),
            RuleOption::Classtype(class) => write!(f, "classtype:{class};"),
            RuleOption::Reference { system, id } => write!(f, "reference:{system},{id};"),
            RuleOption::Metadata(texts) => write!(f, "metadata:{};", texts.join(", ")),
            RuleOption::Service(texts) => write!(f, "service:{};", texts.join(", ")),
            RuleOption::Content(content) => content.print(syntax, f),
            RuleOption::Buffer(buffer, argument) => {
                f.write_str(buffer.sticky_name(syntax).unwrap_or_default())?;
                match argument {
                    Some(argument) => write!(f, ":{argument};"),
                    None => f.write_str(";"),
                }
            }
            RuleOption::Frame(name) => write!(f, "frame:{name};"),
            RuleOption::Transform(transform) => write!(f, "{transform};"),
            RuleOption::Pcre(pcre) => pcre.fmt(f),
            RuleOption::Byte(option) => option.fmt(f),
            RuleOption::IsDataAt(test) => test.fmt(f),
            RuleOption::Base64Decode(decode) => decode.fmt(f),
            RuleOption::Flow(states) => {
                let words: Vec<&str> = states.iter().map(|state| state.word()).collect();
                write!(f, "flow:{};", words.join(","))
            }
            RuleOption::Bits(bits) => bits.fmt(f),
            RuleOption::FlowInt(counter) => counter.fmt(f),
            RuleOption::Rate(rate) => rate.fmt(f),
            RuleOption::Dataset(set) => set.fmt(f),
            RuleOption::Number(field, comparison, Some(side)) if field.has_side() => {
                write!(f, "{}:{side},{comparison};", field.keyword())
            }
            RuleOption::Number(field @ NumberField::Http2Setting, comparison, None) => {
                write!(f, "{}:{};", field.keyword(), settings::print(*comparison))
            }
            RuleOption::Number(field, comparison, None) => {
                write!(f, "{}:{};", field.keyword(), field.print(*comparison))
            }
            RuleOption::Number(field, comparison, Some(suffix)) => {
                write!(f, "{}:{},{suffix};", field.keyword(), field.print(*comparison))
            }
            RuleOption::Text(field, text) if text.is_empty() => write!(f, "{};", field.keyword()),
            RuleOption::Text(field, text) => write!(f, "{}:{text};", field.keyword()),
            RuleOption::NoAlert => f.write_str("noalert;"),
            RuleOption::SameIp => f.write_str("sameip;"),
        }
    }
}

/// Reads a comparison with a number, and what follows it.
fn number(syntax: Syntax, field: NumberField, value: Option<&str>) -> Result<RuleOption, Reason> {
    const FORM: &str = "a comparison with a number";
    let value = required(value, FORM)?;
    if field.has_side() {
        const FORM: &str = "toclient|toserver|either|both,COMPARISON";
        let wrong = || Reason::invalid(format!("the value {}", quote(value)), FORM);
        let (side, comparison) = value.split_once(',').ok_or_else(wrong)?;
        let side = side.trim();
        if !matches!(side, "toclient" | "toserver" | "either" | "both") {
            return Err(wrong());
        }
        let comparison = Comparison::parse(syntax, comparison)?;
        return Ok(RuleOption::Number(field, comparison, Some(side.to_owned())));
    }
    if field == NumberField::Http2Setting {
        return Ok(RuleOption::Number(field, settings::parse(value)?, None));
    }
    let is_count = |rest: &&str| field.has_index() && !rest.starts_with(|c: char| c.is_ascii_alphabetic());
    if let Some(count) = value.strip_prefix("count").filter(is_count) {
        let comparison = Comparison::parse(syntax, count)?;
        return Ok(RuleOption::Number(field, comparison, Some("count".to_owned())));
    }
    if let Ok(comparison) = Comparison::parse_field(syntax, field, value) {
        return Ok(RuleOption::Number(field, comparison, None));
    }
    let (comparison, suffix) = match value.split_once(',') {
        Some((comparison, suffix)) => (comparison, Some(suffix.trim())),
        None => (value, None),
    };
    let comparison = Comparison::parse_field(syntax, field, comparison)?;
    match (field, suffix) {
        (_, None) | (NumberField::Urilen, Some("raw" | "norm")) | (NumberField::Bsize, Some("relative")) => {}
        (NumberField::EnipCipService, Some(suffix)) => {
            const FORM: &str = "SERVICE, SERVICE,CLASS or SERVICE,CLASS,ATTRIBUTE";
            let parts: Vec<&str> = list(suffix).collect();
            if parts.len() > 2 || parts.iter().any(|part| number32(part, FORM).is_err()) {
                return Err(Reason::invalid(format!("the value {}", quote(value)), FORM));
            }
        }
        (field, Some(suffix)) if field.has_index() => {
            Index::parse_with_part(suffix)?;
        }
        (_, Some(suffix)) => {
            return Err(Reason::invalid(
                format!("{} after the comparison", quote(suffix)),
                FORM,
            ));
        }
    }
    Ok(RuleOption::Number(field, comparison, suffix.map(str::to_owned)))
}

/// Reads a vendor identifier of IKE in hexadecimal digits, as a content of the buffer.
fn ike_vendor(value: &str) -> Result<RuleOption, Reason> {
    const FORM: &str = "hexadecimal digits, or nothing and contents after it";
    if !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Reason::invalid(format!("the value {}", quote(value)), FORM));
    }
    Ok(RuleOption::Text(TextField::IkeVendor, value.to_ascii_lowercase()))
}

/// Returns the non-empty elements of a list.
fn texts(value: Option<&str>) -> Vec<String> {
    let parts = list(value.unwrap_or_default()).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}
