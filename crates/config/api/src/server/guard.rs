//! Who may ask at all: a bearer token where one is configured, and no page of a foreign origin.
//!
//! A browser on the operator's machine can reach a loopback address. Two attacks follow, and both are
//! refused here: a page that sends requests to the switch (its `Origin` is not the switch's), and a page
//! whose name was rebound to a loopback address (its `Host` is not a loopback name). A server with a token
//! needs no check of `Host`, because the page does not know the token.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::app::App;
use crate::view::{Problem, ProblemKind};

/// The least length of a token: what cannot be guessed even at a million tries a second.
const TOKEN_MIN_SIZE: usize = 16;

/// The secret that every request must carry.
pub struct Token(Box<[u8]>);

/// Why a token file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token file: {0}")]
    Read(#[from] std::io::Error),
    /// The first line is too short.
    #[error(
        "the first line of the token file has {size} bytes: expected at least {TOKEN_MIN_SIZE}, as `openssl rand -hex 32` makes"
    )]
    TooShort {
        /// Its bytes, without blanks at its ends.
        size: usize,
    },
}

impl Token {
    /// The first line of a file, without blanks at its ends.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let text = std::fs::read_to_string(path)?;
        Token::new(text.lines().next().unwrap_or(""))
    }

    /// # Errors
    /// [`TokenError::TooShort`].
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.len() < TOKEN_MIN_SIZE {
            return Err(TokenError::TooShort { size: text.len() });
        }
        Ok(Token(text.as_bytes().into()))
    }

    /// Whether the request carries it. Takes equally long for every wrong token of the right length.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers
            .get(header::AUTHORIZATION)
            .map_or(&b""[..], |value| value.as_bytes());
        let Some((scheme, token)) = given.split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(token.trim_ascii().ct_eq(&self.0))
    }
}

/// Whether every user of this machine can read the file.
pub(super) fn is_open_to_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
}

/// Never shows the secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The middleware.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match check(app.token.as_deref(), request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(token: Option<&Token>, path: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or("");
    if let Some(origin) = text(header::ORIGIN) {
        let own = origin
            .split_once("://")
            .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
        if !own {
            let detail = format!(
                "a page of `{}` may not ask this switch",
                origin.chars().take(64).collect::<String>()
            );
            return Err(Problem::new(ProblemKind::ForeignOrigin, detail));
        }
    }
    match token {
        // Probes know no token, and learn nothing but whether the switch lives.
        _ if matches!(path, "/health" | "/ready") => Ok(()),
        Some(token) if token.is_in(headers) => Ok(()),
        Some(_) => {
            let detail = "expected the header `Authorization: Bearer TOKEN` with the token of this switch";
            Err(Problem::new(ProblemKind::Unauthorized, detail)
                .with_remedy("give the token in MILLRACE_TOKEN or with --token-file; it is the first line of the file that api.token_file names"))
        }
        None if host.is_empty() || is_loopback(host) => Ok(()),
        None => {
            let host: String = host.chars().take(64).collect();
            let detail = format!("the request is for `{host}`: expected a loopback address or localhost");
            Err(Problem::new(ProblemKind::ForeignOrigin, detail))
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        list.iter().map(pair).collect()
    }

    #[test]
    fn without_a_token_only_loopback_names_and_the_own_origin_may_ask() {
        for (list, may) in [
            (&[("host", "127.0.0.1:8080")][..], true),
            (&[("host", "[::1]:8080")], true),
            (&[("host", "localhost")], true),
            (&[("host", "evil.example:8080")], false),
            (&[("host", "127.0.0.1.evil.example")], false),
            (
                &[("host", "localhost:8080"), ("origin", "http://localhost:8080")],
                true,
            ),
            (
                &[("host", "localhost:8080"), ("origin", "http://evil.example")],
                false,
            ),
            (&[("host", "localhost:8080"), ("origin", "null")], false),
        ] {
            assert_eq!(
                check(None, "/api/v1/config", &headers(list)).is_ok(),
                may,
                "{list:?}"
            );
        }
    }

    #[test]
    fn with_a_token_every_request_but_a_probe_must_carry_it() {
        let token = Token::new("0123456789abcdef\n").unwrap();
        let asks =
            |value: &str| check(Some(&token), "/metrics", &headers(&[("authorization", value)])).is_ok();
        assert!(asks("Bearer 0123456789abcdef") && asks("bearer  0123456789abcdef"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ] {
            assert!(!asks(wrong), "{wrong}");
        }
        assert!(check(Some(&token), "/health", &HeaderMap::new()).is_ok());
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn a_secret_that_every_user_can_read_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_to_all(file.path()), open, "{mode:o}");
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        assert!(Token::new("secret").is_err());
    }
}
