//! Requests to a server and their responses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, RequestBuilder};

use super::error::ClientError;
use super::query::escape;
use super::unix;

/// The longest wait for a connection. Server and client are on the same machine or network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest wait for a response.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response in bytes, except for streams.
const RESPONSE_MAX_SIZE: u64 = 64 << 20;

/// A client of one server. Each request uses a pooled connection.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) agent: Agent,
    /// The address of the server, as the caller gave it.
    url: String,
    /// The prefix of request paths.
    pub(super) base: String,
    /// The path of the Unix socket, if the address is one.
    socket: Option<PathBuf>,
    token: Option<String>,
    /// The token of the lock on the configuration.
    pub(super) lock: Option<String>,
}

impl Client {
    /// Returns a client of the server at `url`: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`. The
    /// client connects with the first request. `ca` names a PEM file with the certificate of the authority
    /// that signed the server's certificate.
    ///
    /// # Errors
    /// [`ClientError::BadUrl`], [`ClientError::BadCa`].
    pub fn new(url: &str, token: Option<String>, ca: Option<&Path>) -> Result<Client, ClientError> {
        let bad_url = || ClientError::BadUrl { url: url.to_owned() };
        let socket = url.strip_prefix("unix:").map(PathBuf::from);
        if socket.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(bad_url());
        }
        let base = match socket {
            // The name in the `Host` header; it is not resolved.
            Some(_) => "http://localhost",
            None => url.trim_end_matches('/'),
        };
        let rest = base
            .strip_prefix("http://")
            .or_else(|| base.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['/', '?', '#', ' '])) {
            return Err(bad_url());
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = ca {
            let bad = |detail: String| ClientError::BadCa {
                path: path.display().to_string(),
                detail,
            };
            let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            let certificate = Certificate::from_pem(&pem).map_err(|error| bad(error.to_string()))?;
            let roots = RootCerts::new_with_certs(&[certificate]);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let agent = match &socket {
            Some(path) => unix::agent(config.build(), path),
            None => config.build().new_agent(),
        };
        Ok(Client {
            agent,
            url: socket.as_ref().map_or(base, |_| url).to_owned(),
            base: base.to_owned(),
            socket,
            token,
            lock: None,
        })
    }

    /// Returns the address of the server: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn with_token<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let request = match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        };
        match &self.lock {
            Some(lock) => request.header("lock-token", lock),
            None => request,
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> ClientError {
        if let (Some(path), ureq::Error::Io(io)) = (&self.socket, error)
            && io.kind() == std::io::ErrorKind::PermissionDenied
        {
            let path = path.clone();
            return ClientError::Denied {
                allowed: unix::allowed_users(&path),
                path,
            };
        }
        ClientError::Unreachable {
            url: self.url.clone(),
            detail: error.to_string(),
        }
    }

    /// Returns the response of a successful request, or the problem in the response of a failed one.
    pub(super) fn check(
        &self,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, ClientError> {
        let mut response = response.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() || (status == StatusCode::SERVICE_UNAVAILABLE && !is_problem(&response)) {
            return Ok(response);
        }
        let text = self.text(&mut response)?;
        match serde_json::from_str(&text) {
            Ok(problem) => Err(ClientError::Problem(problem)),
            Err(_) => Err(self.not_millrace(status, text.chars().take(200).collect())),
        }
    }

    pub(super) fn not_millrace(&self, status: StatusCode, detail: String) -> ClientError {
        ClientError::NotMillrace {
            url: self.url.clone(),
            status: status.as_u16(),
            detail,
        }
    }

    pub(super) fn text(&self, response: &mut Response<Body>) -> Result<String, ClientError> {
        let body = response.body_mut().with_config().limit(RESPONSE_MAX_SIZE);
        body.read_to_string().map_err(|error| self.unreachable(&error))
    }

    pub(super) fn json<T: DeserializeOwned>(
        &self,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, ClientError> {
        let mut response = self.check(response)?;
        let status = response.status();
        let text = self.text(&mut response)?;
        serde_json::from_str(&text).map_err(|error| self.not_millrace(status, error.to_string()))
    }

    pub(super) fn get_with(
        &self,
        path: &str,
        timeout: Option<Duration>,
    ) -> Result<Response<Body>, ureq::Error> {
        let request = self
            .agent
            .get(format!("{}{path}", self.base))
            .config()
            .timeout_global(timeout)
            .build();
        self.with_token(request).call()
    }

    /// Returns the JSON at a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(self.get_with(path, Some(RESPONSE_TIMEOUT)))
    }

    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl serde::Serialize,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        let request = self
            .agent
            .post(format!("{}{path}", self.base))
            .config()
            .timeout_global(Some(timeout))
            .build();
        self.json(self.with_token(request).send_json(body))
    }

    pub(super) fn of_bridge<T: DeserializeOwned>(&self, bridge: &str, what: &str) -> Result<T, ClientError> {
        self.get(&format!("/api/v1/bridges/{}/{what}", escape(bridge)))
    }

    pub(super) fn post_to<T: DeserializeOwned>(
        &self,
        bridge: &str,
        what: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, ClientError> {
        let path = format!("/api/v1/bridges/{}/{what}", escape(bridge));
        self.post(&path, body, RESPONSE_TIMEOUT)
    }
}

fn is_problem(response: &Response<Body>) -> bool {
    let kind = response
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or("");
    kind.starts_with("application/problem+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_refused() {
        for url in [
            "",
            "localhost:8080",
            "http://",
            "ftp://x",
            "http://x/y",
            "http://a b",
            "unix:",
            "unix:run/x.sock",
        ] {
            assert!(
                matches!(Client::new(url, None, None), Err(ClientError::BadUrl { .. })),
                "{url}"
            );
        }
        assert_eq!(
            Client::new("http://127.0.0.1:8080/", None, None).unwrap().url(),
            "http://127.0.0.1:8080"
        );
    }
}
