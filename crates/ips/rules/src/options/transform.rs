//! Transforms of a buffer before its inspection.

use std::fmt;

use crate::refusal::Reason;
use crate::text::{inside_quotes, list, no_value, number, quote, required, unescape};

/// The position and the size of a part of a buffer; negative numbers count from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subslice {
    pub offset: i64,
    /// Number of bytes; `None` for all up to the end.
    pub bytes: Option<i64>,
    /// True if a part that reaches over the end of the buffer is cut, false if it then is empty.
    pub truncates: bool,
}

/// The form of Base64 that is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base64Mode {
    /// RFC 4648: the whole input must be valid.
    Rfc4648,
    /// RFC 2045: other bytes are skipped.
    Rfc2045,
    /// RFC 4648 up to the first other byte, of any size.
    Strict,
}

impl Base64Mode {
    fn word(self) -> &'static str {
        match self {
            Base64Mode::Rfc4648 => "rfc4648",
            Base64Mode::Rfc2045 => "rfc2045",
            Base64Mode::Strict => "strict",
        }
    }
}

/// A transform of a buffer before its inspection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Put a dot before the text.
    DotPrefix,
    /// Letters become small.
    ToLowercase,
    /// Letters become capital.
    ToUppercase,
    /// Runs of blanks become one blank.
    CompressWhitespace,
    /// Blanks are removed.
    StripWhitespace,
    /// Percent encoding is decoded.
    UrlDecode,
    /// Lines of HTTP/2 pseudo headers are removed: those that begin with a colon.
    StripPseudoHeaders,
    /// The names of headers become small.
    HeaderLowercase,
    /// The registered domain of a host name: a label and a public suffix.
    Domain,
    /// The public suffix of a host name.
    Tld,
    /// The MD5 of the bytes.
    ToMd5,
    /// The SHA-1 of the bytes.
    ToSha1,
    /// The SHA-256 of the bytes.
    ToSha256,
    /// The bytes combined by exclusive or with a key, repeatedly.
    Xor(Vec<u8>),
    /// A part of the bytes.
    Subslice(Subslice),
    /// Base64 is decoded.
    FromBase64 {
        mode: Base64Mode,
        /// The first byte that is decoded.
        offset: u32,
        /// The largest number of bytes that are decoded; `None` for all.
        bytes: Option<u32>,
    },
    /// The first group of an expression, or nothing if the expression does not match.
    PcreXform(String),
    /// The data are decompressed: gzip.
    Gunzip,
    /// The data are decompressed: zlib (RFC 1950).
    ZlibDeflate,
}

/// The transforms without an argument.
const PLAIN: &[(&str, Transform)] = &[
    ("dotprefix", Transform::DotPrefix),
    ("to_lowercase", Transform::ToLowercase),
    ("to_uppercase", Transform::ToUppercase),
    ("compress_whitespace", Transform::CompressWhitespace),
    ("strip_whitespace", Transform::StripWhitespace),
    ("url_decode", Transform::UrlDecode),
    ("strip_pseudo_headers", Transform::StripPseudoHeaders),
    ("header_lowercase", Transform::HeaderLowercase),
    ("domain", Transform::Domain),
    ("tld", Transform::Tld),
    ("to_md5", Transform::ToMd5),
    ("to_sha1", Transform::ToSha1),
    ("to_sha256", Transform::ToSha256),
    ("gunzip", Transform::Gunzip),
    ("zlib_deflate", Transform::ZlibDeflate),
];

/// The transforms that have an argument.
pub(crate) const KEYWORDS: &[&str] = &[
    "dotprefix",
    "to_lowercase",
    "to_uppercase",
    "compress_whitespace",
    "strip_whitespace",
    "url_decode",
    "strip_pseudo_headers",
    "header_lowercase",
    "domain",
    "tld",
    "to_md5",
    "to_sha1",
    "to_sha256",
    "gunzip",
    "zlib_deflate",
    "xor",
    "subslice",
    "from_base64",
    "pcrexform",
];

/// Largest size of the key of `xor`, in bytes.
const KEY_SIZE: usize = 255;

impl Transform {
    /// Returns the keyword.
    pub fn word(&self) -> &'static str {
        match self {
            Transform::Xor(_) => "xor",
            Transform::Subslice(_) => "subslice",
            Transform::FromBase64 { .. } => "from_base64",
            Transform::PcreXform(_) => "pcrexform",
            plain => PLAIN
                .iter()
                .find(|(_, known)| known == plain)
                .map_or("", |(word, _)| word),
        }
    }

    /// Reads a transform; `None` if the keyword is none.
    pub(crate) fn parse(name: &str, value: Option<&str>) -> Option<Result<Transform, Reason>> {
        if let Some((_, transform)) = PLAIN.iter().find(|(word, _)| *word == name) {
            let value = value.filter(|_| !matches!(transform, Transform::Gunzip | Transform::ZlibDeflate));
            return Some(no_value(value).map(|()| transform.clone()));
        }
        match name {
            "xor" => Some(xor(value)),
            "subslice" => Some(subslice(value)),
            "from_base64" => Some(from_base64(value)),
            "pcrexform" => Some(pcrexform(value)),
            _ => None,
        }
    }
}

fn unquoted(text: &str) -> &str {
    inside_quotes(text).unwrap_or(text)
}

fn xor(value: Option<&str>) -> Result<Transform, Reason> {
    const FORM: &str = "an even number of hexadecimal digits, at most 510, in double quotes";
    let text = unquoted(required(value, FORM)?);
    let digits: Option<Vec<u8>> = text
        .bytes()
        .map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect();
    let wrong = || Reason::invalid(format!("the key {}", quote(text)), FORM);
    let digits = digits.ok_or_else(wrong)?;
    if digits.is_empty() || digits.len() % 2 != 0 || digits.len() / 2 > KEY_SIZE {
        return Err(wrong());
    }
    Ok(Transform::Xor(
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect(),
    ))
}

fn subslice(value: Option<&str>) -> Result<Transform, Reason> {
    const FORM: &str = "OFFSET[,BYTES][,truncate], where negative numbers count from the end";
    let text = required(value, FORM)?;
    let wrong = || Reason::invalid(format!("the value {}", quote(text)), FORM);
    let mut parts: Vec<&str> = list(text).collect();
    let truncates = parts.last() == Some(&"truncate");
    if truncates {
        parts.pop();
    }
    let numbers: Option<Vec<i64>> = parts.iter().map(|part| part.parse().ok()).collect();
    match numbers.ok_or_else(wrong)?[..] {
        [offset] => Ok(Transform::Subslice(Subslice {
            offset,
            bytes: None,
            truncates,
        })),
        [offset, bytes] => Ok(Transform::Subslice(Subslice {
            offset,
            bytes: Some(bytes),
            truncates,
        })),
        _ => Err(wrong()),
    }
}

fn from_base64(value: Option<&str>) -> Result<Transform, Reason> {
    const FORM: &str =
        "nothing, or mode rfc4648|rfc2045|strict, bytes N and offset N, with commas between them";
    let (mut mode, mut offset, mut bytes) = (Base64Mode::Rfc4648, 0, None);
    for part in list(value.unwrap_or_default()).filter(|part| !part.is_empty()) {
        let wrong = || Reason::invalid(format!("the value {}", quote(part)), FORM);
        let (name, argument) = part.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let size = || number(argument, FORM).and_then(|size| u32::try_from(size).map_err(|_| wrong()));
        match name {
            "mode" => {
                mode = match argument.trim() {
                    "rfc4648" => Base64Mode::Rfc4648,
                    "rfc2045" => Base64Mode::Rfc2045,
                    "strict" => Base64Mode::Strict,
                    _ => return Err(wrong()),
                }
            }
            "offset" => offset = size()?,
            "bytes" => bytes = Some(size()?),
            _ => return Err(wrong()),
        }
    }
    Ok(Transform::FromBase64 { mode, offset, bytes })
}

fn pcrexform(value: Option<&str>) -> Result<Transform, Reason> {
    const FORM: &str = "an expression in double quotes";
    let text = unescape(inside_quotes(required(value, FORM)?)?);
    // The expression may have delimiters.
    let bare = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    let expression = bare.unwrap_or(&text);
    if expression.is_empty() {
        return Err(Reason::invalid("the expression is empty", FORM));
    }
    Ok(Transform::PcreXform(expression.to_owned()))
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Transform::Xor(key) => {
                f.write_str(":\"")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("\"")
            }
            Transform::Subslice(part) => {
                write!(f, ":{}", part.offset)?;
                if let Some(bytes) = part.bytes {
                    write!(f, ",{bytes}")?;
                }
                if part.truncates {
                    f.write_str(",truncate")?;
                }
                Ok(())
            }
            Transform::FromBase64 { mode, offset, bytes } => {
                write!(f, ":mode {},offset {offset}", mode.word())?;
                match bytes {
                    Some(bytes) => write!(f, ",bytes {bytes}"),
                    None => Ok(()),
                }
            }
            Transform::PcreXform(text) => write!(f, ":{}", crate::text::escape(text)),
            _ => Ok(()),
        }
    }
}
