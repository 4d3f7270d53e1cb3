//! The media types of request bodies.

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
/// The media type of a JSON merge patch (RFC 7396).
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
