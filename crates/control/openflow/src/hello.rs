//! HELLO: the versions that a side supports (OpenFlow 1.3.5, section 7.5.1).

use crate::bytes::{PutBytes, Reader};
use crate::decode_error::DecodeError;
use crate::header::VERSION;

/// `OFPHET_VERSIONBITMAP`.
const VERSION_BITMAP: u16 = 1;

/// The version bitmap of a HELLO, if the peer sent one; other elements are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hello {
    /// Bit `n` is set if version `n` is supported; versions above 31 are ignored.
    pub versions: Option<u32>,
}

impl Hello {
    /// The HELLO of this crate's switches, which support only version 1.3.
    pub const OURS: Hello = Hello {
        versions: Some(1 << VERSION),
    };

    /// Returns true if both sides support version 1.3 (OpenFlow 1.3.5, section 6.3.1). `header_version` is
    /// the version in the header of the peer's HELLO. If the HELLO has a bitmap, the bitmap decides.
    /// Otherwise the lower version of the two sides decides.
    pub fn agrees(&self, header_version: u8) -> bool {
        match self.versions {
            Some(versions) => versions & 1 << VERSION != 0,
            None => header_version >= VERSION,
        }
    }

    /// Reads a HELLO. Skips padding and elements of other types, as the specification asks.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
        let mut hello = Hello::default();
        while !reader.is_empty() {
            let type_ = reader.u16()?;
            let length = usize::from(reader.u16()?);
            let mut body = Reader::new(reader.take(length.checked_sub(4).ok_or(DecodeError::Length)?)?);
            // Some peers leave out the padding of the last element.
            let padding = length.next_multiple_of(8) - length;
            reader.skip(padding.min(reader.rest().len()))?;
            if type_ == VERSION_BITMAP && hello.versions.is_none() {
                hello.versions = Some(body.u32()?);
            }
        }
        Ok(hello)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(versions) = self.versions {
            out.u16(VERSION_BITMAP);
            out.u16(8);
            out.u32(versions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_decides_and_without_it_the_lower_version() {
        assert!(Hello { versions: None }.agrees(4));
        assert!(Hello { versions: None }.agrees(6));
        assert!(!Hello { versions: None }.agrees(1));
        let only_1_0_and_1_5 = Hello {
            versions: Some(1 << 1 | 1 << 6),
        };
        assert!(!only_1_0_and_1_5.agrees(6));
        assert!(
            Hello {
                versions: Some(1 << 1 | 1 << 4)
            }
            .agrees(1)
        );
    }

    #[test]
    fn unknown_elements_are_skipped() {
        let bytes = [0, 9, 0, 5, 7, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 16];
        assert_eq!(Hello::decode(&mut Reader::new(&bytes)), Ok(Hello::OURS));
        assert_eq!(
            Hello::decode(&mut Reader::new(&[0, 9, 0, 3])),
            Err(DecodeError::Length)
        );
    }
}
