//! The range of a file that a response carries.

use super::beside::keep_last;
use crate::app::AppSettings;
use crate::app::heap::heap;

/// The value of a Content-Range (RFC 9110, section 14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) struct ContentRange {
    /// Offsets of the first byte and behind the last; `None` for a range that cannot be satisfied.
    pub(in crate::app) span: Option<(u64, u64)>,
    /// The size of the file in bytes, if it is known.
    pub(in crate::app) total: Option<u64>,
}

impl ContentRange {
    /// Returns the range of a value; `None` if the value has not the form of the section.
    pub(in crate::app) fn parse(value: &[u8]) -> Option<ContentRange> {
        let number = |text: &str| text.parse::<u64>().ok();
        let range = core::str::from_utf8(value).ok()?.trim().strip_prefix("bytes ")?;
        let (range, total) = range.trim().split_once('/')?;
        let total = match total {
            "*" => None,
            total => Some(number(total)?),
        };
        if range == "*" {
            return total.is_some().then_some(ContentRange { span: None, total });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let is_inside = first <= last && last < total.unwrap_or(u64::MAX);
        is_inside.then_some(ContentRange {
            span: Some((first, last + 1)),
            total,
        })
    }

    /// Returns true if the response carries a part of a file, and not all of it.
    fn is_part(self) -> bool {
        self.span
            .is_some_and(|(start, end)| start > 0 || self.total != Some(end))
    }
}

/// A range of a file that the response of a transaction carries.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangePart {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Offset behind the last byte.
    pub(super) end: u64,
    /// The size of the file in bytes, if it is known.
    pub(super) total: Option<u64>,
    /// The name of the file.
    pub(super) name: Vec<u8>,
    /// Bytes of the whole file that are inspected.
    pub(super) limit: usize,
    /// Offset of the next byte that is joined to the file.
    pub(super) next: u64,
    /// The last joined bytes of the range, at most [`BESIDE`](super::beside::BESIDE).
    pub(super) tail: Vec<u8>,
    /// The number of the file to which the bytes were joined.
    pub(super) file: Option<u64>,
    /// The buffer with the bytes around the begin of the range: its index, and the size up to which it takes bytes.
    pub(super) begin: Option<(usize, usize)>,
    /// True once the bytes behind the range were looked for.
    pub(super) has_ended: bool,
    /// Bytes that were not joined yet.
    fresh: Vec<u8>,
    /// True once no byte follows, or bytes are lost.
    is_over: bool,
}

heap!(RangePart { name, tail, fresh });

impl RangePart {
    /// Returns the part that a response with this Content-Range carries; `None` if it carries the whole file, or nothing of it.
    pub(in crate::app) fn new(value: &[u8], name: &[u8], settings: &AppSettings) -> Option<RangePart> {
        let range = ContentRange::parse(value).filter(|range| range.is_part())?;
        RangePart::of(range, name, settings)
    }

    /// Returns the part of a response with several parts that has this Content-Range; `None` if it has not the form of the
    /// section, or carries nothing.
    pub(in crate::app) fn of_part(value: &[u8], name: &[u8], settings: &AppSettings) -> Option<RangePart> {
        RangePart::of(ContentRange::parse(value)?, name, settings)
    }

    fn of(range: ContentRange, name: &[u8], settings: &AppSettings) -> Option<RangePart> {
        let (start, end) = range.span?;
        Some(RangePart {
            start,
            end,
            total: range.total,
            name: name.to_vec(),
            limit: settings.response_body_limit,
            next: start,
            ..RangePart::default()
        })
    }

    /// Adds bytes of the body. Those behind the end of the range belong to no place of the file.
    pub(in crate::app) fn add(&mut self, bytes: &[u8]) {
        if !self.is_over {
            let room = (self.end - self.next).saturating_sub(self.fresh.len() as u64);
            let size = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            self.fresh.extend_from_slice(&bytes[..size]);
        }
    }

    /// Notes that no byte follows, or that bytes are lost.
    pub(in crate::app) fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns true if bytes wait to be joined, or if the end of the range was not looked at.
    pub(super) fn has_news(&self) -> bool {
        !self.fresh.is_empty() || self.is_at_end() && !self.has_ended
    }

    /// Returns true if the range has no further byte.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_over || self.next + self.fresh.len() as u64 >= self.end
    }

    /// Removes and returns the bytes that wait, with the offset of the first.
    pub(super) fn take_fresh(&mut self) -> (u64, Vec<u8>) {
        let bytes = core::mem::take(&mut self.fresh);
        let offset = self.next;
        self.next += bytes.len() as u64;
        keep_last(&mut self.tail, &bytes);
        (offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_has_the_form_of_its_section() {
        let range =
            |value: &str| ContentRange::parse(value.as_bytes()).map(|range| (range.span, range.total));
        assert_eq!(range("bytes 0-5/12"), Some((Some((0, 6)), Some(12))));
        assert_eq!(range(" bytes 6-11/*"), Some((Some((6, 12)), None)));
        assert_eq!(range("bytes */12"), Some((None, Some(12))));
        for value in [
            "bytes 5-4/12",
            "bytes 0-12/12",
            "bytes */*",
            "0-5/12",
            "bytes 0-/12",
            "lines 0-5/12",
        ] {
            assert_eq!(range(value), None, "{value}");
        }
    }

    #[test]
    fn a_response_with_all_bytes_of_a_file_carries_no_part() {
        let part = |value: &str| RangePart::new(value.as_bytes(), b"f", &AppSettings::default()).is_some();
        assert!(part("bytes 0-5/12") && part("bytes 6-11/12") && part("bytes 0-11/*"));
        assert!(!part("bytes 0-11/12") && !part("bytes */12"));
    }

    #[test]
    fn bytes_behind_the_end_of_a_range_or_behind_lost_ones_are_not_joined() {
        let mut part = RangePart::new(b"bytes 4-9/12", b"f", &AppSettings::default()).unwrap();
        assert!(!part.has_news());
        part.add(b"abc");
        assert_eq!(
            (part.take_fresh(), part.is_at_end()),
            ((4, b"abc".to_vec()), false)
        );
        part.add(b"defgh");
        assert!(part.is_at_end());
        assert_eq!(part.take_fresh(), (7, b"def".to_vec()));
        assert_eq!(part.tail, b"abcdef");
        let mut part = RangePart::new(b"bytes 4-9/12", b"f", &AppSettings::default()).unwrap();
        part.end();
        part.add(b"abc");
        assert_eq!(part.take_fresh(), (4, Vec::new()));
    }
}
