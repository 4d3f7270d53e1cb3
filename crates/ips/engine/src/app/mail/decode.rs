//! Content transfer encodings, line by line (RFC 2045, section 6).

use crate::app::heap::heap;
use crate::app::transaction::AppEvent;

/// A content transfer encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum Encoding {
    /// 7bit, 8bit, binary.
    Identity,
    /// base64.
    Base64,
    QuotedPrintable,
}

/// Decodes one part. A line end before a boundary belongs to the boundary, so each line end is held until the
/// next line.
#[derive(Debug, Clone)]
pub(in crate::app) struct Decoder {
    encoding: Encoding,
    /// Base64: bits that do not yet make a byte, and their number. Padding ends a group.
    bits: u32,
    count: u32,
    is_padded: bool,
    /// Line end that precedes the next line.
    line_end: Vec<u8>,
    /// Quoted-printable: an escape at the end of a piece of a line.
    escape: Vec<u8>,
}

heap!(Decoder { line_end, escape });

/// The entry of [`DIGITS`] for bytes that are no digits; it has a bit that digits do not have.
const NO_DIGIT: u8 = 0x80;

/// Values of base64 digits, by their byte (RFC 4648, section 4).
const DIGITS: [u8; 256] = {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        digits[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// Returns the value of a base64 digit.
fn digit(byte: u8) -> Option<u32> {
    let value = DIGITS[usize::from(byte)];
    (value != NO_DIGIT).then_some(u32::from(value))
}

/// Decodes whole groups of four digits up to the first other byte, and returns the rest.
fn whole_groups<'a>(text: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let mut rest = text;
    while let Some((group, after)) = rest.split_first_chunk::<4>() {
        let [a, b, c, d] = group.map(|byte| DIGITS[usize::from(byte)]);
        if (a | b | c | d) & NO_DIGIT != 0 {
            break;
        }
        out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
        rest = after;
    }
    rest
}

impl Decoder {
    pub(in crate::app) fn new(encoding: Encoding) -> Decoder {
        Decoder {
            encoding,
            bits: 0,
            count: 0,
            is_padded: false,
            line_end: Vec::new(),
            escape: Vec::new(),
        }
    }

    /// Returns true if the part has an encoding that RFC 2045 limits to lines of 76 characters.
    pub(super) fn is_encoding(&self) -> bool {
        !matches!(self.encoding, Encoding::Identity)
    }

    /// Decodes a line; `end` is empty if the line continues in the next call.
    pub(in crate::app) fn line(&mut self, text: &[u8], end: &[u8]) -> (Vec<u8>, Option<AppEvent>) {
        match self.encoding {
            Encoding::Identity => {
                let mut out = core::mem::replace(&mut self.line_end, end.to_vec());
                out.extend_from_slice(text);
                (out, None)
            }
            Encoding::Base64 => self.base64(text),
            Encoding::QuotedPrintable => self.quoted_printable(text, end),
        }
    }

    /// Returns the undecoded bytes of an incomplete escape at the end of the data.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.escape)
    }

    /// Decodes base64; other characters are skipped (RFC 2045, section 6.8), which is an event.
    fn base64(&mut self, text: &[u8]) -> (Vec<u8>, Option<AppEvent>) {
        let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
        let mut problem = None;
        let rest = match self.count == 0 && !self.is_padded {
            true => whole_groups(text, &mut out),
            false => text,
        };
        for &byte in rest {
            match digit(byte) {
                Some(value) => {
                    if core::mem::take(&mut self.is_padded) {
                        // Data after padding begin a new group, as mail programs treat them.
                        (self.bits, self.count) = (0, 0);
                        problem = Some("smtp.mime_invalid_base64");
                    }
                    self.bits = self.bits << 6 | value;
                    self.count += 6;
                    if self.count >= 8 {
                        self.count -= 8;
                        out.push(u8::try_from(self.bits >> self.count & 0xff).unwrap_or(0));
                    }
                }
                None if byte == b'=' => self.is_padded = true,
                None if byte.is_ascii_whitespace() => {}
                None => problem = Some("smtp.mime_invalid_base64"),
            }
        }
        (out, problem)
    }

    /// Decodes quoted-printable: "=XX" is a byte, "=" at the end of a line joins it with the next.
    fn quoted_printable(&mut self, text: &[u8], end: &[u8]) -> (Vec<u8>, Option<AppEvent>) {
        let mut out = core::mem::take(&mut self.line_end);
        let mut problem = None;
        let mut line = core::mem::take(&mut self.escape);
        line.extend_from_slice(text);
        let is_whole = !end.is_empty();
        // Transports may add white space at the end of a line (RFC 2045, section 6.7, rule 3).
        let line = if is_whole { line.trim_ascii_end() } else { &line };
        let mut at = 0;
        let mut is_joined = false;
        while let Some(&byte) = line.get(at) {
            if byte != b'=' {
                out.push(byte);
                at += 1;
                continue;
            }
            match line[at + 1..] {
                [high, low, ..] => match crate::app::http::hex(high, low) {
                    Some(value) => {
                        out.push(value);
                        at += 3;
                    }
                    None => {
                        problem = Some("smtp.mime_invalid_qp");
                        out.push(byte);
                        at += 1;
                    }
                },
                _ if !is_whole => {
                    self.escape = line[at..].to_vec();
                    break;
                }
                [] => {
                    is_joined = true;
                    break;
                }
                _ => {
                    problem = Some("smtp.mime_invalid_qp");
                    out.push(byte);
                    at += 1;
                }
            }
        }
        if is_whole && !is_joined {
            self.line_end = end.to_vec();
        }
        (out, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoding: Encoding, lines: &[&[u8]]) -> (Vec<u8>, Vec<AppEvent>) {
        let mut decoder = Decoder::new(encoding);
        let (mut out, mut events) = (Vec::new(), Vec::new());
        for line in lines {
            let (bytes, event) = decoder.line(line, b"\r\n");
            out.extend(bytes);
            events.extend(event);
        }
        out.extend(decoder.finish());
        (out, events)
    }

    #[test]
    fn base64_is_decoded_over_lines_of_any_length() {
        assert_eq!(
            decoded(Encoding::Base64, &[b"aGVs", b"b", b"G8g", b"d29ybGQ="]).0,
            b"hello world"
        );
        assert_eq!(
            decoded(Encoding::Base64, &[b"aGVs!bG8="]),
            (b"hello".to_vec(), vec!["smtp.mime_invalid_base64"])
        );
        assert_eq!(decoded(Encoding::Base64, &[b"aGk=aGk="]).0, b"hihi");
    }

    #[test]
    fn quoted_printable_is_decoded_and_soft_line_ends_join() {
        let lines: &[&[u8]] = &[b"a=3Db =", b"c  ", b"=E4"];
        assert_eq!(decoded(Encoding::QuotedPrintable, lines).0, b"a=b c\r\n\xe4");
        assert_eq!(
            decoded(Encoding::QuotedPrintable, &[b"=zz"]),
            (b"=zz".to_vec(), vec!["smtp.mime_invalid_qp"])
        );
    }

    #[test]
    fn the_last_line_end_belongs_to_the_boundary() {
        assert_eq!(decoded(Encoding::Identity, &[b"a", b"b"]).0, b"a\r\nb");
    }

    #[test]
    fn base64_in_two_pieces_is_what_it_is_in_single_bytes() {
        for text in [
            &b"AAECAwQFBgcICQoL+/8A"[..],
            b"TWFueSBo YW5kcyBt\tYWtl",
            b"bGlnaHQgdw==bGlnaHQgdw==",
            b"TWFu!TWFuTW=FuTWFu",
        ] {
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            let expected = decoded(Encoding::Base64, &bytes).0;
            for at in 0..=text.len() {
                let (first, second) = text.split_at(at);
                assert_eq!(
                    decoded(Encoding::Base64, &[first, second]).0,
                    expected,
                    "{}",
                    text.escape_ascii()
                );
            }
        }
        let text: &[&[u8]] = &[b"AAEC/++A"];
        assert_eq!(decoded(Encoding::Base64, text).0, [0, 1, 2, 0xff, 0xef, 0x80]);
    }
}
