//! Parts of requests that many handlers read: JSON bodies, conditions, idempotency keys, pages of
//! collections.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use millrace_ix_model::ObjectId;
use millrace_ix_store::IdempotencyKey;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::app::App;
use crate::media::{JSON, MERGE_PATCH};
use crate::problem::{Problem, ProblemKind};
use crate::view::List;

/// The maximum size of a request body, in bytes.
pub(crate) const BODY_LIMIT: usize = 256 * 1024;

/// The JSON object in the body of a request.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Body<T>, Problem> {
        let media = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("");
        let media = media.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let method = request.method().clone();
        // Absent properties of a PATCH stay, and null removes one, as a merge patch says (RFC 7396).
        let is_patch = method == Method::PATCH && media == MERGE_PATCH;
        if media != JSON && !is_patch {
            let also = if method == Method::PATCH {
                format!(" or {MERGE_PATCH}")
            } else {
                String::new()
            };
            let detail = format!("the content type is `{media}`: expected application/json{also}");
            return Err(Problem::new(ProblemKind::UnsupportedMedia, detail));
        }
        let path = request.extensions().get::<MatchedPath>().cloned();
        let bytes = Bytes::from_request(request, app).await.map_err(|rejection| {
            let kind = match rejection.status().as_u16() {
                413 => ProblemKind::TooLarge,
                _ => ProblemKind::BadRequest,
            };
            Problem::new(kind, rejection.body_text())
        })?;
        let unexpected = |error: serde_json::Error| {
            let kind = if error.is_data() {
                ProblemKind::Invalid
            } else {
                ProblemKind::BadRequest
            };
            Problem::new(kind, format!("the body is not as expected: {error}"))
        };
        let body: Value = serde_json::from_slice(&bytes).map_err(unexpected)?;
        // serde also reads a struct from a JSON array, element by element; only an object is accepted.
        if !body.is_object() {
            let detail = "the body is not an object: expected one";
            return Err(Problem::new(ProblemKind::Invalid, detail));
        }
        if let Some(path) = path {
            let known = app.known_of(path.as_str());
            known.check_body(&method, path.as_str(), &body)?;
        }
        // The bytes are read again: an error in them has its line and column, and a repeated property is refused.
        serde_json::from_slice(&bytes).map(Body).map_err(unexpected)
    }
}

/// The parameters in the query of a request.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Query(value)),
            Err(rejection) => Err(Problem::new(ProblemKind::BadRequest, rejection.body_text())),
        }
    }
}

/// The page of a collection.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// The number of objects, 1 to 500; the default is 100.
    limit: Option<usize>,
    /// The cursor: the value of `next` on the previous page.
    after: Option<String>,
}

impl PageParams {
    /// Returns the maximum number of objects on the page.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        match self.limit.unwrap_or(100) {
            limit @ 1..=500 => Ok(limit),
            limit => Err(Problem::new(
                ProblemKind::BadRequest,
                format!("limit={limit}: expected 1 to 500"),
            )),
        }
    }

    /// Returns the cursor.
    pub(crate) fn after<T: std::str::FromStr>(&self) -> Result<Option<T>, Problem> {
        let Some(text) = self.after.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let text: String = text.chars().take(40).collect();
            Problem::new(
                ProblemKind::BadRequest,
                format!("after={text}: expected the `next` of a page"),
            )
        })
    }

    /// Returns one page of records, which must be in the order of their creation. The cursor is the identifier of a record; after
    /// its deletion, the collection begins again.
    pub(crate) fn records<V, T>(
        &self,
        records: Vec<V>,
        id: impl Fn(&V) -> &String,
        view: impl Fn(V) -> T,
    ) -> Result<List<T>, Problem> {
        let limit = self.limit()?;
        let total = records.len();
        let after = self.after.as_deref().filter(|text| !text.is_empty());
        let begin = after
            .and_then(|after| records.iter().position(|record| id(record) == after))
            .map_or(0, |at| at + 1);
        let last = records.get(begin + limit - 1).map(|record| id(record).clone());
        Ok(List {
            next: last.filter(|_| begin + limit < total),
            items: records.into_iter().skip(begin).take(limit).map(view).collect(),
            total,
        })
    }

    /// Returns one page of objects, which must be sorted by identifier.
    pub(crate) fn page<K, V, T>(
        &self,
        objects: &[(K, V)],
        view: impl Fn(K, &V) -> T,
    ) -> Result<List<T>, Problem>
    where
        K: Copy + Ord + std::fmt::Display + std::str::FromStr,
    {
        let limit = self.limit()?;
        let begin = match self.after::<K>()? {
            Some(after) => objects.partition_point(|(id, _)| *id <= after),
            None => 0,
        };
        let remaining = objects.get(begin..).unwrap_or_default();
        let next = (remaining.len() > limit)
            .then(|| remaining.get(limit - 1).map(|(id, _)| id.to_string()))
            .flatten();
        Ok(List {
            items: remaining
                .iter()
                .take(limit)
                .map(|(id, object)| view(*id, object))
                .collect(),
            next,
            total: objects.len(),
        })
    }
}

/// The options of an order.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OrderParams {
    /// True to return the effect of the order without executing it.
    dry_run: Option<bool>,
    /// The seconds, 1 to 86,400, after which the order is undone unless somebody confirms it. Only orders for
    /// drains, shut-downs and policies can have this parameter.
    confirm_within: Option<u32>,
}

/// The conditions of an order: dry run, expected revision, idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    pub(crate) dry_run: bool,
    pub(crate) confirm_within: Option<Duration>,
    if_match: Option<Vec<u64>>,
    any: bool,
    key: Option<String>,
    /// Method and path of the request.
    request: String,
}

impl FromRequestParts<App> for Conditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Conditions, Problem> {
        let Query(params) = Query::<OrderParams>::from_request_parts(parts, app).await?;
        let has_options = params.dry_run == Some(true) || params.confirm_within.is_some();
        if has_options && parts.uri.path().starts_with("/api/v2/") {
            // The order must not be executed for a client that asked what it would do.
            let detail =
                "IX-API has neither `dry_run` nor `confirm_within`: expected neither; /api/v1 has both";
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let (if_match, any) = parse_if_match(&parts.headers)?;
        let key = crate::idempotency::key(&parts.headers)?;
        Ok(Conditions {
            dry_run: params.dry_run.unwrap_or(false),
            confirm_within: params
                .confirm_within
                .map(|seconds| Duration::from_secs(seconds.into())),
            if_match,
            any,
            key,
            request: format!("{} {}", parts.method, parts.uri.path()),
        })
    }
}

impl Conditions {
    /// Returns the object and the revision that it must have. `If-Match` is required for an order about an
    /// existing object.
    pub(crate) fn expected(
        &self,
        object: ObjectId,
        revision: u64,
    ) -> Result<Option<(ObjectId, u64)>, Problem> {
        if self.any {
            return Ok(None);
        }
        let Some(tags) = &self.if_match else {
            let detail = "the order changes an object: expected its ETag in If-Match, or * to overwrite";
            return Err(Problem::new(ProblemKind::ConditionRequired, detail));
        };
        if tags.contains(&revision) {
            return Ok(Some((object, revision)));
        }
        if let (Some(_), Some(read), false) = (&self.key, tags.first(), self.dry_run) {
            // A repeated order contains the revision from before its first execution. The engine first looks
            // for the stored answer, and compares revisions only if there is none.
            return Ok(Some((object, *read)));
        }
        let detail = format!("{object} is at revision {revision}: expected the one in If-Match");
        Err(Problem::new(ProblemKind::Stale, detail)
            .with_next_step("read the object again, and order with its new ETag in If-Match"))
    }

    /// Returns true if the method is POST. Only a POST is answered with 201.
    pub(crate) fn is_post(&self) -> bool {
        self.request.starts_with("POST ")
    }

    /// Returns the idempotency key with the user as its scope, and the hash of the request.
    pub(crate) fn idempotency(
        &self,
        user: &str,
        body: &impl serde::Serialize,
    ) -> Option<(IdempotencyKey, String)> {
        let key = self.key.as_ref().filter(|_| !self.dry_run)?;
        let body = serde_json::to_string(body).unwrap_or_default();
        let key = IdempotencyKey {
            scope: user.to_owned(),
            key: key.clone(),
        };
        let hash = crate::session::fingerprint(&format!("{} {body}", self.request));
        Some((key, hash))
    }
}

/// Returns the revisions in `If-Match`, and true if the header contains `*`.
fn parse_if_match(headers: &HeaderMap) -> Result<(Option<Vec<u64>>, bool), Problem> {
    let bad = || {
        let detail = "If-Match is malformed: expected an entity tag as \"7\", a list of them, or *";
        Problem::new(ProblemKind::BadRequest, detail)
    };
    if !headers.contains_key(header::IF_MATCH) {
        return Ok((None, false));
    }
    let (mut revisions, mut any) = (Vec::new(), false);
    for value in headers.get_all(header::IF_MATCH) {
        for tag in value.to_str().map_err(|_| bad())?.split(',').map(str::trim) {
            if tag == "*" {
                any = true;
                continue;
            }
            // `If-Match` uses strong comparison (RFC 9110, section 13.1.1), so a weak tag matches nothing.
            let (tag, is_weak) = tag.strip_prefix("W/").map_or((tag, false), |tag| (tag, true));
            let inner = tag
                .strip_prefix('"')
                .and_then(|tag| tag.strip_suffix('"'))
                .ok_or_else(bad)?;
            revisions.extend(inner.parse::<u64>().ok().filter(|_| !is_weak));
        }
    }
    Ok((Some(revisions), any))
}

/// Returns a text of one line without the space around it.
///
/// # Errors
/// The text has control characters, or not as many characters as expected.
pub(crate) fn one_line(text: &str, pointer: &str, len: RangeInclusive<usize>) -> Result<String, Problem> {
    let text = text.trim();
    if !len.contains(&text.chars().count()) || text.chars().any(char::is_control) {
        let (least, most) = (len.start(), len.end());
        return Err(Problem::invalid(
            pointer,
            format!("expected {least} to {most} characters on one line"),
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_lists_and_the_star_are_understood() {
        let parse = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, value.parse().unwrap());
            parse_if_match(&headers)
        };
        assert_eq!(parse_if_match(&HeaderMap::new()).unwrap(), (None, false));
        assert_eq!(parse("*").unwrap(), (Some(vec![]), true));
        assert_eq!(parse("\"7\", \"8\"").unwrap(), (Some(vec![7, 8]), false));
        assert_eq!(parse("W/\"7\", \"x\"").unwrap(), (Some(vec![]), false));
        for wrong in ["7", "\"7", "", "\"7\" \"8\"x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pages_follow_each_other_without_gap_and_repetition() {
        let objects: Vec<(u32, u32)> = (0..250).map(|number| (number * 2, number)).collect();
        let mut params = PageParams {
            limit: Some(100),
            after: None,
        };
        let mut seen = Vec::new();
        loop {
            let page = params.page(&objects, |id, _| id).unwrap();
            assert_eq!(page.total, 250);
            seen.extend(page.items);
            match page.next {
                Some(next) => params.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, objects.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        // The object that the cursor names may have been deleted meanwhile.
        params.after = Some("3".to_owned());
        assert_eq!(params.page(&objects, |id, _| id).unwrap().items[0], 4);
        params.limit = Some(0);
        assert!(params.page(&objects, |id, _| id).is_err());
    }

    #[test]
    fn pages_of_records_follow_each_other_too() {
        let records: Vec<String> = (1..=12).map(|number| format!("ct-{number}")).collect();
        let mut params = PageParams {
            limit: Some(4),
            after: None,
        };
        let mut seen = Vec::new();
        loop {
            let page = params.records(records.clone(), |id| id, |id| id).unwrap();
            assert_eq!(page.total, 12);
            seen.extend(page.items);
            match page.next {
                Some(next) => params.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, records);
    }
}
