//! Transforms of a buffer before its inspection.

use millrace_ips_rules::options::words::Transform;

/// Applies transforms in their order; `out` holds the result.
pub(super) fn apply(transforms: &[Transform], bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(bytes);
    for transform in transforms {
        match transform {
            Transform::DotPrefix => out.insert(0, b'.'),
            Transform::ToLowercase => out.make_ascii_lowercase(),
            Transform::ToUppercase => out.make_ascii_uppercase(),
            Transform::StripWhitespace => out.retain(|byte| !is_blank(*byte)),
            Transform::CompressWhitespace => {
                let mut before = false;
                out.retain(|byte| {
                    let is_repeated = is_blank(*byte) && before;
                    before = is_blank(*byte);
                    !is_repeated
                });
            }
            Transform::UrlDecode => url_decode(out),
        }
    }
}

/// Returns true for the bytes that the C function `isspace` accepts.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Decodes `%XX` and `+` in place.
fn url_decode(bytes: &mut Vec<u8>) {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() {
        let mut byte = bytes[from];
        if byte == b'+' {
            byte = b' ';
        } else if byte == b'%'
            && let (Some(high), Some(low)) = (digit(bytes.get(from + 1)), digit(bytes.get(from + 2)))
        {
            byte = (high << 4 | low) as u8;
            from += 2;
        }
        bytes[to] = byte;
        from += 1;
        to += 1;
    }
    bytes.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(transforms: &[Transform], bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        apply(transforms, bytes, &mut out);
        out
    }

    #[test]
    fn transforms_are_applied_in_their_order() {
        assert_eq!(
            applied(&[Transform::ToLowercase, Transform::DotPrefix], b"A.B"),
            b".a.b"
        );
        assert_eq!(applied(&[Transform::CompressWhitespace], b"a  \t b"), b"a b");
        assert_eq!(applied(&[Transform::StripWhitespace], b" a \r\nb"), b"ab");
        assert_eq!(applied(&[Transform::UrlDecode], b"a%41+%4g%"), b"aA %4g%");
    }
}
