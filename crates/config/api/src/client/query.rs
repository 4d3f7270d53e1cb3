//! Percent-encoding of text in paths and queries.

use std::fmt::Write as _;

/// The parameters of a query, percent-encoded.
#[derive(Default)]
pub(super) struct Params(pub(super) String);

impl Params {
    pub(super) fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        let separator = if self.0.is_empty() { '?' } else { '&' };
        let _ = write!(self.0, "{separator}{name}={}", escape(&value.to_string()));
    }

    pub(super) fn maybe(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

/// Returns text percent-encoded for a path or a query (RFC 3986, section 2).
pub(super) fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_paths_and_queries() {
        let mut params = Params::default();
        params.add("match", "tcp,nw_dst=10.0.0.0/8");
        params.maybe("limit", Some(3));
        assert_eq!(params.0, "?match=tcp%2Cnw_dst%3D10.0.0.0%2F8&limit=3");
        assert_eq!(escape("a/ä"), "a%2F%C3%A4");
    }
}
