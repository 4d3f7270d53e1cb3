//! Verification of ID tokens (OpenID Connect Core 1.0, section 3.1.3.7): signature, issuer, audience, expiry and nonce.
//!
//! The accepted algorithms are RS256, ES256 and EdDSA with Ed25519 (RFC 7518, section 3; RFC 8037). A key
//! verifies only the algorithm for its type, so that a token cannot choose a weaker check: `none` and
//! symmetric algorithms are refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use subtle::ConstantTimeEq as _;

/// The maximum difference between the provider's clock and the local clock, in seconds.
const SKEW_SECS: u64 = 60;
/// The maximum time from the issue of an ID token to its acceptance, in seconds, independent of its expiry.
const AGE_MAX_SECS: u64 = 600;

/// The reason why an ID token is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdTokenError {
    /// The text is not a JSON Web Token, or a claim has a wrong type.
    #[error("it is no signed JSON Web Token with claims of OpenID Connect")]
    Malformed,
    /// The algorithm is not accepted.
    #[error("it is signed with the algorithm \"{0}\": expected RS256, ES256 or EdDSA")]
    Algorithm(String),
    /// The provider does not have the key that the token names.
    #[error("the provider has no such key")]
    UnknownKey,
    /// The signature is wrong.
    #[error("its signature is wrong")]
    Signature,
    /// Another provider issued the token.
    #[error("its issuer is another provider")]
    Issuer,
    /// The token was made for another client.
    #[error("it was made for another client")]
    Audience,
    /// The token has expired.
    #[error("it has expired")]
    Expired,
    /// The time of issue is in the future, or too long ago.
    #[error("the time of its issue is wrong: compare the clocks")]
    IssuedAt,
    /// The nonce belongs to another sign-in.
    #[error("it belongs to another sign-in")]
    Nonce,
}

/// The values that a token must have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    /// The identifier of the client, which the audience must contain.
    pub(crate) client_id: &'a str,
    /// The nonce that was created for the sign-in.
    pub(crate) nonce: &'a str,
    /// The time in seconds since 1970.
    pub(crate) now: u64,
}

/// The claims of an accepted token.
#[derive(Debug)]
pub(crate) struct Claims {
    /// The identifier of the person at the provider.
    pub(crate) subject: String,
    /// All claims in the token.
    pub(crate) all: Map<String, Value>,
}

/// A public key (RFC 7517).
#[derive(Debug, Clone, Deserialize)]
struct Key {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

/// The public keys of a provider (RFC 7517, section 5), without keys of unknown types.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
}

impl KeySet {
    /// Reads a key set; `None` if the document is not a key set.
    pub(crate) fn parse(document: &Value) -> Option<KeySet> {
        let keys = document.get("keys")?.as_array()?;
        let keys = keys.iter().filter_map(|key| Key::deserialize(key).ok());
        Some(KeySet { keys: keys.collect() })
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

/// Verifies an ID token.
///
/// # Errors
/// [`IdTokenError`].
pub(crate) fn verify(token: &str, keys: &KeySet, expected: &Expected<'_>) -> Result<Claims, IdTokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(IdTokenError::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(IdTokenError::Malformed)?;
    let header: Header = parse(header)?;
    // RFC 7515, section 4.1.11: critical extensions must be understood, and this verifier supports none.
    if header.crit.is_some() {
        return Err(IdTokenError::Malformed);
    }
    let signature = decode(signature)?;
    check_signature(&header, keys, signed.as_bytes(), &signature)?;
    let all: Map<String, Value> = parse(payload)?;
    check_claims(&all, expected)?;
    let subject = text(&all, "sub")
        .filter(|subject| !subject.is_empty())
        .ok_or(IdTokenError::Malformed)?;
    Ok(Claims {
        subject: subject.to_owned(),
        all,
    })
}

fn decode(text: &str) -> Result<Vec<u8>, IdTokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| IdTokenError::Malformed)
}

fn parse<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, IdTokenError> {
    serde_json::from_slice(&decode(part)?).map_err(|_| IdTokenError::Malformed)
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

/// Checks the signature with each key that matches the header.
fn check_signature(
    header: &Header,
    keys: &KeySet,
    signed: &[u8],
    signature: &[u8],
) -> Result<(), IdTokenError> {
    let (kty, crv) = match header.alg.as_str() {
        "RS256" => ("RSA", None),
        "ES256" => ("EC", Some("P-256")),
        "EdDSA" => ("OKP", Some("Ed25519")),
        other => return Err(IdTokenError::Algorithm(other.chars().take(20).collect())),
    };
    let mut candidates = keys.keys.iter().filter(|key| {
        key.kty == kty
            && crv.is_none_or(|crv| key.crv.as_deref() == Some(crv))
            && key.usage.as_deref().is_none_or(|usage| usage == "sig")
            && key.alg.as_deref().is_none_or(|alg| alg == header.alg)
            && (header.kid.is_none() || key.kid == header.kid)
    });
    let first = candidates.next().ok_or(IdTokenError::UnknownKey)?;
    let is_right = std::iter::once(first)
        .chain(candidates)
        .any(|key| verifies(key, signed, signature).unwrap_or(false));
    if is_right {
        Ok(())
    } else {
        Err(IdTokenError::Signature)
    }
}

/// Returns true if the key verifies the signature. Fails if the key is malformed.
fn verifies(key: &Key, signed: &[u8], signature: &[u8]) -> Result<bool, IdTokenError> {
    let verified = match key.kty.as_str() {
        "RSA" => {
            let (n, e) = (decode(&key.n)?, decode(&key.e)?);
            let key = RsaPublicKeyComponents { n: &n, e: &e };
            key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
        }
        "EC" => {
            // The encoding of an uncompressed point (SEC 1, section 2.3.3).
            let point = [vec![4], decode(&key.x)?, decode(&key.y)?].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
        }
        _ => UnparsedPublicKey::new(&ED25519, decode(&key.x)?).verify(signed, signature),
    };
    Ok(verified.is_ok())
}

/// Checks the claims of a token whose signature is valid.
fn check_claims(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), IdTokenError> {
    if text(claims, "iss") != Some(expected.issuer) {
        return Err(IdTokenError::Issuer);
    }
    let audience: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let party = text(claims, "azp");
    // A token with several audiences names its client as the authorised party (OpenID Connect Core 1.0, section
    // 3.1.3.7).
    let is_ours = audience.contains(&expected.client_id)
        && (audience.len() == 1 || party.is_some())
        && party.is_none_or(|party| party == expected.client_id);
    if !is_ours {
        return Err(IdTokenError::Audience);
    }
    let seconds = |name: &str| claims.get(name).and_then(Value::as_u64);
    let (Some(expiry), Some(issued)) = (seconds("exp"), seconds("iat")) else {
        return Err(IdTokenError::Malformed);
    };
    if expiry.saturating_add(SKEW_SECS) <= expected.now {
        return Err(IdTokenError::Expired);
    }
    let is_recent =
        issued <= expected.now + SKEW_SECS && issued.saturating_add(AGE_MAX_SECS + SKEW_SECS) > expected.now;
    if !is_recent {
        return Err(IdTokenError::IssuedAt);
    }
    let nonce = text(claims, "nonce").unwrap_or_default();
    if !bool::from(nonce.as_bytes().ct_eq(expected.nonce.as_bytes())) {
        return Err(IdTokenError::Nonce);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
