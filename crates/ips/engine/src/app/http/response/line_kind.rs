//! The kind of the first line of a response.

/// The first bytes of a line, as far as they decide whether it is a status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Status,
    Other,
    Undecided,
}

/// Returns the kind of a line: browsers accept every line that begins with "http" as a status line.
pub(super) fn line_kind(data: &[u8]) -> LineKind {
    let start = data
        .iter()
        .position(|&byte| !byte.is_ascii_whitespace() && byte != 0 && byte != 0x0b);
    let Some(start) = start else {
        return LineKind::Undecided;
    };
    let head = &data[start..(start + 4).min(data.len())];
    if !b"http"[..head.len()].eq_ignore_ascii_case(head) {
        LineKind::Other
    } else if head.len() == 4 {
        LineKind::Status
    } else {
        LineKind::Undecided
    }
}
