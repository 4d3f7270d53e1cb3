//! Lines of mail protocols, with bounded memory.

/// Size of the pieces into which a long line is divided, in bytes.
pub(in crate::app) const PIECE: usize = 4096;

/// A line, or a piece of a long one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) struct Line<'a> {
    /// The text without line end.
    pub(in crate::app) text: &'a [u8],
    /// The line end; empty for a piece that the next one continues.
    pub(in crate::app) end: &'a [u8],
    /// Size of the line or piece with its line end, in bytes.
    pub(in crate::app) size: usize,
}

/// Returns the line at the beginning of the data; `None` if more bytes are needed. A longer line than
/// [`PIECE`] is returned in pieces of that size.
pub(in crate::app) fn next(data: &[u8]) -> Option<Line<'_>> {
    let window = &data[..data.len().min(PIECE + 2)];
    let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
        let piece = data.get(..PIECE).filter(|_| data.len() >= PIECE + 2)?;
        return Some(Line {
            text: piece,
            end: &[],
            size: PIECE,
        });
    };
    let text = if end > 0 && data[end - 1] == b'\r' {
        end - 1
    } else {
        end
    };
    Some(Line {
        text: &data[..text],
        end: &data[text..=end],
        size: end + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_a_line_feed_and_an_optional_carriage_return() {
        assert_eq!(
            next(b"a\r\nb"),
            Some(Line {
                text: b"a",
                end: b"\r\n",
                size: 3
            })
        );
        assert_eq!(
            next(b"a\nb"),
            Some(Line {
                text: b"a",
                end: b"\n",
                size: 2
            })
        );
        assert_eq!(next(b"a\r"), None);
    }

    #[test]
    fn a_long_line_comes_in_pieces() {
        let data = vec![b'x'; PIECE * 3];
        let piece = next(&data).unwrap();
        assert_eq!(
            (piece.text.len(), piece.end, piece.size),
            (PIECE, &b""[..], PIECE)
        );
        assert_eq!(next(&data[..PIECE]), None);
    }
}
