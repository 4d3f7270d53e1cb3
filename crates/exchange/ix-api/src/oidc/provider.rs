//! The requests to a provider: metadata (OpenID Connect Discovery 1.0), keys, tokens and userinfo.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_types::Time;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::error::{OidcError, plain};
use super::id_token::KeySet;
use super::settings::OidcSettings;

/// The time for which metadata and keys of a provider are cached.
const KEPT: Duration = Duration::from_secs(3600);
/// The minimum time between two requests for keys that an unknown key causes.
const KEYS_AGAIN: Duration = Duration::from_secs(10);
/// The maximum size of an answer from a provider, in bytes.
const ANSWER_SIZE_MAX: u64 = 256 * 1024;

/// The metadata of a provider (OpenID Connect Discovery 1.0, section 3).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    pub(super) authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// The answer of the token endpoint.
#[derive(Deserialize)]
pub(super) struct Answered {
    pub(super) id_token: String,
    pub(super) access_token: String,
}

/// A cached value, and the time at which it was read.
type Kept<T> = Option<(Time, Arc<T>)>;

/// An OpenID Connect provider, with its cached metadata and keys.
pub(super) struct Provider {
    issuer: String,
    agent: Agent,
    kept: Mutex<(Kept<Metadata>, Kept<KeySet>)>,
}

impl Provider {
    pub(super) fn new(issuer: String) -> Provider {
        Provider {
            issuer,
            // The exchange's staff configures the provider, which may be in a private network.
            agent: crate::webhooks::agent(true),
            kept: Mutex::default(),
        }
    }

    /// Returns the metadata of the provider, which are read again after an hour.
    pub(super) fn metadata(&self, now: Time) -> Result<Arc<Metadata>, OidcError> {
        let known = self.kept.lock().0.clone();
        if let Some((at, metadata)) = known
            && now.since(at) < KEPT
        {
            return Ok(metadata);
        }
        let url = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        check_address(&url, &self.issuer)?;
        let metadata: Metadata = read(&url, self.agent.get(&url).call())?;
        if metadata.issuer != self.issuer {
            return Err(OidcError::Issuer {
                found: plain(&metadata.issuer, 200),
                expected: self.issuer.clone(),
            });
        }
        let endpoints = [
            Some(&metadata.authorization_endpoint),
            Some(&metadata.token_endpoint),
            Some(&metadata.jwks_uri),
            metadata.userinfo_endpoint.as_ref(),
        ];
        for endpoint in endpoints.into_iter().flatten() {
            check_address(endpoint, &self.issuer)?;
        }
        let metadata = Arc::new(metadata);
        self.kept.lock().0 = Some((now, Arc::clone(&metadata)));
        Ok(metadata)
    }

    /// Returns the keys of the provider. They are read again after an hour. If `is_unknown` is true, they are
    /// read again at once, but at most every 10 s.
    pub(super) fn keys(
        &self,
        metadata: &Metadata,
        now: Time,
        is_unknown: bool,
    ) -> Result<Arc<KeySet>, OidcError> {
        let known = self.kept.lock().1.clone();
        let bound = if is_unknown { KEYS_AGAIN } else { KEPT };
        if let Some((at, keys)) = known
            && now.since(at) < bound
        {
            return Ok(keys);
        }
        let url = &metadata.jwks_uri;
        let document: Value = read(url, self.agent.get(url).call())?;
        let keys = KeySet::parse(&document).ok_or_else(|| OidcError::Answer {
            url: url.clone(),
            reason: "the answer is no key set (RFC 7517)".to_owned(),
        })?;
        let keys = Arc::new(keys);
        self.kept.lock().1 = Some((now, Arc::clone(&keys)));
        Ok(keys)
    }

    /// Exchanges an authorization code for tokens (OpenID Connect Core 1.0, section 3.1.3).
    pub(super) fn exchange(
        &self,
        metadata: &Metadata,
        settings: &OidcSettings,
        code: &str,
        verifier: &str,
    ) -> Result<Answered, OidcError> {
        let url = &metadata.token_endpoint;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &settings.redirect_uri),
            ("code_verifier", verifier),
        ];
        let methods = metadata.token_endpoint_auth_methods_supported.as_deref();
        // If the metadata list no methods, client_secret_basic is used.
        let is_basic =
            methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"));
        let mut request = self.agent.post(url).header("accept", "application/json");
        match &settings.client_secret {
            Some(secret) if is_basic => {
                // RFC 6749, section 2.3.1: client id and secret are each encoded before they are joined.
                let pair = format!("{}:{}", encode(&settings.client_id), encode(secret));
                request = request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
            }
            Some(secret) => form.extend([
                ("client_id", settings.client_id.as_str()),
                ("client_secret", secret),
            ]),
            None => form.push(("client_id", &settings.client_id)),
        }
        read(url, request.send_form(form))
    }

    /// Returns the claims from the userinfo endpoint; `None` if the provider has no such endpoint.
    pub(super) fn userinfo(
        &self,
        metadata: &Metadata,
        access_token: &str,
    ) -> Result<Option<Map<String, Value>>, OidcError> {
        let Some(url) = &metadata.userinfo_endpoint else {
            return Ok(None);
        };
        let bearer = format!("Bearer {access_token}");
        let request = self.agent.get(url).header("authorization", bearer);
        read(url, request.call()).map(Some)
    }
}

/// Checks that an address has TLS. An issuer on a loopback address, and its endpoints on loopback addresses,
/// need no TLS.
fn check_address(url: &str, issuer: &str) -> Result<(), OidcError> {
    let is_local = |url: &str| {
        ["http://127.0.0.1:", "http://[::1]:", "http://localhost:"]
            .iter()
            .any(|prefix| url.starts_with(prefix))
    };
    if url.starts_with("https://") || is_local(url) && is_local(issuer) {
        Ok(())
    } else {
        Err(OidcError::Insecure { url: url.to_owned() })
    }
}

/// Parses the JSON in an answer.
fn read<T: for<'de> Deserialize<'de>>(
    url: &str,
    answer: Result<Response<Body>, ureq::Error>,
) -> Result<T, OidcError> {
    let unreachable = |error: ureq::Error| OidcError::Unreachable {
        url: url.to_owned(),
        reason: error.to_string(),
    };
    let wrong = |reason: String| OidcError::Answer {
        url: url.to_owned(),
        reason,
    };
    let mut answer = answer.map_err(unreachable)?;
    let status = answer.status();
    let body = answer
        .body_mut()
        .with_config()
        .limit(ANSWER_SIZE_MAX)
        .read_to_vec()
        .map_err(unreachable)?;
    if !status.is_success() {
        // RFC 6749, section 5.2: the member `error` is a single error code.
        let error = serde_json::from_slice::<Value>(&body).ok();
        let word = error.as_ref().and_then(|error| error.get("error")?.as_str());
        let word = plain(word.unwrap_or_default(), 60);
        return Err(wrong(format!("the answer is {} {word}", status.as_u16())));
    }
    serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))
}

/// Encodes a value for a query or a form. Encodes all characters except the unreserved characters of RFC
/// 3986.
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_provider_at_this_host_may_do_without_tls() {
        let (far, near) = ("https://auth.example", "http://127.0.0.1:9/op");
        for (url, issuer, may) in [
            ("https://auth.example/token", far, true),
            ("http://auth.example/token", far, false),
            ("http://127.0.0.1:9/token", far, false),
            ("http://127.0.0.1:9/token", near, true),
            ("http://localhost:9/token", near, true),
            ("http://localhost.evil.example/token", near, false),
            ("https://auth.example/token", near, true),
            ("ftp://127.0.0.1:9/", near, false),
        ] {
            assert_eq!(check_address(url, issuer).is_ok(), may, "{url} of {issuer}");
        }
    }

    #[test]
    fn values_of_queries_are_encoded() {
        assert_eq!(encode("a b&c=ü/~"), "a%20b%26c%3D%C3%BC%2F~");
    }
}
