//! Tokens of IX-API clients: JSON Web Tokens (RFC 7519) signed with HMAC-SHA-256 (RFC 7515, appendix A.1).
//!
//! ```text
//!  api_key + api_secret --> access token (15 min) + refresh token (24 h, valid once)
//!  refresh token        --> a new pair; the old refresh token is no longer valid
//! ```
//! A token names the API key that it was made from, and is valid only while that key exists: deleting the key
//! ends all of its tokens at once.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{CredentialError, CredentialStore, Sealer, fingerprint, load_json, parse, random, save_json};

/// The lifetime of an access token.
const ACCESS: Duration = Duration::from_secs(900);
/// The lifetime of a refresh token.
const REFRESH: Duration = Duration::from_secs(86_400);
/// The store key under which the sealed signing key is kept.
const KEY: &str = "token-key";
/// The prefix of the store keys of valid refresh tokens. The SHA-256 of the token follows.
const REFRESH_PREFIX: &str = "refresh/";
/// The largest number of refresh tokens of one API key. At the maximum, a new token replaces the token that
/// expires first.
const PER_KEY: usize = 64;
/// The header of every token: `{"alg":"HS256","typ":"JWT"}`.
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// The requests for which a token is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TokenUse {
    /// The token authorises requests.
    Access,
    /// The token can be exchanged for a new pair.
    Refresh,
}

/// The claims of a token (RFC 7519, section 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    /// The SHA-256 of the API key.
    sub: String,
    #[serde(rename = "use")]
    token_use: TokenUse,
    /// A random number that distinguishes two tokens issued in the same second.
    jti: String,
    iat: u64,
    exp: u64,
}

/// A refresh token as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredRefreshToken {
    sub: String,
    exp: u64,
}

/// A token that is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The text is no token of this exchange.
    #[error("the token is not one of this exchange")]
    Invalid,
    /// The token has expired.
    #[error("the token has expired: refresh it, or authenticate again")]
    Expired,
}

/// Makes and checks tokens.
pub(crate) struct Tokens {
    key: hmac::Key,
    store: Arc<dyn CredentialStore>,
}

impl Tokens {
    /// Loads the signing key from the store. Generates and stores a new key if there is none.
    pub(crate) async fn load(
        store: Arc<dyn CredentialStore>,
        sealer: &Sealer,
    ) -> Result<Tokens, CredentialError> {
        let failed = |error: &dyn std::fmt::Display| CredentialError {
            reason: error.to_string(),
            follows: None,
        };
        let bytes = match store.load(KEY).await? {
            Some(sealed) => sealer.open(KEY, &sealed).map_err(|error| failed(&error))?,
            None => {
                let bytes = random::<32>().map_err(|error| failed(&error))?;
                let sealed = sealer.seal(KEY, &bytes).map_err(|error| failed(&error))?;
                store.save(KEY, Some(&sealed)).await?;
                bytes.to_vec()
            }
        };
        Ok(Tokens {
            key: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
            store,
        })
    }

    /// Returns an access token and a refresh token for the API key with this SHA-256.
    pub(crate) async fn issue(&self, key: &str, now: Timestamp) -> Result<(String, String), CredentialError> {
        let now = now.millis() / 1000;
        let access = self.sign(key, TokenUse::Access, now, ACCESS)?;
        let refresh = self.sign(key, TokenUse::Refresh, now, REFRESH)?;
        self.make_room(key, now).await?;
        let stored = StoredRefreshToken {
            sub: key.to_owned(),
            exp: now + REFRESH.as_secs(),
        };
        save_json(&*self.store, &refresh_key(&refresh), &stored).await?;
        Ok((access, refresh))
    }

    /// Removes expired refresh tokens. If the key still has [`PER_KEY`] tokens, also removes the one that
    /// expires first.
    async fn make_room(&self, key: &str, now: u64) -> Result<(), CredentialError> {
        let mut own = Vec::new();
        for (at, value) in self.store.list(REFRESH_PREFIX).await? {
            let stored: StoredRefreshToken = parse(&value)?;
            if stored.exp <= now {
                self.store.save(&at, None).await?;
            } else if stored.sub == key {
                own.push((stored.exp, at));
            }
        }
        own.sort();
        for (_, at) in own.iter().take((own.len() + 1).saturating_sub(PER_KEY)) {
            self.store.save(at, None).await?;
        }
        Ok(())
    }

    fn sign(
        &self,
        key: &str,
        token_use: TokenUse,
        now: u64,
        life: Duration,
    ) -> Result<String, CredentialError> {
        let jti = random::<12>().map_err(|error| CredentialError {
            reason: error.to_string(),
            follows: None,
        })?;
        let claims = Claims {
            sub: key.to_owned(),
            token_use,
            jti: URL_SAFE_NO_PAD.encode(jti),
            iat: now,
            exp: now + life.as_secs(),
        };
        let claims = serde_json::to_vec(&claims).map_err(|error| CredentialError {
            reason: error.to_string(),
            follows: None,
        })?;
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(HEADER),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let tag = hmac::sign(&self.key, signed.as_bytes());
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)))
    }

    /// Returns the SHA-256 of the API key that an access token was made from.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<String, TokenError> {
        let claims = self.claims(token)?;
        if claims.token_use != TokenUse::Access {
            return Err(TokenError::Invalid);
        }
        if claims.exp <= now.millis() / 1000 {
            return Err(TokenError::Expired);
        }
        Ok(claims.sub)
    }

    /// Returns the end of a token's validity; `None` if the text is not a token of this exchange.
    pub(crate) fn end(&self, token: &str) -> Option<Timestamp> {
        let claims = self.claims(token).ok()?;
        Some(Timestamp::from_secs(claims.exp))
    }

    /// Consumes a refresh token, and returns the SHA-256 of its API key. Returns `None` if the token has
    /// expired or was used before.
    pub(crate) async fn take_refresh(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<String>, CredentialError> {
        let Ok(claims) = self.claims(token) else {
            return Ok(None);
        };
        let key = refresh_key(token);
        let is_valid = claims.token_use == TokenUse::Refresh && claims.exp > now.millis() / 1000;
        if !is_valid
            || load_json::<StoredRefreshToken>(&*self.store, &key)
                .await?
                .is_none()
        {
            return Ok(None);
        }
        self.store.save(&key, None).await?;
        Ok(Some(claims.sub))
    }

    /// Returns the claims of a token with a right signature. Only the header that this exchange writes is
    /// accepted, so that a token cannot choose its algorithm.
    fn claims(&self, token: &str) -> Result<Claims, TokenError> {
        let (signed, tag) = token.rsplit_once('.').ok_or(TokenError::Invalid)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| TokenError::Invalid)?;
        hmac::verify(&self.key, signed.as_bytes(), &tag).map_err(|_| TokenError::Invalid)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Invalid)?;
        if header != URL_SAFE_NO_PAD.encode(HEADER) {
            return Err(TokenError::Invalid);
        }
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| TokenError::Invalid)?;
        serde_json::from_slice(&claims).map_err(|_| TokenError::Invalid)
    }
}

/// Returns the store key of a refresh token.
fn refresh_key(token: &str) -> String {
    format!("{REFRESH_PREFIX}{}", fingerprint(token))
}

#[cfg(test)]
mod tests {
    use super::super::MemoryCredentials;
    use super::super::ready;
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000_000 + seconds)
    }

    fn tokens(store: &Arc<MemoryCredentials>) -> Tokens {
        let store: Arc<dyn CredentialStore> = Arc::clone(store) as _;
        ready(Tokens::load(store, &Sealer::new(&[7; 32]).unwrap())).unwrap()
    }

    #[test]
    fn an_access_token_is_valid_for_its_time_and_over_a_restart() {
        let store = Arc::new(MemoryCredentials::default());
        let (access, refresh) = ready(tokens(&store).issue("print", at(0))).unwrap();
        let again = tokens(&store);
        assert_eq!(again.verify(&access, at(899)).as_deref(), Ok("print"));
        assert_eq!(again.verify(&access, at(900)), Err(TokenError::Expired));
        assert_eq!(again.verify(&refresh, at(1)), Err(TokenError::Invalid));
    }

    #[test]
    fn a_refresh_token_is_valid_once() {
        let store = Arc::new(MemoryCredentials::default());
        let tokens = tokens(&store);
        let (access, refresh) = ready(tokens.issue("print", at(0))).unwrap();
        assert_eq!(ready(tokens.take_refresh(&access, at(1))).unwrap(), None);
        assert_eq!(
            ready(tokens.take_refresh(&refresh, at(1))).unwrap().as_deref(),
            Some("print")
        );
        assert_eq!(ready(tokens.take_refresh(&refresh, at(1))).unwrap(), None);
        let (_, late) = ready(tokens.issue("print", at(0))).unwrap();
        assert_eq!(ready(tokens.take_refresh(&late, at(86_400))).unwrap(), None);
        for _ in 0..100 {
            ready(tokens.issue("print", at(90_000))).unwrap();
        }
        assert_eq!(ready(store.list(REFRESH_PREFIX)).unwrap().len(), PER_KEY);
    }

    #[test]
    fn changed_tokens_and_other_algorithms_are_refused() {
        let store = Arc::new(MemoryCredentials::default());
        let tokens = tokens(&store);
        let (access, _) = ready(tokens.issue("print", at(0))).unwrap();
        let parts: Vec<&str> = access.split('.').collect();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
        for wrong in [
            format!("{}.{}.", parts[0], parts[1]),
            format!("{none}.{}.{}", parts[1], parts[2]),
            format!("{none}.{}.", parts[1]),
            access[..access.len() - 2].to_owned(),
            "..".to_owned(),
            "mx_abc".to_owned(),
        ] {
            assert_eq!(tokens.verify(&wrong, at(1)), Err(TokenError::Invalid), "{wrong}");
        }
    }
}
