//! Integers of variable length, as in RFC 9000, section 16: the two high bits of the first byte give the size.

use super::PacketError;

/// The largest number that fits.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads fields from a body.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    size: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader of the whole body.
    pub fn new(body: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: body,
            size: body.len(),
        }
    }

    /// Reads a number.
    ///
    /// # Errors
    /// [`PacketError::Short`], with the name of the field.
    #[inline]
    pub fn varint(&mut self, field: &'static str) -> Result<u64, PacketError> {
        let short = PacketError::Short {
            size: self.size,
            field,
        };
        let first = *self.rest.first().ok_or(short)?;
        let len = 1_usize << (first >> 6);
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        let value = bytes[1..].iter().fold(u64::from(first & 0x3f), |value, byte| {
            value << 8 | u64::from(*byte)
        });
        Ok(value)
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    /// [`PacketError::Short`], with the name of the field.
    pub fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], PacketError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(PacketError::Short {
            size: self.size,
            field,
        })?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Checks that no bytes follow the fields.
    ///
    /// # Errors
    /// [`PacketError::Trailing`].
    pub fn finish(self) -> Result<(), PacketError> {
        match self.rest.len() {
            0 => Ok(()),
            len => Err(PacketError::Trailing { len }),
        }
    }
}

/// Writes fields of a body.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Appends a number. A number above [`VARINT_MAX`] is written as [`VARINT_MAX`].
    #[inline]
    pub fn varint(&mut self, value: u64) {
        let value = value.min(VARINT_MAX);
        let bytes = value.to_be_bytes();
        let size = Writer::varint_size(value);
        let mark = match size {
            1 => 0x00,
            2 => 0x40,
            4 => 0x80,
            _ => 0xc0,
        };
        self.bytes.extend_from_slice(&bytes[8 - size..]);
        let at = self.bytes.len() - size;
        self.bytes[at] |= mark;
    }

    /// Appends a byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of bytes in the encoded number.
    #[inline]
    pub fn varint_size(value: u64) -> usize {
        match value {
            0..0x40 => 1,
            0x40..0x4000 => 2,
            0x4000..0x4000_0000 => 4,
            _ => 8,
        }
    }

    /// Returns how many bytes are written.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the body.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000, appendix A.1.
    #[test]
    fn the_examples_of_rfc_9000_decode_and_encode() {
        let examples: [(&[u8], u64); 4] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ];
        for (bytes, value) in examples {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.varint("value"), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
            let mut writer = Writer::default();
            writer.varint(value);
            assert_eq!(writer.finish(), bytes);
        }
        // An encoding in two bytes of a number that fits into one byte is valid, too.
        assert_eq!(Reader::new(&[0x40, 0x25]).varint("value"), Ok(37));
        assert!(Reader::new(&[0x9d, 0x7f, 0x3e]).varint("value").is_err());
    }
}
