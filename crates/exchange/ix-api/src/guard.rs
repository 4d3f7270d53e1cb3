//! Checks every request before its handler, and adds headers to every answer.
//!
//! A page of another origin must not send requests to the API, even if the browser adds a cookie. The header
//! `Origin` shows where a request comes from; where browsers send no `Origin`, `Sec-Fetch-Site` shows it
//! (W3C, "Fetch Metadata Request Headers"). Navigation to the page itself may come from anywhere, because a
//! link in a mail must work. What everybody may read without a sign-in, pages of every origin may link to and read.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::page::CONTENT_SECURITY_POLICY;
use crate::problem::{Problem, ProblemKind};

/// Checks `Host` and origin of a request, and adds the headers to its answer.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let is_public = is_public(&app, &request);
    let checked = check_host(request.version(), request.headers()).and_then(|()| {
        if is_api && !is_public {
            check_origin(request.headers())
        } else {
            Ok(())
        }
    });
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        // RFC 6797: a browser that came through the proxy's TLS uses nothing else for a year. Over plain HTTP, as on loopback, the
        // header has no effect (section 8.1).
        ("strict-transport-security", "max-age=31536000"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        (
            "cross-origin-resource-policy",
            if is_public { "cross-origin" } else { "same-origin" },
        ),
        (
            "permissions-policy",
            "camera=(), microphone=(), geolocation=(), payment=()",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_public {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    if is_api && !headers.contains_key(header::CACHE_CONTROL) {
        // Answers differ by user, so a shared cache must not store them.
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, no-cache"),
        );
    }
    response
}

/// Returns true for a request that reads something without a sign-in.
fn is_public(app: &App, request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    matches!(*request.method(), Method::GET | Method::HEAD)
        && path.is_some_and(|path| app.known_of(path).is_public(&Method::GET, path))
}

/// Checks that a request has exactly one `Host` header (RFC 9112, section 3.2). An HTTP/1.0 request may have
/// none, and HTTP/2 uses the authority instead.
fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get_all(header::HOST).iter().count() {
        1 => Ok(()),
        0 if version != Version::HTTP_11 => Ok(()),
        count => Err(Problem::new(
            ProblemKind::BadRequest,
            format!("the request has {count} Host headers: expected one"),
        )),
    }
}

/// Rejects a request from a page of another origin.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    let is_own = |origin: &HeaderValue| {
        let origin = origin.as_bytes();
        let authority = origin
            .strip_prefix(b"https://")
            .or_else(|| origin.strip_prefix(b"http://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    };
    let foreign = headers
        .get_all(header::ORIGIN)
        .iter()
        .find(|origin| !is_own(origin))
        .or_else(|| {
            // `none` means that the user typed or chose the address, so no page sent the request.
            let mut sites = headers.get_all("sec-fetch-site").iter();
            sites.find(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
        });
    match foreign {
        None => Ok(()),
        Some(value) => {
            let shown: String = String::from_utf8_lossy(value.as_bytes())
                .chars()
                .take(64)
                .collect();
            let detail =
                format!("a page of another origin (`{shown}`) may not send requests to this exchange");
            Err(Problem::new(ProblemKind::ForeignOrigin, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn only_the_own_origin_may_send_requests() {
        let host = ("host", "ix.example");
        for (list, may) in [
            (&[host][..], true),
            (&[host, ("origin", "https://ix.example")], true),
            (&[host, ("origin", "https://evil.example")], false),
            (&[host, ("origin", "https://ix.example.evil.example")], false),
            (&[host, ("origin", "null")], false),
            (&[host, ("origin", "é")], false),
            (
                &[
                    host,
                    ("origin", "https://ix.example"),
                    ("origin", "https://evil.example"),
                ],
                false,
            ),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "none")], true),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (
                &[
                    host,
                    ("sec-fetch-site", "same-origin"),
                    ("sec-fetch-site", "cross-site"),
                ],
                false,
            ),
        ] {
            assert_eq!(check_origin(&headers(list)).is_ok(), may, "{list:?}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        let host = ("host", "a");
        assert!(check_host(Version::HTTP_11, &headers(&[host])).is_ok());
        assert!(check_host(Version::HTTP_11, &headers(&[host, host])).is_err());
        assert!(check_host(Version::HTTP_11, &headers(&[])).is_err());
        assert!(check_host(Version::HTTP_2, &headers(&[])).is_ok());
    }
}
