//! Values of fields as text, by the [`Format`] of the field's row.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::{Mac, PortNo};

use super::error::TextError;
use super::scan::Span;
use super::symbol;
use crate::field::{Field, Format};

/// `OFPVID_PRESENT`.
pub(super) const VID_PRESENT: u128 = 0x1000;

/// Parses a decimal number, or a hexadecimal one with `0x`.
pub(super) fn number(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // `from_str_radix` would also accept a sign.
    let valid = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    if valid {
        u128::from_str_radix(digits, radix).ok()
    } else {
        None
    }
}

/// Parses a number of at most `max`.
///
/// # Errors
/// [`TextProblem::Expected`](super::TextProblem::Expected).
pub(crate) fn bounded(span: Span<'_>, max: u128) -> Result<u128, TextError> {
    number(span.text())
        .filter(|value| *value <= max)
        .ok_or_else(|| span.expected(format!("a number from 0 to {max}, decimal or with 0x")))
}

/// Parses a type-of-service octet and returns its DSCP; the low two bits are ECN and must be zero.
///
/// # Errors
/// [`TextProblem::Expected`](super::TextProblem::Expected).
pub(super) fn type_of_service(span: Span<'_>) -> Result<u128, TextError> {
    match bounded(span, 0xff)? {
        tos if tos & 3 == 0 => Ok(tos >> 2),
        _ => Err(span.expected("a number whose low two bits (ECN) are zero")),
    }
}

/// Returns a description of the values of a field, for error messages.
fn description(field: Field) -> String {
    match field.format() {
        Format::Port => "a port number or the name of a reserved port such as LOCAL".to_owned(),
        Format::Decimal | Format::Hex => {
            format!("a number from 0 to {:#x}, decimal or with 0x", field.max_value())
        }
        Format::Mac => "a MAC address such as 02:00:00:00:00:01".to_owned(),
        Format::Ipv4 => "an IPv4 address such as 192.0.2.1".to_owned(),
        Format::Ipv6 => "an IPv6 address such as 2001:db8::1".to_owned(),
        Format::TcpFlags => "TCP flags such as syn|ack or +syn-ack, or a number from 0 to 0xfff".to_owned(),
        Format::Fragment => "no, yes, first, later or not_later".to_owned(),
    }
}

fn parse(field: Field, text: &str) -> Option<u128> {
    let value = match field.format() {
        Format::Port => text.parse::<PortNo>().ok().map(|port| u128::from(port.raw())),
        Format::Decimal | Format::Hex | Format::Fragment => number(text),
        Format::TcpFlags => number(text).or_else(|| symbol::tcp_flags(text)),
        Format::Mac => text.parse::<Mac>().ok().map(|mac| u128::from(mac.to_u64())),
        Format::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|ip| u128::from(ip.to_bits())),
        Format::Ipv6 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
    };
    value.filter(|value| *value <= field.max_value())
}

/// Parses an exact value of `field`.
///
/// # Errors
/// [`TextProblem::Expected`](super::TextProblem::Expected).
pub(super) fn exact(field: Field, span: Span<'_>) -> Result<u128, TextError> {
    parse(field, span.text()).ok_or_else(|| span.expected(description(field)))
}

/// Parses a value of `field` and an optional mask after `/`.
///
/// # Errors
/// [`TextProblem::Expected`](super::TextProblem::Expected).
pub(super) fn masked(field: Field, span: Span<'_>) -> Result<(u128, Option<u128>), TextError> {
    let symbol = match field.format() {
        Format::TcpFlags => symbol::tcp_flags_masked(span.text()),
        Format::Fragment => symbol::fragment(span.text()),
        _ => None,
    };
    if let Some((value, mask)) = symbol {
        return Ok((value, Some(mask)));
    }
    let Some((value, mask)) = span.split(&['/']) else {
        return Ok((exact(field, span)?, None));
    };
    let value = exact(field, value)?;
    let is_address = matches!(field.format(), Format::Ipv4 | Format::Ipv6);
    let len = if is_address { number(mask.text()) } else { None };
    let mask = match len {
        Some(len) if len <= u128::from(field.bits()) => prefix(field, len as u32),
        Some(_) => return Err(mask.expected(format!("a prefix length from 0 to {}", field.bits()))),
        None => parse(field, mask.text()).ok_or_else(|| {
            let length = if is_address { "a prefix length, or " } else { "" };
            mask.expected(format!("a mask: {length}{}", description(field)))
        })?,
    };
    if value & !mask != 0 {
        let (value, mask) = (
            Masked {
                field,
                value: value & mask,
                mask: Some(mask),
            },
            span,
        );
        return Err(mask.expected(format!("no bits outside of the mask, as in {value}")));
    }
    Ok((value, Some(mask)))
}

/// Returns the mask of a prefix of `len` bits, at most the field's width.
fn prefix(field: Field, len: u32) -> u128 {
    let host_bits = field.bits() - len;
    field.max_value() & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}

/// A value of a field, for printing.
pub(super) struct Value {
    pub(super) field: Field,
    pub(super) value: u128,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.field.format() {
            Format::Port => write!(f, "{}", PortNo::from_raw(value as u32)),
            Format::Decimal => write!(f, "{value}"),
            Format::Fragment => write!(f, "{value:#x}"),
            Format::TcpFlags => symbol::write_tcp_flags(f, value),
            Format::Hex => {
                write!(
                    f,
                    "{value:#0width$x}",
                    width = if self.field.bits() == 16 { 6 } else { 0 }
                )
            }
            Format::Mac => write!(f, "{}", Mac::from_u64(value as u64)),
            Format::Ipv4 => write!(f, "{}", Ipv4Addr::from_bits(value as u32)),
            Format::Ipv6 => write!(f, "{}", Ipv6Addr::from_bits(value)),
        }
    }
}

/// A value of a field with its mask, for printing.
pub(super) struct Masked {
    pub(super) field: Field,
    pub(super) value: u128,
    pub(super) mask: Option<u128>,
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Masked { field, value, mask } = *self;
        match (field.format(), mask) {
            (Format::TcpFlags, Some(mask)) => return symbol::write_tcp_flags_masked(f, value, mask),
            (Format::Fragment, mask) => {
                let mask = mask.unwrap_or(field.max_value());
                return symbol::write_fragment(f, value, mask);
            }
            // As in ovs-ofctl, a value with a mask is hexadecimal, because decimal digits do not show bits.
            (Format::Decimal, Some(mask)) => return write!(f, "{value:#x}/{mask:#x}"),
            _ => {}
        }
        write!(f, "{}", Value { field, value })?;
        let Some(mask) = mask else { return Ok(()) };
        let len = mask.count_ones();
        match field.format() {
            Format::Ipv4 | Format::Ipv6 if mask == prefix(field, len) => write!(f, "/{len}"),
            _ => write!(f, "/{}", Value { field, value: mask }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(number("0x1F"), Some(31));
        assert_eq!(number("031"), Some(31));
        for text in [
            "",
            "0x",
            "+1",
            "-1",
            "1_0",
            "0x+1",
            "٣",
            "999999999999999999999999999999999999999999",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn prefixes_have_every_length_from_none_to_all() {
        assert_eq!(prefix(Field::Ipv4Src, 0), 0);
        assert_eq!(prefix(Field::Ipv4Src, 8), 0xff00_0000);
        assert_eq!(prefix(Field::Ipv4Src, 32), 0xffff_ffff);
        assert_eq!(prefix(Field::Ipv6Src, 128), u128::MAX);
        assert_eq!(prefix(Field::Ipv6Src, 0), 0);
    }

    #[test]
    fn a_value_outside_of_its_mask_is_refused_with_what_was_meant() {
        let error = masked(Field::Ipv4Src, Span::new("10.1.0.0/8")).unwrap_err();
        assert!(error.to_string().ends_with("as in 10.0.0.0/8"), "{error}");
    }
}
