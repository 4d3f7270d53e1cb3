//! The settings of a connection: the section `[etcd]` of millrace-mgmt.toml, and of the operator's file.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;
use thiserror::Error;

/// The section `[etcd]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// True if this switch follows its document in etcd.
    pub enabled: bool,
    /// The members: `https://HOST:PORT`; `http://` on this machine alone.
    pub endpoints: Vec<String>,
    /// The start of all keys.
    pub prefix: String,
    /// The name of this switch in the fleet; the name of the machine unless given.
    pub node: Option<String>,
    /// The folder for what the switch has seen of etcd, which outlives restarts.
    pub state: PathBuf,
    /// A PEM file with the authority that signed the members' certificates.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate of this client.
    pub cert: Option<PathBuf>,
    /// A PEM file with the key of the certificate.
    pub key: Option<PathBuf>,
    /// The user of etcd.
    pub user: Option<String>,
    /// A file whose first line is the password of the user.
    pub password_file: Option<PathBuf>,
    /// True to allow `http://` to other machines: in a laboratory.
    pub cleartext: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enabled: false,
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/millrace/".to_owned(),
            node: None,
            state: PathBuf::from("/var/lib/millrace-mgmt"),
            ca: None,
            cert: None,
            key: None,
            user: None,
            password_file: None,
            cleartext: false,
        }
    }
}

/// The reason why settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingsError {
    #[error("etcd.endpoints: expected at least one member, as in \"https://10.0.0.1:2379\"")]
    NoEndpoint,
    #[error("etcd.endpoints: `{0}`: expected https://HOST:PORT or http://HOST:PORT")]
    BadEndpoint(String),
    #[error(
        "etcd.endpoints: `{0}` is another machine: expected https:// (configurations and passwords cross the network), or cleartext = true in a laboratory"
    )]
    Cleartext(String),
    #[error(
        "etcd.prefix: `{0}`: expected a text of printable ASCII that begins and ends with /, as in /millrace/"
    )]
    BadPrefix(String),
    #[error("etcd.cert and etcd.key: expected both or none")]
    HalfCertificate,
    #[error("etcd.user and etcd.password_file: expected both or none")]
    HalfUser,
}

impl Settings {
    /// The length limit of the prefix, in bytes.
    const PREFIX_MAX: usize = 256;

    /// Checks what can be checked without files.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.endpoints.is_empty() {
            return Err(SettingsError::NoEndpoint);
        }
        for endpoint in &self.endpoints {
            self.check_endpoint(endpoint)?;
        }
        let is_prefix = self.prefix.starts_with('/')
            && self.prefix.ends_with('/')
            && self.prefix.len() <= Settings::PREFIX_MAX
            && self.prefix.chars().all(|c| c.is_ascii_graphic());
        if !is_prefix {
            let shown = self.prefix.escape_debug().take(64).collect();
            return Err(SettingsError::BadPrefix(shown));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(SettingsError::HalfCertificate);
        }
        if self.user.is_some() != self.password_file.is_some() {
            return Err(SettingsError::HalfUser);
        }
        Ok(())
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<(), SettingsError> {
        let bad = || SettingsError::BadEndpoint(endpoint.escape_debug().take(128).collect());
        let (is_plain, rest) = match (
            endpoint.strip_prefix("http://"),
            endpoint.strip_prefix("https://"),
        ) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(bad()),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
        let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
        if !is_host || port.parse::<u16>().is_err() {
            return Err(bad());
        }
        let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
        let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        match is_plain && !is_local && !self.cleartext {
            true => Err(SettingsError::Cleartext(endpoint.to_owned())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(endpoint: &str) -> Settings {
        Settings {
            endpoints: vec![endpoint.to_owned()],
            ..Settings::default()
        }
    }

    #[test]
    fn an_endpoint_on_another_machine_needs_tls() {
        for good in [
            "https://10.0.0.1:2379",
            "https://[2001:db8::1]:2379/",
            "http://127.0.0.1:2379",
            "http://[::1]:2379",
            "http://localhost:2379",
        ] {
            assert_eq!(with(good).check(), Ok(()), "{good}");
        }
        for bad in [
            "",
            "etcd1:2379",
            "https://",
            "https://a",
            "https://a:b",
            "https://a/x:1",
            "https://u@a:1",
        ] {
            assert_eq!(
                with(bad).check(),
                Err(SettingsError::BadEndpoint(bad.to_owned())),
                "{bad}"
            );
        }
        for plain in [
            "http://10.0.0.1:2379",
            "http://etcd1:2379",
            "http://127.0.0.1.example.org:2379",
        ] {
            assert_eq!(
                with(plain).check(),
                Err(SettingsError::Cleartext(plain.to_owned()))
            );
            let lab = Settings {
                cleartext: true,
                ..with(plain)
            };
            assert_eq!(lab.check(), Ok(()));
        }
    }

    #[test]
    fn halves_of_credentials_and_a_prefix_without_slashes_are_refused() {
        let halves = Settings {
            cert: Some(PathBuf::from("/c")),
            ..Settings::default()
        };
        assert_eq!(halves.check(), Err(SettingsError::HalfCertificate));
        let halves = Settings {
            user: Some("sw1".to_owned()),
            ..Settings::default()
        };
        assert_eq!(halves.check(), Err(SettingsError::HalfUser));
        for prefix in ["", "millrace/", "/millrace", "/mill race/", "/ä/"] {
            let settings = Settings {
                prefix: prefix.to_owned(),
                ..Settings::default()
            };
            assert!(
                matches!(settings.check(), Err(SettingsError::BadPrefix(_))),
                "{prefix}"
            );
        }
        let none = Settings {
            endpoints: Vec::new(),
            ..Settings::default()
        };
        assert_eq!(none.check(), Err(SettingsError::NoEndpoint));
    }
}
