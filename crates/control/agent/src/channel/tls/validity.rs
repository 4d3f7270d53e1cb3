//! The time in which a certificate is valid (RFC 5280, section 4.1.2.5).

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The first and the last second in which a certificate is valid, in seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    not_before: i64,
    not_after: i64,
}

impl Validity {
    /// Returns the validity of a certificate; `None` if it cannot be decoded, which the TLS library reports.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let validity = certificate.validity();
        Some(Validity {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    }

    /// Returns the reason why the certificate is not valid at `now`, if it is not.
    pub(super) fn fault(self, now: SystemTime) -> Option<String> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let days = |seconds: i64| seconds.unsigned_abs().div_ceil(86_400);
        if now > self.not_after {
            Some(format!("has expired {} days ago", days(now - self.not_after)))
        } else if now < self.not_before {
            Some(format!(
                "is not valid yet: it will be in {} days",
                days(self.not_before - now)
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        let validity = Validity {
            not_before: 1_000_000,
            not_after: 2_000_000,
        };
        let fault = |seconds| validity.fault(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!((fault(1_000_000), fault(2_000_000)), (None, None));
        assert!(fault(2_000_001).unwrap().contains("expired 1 days ago"));
        assert!(fault(999_999).unwrap().contains("not valid yet"));
    }
}
