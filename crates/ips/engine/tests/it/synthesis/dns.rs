//! Messages of DNS.

/// Returns a query for a name, or its answer; `None` if the bytes are no name.
pub(crate) fn message(name: &[u8], is_answer: bool) -> Option<Vec<u8>> {
    let flags = if is_answer { 0x81 } else { 1 };
    let mut bytes = vec![0, 7, flags, 0, 0, 1, 0, u8::from(is_answer), 0, 0, 0, 0];
    // A name that begins with a dot is the end of a longer one.
    let name = [if name.starts_with(b".") { &b"host"[..] } else { b"" }, name].concat();
    for label in name.split(|byte| *byte == b'.').filter(|_| !name.is_empty()) {
        if label.is_empty() || label.len() > 63 {
            return None;
        }
        bytes.push(label.len() as u8);
        bytes.extend(label);
    }
    bytes.extend([0, 0, 1, 0, 1]);
    if is_answer {
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    }
    Some(bytes)
}
