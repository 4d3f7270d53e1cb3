//! The fields of a certificate as rules and EVE print them.

use sha1::{Digest, Sha1};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::app::framed::colons;

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Certificate {
    /// Distinguished name of the subject: "C=US, O=…, CN=…".
    pub(super) subject: String,
    /// Distinguished name of the issuer, in the same form.
    pub(super) issuer: String,
    /// Serial number: "AA:BB:…".
    pub(super) serial: String,
    /// Start of the validity, in seconds since 1970.
    pub(super) not_before: i64,
    /// End of the validity, in seconds since 1970.
    pub(super) not_after: i64,
    /// Names in subjectAltName: DNS names and addresses.
    pub(super) alternative_names: Vec<Vec<u8>>,
}

/// Returns the SHA-1 of a certificate as "aa:bb:…".
pub(super) fn fingerprint(der: &[u8]) -> String {
    colons(&Sha1::digest(der))
}

impl Certificate {
    /// Returns the fields of a certificate in DER; `None` if it is not valid.
    pub(super) fn parse(der: &[u8]) -> Option<Certificate> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.as_bytes().to_vec()),
            GeneralName::IPAddress(octets) => match octets {
                [a, b, c, d] => Some(format!("{a}.{b}.{c}.{d}").into_bytes()),
                octets => {
                    let octets = <[u8; 16]>::try_from(*octets).ok()?;
                    Some(core::net::Ipv6Addr::from(octets).to_string().into_bytes())
                }
            },
            _ => None,
        };
        Some(Certificate {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            serial: colons(parsed.raw_serial()).to_ascii_uppercase(),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            alternative_names: names
                .map(|names| names.value.general_names.iter().filter_map(text).collect())
                .unwrap_or_default(),
        })
    }
}
