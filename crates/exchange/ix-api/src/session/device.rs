//! Browsers that have signed in before. A cookie makes a browser known for its user, so that attempts of others do not
//! keep that user out (OWASP, "Slow Down Online Guessing Attacks with Device Cookies").
//!
//! The cookie proves no identity: password and one-time code are still needed. It is sealed, and is void after a change of the
//! password.

use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::{CredentialError, Sealer, cookie, fingerprint, random};

/// The name of the cookie, with the rules of [`COOKIE`](super::COOKIE).
const COOKIE: &str = "__Host-millrace-device";
/// The time for which a browser is known after a sign-in.
const LIFE: Duration = Duration::from_secs(180 * 86_400);
/// The purpose string for sealing.
const PURPOSE: &str = "known browser";

/// A browser that has signed in as a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// A random identifier.
    pub(crate) id: String,
    pub(crate) user: UserId,
    /// The fingerprint of the hash of the password with which the user signed in.
    password: String,
    at: Timestamp,
}

impl Device {
    /// Returns the device of a request, if its cookie was set by this exchange and is not too old.
    pub(crate) fn of(sealer: &Sealer, headers: &HeaderMap, now: Timestamp) -> Option<Device> {
        let sealed = URL_SAFE_NO_PAD.decode(cookie(headers, COOKIE)?).ok()?;
        let bytes = sealer.open(PURPOSE, &sealed).ok()?;
        let device: Device = serde_json::from_slice(&bytes).ok()?;
        (now.since(device.at) < LIFE).then_some(device)
    }

    /// Returns true if the device is known for a user with this password hash.
    pub(crate) fn is_known_for(&self, user: UserId, hash: Option<&str>) -> bool {
        self.user == user && hash.is_some_and(|hash| fingerprint(hash) == self.password)
    }

    /// Returns the `Set-Cookie` header that makes a browser known. A browser that is known keeps its identifier.
    ///
    /// # Errors
    /// [`CredentialError`] if the system has no random numbers.
    pub(crate) fn set_cookie(
        sealer: &Sealer,
        known: Option<&Device>,
        user: UserId,
        hash: &str,
        now: Timestamp,
    ) -> Result<String, CredentialError> {
        let failed = |error: &dyn std::fmt::Display| CredentialError {
            reason: error.to_string(),
            follows: None,
        };
        let id = match known {
            Some(device) => device.id.clone(),
            None => URL_SAFE_NO_PAD.encode(random::<16>().map_err(|error| failed(&error))?),
        };
        let device = Device {
            id,
            user,
            password: fingerprint(hash),
            at: now,
        };
        let bytes = serde_json::to_vec(&device).map_err(|error| failed(&error))?;
        let sealed = sealer.seal(PURPOSE, &bytes).map_err(|error| failed(&error))?;
        Ok(format!(
            "{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={}",
            URL_SAFE_NO_PAD.encode(sealed),
            LIFE.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_known_for_its_user_and_password_for_180_days() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let (user, begin) = (UserId(3), Timestamp::from_secs(1_000_000));
        let request = |cookie: &str| {
            let mut headers = HeaderMap::new();
            let pair = cookie.split(';').next().unwrap();
            headers.insert(axum::http::header::COOKIE, pair.parse().unwrap());
            headers
        };
        let cookie = Device::set_cookie(&sealer, None, user, "hash", begin).unwrap();
        assert!(!cookie.contains("hash"));
        let later = begin.after(LIFE - Duration::from_secs(1));
        let device = Device::of(&sealer, &request(&cookie), later).unwrap();
        assert!(device.is_known_for(user, Some("hash")));
        assert!(!device.is_known_for(UserId(4), Some("hash")));
        assert!(!device.is_known_for(user, Some("another hash")));
        assert!(!device.is_known_for(user, None));
        assert_eq!(Device::of(&sealer, &request(&cookie), begin.after(LIFE)), None);
        let other = Sealer::new(&[8; 32]).unwrap();
        assert_eq!(Device::of(&other, &request(&cookie), begin), None);
        let renewed = Device::set_cookie(&sealer, Some(&device), user, "hash", later).unwrap();
        let renewed = Device::of(&sealer, &request(&renewed), begin.after(LIFE)).unwrap();
        assert_eq!(renewed.id, device.id);
    }
}
