//! A cursor that reads big-endian values, and a trait that appends them. No other module computes offsets.

use millrace_types::{Duration, Mac};

/// The error for a read beyond the end of the bytes. Each caller maps it to an OpenFlow error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated;

/// A cursor over received bytes.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Truncated> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn mac(&mut self) -> Result<Mac, Truncated> {
        self.array().map(Mac)
    }

    /// Reads a duration: seconds and nanoseconds, 32 bits each.
    pub(crate) fn duration(&mut self) -> Result<Duration, Truncated> {
        let (seconds, nanos) = (self.u32()?, self.u32()?);
        Ok(Duration::new(u64::from(seconds), nanos.min(NANOS_PER_SECOND - 1)))
    }

    #[inline]
    pub(crate) fn take(&mut self, size: usize) -> Result<&'a [u8], Truncated> {
        let (head, tail) = self.rest.split_at_checked(size).ok_or(Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Skips padding without checking its value.
    #[inline]
    pub(crate) fn skip(&mut self, size: usize) -> Result<(), Truncated> {
        self.take(size).map(|_| ())
    }

    /// Reads text from a field of `size` bytes. The last byte counts as NUL. Text that is not valid UTF-8 is
    /// read as ASCII, with `?` for each byte above 0x7f, so that the text is never longer than its field.
    pub(crate) fn text(&mut self, size: usize) -> Result<String, Truncated> {
        let field = self.take(size)?;
        let field = &field[..size.saturating_sub(1)];
        let text = field.split(|byte| *byte == 0).next().unwrap_or(field);
        Ok(match core::str::from_utf8(text) {
            Ok(text) => text.to_owned(),
            Err(_) => text
                .iter()
                .map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' })
                .collect(),
        })
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes all bytes that are left.
    pub(crate) fn drain(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }
}

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// Appends big-endian values.
pub(crate) trait PutBytes {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn bytes(&mut self, bytes: &[u8]);
    fn zeros(&mut self, size: usize);
    fn duration(&mut self, duration: Duration);
    /// Appends text as a field of `size` bytes. Longer text is cut between characters, so that at least one
    /// NUL follows.
    fn text(&mut self, text: &str, size: usize);
    /// Appends zeros up to a multiple of 8 bytes, counted from `start`.
    fn pad_from(&mut self, start: usize);
    /// Writes the number of bytes since `start` into the two bytes at `at`. A length above 0xffff is written
    /// as 0xffff: the message that contains it is then too long as well, and is refused.
    fn length_at(&mut self, at: usize, start: usize);
}

impl PutBytes for Vec<u8> {
    #[inline]
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    #[inline]
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn zeros(&mut self, size: usize) {
        self.resize(self.len() + size, 0);
    }

    fn duration(&mut self, duration: Duration) {
        self.u32(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
        self.u32(duration.subsec_nanos());
    }

    fn text(&mut self, text: &str, size: usize) {
        let mut end = text.len().min(size.saturating_sub(1));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.extend_from_slice(&text.as_bytes()[..end]);
        self.zeros(size - end);
    }

    fn pad_from(&mut self, start: usize) {
        let size = self.len() - start;
        self.zeros(size.next_multiple_of(8) - size);
    }

    fn length_at(&mut self, at: usize, start: usize) {
        let length = u16::try_from(self.len() - start).unwrap_or(u16::MAX);
        if let Some(field) = self.get_mut(at..at + 2) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_always_ends() {
        let mut out = Vec::new();
        out.text("añb", 3);
        assert_eq!(out, [b'a', 0, 0]);
        out.clear();
        out.text("añb", 4);
        assert_eq!(Reader::new(&out).text(4), Ok("añ".to_owned()));
    }

    #[test]
    fn text_that_fills_its_field_or_is_no_text_still_fits_it() {
        assert_eq!(Reader::new(b"abcd").text(4), Ok("abc".to_owned()));
        assert_eq!(
            Reader::new(&[b'a', 0xff, 0xc3, 0xb1]).text(4),
            Ok("a??".to_owned())
        );
        assert_eq!(Reader::new(&[b'a', 0xc3, 0xb1, 0]).text(4), Ok("añ".to_owned()));
    }

    #[test]
    fn reading_past_the_end_moves_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), Err(Truncated));
        assert_eq!(reader.u16(), Ok(0x0102));
        assert_eq!(reader.skip(2), Err(Truncated));
        assert_eq!(reader.drain(), [3]);
    }
}
