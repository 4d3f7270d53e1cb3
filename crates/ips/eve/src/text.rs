//! Conversion of bytes to text: valid UTF-8 is kept. In other bytes, each outside of ASCII becomes `\xhh`.

use core::fmt::Write;
use std::borrow::Cow;

pub(crate) use millrace_ips_engine::event::address_text as address;

/// Returns bytes as text, the same for every field. Control characters are kept, and JSON escapes them.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = core::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for byte in bytes {
        if byte.is_ascii() {
            out.push(char::from(*byte));
        } else {
            // A write to a string does not fail.
            let _written = write!(out, "\\x{byte:02x}");
        }
    }
    Cow::Owned(out)
}

/// Returns the printable characters of ASCII and the ends of lines; any other byte becomes a full stop.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b' '..=b'~' | b'\r' | b'\n' => char::from(*byte),
        _ => '.',
    };
    bytes.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    #[test]
    fn addresses_of_ipv6_have_all_digits() {
        let full = address(IpAddr::from([0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, 1]));
        assert_eq!(full, "2001:0db8:0000:0000:0000:0000:0000:0001");
        assert_eq!(address(IpAddr::from([192, 0, 2, 1])), "192.0.2.1");
    }

    #[test]
    fn bytes_outside_of_ascii_are_escaped_in_a_text_that_is_not_utf8() {
        assert_eq!(text(b"plain"), "plain");
        assert_eq!(text("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
        assert_eq!(text(b"a\xffb\xc3\xbc\x1a"), "a\\xffb\\xc3\\xbc\x1a");
        assert_eq!(text(b"tab\t\0"), "tab\t\0");
    }
}
