//! Access control. The mode of the Unix socket admits its users; over TCP, a request must carry the token; requests of
//! web pages from other origins are rejected on both.
//!
//! A browser on the operator's machine can reach a loopback address. Requests of foreign pages are recognised by
//! `Origin`, and by `Sec-Fetch-Site` (W3C, "Fetch Metadata Request Headers") where browsers send no `Origin`, as for
//! images and navigation. A page whose name was rebound to a loopback address (DNS rebinding) does not know the token.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_listener::Connection;

use super::app::App;
use super::limits::Limits;
use super::peer::Peer;
use super::small_body::discard_small_body;
use super::token::Token;
use crate::view::{Problem, ProblemKind};

/// The rights of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// All resources.
    Full,
    /// `/health` and `/ready` without details, for a request without the token.
    Probe,
}

/// Middleware that checks every request. A connection whose request is rejected, or lacks the token, is closed after
/// the response. The head of the first authorized request establishes its connection, which is then not closed for
/// newer ones, however late the body is.
pub(super) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get().copied().unwrap_or(Peer::Unknown);
    let token = match peer {
        Peer::Address(_) => app.token.as_deref(),
        Peer::User(_) | Peer::Unknown => None,
    };
    let access = check_host(request.version(), request.headers())
        .and_then(|()| check_origin(request.headers()))
        .and_then(|()| authorize(token, request.uri().path(), request.headers()))
        .and_then(|access| establish(access, &request));
    let mut response = match access {
        Ok(access) => {
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(ref problem) => {
            discard_small_body(request).await;
            problem.clone().into_response()
        }
    };
    if !matches!(access, Ok(Access::Full)) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Checks that a request has one `Host` header (RFC 9112, section 3.2); HTTP/1.0 may have none. With two, a proxy and
/// this server could choose different ones.
fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get_all(header::HOST).iter().count() {
        1 => Ok(()),
        0 if version < Version::HTTP_11 => Ok(()),
        count => Err(Problem::new(
            ProblemKind::BadRequest,
            format!("the request has {count} Host headers: expected one"),
        )),
    }
}

/// Rejects a request that a page of another origin sends.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    for origin in headers.get_all(header::ORIGIN) {
        // An origin with bytes outside ASCII is a foreign origin, not a missing header.
        let own =
            split_scheme(origin.as_bytes()).is_some_and(|authority| authority.eq_ignore_ascii_case(host));
        if !own {
            return Err(foreign_origin(origin));
        }
    }
    for site in headers.get_all("sec-fetch-site") {
        // `none` means that the user typed or chose the address; no page is involved.
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return Err(foreign_origin(site));
        }
    }
    Ok(())
}

fn split_scheme(origin: &[u8]) -> Option<&[u8]> {
    let at = origin.windows(3).position(|three| three == b"://")?;
    origin.get(at + 3..)
}

fn foreign_origin(value: &HeaderValue) -> Problem {
    let shown: String = String::from_utf8_lossy(value.as_bytes())
        .chars()
        .take(64)
        .collect();
    let detail = format!("a page of another origin (`{shown}`) may not send requests to this switch");
    Problem::new(ProblemKind::ForeignOrigin, detail)
}

fn is_probe(path: &str) -> bool {
    matches!(path, "/health" | "/ready")
}

/// Establishes the connection of an authorized request. `/health` and `/ready` need no place, so they are answered while
/// all are in use.
fn establish(access: Access, request: &Request) -> Result<Access, Problem> {
    let connection = request.extensions().get::<Connection>();
    let (Access::Full, Some(connection)) = (access, connection) else {
        return Ok(access);
    };
    if is_probe(request.uri().path()) {
        return Ok(access);
    }
    match connection.establish() {
        Ok(()) => Ok(access),
        Err(_) => {
            let Limits {
                connections,
                connections_per_peer,
                ..
            } = request.extensions().get().copied().unwrap_or_default();
            let detail = format!(
                "too many connections: expected at most {connections_per_peer} of one user or address, and \
                 {connections} in total"
            );
            Err(Problem::new(ProblemKind::Busy, detail).with_next_step(
                "close some of them, or try again later; /health and /ready respond meanwhile",
            ))
        }
    }
}

fn authorize(token: Option<&Token>, path: &str, headers: &HeaderMap) -> Result<Access, Problem> {
    match token {
        None => Ok(Access::Full),
        Some(token) if token.is_carried_by(headers) => Ok(Access::Full),
        // A probe carries no token. It learns only if the process runs and if the switch is ready.
        Some(_) if is_probe(path) => Ok(Access::Probe),
        Some(_) => {
            let detail = "expected the header `Authorization: Bearer TOKEN` with the token of this switch";
            let next_step = "give the token in MILLRACE_TOKEN or with --token-file; it is the first line of the file that \
                api.token_file names, or of api-token in the state directory";
            Err(Problem::new(ProblemKind::Unauthorized, detail).with_next_step(next_step))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn only_the_own_origin_may_ask() {
        for (list, may) in [
            (&[("host", "localhost:8080")][..], true),
            (
                &[("host", "localhost:8080"), ("origin", "http://localhost:8080")],
                true,
            ),
            (
                &[("host", "localhost:8080"), ("origin", "http://evil.example")],
                false,
            ),
            (&[("host", "localhost:8080"), ("origin", "null")], false),
            (
                &[("host", "localhost:8080"), ("origin", "http://évil.example")],
                false,
            ),
            (&[("host", "localhost:8080"), ("origin", "é")], false),
            (
                &[
                    ("host", "localhost"),
                    ("origin", "http://localhost"),
                    ("origin", "http://evil.example"),
                ],
                false,
            ),
            (&[("host", "localhost"), ("sec-fetch-site", "same-origin")], true),
            (&[("host", "localhost"), ("sec-fetch-site", "none")], true),
            (&[("host", "localhost"), ("sec-fetch-site", "same-site")], false),
            (&[("host", "localhost"), ("sec-fetch-site", "cross-site")], false),
            (
                &[
                    ("sec-fetch-site", "same-origin"),
                    ("sec-fetch-site", "cross-site"),
                ],
                false,
            ),
        ] {
            let mut given = HeaderMap::new();
            for (name, value) in headers(list).iter() {
                given.append(name, value.clone());
            }
            for (name, value) in list.iter().skip(1) {
                // `collect` keeps only the last value of a repeated header.
                given.append(
                    name.parse::<HeaderName>().unwrap(),
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                );
            }
            assert_eq!(check_origin(&given).is_ok(), may, "{list:?}");
        }
    }

    #[test]
    fn a_request_has_one_host_and_only_an_old_one_none() {
        let two: HeaderMap = {
            let mut map = headers(&[("host", "a")]);
            map.append(header::HOST, HeaderValue::from_static("a"));
            map
        };
        assert!(check_host(Version::HTTP_11, &headers(&[("host", "a")])).is_ok());
        assert!(check_host(Version::HTTP_11, &two).is_err());
        assert!(check_host(Version::HTTP_10, &two).is_err());
        assert!(check_host(Version::HTTP_11, &HeaderMap::new()).is_err());
        assert!(check_host(Version::HTTP_10, &HeaderMap::new()).is_ok());
    }

    #[test]
    fn with_a_token_every_request_but_a_probe_must_carry_it() {
        let token = Token::new("0123456789abcdef\n").unwrap();
        let asks =
            |value: &str| authorize(Some(&token), "/metrics", &headers(&[("authorization", value)])).ok();
        assert_eq!(asks("Bearer 0123456789abcdef"), Some(Access::Full));
        assert_eq!(asks("bearer  0123456789abcdef"), Some(Access::Full));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ] {
            assert_eq!(asks(wrong), None, "{wrong}");
        }
        let probe = authorize(Some(&token), "/health", &HeaderMap::new());
        assert_eq!(probe.ok(), Some(Access::Probe));
        assert!(!format!("{token:?}").contains("0123"));
    }
}
