//! Problem documents for IX-API clients. They have the types and statuses of IX-API, and `properties` instead
//! of pointers.
//!
//! Handlers answer with the same [`Problem`] as the native API. [`translate`] converts the problem in every
//! answer below `/api/v2`, including refusals by the router.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// A property of the request that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct InvalidProperty {
    /// The property.
    name: String,
    /// The reason in words.
    reason: String,
}

/// A problem document (RFC 9457) with a type of IX-API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct IxProblem {
    /// The kind as a URI.
    #[serde(rename = "type")]
    #[schema(rename = "type")]
    kind: String,
    /// The kind in words.
    #[schema(value_type = String)]
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The explanation of this occurrence of the problem.
    detail: String,
    /// The properties that are not valid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    properties: Vec<InvalidProperty>,
}

/// Returns the status, the name of the type and the title in IX-API for a problem of the native API.
fn kind(problem: &Problem) -> (u16, Option<&'static str>, &'static str) {
    match (problem.status, problem.code) {
        (400 | 422 | 428, _) => (400, Some("validation-error"), "Some properties are not valid"),
        (409 | 412, _) => (400, Some("unable-to-fulfill"), "The request cannot be fulfilled"),
        (401, Some("token-expired")) => (401, Some("signature-expired"), "The token has expired"),
        (401, _) => (401, Some("authentication-error"), "Authentication is required"),
        (403, _) => (403, Some("permission-denied"), "The role does not permit this"),
        (404, _) => (404, Some("not-found"), "There is no such object"),
        (status, _) => (status, None, problem.title),
    }
}

/// Returns the property of IX-API that corresponds to a field of the model's order.
fn property(pointer: &str) -> String {
    let field = pointer.trim_start_matches('/');
    let (head, rest) = field
        .split_once('/')
        .map_or((field, None), |(head, rest)| (head, Some(rest)));
    let name = match head {
        "capacity_mbps" => "capacity",
        "vlan" => "vlan_config",
        "service" | "config" => "network_service",
        "peer" => "joining_member_account",
        "account" => "consuming_account",
        "parent" => "managing_account",
        "valid_until" => "valid_not_after",
        "valid_from" => "valid_not_before",
        other => other,
    };
    rest.map_or_else(
        || name.to_owned(),
        |rest| format!("{name}.{}", rest.replace('/', ".")),
    )
}

impl IxProblem {
    fn of(problem: &Problem) -> IxProblem {
        let (status, name, title) = kind(problem);
        let next = problem.next_step.as_deref();
        IxProblem {
            kind: name.map_or_else(
                || "about:blank".to_owned(),
                |name| format!("https://errors.ix-api.net/v2/{name}.html"),
            ),
            title,
            status,
            detail: next.map_or_else(
                || problem.detail.to_string(),
                |next| format!("{}: {next}", problem.detail),
            ),
            properties: problem
                .errors
                .iter()
                .map(|error| InvalidProperty {
                    name: property(&error.pointer),
                    reason: error.detail.clone(),
                })
                .collect(),
        }
    }
}

/// Converts the problem in an answer to a problem document of IX-API.
pub(crate) async fn translate(request: Request, next: Next) -> Response {
    let is_v2 = request.uri().path().starts_with("/api/v2/");
    let response = next.run(request).await;
    let Some(problem) = response.extensions().get::<Problem>().filter(|_| is_v2) else {
        return response;
    };
    let document = IxProblem::of(problem);
    let status = StatusCode::from_u16(document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut translated = (status, Json(document)).into_response();
    let headers = translated.headers_mut();
    headers.extend(
        response
            .headers()
            .iter()
            .filter(|(name, _)| ![header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name))
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    translated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ProblemKind;

    #[test]
    fn a_problem_has_the_type_of_ix_api_and_names_its_property() {
        let problem = Problem::new(ProblemKind::Invalid, "there is no VLAN 5000")
            .with_error("/vlan/outer_vlan", "invalid")
            .with_error("/capacity_mbps", "invalid");
        let document = IxProblem::of(&problem);
        assert_eq!(
            document.kind,
            "https://errors.ix-api.net/v2/validation-error.html"
        );
        assert_eq!(document.status, 400);
        let names: Vec<&str> = document.properties.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["vlan_config.outer_vlan", "capacity"]);
        let full = IxProblem::of(&Problem::new(ProblemKind::Conflict, "the pool is empty"));
        assert_eq!(full.kind, "https://errors.ix-api.net/v2/unable-to-fulfill.html");
        assert_eq!(full.status, 400);
        let unknown = IxProblem::of(&Problem::new(ProblemKind::Unavailable, "no database"));
        assert_eq!((unknown.kind.as_str(), unknown.status), ("about:blank", 503));
    }
}
