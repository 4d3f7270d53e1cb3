//! Numbers and Base64 data in the traffic, which `byte_test`, `byte_jump`, `byte_extract`, `byte_math` and
//! `base64_decode` read.

use super::program::{Endianness, MathOperator, NumberForm, NumberSource, Operand, TestOperator};
use super::subject::{Subject, Variables};

/// Largest size of a binary number, in bytes.
const BINARY_SIZE: i64 = 8;
/// Largest size of a number in digits, in bytes.
const DIGITS_SIZE: i64 = 23;

/// Returns the value of an operand.
#[inline]
pub(super) fn value(operand: Operand, variables: &Variables) -> i64 {
    match operand {
        Operand::Number(number) => number,
        Operand::Variable(index) => {
            let value = variables.get(usize::from(index)).copied().unwrap_or(0);
            i64::try_from(value).unwrap_or(i64::MAX)
        }
    }
}

/// Returns the value of an operand that is compared or computed with: all of its 64 bits count.
pub(super) fn unsigned(operand: Operand, variables: &Variables) -> u64 {
    match operand {
        Operand::Number(number) => number as u64,
        Operand::Variable(index) => variables.get(usize::from(index)).copied().unwrap_or(0),
    }
}

/// Returns a number and the offset after it; `None` if its size is not allowed, or the bytes have no number there.
pub(super) fn read(
    source: &NumberSource,
    subject: &Subject<'_>,
    cursor: usize,
    variables: &Variables,
) -> Option<(u64, usize)> {
    let base = if source.is_relative { cursor as i64 } else { 0 };
    let start = base.checked_add(value(source.offset, variables))?;
    let size = value(source.size, variables);
    let largest = match source.form {
        NumberForm::Binary(_) => BINARY_SIZE,
        NumberForm::Digits(_) | NumberForm::Nothing => DIGITS_SIZE,
    };
    let start = usize::try_from(start).ok()?;
    if source.form == NumberForm::Nothing {
        return (start <= subject.bytes.len()).then_some((0, start));
    }
    let size = match source.form {
        // A size of 0, as in `byte_test:0,<,100,0,string,dec` of `http.content_len`, reads all digits.
        NumberForm::Digits(_) if size == 0 => {
            let rest = subject.bytes.len().saturating_sub(start);
            largest.min(rest as i64)
        }
        _ => size,
    };
    if !(1..=largest).contains(&size) {
        return None;
    }
    let bytes = subject.bytes.get(start..start.checked_add(size as usize)?)?;
    let (number, used) = match source.form {
        NumberForm::Binary(endianness) => {
            let is_big = match endianness {
                Endianness::Big => true,
                Endianness::Little => false,
                Endianness::Dce => subject.is_dce_big_endian,
            };
            let number = match is_big {
                true => big(bytes.iter()),
                false => big(bytes.iter().rev()),
            };
            (number, bytes.len())
        }
        NumberForm::Digits(base) => digits(bytes, base)?,
        NumberForm::Nothing => (0, 0),
    };
    let number = match source.bitmask {
        0 => number,
        mask => (number & mask) >> mask.trailing_zeros(),
    };
    Some((number, start + used))
}

/// Returns the value of big-endian bytes.
fn big<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the number at the beginning of the bytes and the number of bytes used, as `strtoull` of C reads
/// it, but without a minus sign; `None` if there is no digit.
fn digits(bytes: &[u8], base: u32) -> Option<(u64, usize)> {
    let blanks = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut at = blanks;
    if matches!(bytes.get(at), Some(b'+')) {
        at += 1;
    }
    let has_prefix = matches!(bytes.get(at..at + 2), Some([b'0', b'x' | b'X']));
    let base = match base {
        0 if has_prefix => 16,
        0 if bytes.get(at) == Some(&b'0') => 8,
        0 => 10,
        base => base,
    };
    if base == 16 && has_prefix && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit) {
        at += 2;
    }
    let first = at;
    let mut number = 0u64;
    while let Some(digit) = bytes.get(at).and_then(|byte| char::from(*byte).to_digit(base)) {
        number = number
            .saturating_mul(u64::from(base))
            .saturating_add(u64::from(digit));
        at += 1;
    }
    (at > first).then_some((number, at))
}

/// Returns the number rounded up to a multiple of `align`.
pub(super) fn align_up(number: u64, align: u64) -> u64 {
    match align {
        0 | 1 => number,
        align => number.checked_next_multiple_of(align).unwrap_or(number),
    }
}

/// Returns true if a test of a number holds.
pub(super) fn test(operator: TestOperator, number: u64, value: u64) -> bool {
    match operator {
        TestOperator::Less => number < value,
        TestOperator::Greater => number > value,
        TestOperator::Equal => number == value,
        TestOperator::LessOrEqual => number <= value,
        TestOperator::GreaterOrEqual => number >= value,
        TestOperator::And => number & value != 0,
        TestOperator::Xor => number ^ value != 0,
    }
}

/// Returns the result of a computation; `None` for a division by zero, or a shift by 64 bits or more.
pub(super) fn compute(operator: MathOperator, number: u64, value: u64) -> Option<u64> {
    Some(match operator {
        MathOperator::Add => number.wrapping_add(value),
        MathOperator::Subtract => number.wrapping_sub(value),
        MathOperator::Multiply => number.wrapping_mul(value),
        MathOperator::Divide => number.checked_div(value)?,
        MathOperator::ShiftLeft => number.checked_shl(u32::try_from(value).ok()?)?,
        MathOperator::ShiftRight => number.checked_shr(u32::try_from(value).ok()?)?,
    })
}

/// Decodes Base64 (RFC 2045, section 6.8) up to the first byte that is not Base64; blanks and line ends are
/// skipped.
pub(super) fn decode_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let (mut group, mut len) = (0u32, 0);
    for byte in bytes {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            _ => break,
        };
        group = group << 6 | u32::from(digit);
        len += 1;
        if len == 4 {
            out.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, len) = (0, 0);
        }
    }
    match len {
        2 => out.push((group >> 4) as u8),
        3 => out.extend_from_slice(&[(group >> 10) as u8, (group >> 2) as u8]),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(form: NumberForm, size: i64, bytes: &[u8]) -> Option<(u64, usize)> {
        let source = NumberSource {
            size: Operand::Number(size),
            offset: Operand::Number(1),
            is_relative: false,
            form,
            bitmask: 0,
        };
        read(&source, &Subject::whole(bytes), 0, &Variables::default())
    }

    #[test]
    fn numbers_are_read_in_both_byte_orders_and_in_digits() {
        let big = NumberForm::Binary(Endianness::Big);
        assert_eq!(number(big, 2, b"\x00\x01\x02"), Some((0x102, 3)));
        assert_eq!(
            number(NumberForm::Binary(Endianness::Little), 2, b"\x00\x01\x02"),
            Some((0x201, 3))
        );
        assert_eq!(number(NumberForm::Digits(10), 4, b"\x00 12a"), Some((12, 4)));
        assert_eq!(number(NumberForm::Digits(16), 4, b"\x000x1f"), Some((0x1f, 5)));
        assert_eq!(number(NumberForm::Digits(10), 2, b"\x00abc"), None);
        assert_eq!(number(big, 3, b"\x00\x01\x02"), None);
    }

    #[test]
    fn base64_ends_at_a_foreign_byte() {
        let mut out = Vec::new();
        decode_base64(b"aGVs\r\nbG8=;", &mut out);
        assert_eq!(out, b"hello");
        decode_base64(b";", &mut out);
        assert!(out.is_empty());
    }
}
