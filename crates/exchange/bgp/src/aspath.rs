//! AS_PATH (RFC 4271, section 4.3; RFC 6793 for four-octet AS numbers).

use core::fmt;

use crate::reader::Reader;

/// The two-octet AS number that stands for a four-octet one (RFC 6793, section 9).
pub(crate) const AS_TRANS: u32 = 23_456;

/// The size of AS numbers in a message: four octets if both speakers have the four-octet AS number capability
/// (RFC 6793, section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsnSize {
    Two,
    Four,
}

/// The type of a segment, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SegmentKind {
    /// AS_SET: AS numbers without order.
    Set = 1,
    /// AS_SEQUENCE: AS numbers in order, nearest first.
    Sequence = 2,
    /// AS_CONFED_SEQUENCE (RFC 5065).
    ConfedSequence = 3,
    /// AS_CONFED_SET (RFC 5065).
    ConfedSet = 4,
}

/// The maximum number of AS numbers in a segment, whose count is one byte.
const SEGMENT_LEN_MAX: usize = 255;

/// A segment of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Segment {
    pub kind: SegmentKind,
    /// The AS numbers, at least one.
    pub asns: Box<[u32]>,
}

/// A path of autonomous systems, nearest first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AsPath(pub Box<[Segment]>);

impl AsPath {
    /// Returns a path that consists of one AS_SEQUENCE.
    pub fn sequence(asns: &[u32]) -> AsPath {
        if asns.is_empty() {
            return AsPath::default();
        }
        AsPath(Box::new([Segment {
            kind: SegmentKind::Sequence,
            asns: asns.into(),
        }]))
    }

    /// Reads a path. The error is a message for people.
    pub(crate) fn read(bytes: &[u8], asn_size: AsnSize) -> Result<AsPath, String> {
        let mut reader = Reader(bytes);
        let mut segments = Vec::new();
        while !reader.is_empty() {
            let kind = match reader.u8() {
                Some(1) => SegmentKind::Set,
                Some(2) => SegmentKind::Sequence,
                Some(3) => SegmentKind::ConfedSequence,
                Some(4) => SegmentKind::ConfedSet,
                other => return Err(format!("segment type {}: expected 1 to 4", other.unwrap_or(0))),
            };
            let Some(len @ 1..) = reader.u8() else {
                return Err("a segment without numbers".to_owned());
            };
            let asns: Option<Vec<u32>> = (0..len)
                .map(|_| match asn_size {
                    AsnSize::Two => reader.u16().map(u32::from),
                    AsnSize::Four => reader.u32(),
                })
                .collect();
            let asns = asns.ok_or("a segment is longer than the attribute")?;
            if asns.contains(&0) {
                return Err("AS 0 (RFC 7607)".to_owned());
            }
            segments.push(Segment {
                kind,
                asns: asns.into(),
            });
        }
        Ok(AsPath(segments.into()))
    }

    /// Appends the wire format, with four-octet AS numbers.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        for segment in &self.0 {
            // A longer sequence becomes several segments (RFC 4271, section 5.1.2).
            for chunk in segment.asns.chunks(SEGMENT_LEN_MAX) {
                bytes.extend([segment.kind as u8, chunk.len() as u8]);
                bytes.extend(chunk.iter().flat_map(|asn| asn.to_be_bytes()));
            }
        }
    }

    /// Returns the AS number of the neighbour: the first number of the first segment that is not a
    /// confederation segment. Returns `None` if that segment is not an AS_SEQUENCE.
    pub fn first(&self) -> Option<u32> {
        match self.outside().next() {
            Some(segment) if segment.kind == SegmentKind::Sequence => segment.asns.first().copied(),
            _ => None,
        }
    }

    /// Returns the AS number of the origin: the last number of the last segment that is not a confederation
    /// segment. A path that ends with an AS_SET has no single origin (RFC 6811, section 2).
    pub fn origin(&self) -> Option<u32> {
        match self.outside().last() {
            Some(segment) if segment.kind == SegmentKind::Sequence => segment.asns.last().copied(),
            _ => None,
        }
    }

    /// Returns true if the path has a confederation segment (RFC 5065).
    pub(crate) fn has_confederation(&self) -> bool {
        self.outside().count() != self.0.len()
    }

    /// Returns true if the path has an AS_SET or AS_CONFED_SET, which nobody sends any more (RFC 9774).
    pub(crate) fn has_set(&self) -> bool {
        self.0
            .iter()
            .any(|segment| matches!(segment.kind, SegmentKind::Set | SegmentKind::ConfedSet))
    }

    fn outside(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.0
            .iter()
            .filter(|segment| matches!(segment.kind, SegmentKind::Set | SegmentKind::Sequence))
    }

    /// Returns the path length as defined by RFC 4271, section 9.1.2.2: an AS_SET counts as one.
    pub fn hops(&self) -> usize {
        self.outside()
            .map(|segment| match segment.kind {
                SegmentKind::Set => 1,
                _ => segment.asns.len(),
            })
            .sum()
    }

    /// Returns the path with four-octet AS numbers. AS4_PATH, without its confederation segments, replaces
    /// the end of this path (RFC 6793, sections 4.2.3 and 6).
    pub(crate) fn merged(self, as4: &AsPath) -> AsPath {
        let (hops, hops4) = (self.hops(), as4.hops());
        if hops < hops4 {
            return self;
        }
        let mut lead = hops - hops4;
        let mut segments = Vec::new();
        for segment in self.0 {
            if lead == 0 {
                break;
            }
            match segment.kind {
                SegmentKind::Sequence => {
                    let count = segment.asns.len().min(lead);
                    lead -= count;
                    let asns = segment.asns.get(..count).unwrap_or_default().into();
                    segments.push(Segment {
                        kind: segment.kind,
                        asns,
                    });
                }
                SegmentKind::Set => {
                    lead -= 1;
                    segments.push(segment);
                }
                SegmentKind::ConfedSequence | SegmentKind::ConfedSet => segments.push(segment),
            }
        }
        segments.extend(as4.outside().cloned());
        AsPath(segments.into())
    }
}

impl fmt::Display for AsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            let (open, close) = match segment.kind {
                SegmentKind::Sequence => ("", ""),
                SegmentKind::Set => ("{", "}"),
                SegmentKind::ConfedSequence => ("(", ")"),
                SegmentKind::ConfedSet => ("[", "]"),
            };
            let asns: Vec<String> = segment.asns.iter().map(u32::to_string).collect();
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{open}{}{close}", asns.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_of_two_octets_is_replaced_by_as4_path() {
        let two = AsPath::sequence(&[64_500, AS_TRANS, AS_TRANS]);
        let four = AsPath::sequence(&[4_200_000_000, 4_200_000_001]);
        assert_eq!(
            two.clone().merged(&four).to_string(),
            "64500 4200000000 4200000001"
        );
        let longer = AsPath::sequence(&[1, 2, 3, 4]);
        assert_eq!(two.clone().merged(&longer), two);
    }

    #[test]
    fn a_path_that_ends_with_a_set_has_no_origin() {
        let path = AsPath::read(&[2, 1, 0, 0, 0, 9, 1, 1, 0, 0, 0, 8], AsnSize::Four).unwrap();
        assert_eq!((path.first(), path.origin(), path.hops()), (Some(9), None, 2));
        assert_eq!(path.to_string(), "9 {8}");
    }

    #[test]
    fn malformed_segments_are_refused() {
        let read = |bytes: &[u8]| AsPath::read(bytes, AsnSize::Four);
        assert!(read(&[]).is_ok());
        for bytes in [
            &[2][..],
            &[2, 0],
            &[5, 1, 0, 0, 0, 1],
            &[2, 2, 0, 0, 0, 1],
            &[2, 1, 0, 0, 0, 0],
            &[2, 1, 0, 0, 0, 1, 7],
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
