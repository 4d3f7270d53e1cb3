//! Base32 (RFC 4648, section 6) without padding, as authenticators read and write it.

use data_encoding::BASE32_NOPAD;

/// Encodes bytes as Base32 text.
pub(crate) fn encode(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(bytes)
}

/// Decodes a Base32 text. Spaces and padding are ignored. Returns `None` if the rest is no Base32.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().filter(|byte| !matches!(byte, b' ' | b'='));
    let digits: Vec<u8> = digits.map(|byte| byte.to_ascii_uppercase()).collect();
    BASE32_NOPAD.decode(&digits).ok()
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
