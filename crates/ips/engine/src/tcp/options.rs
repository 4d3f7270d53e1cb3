//! TCP options.

/// The options that reassembly needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Options {
    /// Shift of the window (RFC 7323, section 2).
    pub(super) window_scale: Option<u8>,
    /// Timestamp of the sender (RFC 7323, section 3).
    pub(super) timestamp: Option<u32>,
    /// The timestamp that the sender echoes (TSecr, RFC 7323, section 3).
    pub(super) echo: Option<u32>,
    /// True if the segment has an MD5 digest (RFC 2385) or an authentication option (RFC 5925).
    pub(super) is_signed: bool,
}

impl Options {
    /// Reads options, and ignores those after an invalid one.
    pub(super) fn parse(bytes: &[u8]) -> Options {
        // The usual options of an established connection: two no-operations and the timestamps.
        if let [1, 1, 8, 10, a, b, c, d, e, f, g, h] = *bytes {
            return Options {
                timestamp: Some(u32::from_be_bytes([a, b, c, d])),
                echo: Some(u32::from_be_bytes([e, f, g, h])),
                ..Options::default()
            };
        }
        let mut options = Options::default();
        for (kind, value) in list(bytes) {
            match (kind, value) {
                // Shifts over 14 count as 14 (RFC 7323, section 2.3).
                (3, [shift]) => options.window_scale = Some((*shift).min(14)),
                (8, [a, b, c, d, echo @ ..]) => {
                    options.timestamp = Some(u32::from_be_bytes([*a, *b, *c, *d]));
                    options.echo = echo.first_chunk().map(|echo| u32::from_be_bytes(*echo));
                }
                (19 | 29, _) => options.is_signed = true,
                _ => {}
            }
        }
        options
    }
}

/// Returns the options with their values, up to the end of the list or the first invalid option. An invalid
/// option is returned with kind 255 and no value.
pub(super) fn list(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        while let [1, tail @ ..] = rest {
            rest = tail;
        }
        match rest {
            [] | [0, ..] => None,
            [kind, size, ..] if (2..=rest.len()).contains(&usize::from(*size)) => {
                let (option, tail) = rest.split_at(usize::from(*size));
                rest = tail;
                Some((*kind, &option[2..]))
            }
            _ => {
                rest = &[];
                Some((255, &[]))
            }
        }
    })
}

/// Returns the shift of a window: both ends must have offered scaling (RFC 7323, section 2.2).
pub(super) fn scale(own: Option<u8>, other: Option<u8>) -> u8 {
    match (own, other) {
        (Some(own), Some(_)) => own,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_any_order() {
        let syn = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 1, 2, 0, 0, 0, 0, 1, 3, 3, 7];
        let options = Options::parse(&syn);
        assert_eq!((options.window_scale, options.timestamp), (Some(7), Some(258)));
        let data = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0];
        assert_eq!(Options::parse(&data).timestamp, Some(9));
        let echoes = [8, 10, 0, 0, 0, 9, 0, 0, 1, 0];
        assert_eq!(Options::parse(&echoes).echo, Some(256));
        assert!(Options::parse(&[19, 4, 1, 2]).is_signed && !options.is_signed);
    }

    #[test]
    fn a_list_ends_at_an_invalid_option() {
        let kinds: Vec<u8> = list(&[5, 2, 99, 40, 1]).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [5, 255]);
        assert_eq!(list(&[8, 0, 0]).count(), 1);
    }
}
