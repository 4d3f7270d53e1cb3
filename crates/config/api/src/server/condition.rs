//! Conditional requests (RFC 9110, section 13). The entity tag is the revision number.

use axum::http::{HeaderMap, HeaderName, header};

use crate::view::{Problem, ProblemKind};

/// Returns the entity tag of a revision.
pub(super) fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

/// The revisions that a header lists.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// `*`: any revision.
    Any,
    /// The listed revisions. A tag that is not a revision number adds none.
    OneOf(Vec<u64>),
}

impl Condition {
    /// Returns the condition in `If-Match`, or `None` without that header.
    pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<Condition>, Problem> {
        if !headers.contains_key(header::IF_MATCH) {
            return Ok(None);
        }
        // `If-Match` compares strongly (RFC 9110, section 8.8.3.2): a weak tag matches nothing.
        let bad = || {
            let detail = "If-Match is malformed: expected an entity tag as \"7\", a list of them, or *";
            Problem::new(ProblemKind::BadRequest, detail)
        };
        Condition::parse(headers, &header::IF_MATCH, false)
            .map(Some)
            .ok_or_else(bad)
    }

    /// Returns the condition in `If-None-Match`. A malformed header is ignored: the client then gets the whole
    /// response.
    pub(super) fn none_match(headers: &HeaderMap) -> Option<Condition> {
        Condition::parse(headers, &header::IF_NONE_MATCH, true)
    }

    fn parse(headers: &HeaderMap, name: &HeaderName, weak: bool) -> Option<Condition> {
        let mut revisions = Vec::new();
        let mut any = false;
        let mut values = headers.get_all(name).iter().peekable();
        values.peek()?;
        for value in values {
            for tag in value.to_str().ok()?.split(',').map(str::trim) {
                if tag == "*" {
                    any = true;
                    continue;
                }
                let (tag, is_weak) = tag.strip_prefix("W/").map_or((tag, false), |tag| (tag, true));
                let inner = tag.strip_prefix('"')?.strip_suffix('"')?;
                if let Ok(revision) = inner.parse()
                    && (weak || !is_weak)
                {
                    revisions.push(revision);
                }
            }
        }
        Some(if any {
            Condition::Any
        } else {
            Condition::OneOf(revisions)
        })
    }

    /// Returns true if the condition includes the revision.
    pub(super) fn includes(&self, revision: u64) -> bool {
        match self {
            Condition::Any => true,
            Condition::OneOf(revisions) => revisions.contains(&revision),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn if_match(value: &str) -> Result<Option<Condition>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_MATCH, value.parse().unwrap());
        Condition::if_match(&headers)
    }

    #[test]
    fn tags_lists_and_the_star_are_understood() {
        assert_eq!(Condition::if_match(&HeaderMap::new()).unwrap(), None);
        assert_eq!(if_match("*").unwrap(), Some(Condition::Any));
        assert_eq!(
            if_match("\"7\", \"8\"").unwrap(),
            Some(Condition::OneOf(vec![7, 8]))
        );
        assert_eq!(
            if_match("\"x\", W/\"7\"").unwrap(),
            Some(Condition::OneOf(vec![]))
        );
        for wrong in ["7", "\"7", "", "\"7\" \"8\"x"] {
            assert!(if_match(wrong).is_err(), "{wrong}");
        }
    }
}
