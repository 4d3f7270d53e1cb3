//! Errors of TLS, with the file that an operator has to correct.

use std::io;
use std::path::PathBuf;

use millrace_model as model;
use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, Error};
use thiserror::Error as ThisError;

/// The reason why the TLS files of a bridge cannot be used.
#[derive(Debug, ThisError)]
pub(in crate::channel) enum TlsFilesError {
    /// The configuration of the bridge has no `tls`.
    #[error("the bridge has no `tls`: expected `private_key`, `certificate` and `ca_certificate`")]
    NotConfigured,
    /// A file cannot be read.
    #[error("{key} {}: {source}", path.display())]
    Unreadable {
        /// The key of the configuration.
        key: &'static str,
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A file holds no PEM item of the expected type.
    #[error("{key} {}: expected a PEM file with -----BEGIN {expected}-----: {}", path.display(), text_of(source))]
    NoPem {
        /// The key of the configuration.
        key: &'static str,
        path: PathBuf,
        /// The expected PEM label.
        expected: &'static str,
        /// The error of the parser.
        source: pem::Error,
    },
    /// The private key does not belong to the certificate.
    #[error("the private key {} does not belong to the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// A certificate of an authority cannot be used.
    #[error("ca_certificate {}: certificate {number} in it cannot be used: {source}", path.display())]
    Authority {
        path: PathBuf,
        /// The position of the certificate in the file, from 1.
        number: usize,
        /// The error of the TLS library.
        source: Error,
    },
    /// The contents of a file cannot be used.
    #[error("{}: cannot be used: {source}", path.display())]
    Unusable {
        path: PathBuf,
        /// The error of the TLS library.
        source: Error,
    },
}

impl TlsFilesError {
    /// Returns the key of the configuration whose file has the fault.
    pub(super) fn key(&self, files: &model::Tls) -> &'static str {
        match self {
            TlsFilesError::Unreadable { key, .. } | TlsFilesError::NoPem { key, .. } => key,
            TlsFilesError::Authority { .. } => "ca_certificate",
            TlsFilesError::Unusable { path, .. } if *path == files.ca_certificate => "ca_certificate",
            TlsFilesError::Unusable { path, .. } if *path == files.certificate => "certificate",
            TlsFilesError::NotConfigured
            | TlsFilesError::KeyMismatch { .. }
            | TlsFilesError::Unusable { .. } => "private_key",
        }
    }
}

fn text_of(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "there is none".to_owned(),
        other => other.to_string(),
    }
}

/// An error of a TLS connection, with the next step.
#[derive(Debug, ThisError)]
#[error("TLS: {0}")]
pub(in crate::channel) struct TlsProblem(String);

impl From<TlsFilesError> for io::Error {
    fn from(error: TlsFilesError) -> io::Error {
        io::Error::other(TlsProblem(error.to_string()))
    }
}

/// Returns the error of a connection, with the next step if TLS caused it.
pub(in crate::channel) fn explain(error: io::Error, files: &model::Tls) -> io::Error {
    let kind = error.kind();
    let text = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => explanation(inner, files),
        None if kind == io::ErrorKind::UnexpectedEof => Some(
            "TLS: the controller closed the connection during the handshake; does it use TLS on this port?"
                .to_owned(),
        ),
        None => None,
    };
    text.map_or(error, |text| io::Error::new(kind, TlsProblem(text)))
}

/// Returns an explanation of a TLS error for an operator. It names the file of `files` that the error
/// concerns, if any. Returns `None` for errors without an explanation.
fn explanation(error: &Error, files: &model::Tls) -> Option<String> {
    let authorities = files.ca_certificate.display();
    let certificate = files.certificate.display();
    let text = match error {
        Error::InvalidCertificate(reason) => match reason {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("the controller's certificate is not signed by an authority in {authorities}")
            }
            CertificateError::Expired => "the controller's certificate has expired".to_owned(),
            CertificateError::ExpiredContext { not_after, .. } => {
                format!(
                    "the controller's certificate has expired: it was valid until second {} since 1970",
                    not_after.as_secs()
                )
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the controller's certificate is not valid yet: is the clock right on both sides?".to_owned()
            }
            CertificateError::NotValidForName => {
                "the controller's certificate is for another host".to_owned()
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let presented = match presented.as_slice() {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                };
                format!(
                    "the controller's certificate is for another host: expected {}, found {presented}; `check_names = \
                     false` accepts any name",
                    expected.to_str()
                )
            }
            other => format!("the controller's certificate cannot be used: {other}"),
        },
        Error::NoCertificatesPresented => {
            format!(
                "the controller shows no certificate: expected one that an authority in {authorities} signed"
            )
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA => {
                format!(
                    "the controller refuses our certificate {certificate}: it does not know who signed it"
                )
            }
            AlertDescription::CertificateExpired => {
                format!("the controller refuses our certificate {certificate}: it has expired")
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired => {
                format!("the controller refuses our certificate {certificate}: {alert:?}")
            }
            other => format!("the controller ends the handshake: {other:?}"),
        },
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            format!("the controller does not send TLS ({error}): does it use TLS on this port?")
        }
        Error::PeerIncompatible(reason) => {
            format!("no version or cipher in common: {reason:?}; expected TLS 1.2 or 1.3")
        }
        _ => return None,
    };
    Some(text)
}
