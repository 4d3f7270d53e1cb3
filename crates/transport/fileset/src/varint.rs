//! Numbers of variable size: seven bits a byte, the lowest first, the top bit set in all bytes but the last (LEB128).

/// The reason why a number could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VarintError {
    /// The bytes end within the number.
    Incomplete,
    /// The number has more than 64 bits, or more bytes than it needs.
    Invalid,
}

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number in zigzag form, in which numbers of small magnitude are short.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Removes a number from the front of `bytes` and returns it.
pub(crate) fn take(bytes: &mut &[u8]) -> Result<u64, VarintError> {
    let mut number = 0_u64;
    for index in 0..10_usize {
        let byte = *bytes.get(index).ok_or(VarintError::Incomplete)?;
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return Err(VarintError::Invalid);
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return Err(VarintError::Invalid);
            }
            *bytes = &bytes[index + 1..];
            return Ok(number);
        }
    }
    Err(VarintError::Invalid)
}

/// Removes a signed number from the front of `bytes` and returns it.
pub(crate) fn take_signed(bytes: &mut &[u8]) -> Result<i64, VarintError> {
    let number = take(bytes)?;
    Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

/// Removes `len` bytes from the front of `bytes` and returns them.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], VarintError> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(VarintError::Incomplete)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_survives(number: u64, signed: i64) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            put_signed(&mut bytes, signed);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Ok(number));
            prop_assert_eq!(take_signed(&mut rest), Ok(signed));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_number_has_one_spelling() {
        assert_eq!(take(&mut &[0x80, 0x00][..]), Err(VarintError::Invalid));
        assert_eq!(take(&mut &[0xff; 10][..]), Err(VarintError::Invalid));
        assert_eq!(take(&mut &[0x80][..]), Err(VarintError::Incomplete));
    }
}
