//! Packet numbers of 62 bits. A packet carries the low 24 bits (RFC 9000, section 17.1 and appendix A.3).

/// The number of packets that may be in flight at once, so that 24 bits identify each packet.
pub const NUMBER_WINDOW: u64 = 1 << 23;
const SPAN: u64 = 1 << 24;

/// Returns the packet number that has these low 24 bits and is nearest to the next expected number.
#[inline]
pub fn expand_number(low: u64, expected: u64) -> u64 {
    let candidate = (expected & !(SPAN - 1)) | (low & (SPAN - 1));
    if candidate + NUMBER_WINDOW <= expected {
        candidate + SPAN
    } else if candidate > expected + NUMBER_WINDOW && candidate >= SPAN {
        candidate - SPAN
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_within_the_window_is_recovered(expected in 0..1_u64 << 60, distance in -((1_i64 << 23) - 1)..1 << 23) {
            let number = expected.saturating_add_signed(distance);
            prop_assert_eq!(expand_number(number & 0xff_ffff, expected), number);
        }
    }

    #[test]
    fn the_first_numbers_are_not_taken_for_earlier_ones() {
        assert_eq!(expand_number(0xff_ffff, 0), 0xff_ffff);
        assert_eq!(expand_number(1, 0xff_fff0), 0x100_0001);
    }
}
