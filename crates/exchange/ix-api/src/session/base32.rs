//! Base32 (RFC 4648, section 6) without padding, as authenticators read and write it.

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Encodes bytes as Base32 text.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut len) = (0_u32, 0_u32);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        len += 8;
        while len >= 5 {
            len -= 5;
            push(&mut text, bits >> len);
        }
    }
    if len > 0 {
        push(&mut text, bits << (5 - len));
    }
    text
}

fn push(text: &mut String, bits: u32) {
    let digit = ALPHABET.get((bits & 31) as usize).copied().unwrap_or(b'A');
    text.push(char::from(digit));
}

/// Decodes a Base32 text. Spaces and padding are ignored. Returns `None` if the text has other characters.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut len) = (0_u32, 0_u32);
    for digit in text.bytes().filter(|byte| !matches!(byte, b' ' | b'=')) {
        let value = ALPHABET
            .iter()
            .position(|known| *known == digit.to_ascii_uppercase())?;
        bits = bits << 5 | u32::try_from(value).ok()?;
        len += 5;
        if len >= 8 {
            len -= 8;
            bytes.push((bits >> len & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_are_met() {
        for (bytes, text) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode("mzxw 6ytb oi======").as_deref(), Some(&b"foobar"[..]));
        assert_eq!(decode("M1"), None);
    }
}
