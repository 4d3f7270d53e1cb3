//! The reasons why a sign-in by the provider failed.

use super::id_token::IdTokenError;

/// The reason why a sign-in by the provider failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    /// The provider does not answer.
    #[error("{url} does not answer: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        reason: String,
    },
    /// The answer of the provider violates the standard.
    #[error("{url}: {reason}")]
    Answer {
        /// The address.
        url: String,
        reason: String,
    },
    /// The provider names an address without TLS.
    #[error("{url}: expected an address with TLS (https://)")]
    Insecure {
        /// The address.
        url: String,
    },
    /// The cookie is absent, was changed, or is too old.
    #[error("the sign-in was begun in another browser, or more than 10 minutes ago: begin again")]
    Cookie,
    /// The state in the answer differs from the state in the cookie.
    #[error("the answer belongs to another sign-in: begin again")]
    State,
    /// The answer names another issuer (RFC 9207, section 2.4).
    #[error("the answer comes from the issuer \"{found}\": expected \"{expected}\"")]
    Issuer {
        /// The issuer in the answer.
        found: String,
        /// The issuer in the settings.
        expected: String,
    },
    /// The provider refused the sign-in, because the person did not consent or has no access.
    #[error("the provider refused: {reason}")]
    Denied {
        /// The reason of the provider.
        reason: String,
    },
    /// The ID token is not accepted.
    #[error("the ID token is not accepted: {0}")]
    Token(#[from] IdTokenError),
    /// The claims from the userinfo endpoint are about another person.
    #[error("the userinfo endpoint answered for another person")]
    OtherSubject,
    /// An error in this exchange.
    #[error("{0}")]
    Internal(String),
}

/// Returns the beginning of a text of the provider or of a browser, for people and for logs: without control characters,
/// which could pretend to be another line, and without characters that change the direction of the text.
pub(super) fn plain(text: &str, len_max: usize) -> String {
    let is_plain = |char: &char| {
        !char.is_control()
            && !matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().filter(is_plain).take(len_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_provider_is_one_line() {
        let text = "no\n2026-11-28T00:00:00Z  INFO signed in\r\x1b[2K\u{202e}x\u{2028}";
        assert_eq!(plain(text, 200), "no2026-11-28T00:00:00Z  INFO signed in[2Kx");
        assert_eq!(plain(&"é".repeat(300), 200).chars().count(), 200);
    }
}
