//! Elements of BER (ITU-T X.690, section 8.1): tag, size and content.

/// Tags of types (ITU-T X.680, section 8.6).
pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;

/// Removes an element from the front of `bytes` and returns its tag and its content.
pub(super) fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (size, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let size = digits
                .iter()
                .fold(0u64, |size, digit| size << 8 | u64::from(*digit));
            (usize::try_from(size).ok()?, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(size)?;
    *bytes = rest;
    Some((tag, content))
}

/// Removes an element with the given tag from the front of `bytes` and returns its content.
pub(super) fn tagged<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content) = element(bytes)?;
    (found == tag).then_some(content)
}

/// Returns the value of an integer that is not negative; larger ones than 64 bits have the largest value.
pub(super) fn unsigned(content: &[u8]) -> u64 {
    let digits = content.iter().skip_while(|byte| **byte == 0);
    digits.clone().take(9).count().checked_sub(9).map_or_else(
        || digits.fold(0, |value, byte| value << 8 | u64::from(*byte)),
        |_| u64::MAX,
    )
}

/// Returns an object identifier as text, such as `1.3.6.1`.
pub(super) fn identifier(content: &[u8]) -> Vec<u8> {
    let mut parts: Vec<u64> = Vec::new();
    let mut value = 0u64;
    for byte in content {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if parts.is_empty() {
            // The first number holds two (ITU-T X.690, section 8.19.4).
            let first = (value / 40).min(2);
            parts.extend([first, value - 40 * first]);
        } else {
            parts.push(value);
        }
        value = 0;
    }
    let texts: Vec<String> = parts.iter().map(u64::to_string).collect();
    texts.join(".").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_identifiers_have_their_values() {
        assert_eq!(unsigned(&[0, 1, 2]), 258);
        assert_eq!(unsigned(&[]), 0);
        assert_eq!(unsigned(&[0xff; 8]), u64::MAX);
        assert_eq!(unsigned(&[1; 9]), u64::MAX);
        assert_eq!(identifier(&[0x2b, 6, 1, 2, 1, 1, 5, 0]), b"1.3.6.1.2.1.1.5.0");
        assert_eq!(identifier(&[0x88, 0x37]), b"2.999");
    }
}
