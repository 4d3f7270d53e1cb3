//! Hosts that requests name.

/// Returns true for host names and addresses of usual form.
pub(super) fn is_valid_host(host: &[u8]) -> bool {
    if let Some(address) = host.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")) {
        return core::str::from_utf8(address).is_ok_and(|text| text.parse::<core::net::Ipv6Addr>().is_ok());
    }
    let is_label = |label: &[u8]| {
        (1..=63).contains(&label.len())
            && label
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    let host = host.strip_suffix(b".").unwrap_or(host);
    host.len() <= 255 && host.split(|&byte| byte == b'.').all(is_label)
}
