//! Sign-in by an OpenID Connect provider, such as PeeringDB: the authorization code flow with PKCE (OpenID
//! Connect Core 1.0, section 3.1; RFC 7636).
//!
//! ```text
//!  browser                      this exchange                                provider
//!  POST /api/v1/oidc     -----> state, nonce, verifier --> sealed cookie
//!       <- location ----------- authorization_endpoint?state&nonce&code_challenge
//!  (navigates)           ----------------------------------------------->   signs the person in
//!       <- redirect_uri?code&state ---------------------------------------
//!  POST /api/v1/oidc/callback -> cookie opened, state and issuer compared
//!                                code + verifier ----------------------->   token_endpoint
//!                                <- ID token -----------------------------
//!                                signature, issuer, audience, expiry, nonce ([`id_token`])
//!                                networks of the person --> account and roles ([`member`])
//!       <- session cookie ------
//! ```
//! The exchange stores nothing between the two requests: the sealed cookie holds the state. Only the browser
//! that began the sign-in has this cookie, so a link with another person's code signs nobody in.

mod error;
pub(crate) mod id_token;
pub(crate) mod member;
mod provider;
mod settings;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::Timestamp;
use millrace_types::Time;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use tokio::sync::{Mutex, Semaphore};

pub(crate) use self::error::OidcError;
use self::error::plain;
use self::id_token::{Expected, IdTokenError};
use self::provider::Provider;
pub use self::settings::OidcSettings;
use crate::session::{Sealer, random};

/// The name of the cookie that holds the state of a sign-in between the two requests.
pub(crate) const COOKIE: &str = "__Host-millrace-oidc";
/// The maximum time for the sign-in at the provider.
pub(crate) const LIFE: Duration = Duration::from_secs(600);
/// The purpose string for sealing the cookie.
const PURPOSE: &str = "sign-in by a provider";
/// The maximum number of concurrent sign-ins that wait for the provider.
const UNDER_WAY_MAX: usize = 8;

/// The answer of the provider, which the browser delivers.
#[derive(Debug, Default, Clone, Deserialize, utoipa::ToSchema)]
pub(crate) struct Callback {
    /// The authorization code.
    #[serde(default)]
    pub(crate) code: Option<String>,
    /// The state of the sign-in.
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// The issuer of the answer.
    #[serde(default)]
    pub(crate) iss: Option<String>,
    /// The error code, in place of an authorization code.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// The description of the error.
    #[serde(default)]
    pub(crate) error_description: Option<String>,
}

/// A sign-in that has begun.
pub(crate) struct Started {
    /// The provider's address for the browser to open.
    pub(crate) location: String,
    /// The `Set-Cookie` header.
    pub(crate) cookie: String,
}

/// A person whom the provider has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The identifier of the person at the provider, which never changes.
    pub(crate) subject: String,
    /// The user name of the person at the provider.
    pub(crate) username: Option<String>,
    /// The networks of the person.
    pub(crate) networks: Vec<member::Network>,
}

impl Identity {
    fn new(subject: String, claims: &serde_json::Map<String, Value>) -> Identity {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
        Identity {
            subject,
            username: text("preferred_username").or_else(|| text("name")),
            networks: member::networks(claims.get("networks")),
        }
    }
}

/// The secrets of a sign-in that the cookie holds between the two requests.
#[derive(Serialize, Deserialize)]
struct Begun {
    state: String,
    nonce: String,
    verifier: String,
    at: Timestamp,
}

/// Sign-in by one provider.
pub(crate) struct Oidc {
    pub(crate) settings: OidcSettings,
    provider: Provider,
    pub(crate) under_way: Semaphore,
    /// Held while a person gets a new user, so that two concurrent sign-ins do not create two users.
    pub(crate) linking: Mutex<()>,
}

impl Oidc {
    pub(crate) fn new(settings: OidcSettings) -> Oidc {
        Oidc {
            provider: Provider::new(settings.issuer.clone()),
            settings,
            under_way: Semaphore::new(UNDER_WAY_MAX),
            linking: Mutex::new(()),
        }
    }

    /// Begins a sign-in. Requests the provider's metadata unless they are cached, so the caller must be on a
    /// blocking thread.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) fn begin(&self, sealer: &Sealer, now: Timestamp, uptime: Time) -> Result<Started, OidcError> {
        let metadata = self.provider.metadata(uptime)?;
        let begun = Begun {
            state: token()?,
            nonce: token()?,
            verifier: token()?,
            at: now,
        };
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, begun.verifier.as_bytes()));
        let scopes = self.settings.scopes.join(" ");
        let parameters = [
            ("response_type", "code"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", &self.settings.redirect_uri),
            ("scope", &scopes),
            ("state", &begun.state),
            ("nonce", &begun.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let query: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{name}={}", provider::encode(value)))
            .collect();
        let endpoint = &metadata.authorization_endpoint;
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        let internal = |error: &dyn std::fmt::Display| OidcError::Internal(error.to_string());
        let secrets = serde_json::to_vec(&begun).map_err(|error| internal(&error))?;
        let sealed = sealer.seal(PURPOSE, &secrets).map_err(|error| internal(&error))?;
        Ok(Started {
            location: format!("{endpoint}{separator}{}", query.join("&")),
            cookie: set_cookie(&URL_SAFE_NO_PAD.encode(sealed), LIFE.as_secs()),
        })
    }

    /// Completes a sign-in: exchanges the code, and returns the person. Sends requests to the provider, so the
    /// caller must be on a blocking thread.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) fn finish(
        &self,
        sealer: &Sealer,
        cookie: Option<&str>,
        answer: &Callback,
        now: Timestamp,
        uptime: Time,
    ) -> Result<Identity, OidcError> {
        let begun = open(sealer, cookie, now)?;
        let state = answer.state.as_deref().unwrap_or_default();
        if !bool::from(state.as_bytes().ct_eq(begun.state.as_bytes())) {
            return Err(OidcError::State);
        }
        let metadata = self.provider.metadata(uptime)?;
        let issuer = &self.settings.issuer;
        match &answer.iss {
            Some(found) if found != issuer => {
                return Err(OidcError::Issuer {
                    found: plain(found, 200),
                    expected: issuer.clone(),
                });
            }
            None if metadata.authorization_response_iss_parameter_supported => {
                return Err(OidcError::Issuer {
                    found: String::new(),
                    expected: issuer.clone(),
                });
            }
            _ => {}
        }
        let Some(code) = &answer.code else {
            let words = [&answer.error, &answer.error_description];
            let reason: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
            return Err(OidcError::Denied {
                reason: plain(&reason.join(": "), 200),
            });
        };
        let tokens = self
            .provider
            .exchange(&metadata, &self.settings, code, &begun.verifier)?;
        let expected = Expected {
            issuer,
            client_id: &self.settings.client_id,
            nonce: &begun.nonce,
            now: now.millis() / 1000,
        };
        let checked = id_token::verify(
            &tokens.id_token,
            &*self.provider.keys(&metadata, uptime, false)?,
            &expected,
        );
        let checked = match checked {
            // The provider may have a new key, so its keys are read again.
            Err(IdTokenError::UnknownKey) => id_token::verify(
                &tokens.id_token,
                &*self.provider.keys(&metadata, uptime, true)?,
                &expected,
            ),
            checked => checked,
        };
        let mut claims = checked?;
        if let Some(more) = self.provider.userinfo(&metadata, &tokens.access_token)? {
            // OpenID Connect Core 1.0, section 5.3.2: the subject must equal the subject in the ID token.
            if more.get("sub").and_then(Value::as_str) != Some(claims.subject.as_str()) {
                return Err(OidcError::OtherSubject);
            }
            claims.all.extend(more);
        }
        Ok(Identity::new(claims.subject, &claims.all))
    }
}

/// Returns 256 random bits as text. RFC 7636, section 4.1, recommends this length for a verifier.
fn token() -> Result<String, OidcError> {
    let bytes = random::<32>().map_err(|error| OidcError::Internal(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Rejects a cookie that this exchange did not set or that has expired.
///
/// # Errors
/// [`OidcError::Cookie`].
pub(crate) fn check_cookie(sealer: &Sealer, cookie: Option<&str>, now: Timestamp) -> Result<(), OidcError> {
    open(sealer, cookie, now).map(drop)
}

/// Opens the cookie of a sign-in, and returns its secrets.
fn open(sealer: &Sealer, cookie: Option<&str>, now: Timestamp) -> Result<Begun, OidcError> {
    let sealed = cookie.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let secrets = sealed.and_then(|sealed| sealer.open(PURPOSE, &sealed).ok());
    let begun: Option<Begun> = secrets.and_then(|secrets| serde_json::from_slice(&secrets).ok());
    begun
        .filter(|begun| now.since(begun.at) < LIFE)
        .ok_or(OidcError::Cookie)
}

/// Returns the `Set-Cookie` header for the cookie of a sign-in; 0 seconds remove the cookie.
pub(crate) fn set_cookie(value: &str, seconds: u64) -> String {
    format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={seconds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_valid_for_ten_minutes_and_for_its_own_exchange() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let at = Timestamp::from_secs(1_000_000);
        let begun = Begun {
            state: "s".to_owned(),
            nonce: "n".to_owned(),
            verifier: "v".to_owned(),
            at,
        };
        let sealed = sealer
            .seal(PURPOSE, &serde_json::to_vec(&begun).unwrap())
            .unwrap();
        let cookie = URL_SAFE_NO_PAD.encode(sealed);
        let after = |seconds: u64| Timestamp::from_secs(1_000_000 + seconds);
        assert_eq!(open(&sealer, Some(&cookie), after(599)).unwrap().state, "s");
        let other = Sealer::new(&[8; 32]).unwrap();
        for (sealer, cookie, now) in [
            (&sealer, Some(cookie.as_str()), after(600)),
            (&other, Some(cookie.as_str()), after(1)),
            (&sealer, Some(&cookie[2..]), after(1)),
            (&sealer, None, after(1)),
        ] {
            assert!(matches!(open(sealer, cookie, now), Err(OidcError::Cookie)));
        }
    }
}
