//! One-time passwords from time (RFC 6238): HMAC-SHA-1, 6 digits, steps of 30 seconds.

use ring::hmac;
use subtle::ConstantTimeEq;

use super::{NoRandom, base32, random};

/// The length of a step in seconds.
const STEP: u64 = 30;

/// The secret that a user's authenticator shares with the exchange: 160 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct TotpSecret(Vec<u8>);

impl std::fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TotpSecret(..)")
    }
}

impl TotpSecret {
    /// Returns a new random secret.
    ///
    /// # Errors
    /// [`NoRandom`].
    pub fn generate() -> Result<TotpSecret, NoRandom> {
        Ok(TotpSecret(random::<20>()?.to_vec()))
    }

    /// Decodes a secret from Base32 text (RFC 4648). Returns `None` if the text is not Base32, or if the
    /// secret is shorter than the 128 bits that RFC 4226, section 4, requires.
    pub fn from_base32(text: &str) -> Option<TotpSecret> {
        base32::decode(text)
            .filter(|bytes| bytes.len() >= 16)
            .map(TotpSecret)
    }

    /// Returns the secret as Base32 text, for entry in an authenticator.
    pub fn to_base32(&self) -> String {
        base32::encode(&self.0)
    }

    /// Returns the URI that an authenticator reads from a QR code
    /// (`otpauth://totp/ISSUER:ACCOUNT?secret=...`), with all but unreserved characters percent-encoded (RFC
    /// 3986, section 2.3).
    pub fn uri(&self, issuer: &str, account: &str) -> String {
        let (issuer, account) = (percent_encode(issuer), percent_encode(account));
        let secret = self.to_base32();
        format!("otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}")
    }

    /// Returns the bytes of the secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the secret that consists of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> TotpSecret {
        TotpSecret(bytes.to_vec())
    }

    /// Returns the time step for which `code` is right: the step of `unix_seconds` or an adjacent step (RFC
    /// 6238, section 5.2).
    ///
    /// A step that is not later than `last_step` does not count: a code is valid once. Spaces in a code do not count either, because
    /// authenticators show `123 456`.
    pub fn verify(&self, code: &str, unix_seconds: u64, last_step: u64) -> Option<u64> {
        let code: String = code.split_whitespace().collect();
        let now = unix_seconds / STEP;
        let mut found = None;
        for step in now.saturating_sub(1)..=now + 1 {
            let right: bool = code_of(&self.0, step).as_bytes().ct_eq(code.as_bytes()).into();
            if right && step > last_step && found.is_none() {
                found = Some(step);
            }
        }
        found
    }
}

/// Returns a text with all but unreserved characters percent-encoded (RFC 3986, section 2.3).
fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// Returns the code at a time in seconds since the Unix epoch.
pub fn code_at(secret: &TotpSecret, unix_seconds: u64) -> String {
    code_of(&secret.0, unix_seconds / STEP)
}

/// Returns the code of a counter (RFC 4226, section 5.3).
fn code_of(secret: &[u8], counter: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &counter.to_be_bytes());
    let bytes = tag.as_ref();
    let offset = usize::from(bytes.last().copied().unwrap_or(0) & 0xf);
    let word = bytes
        .get(offset..offset + 4)
        .and_then(|word| <[u8; 4]>::try_from(word).ok())
        .map_or(0, u32::from_be_bytes);
    format!("{:06}", (word & 0x7fff_ffff) % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_rfc_6238_and_rfc_4226() {
        let secret = TotpSecret::from_bytes(b"12345678901234567890");
        // RFC 6238, appendix B, lists codes of eight digits. These are their last six digits.
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(code_at(&secret, seconds), code, "{seconds}");
        }
        // RFC 4226, appendix D.
        assert_eq!(code_of(b"12345678901234567890", 0), "755224");
        assert_eq!(code_of(b"12345678901234567890", 9), "520489");
    }

    #[test]
    fn a_code_is_valid_one_step_early_and_late_and_only_once() {
        let secret = TotpSecret::generate().unwrap();
        let code = code_at(&secret, 3_000);
        assert_eq!(secret.verify(&code, 3_000, 0), Some(100));
        let (begin, end) = code.split_at(3);
        for spaced in [format!(" {begin} {end}\n"), format!("{begin}\u{a0}{end}")] {
            assert_eq!(secret.verify(&spaced, 3_000, 0), Some(100), "{spaced:?}");
        }
        assert_eq!(secret.verify(&code, 3_059, 0), Some(100));
        assert_eq!(secret.verify(&code, 2_970, 0), Some(100));
        assert_eq!(secret.verify(&code, 3_000, 100), None, "used before");
        assert_eq!(secret.verify("", 3_000, 0), None);
    }

    #[test]
    fn a_name_cannot_add_parameters_to_the_address_for_authenticators() {
        let uri = TotpSecret::from_bytes(&[0; 20]).uri("Test IX", "ann&issuer=evil?#/é");
        assert_eq!(
            uri,
            "otpauth://totp/Test%20IX:ann%26issuer%3Devil%3F%23%2F%C3%A9?secret=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA&issuer=Test%20IX"
        );
    }

    #[test]
    fn secrets_travel_as_base32_and_short_ones_are_refused() {
        let secret = TotpSecret::generate().unwrap();
        assert_eq!(TotpSecret::from_base32(&secret.to_base32()), Some(secret.clone()));
        assert_eq!(TotpSecret::from_base32("GEZDGNBV"), None);
        assert_eq!(format!("{secret:?}"), "TotpSecret(..)");
    }
}
