//! Transforms of a buffer before its inspection.

use std::io::Read;

use md5::Digest;
use millrace_ips_pcre as pcre;
use millrace_ips_rules::options::transform::{Base64Mode, Subslice, Transform};

use super::bytes;
use super::program::Step;

/// Largest size of the result of a decompression, in bytes.
const DECOMPRESSED: u64 = 1 << 20;

/// Applies transforms in their order; `out` holds the result.
pub(super) fn apply(steps: &[Step], bytes: &[u8], out: &mut Vec<u8>, scratch: &mut pcre::Scratch) {
    out.clear();
    out.extend_from_slice(bytes);
    for step in steps {
        match step {
            Step::Plain(transform) => plain(transform, out),
            Step::Group(_, regex) => match regex.find_group(scratch, out) {
                Some((start, end)) => {
                    out.truncate(end);
                    out.drain(..start);
                }
                // Without a match the buffer stays as it is.
                None => {}
            },
        }
    }
}

fn plain(transform: &Transform, out: &mut Vec<u8>) {
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
        Transform::StripPseudoHeaders => by_line(out, |line, out| {
            if !line.starts_with(b":") {
                out.extend_from_slice(line);
            }
        }),
        Transform::HeaderLowercase => by_line(out, |line, out| {
            let name = line.iter().position(|byte| *byte == b':').unwrap_or(0);
            out.extend(line[..name].iter().map(u8::to_ascii_lowercase));
            out.extend_from_slice(&line[name..]);
        }),
        Transform::Domain => keep_part(out, |name| {
            psl::domain(name).map(|domain| domain.as_bytes().len())
        }),
        Transform::Tld => keep_part(out, |name| {
            psl::suffix(name).map(|suffix| suffix.as_bytes().len())
        }),
        Transform::ToMd5 => replace(out, |bytes| md5::Md5::digest(bytes)),
        Transform::ToSha1 => replace(out, |bytes| sha1::Sha1::digest(bytes)),
        Transform::ToSha256 => replace(out, |bytes| sha2::Sha256::digest(bytes)),
        Transform::Xor(key) => {
            for (byte, key) in out.iter_mut().zip(key.iter().cycle()) {
                *byte ^= key;
            }
        }
        Transform::Subslice(part) => subslice(*part, out),
        Transform::FromBase64 { mode, offset, bytes } => from_base64(*mode, *offset, *bytes, out),
        Transform::Gunzip => decompress(out, flate2::read::GzDecoder::new),
        Transform::ZlibDeflate => decompress(out, flate2::read::ZlibDecoder::new),
        // The compiler makes a step of its own from an expression.
        Transform::PcreXform(_) => {}
    }
}

/// Keeps the last bytes, as many as `size` says; all if it says nothing.
fn keep_part(out: &mut Vec<u8>, size: impl Fn(&[u8]) -> Option<usize>) {
    if let Some(size) = size(out) {
        let start = out.len().saturating_sub(size);
        out.drain(..start);
    }
}

/// Replaces the bytes by a digest.
fn replace<T: AsRef<[u8]>>(out: &mut Vec<u8>, digest: impl Fn(&[u8]) -> T) {
    let found = digest(out);
    out.clear();
    out.extend_from_slice(found.as_ref());
}

/// Replaces the bytes by what `write` makes of each line, which includes its line end.
fn by_line(out: &mut Vec<u8>, write: impl Fn(&[u8], &mut Vec<u8>)) {
    let before = core::mem::take(out);
    for line in before.split_inclusive(|byte| *byte == b'\n') {
        write(line, out);
    }
}

/// Keeps a part of the bytes; nothing if the part lies outside.
fn subslice(part: Subslice, out: &mut Vec<u8>) {
    let size = out.len() as i64;
    let from_end = |number: i64| if number < 0 { size + number } else { number };
    let start = from_end(part.offset);
    let end = match part.bytes {
        None => size,
        // A negative size leaves that many bytes at the end.
        Some(bytes) if bytes < 0 => size + bytes,
        Some(bytes) => start.saturating_add(bytes),
    };
    let end = if part.truncates { end.min(size) } else { end };
    if start < 0 || start > size || end > size || end < start {
        out.clear();
        return;
    }
    out.truncate(end as usize);
    out.drain(..start as usize);
}

/// Decodes Base64. In mode RFC 4648, bytes that are not Base64 make all of the result empty.
fn from_base64(mode: Base64Mode, offset: u32, most: Option<u32>, out: &mut Vec<u8>) {
    let start = (offset as usize).min(out.len());
    out.drain(..start);
    if let Some(most) = most {
        out.truncate(most as usize);
    }
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    match mode {
        Base64Mode::Rfc2045 => out.retain(is_digit),
        Base64Mode::Rfc4648 => {
            let padding = out.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
            let digits = out.len() - padding;
            if !out[..digits].iter().all(is_digit) {
                out.clear();
            }
        }
        Base64Mode::Strict => {
            let digits = out.iter().take_while(|byte| is_digit(byte)).count();
            out.truncate(digits);
        }
    }
    let encoded = core::mem::take(out);
    bytes::decode_base64(&encoded, out);
}

/// Replaces compressed bytes; by nothing if they are not valid. The result of a bomb is cut.
fn decompress<D: Read>(out: &mut Vec<u8>, decoder: impl Fn(std::io::Cursor<Vec<u8>>) -> D) {
    let data = core::mem::take(out);
    let mut limited = decoder(std::io::Cursor::new(data)).take(DECOMPRESSED);
    if limited.read_to_end(out).is_err() {
        out.clear();
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
    use std::io::Write;
    use std::sync::Arc;

    use millrace_ips_pcre::{Flags, Limits, Regex, Scratch};

    use super::*;

    fn applied(transforms: &[Transform], bytes: &[u8]) -> Vec<u8> {
        let steps: Vec<Step> = transforms.iter().cloned().map(Step::Plain).collect();
        let mut out = Vec::new();
        apply(&steps, bytes, &mut out, &mut Scratch::new(Limits::default()));
        out
    }

    fn part(offset: i64, bytes: Option<i64>, truncates: bool) -> Transform {
        Transform::Subslice(Subslice {
            offset,
            bytes,
            truncates,
        })
    }

    fn base64(mode: Base64Mode) -> Transform {
        Transform::FromBase64 {
            mode,
            offset: 0,
            bytes: None,
        }
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

    #[test]
    fn names_are_cut_to_their_registered_domain_and_to_their_public_suffix() {
        for (name, domain, suffix) in [
            ("www.shop.example.co.uk", "example.co.uk", "co.uk"),
            ("example.com", "example.com", "com"),
            ("a.b.example.com.", "example.com.", "com."),
            // Without a registered domain, the name stays.
            ("co.uk", "co.uk", "co.uk"),
            ("localhost", "localhost", "localhost"),
            ("a.unlisted-suffix", "a.unlisted-suffix", "unlisted-suffix"),
            ("", "", ""),
        ] {
            assert_eq!(applied(&[Transform::Domain], name.as_bytes()), domain.as_bytes());
            assert_eq!(applied(&[Transform::Tld], name.as_bytes()), suffix.as_bytes());
        }
    }

    #[test]
    fn header_lines_are_changed_one_by_one() {
        let text = b":method: GET\r\nUser-Agent: A:B\r\n";
        assert_eq!(
            applied(&[Transform::StripPseudoHeaders], text),
            b"User-Agent: A:B\r\n"
        );
        assert_eq!(
            applied(&[Transform::HeaderLowercase], b"User-Agent: A:B\r\nX"),
            b"user-agent: A:B\r\nX"
        );
    }

    #[test]
    fn digests_are_raw_bytes() {
        // Computed with md5sum, sha1sum and sha256sum.
        assert_eq!(
            applied(&[Transform::ToMd5], b"abc")[..4],
            [0x90, 0x01, 0x50, 0x98]
        );
        assert_eq!(
            applied(&[Transform::ToSha1], b"abc")[..4],
            [0xa9, 0x99, 0x3e, 0x36]
        );
        assert_eq!(
            applied(&[Transform::ToSha256], b"abc")[..4],
            [0xba, 0x78, 0x16, 0xbf]
        );
    }

    #[test]
    fn a_key_is_repeated() {
        assert_eq!(applied(&[Transform::Xor(vec![1, 2])], &[0, 0, 1]), [1, 2, 0]);
    }

    #[test]
    fn a_part_lies_inside_or_is_empty() {
        for (transform, expected) in [
            (part(2, None, false), &b"cdef"[..]),
            (part(2, Some(3), false), b"cde"),
            (part(-2, None, false), b"ef"),
            (part(-4, Some(2), false), b"cd"),
            (part(1, Some(-2), false), b"bcd"),
            (part(4, Some(9), true), b"ef"),
            (part(4, Some(9), false), b""),
            (part(9, None, false), b""),
            (part(-9, Some(1), false), b""),
        ] {
            assert_eq!(
                applied(core::slice::from_ref(&transform), b"abcdef"),
                expected,
                "{transform}"
            );
        }
    }

    #[test]
    fn base64_is_decoded_as_the_mode_says() {
        assert_eq!(applied(&[base64(Base64Mode::Rfc4648)], b"YWJj"), b"abc");
        assert_eq!(applied(&[base64(Base64Mode::Rfc4648)], b"YWI="), b"ab");
        assert_eq!(applied(&[base64(Base64Mode::Rfc4648)], b"YW Jj"), b"");
        assert_eq!(applied(&[base64(Base64Mode::Rfc2045)], b"YW.\nJj"), b"abc");
        assert_eq!(applied(&[base64(Base64Mode::Strict)], b"YWJj!YWJj"), b"abc");
        let place = Transform::FromBase64 {
            mode: Base64Mode::Rfc4648,
            offset: 2,
            bytes: Some(4),
        };
        assert_eq!(applied(&[place], b"::YWJjZGVm"), b"abc");
    }

    #[test]
    fn compressed_data_are_decompressed_within_a_limit() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![b'a'; 4 << 20]).unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(applied(&[Transform::Gunzip], &gzip).len() as u64, DECOMPRESSED);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(b"text").unwrap();
        assert_eq!(
            applied(&[Transform::ZlibDeflate], &zlib.finish().unwrap()),
            b"text"
        );
        assert_eq!(applied(&[Transform::Gunzip], b"text"), b"");
    }

    #[test]
    fn an_expression_leaves_its_first_group() {
        let text = "\\.([^\\.]+)$";
        let regex = Regex::new(text.as_bytes(), Flags::default()).unwrap();
        let step = Step::Group(text.to_owned(), Arc::new(regex));
        let mut scratch = Scratch::new(Limits::default());
        let mut out = Vec::new();
        apply(
            core::slice::from_ref(&step),
            b"www.example.org",
            &mut out,
            &mut scratch,
        );
        assert_eq!(out, b"org");
        apply(&[step], b"localhost", &mut out, &mut scratch);
        assert_eq!(out, b"localhost");
    }
}
