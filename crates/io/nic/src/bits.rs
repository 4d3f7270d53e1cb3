//! Named bit fields of a block of bytes: the form in which all layouts of the interface are written down.
//!
//! Bit 0 is the least significant bit of byte 0, as in little-endian integers.

/// A field of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitField {
    /// The name in lower case, as in the SystemVerilog package and the documentation.
    pub name: &'static str,
    /// Position of the least significant bit.
    pub lsb: usize,
    /// Width in bits.
    pub width: usize,
    /// One sentence for the documentation.
    pub text: &'static str,
}

/// Returns a field; for tables.
pub(crate) const fn field(name: &'static str, lsb: usize, width: usize, text: &'static str) -> BitField {
    BitField {
        name,
        lsb,
        width,
        text,
    }
}

impl BitField {
    /// Returns the value of a field of at most 64 bits; bits past the end of `bytes` are 0.
    #[must_use]
    pub fn read(&self, bytes: &[u8]) -> u64 {
        let bit = |at: usize| {
            bytes
                .get(at / 8)
                .map_or(0, |byte| u64::from(byte >> (at % 8) & 1))
        };
        (0..self.width.min(64)).fold(0, |value, at| value | bit(self.lsb + at) << at)
    }

    /// Writes the value of a field of at most 64 bits; bits past the end of `bytes` are left out.
    pub fn write(&self, bytes: &mut [u8], value: u64) {
        for at in 0..self.width.min(64) {
            let position = self.lsb + at;
            if let Some(byte) = bytes.get_mut(position / 8) {
                let mask = 1 << (position % 8);
                *byte = *byte & !mask | if value >> at & 1 == 1 { mask } else { 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_reads_back_what_was_written_and_leaves_its_neighbours() {
        let mut bytes = [0xff; 8];
        let narrow = field("narrow", 13, 7, "");
        narrow.write(&mut bytes, 0x2a);
        assert_eq!(narrow.read(&bytes), 0x2a);
        narrow.write(&mut bytes, 0x7f);
        assert_eq!(bytes, [0xff; 8]);
    }
}
