//! The way to the relay, and what letters say of their sender.

use std::net::SocketAddr;

use millrace_ix_model::is_mail_address;

use super::words::Language;

/// The mail of an exchange is not configured correctly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailError {
    /// The address of the sender is none.
    #[error("api.mail.from {text}: expected a mail address, such as noc@ix.example")]
    From {
        /// The text of the setting.
        text: String,
    },
    /// The relay is none on this machine.
    #[error(
        "api.mail.relay {relay}: expected a loopback address; a mail server on this machine speaks TLS to others"
    )]
    Relay {
        /// The value of the setting.
        relay: SocketAddr,
    },
    /// The address of the page is none.
    #[error(
        "api.mail.page {text}: expected the address of the page by HTTPS, such as https://ix.example: links in letters are secrets"
    )]
    Page {
        /// The text of the setting.
        text: String,
    },
    /// There are no letters in this language.
    #[error("api.mail.language {text}: expected en, ja or ko")]
    Language {
        /// The text of the setting.
        text: String,
    },
}

/// Returns true if links with this beginning travel by TLS, or do not leave the machine.
fn is_page(page: &str) -> bool {
    let is_here = |rest: &str| {
        let host = rest.split(['/', ':']).next();
        matches!(host, Some("localhost" | "127.0.0.1")) || rest.starts_with("[::1]")
    };
    let is_plain = !page
        .chars()
        .any(|char| char.is_whitespace() || char.is_control() || char == '#');
    let https = page.strip_prefix("https://");
    let is_safe =
        https.is_some_and(|rest| !rest.is_empty()) || page.strip_prefix("http://").is_some_and(is_here);
    is_plain && is_safe
}

/// The way to the relay, and what letters say of their sender.
#[derive(Debug, Clone)]
pub struct MailSettings {
    pub(super) relay: SocketAddr,
    pub(super) from: String,
    /// The address of the page, without a slash at its end.
    page: String,
    language: Language,
}

impl MailSettings {
    /// Returns the settings for a relay on this machine.
    ///
    /// # Errors
    /// [`MailError`].
    pub fn new(relay: SocketAddr, from: &str, page: &str, language: &str) -> Result<MailSettings, MailError> {
        if !relay.ip().to_canonical().is_loopback() {
            return Err(MailError::Relay { relay });
        }
        if !is_mail_address(from) || !from.is_ascii() {
            return Err(MailError::From {
                text: from.to_owned(),
            });
        }
        if !is_page(page) {
            return Err(MailError::Page {
                text: page.to_owned(),
            });
        }
        let language = Language::with_code(language).ok_or_else(|| MailError::Language {
            text: language.to_owned(),
        })?;
        Ok(MailSettings {
            relay,
            from: from.to_owned(),
            page: page.trim_end_matches('/').to_owned(),
            language,
        })
    }

    /// Returns the address of a page, such as `https://ix.example/link`.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("{}{path}", self.page)
    }

    /// Returns the mail address of the sender.
    pub(crate) fn sender(&self) -> &str {
        &self.from
    }

    /// Returns the language of people who have chosen none.
    pub(crate) fn language(&self) -> Language {
        self.language
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_are_named_with_what_was_expected() {
        let new = |relay: &str, from: &str, page: &str| {
            MailSettings::new(relay.parse().unwrap(), from, page, "en")
                .unwrap_err()
                .to_string()
        };
        let page = "https://ix.example";
        assert!(new("192.0.2.1:25", "noc@ix.example", page).contains("api.mail.relay 192.0.2.1:25"));
        assert!(new("127.0.0.1:25", "noc", page).contains("api.mail.from noc"));
        for wrong in [
            "ix.example",
            "https://",
            "http://ix.example",
            "http://localhost.example",
            "https://ix.example/#x",
            "https://ix.example\r\nx",
        ] {
            let error = new("127.0.0.1:25", "noc@ix.example", wrong);
            assert!(error.contains("api.mail.page"), "{wrong:?}: {error}");
        }
        let klingon = MailSettings::new("127.0.0.1:25".parse().unwrap(), "noc@ix.example", page, "tlh");
        assert_eq!(
            klingon.unwrap_err().to_string(),
            "api.mail.language tlh: expected en, ja or ko"
        );
        let here = "http://localhost:8080";
        assert!(MailSettings::new("127.0.0.1:25".parse().unwrap(), "noc@ix.example", here, "en").is_ok());
        let good = MailSettings::new(
            "[::1]:25".parse().unwrap(),
            "noc@ix.example",
            "https://ix.example/",
            "ja",
        )
        .unwrap();
        assert_eq!(good.page("/link"), "https://ix.example/link");
        assert_eq!(good.language(), Language::Japanese);
    }
}
