//! The settings: /etc/millrace/millrace-mgmt.toml.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use millrace_yang::datastore::Role;
use serde::Deserialize;

/// The settings of the process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// The switch: `unix:PATH`, or a URL with `token_file`.
    pub(crate) switch: String,
    /// A file whose first line is the token of REST over TCP.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) access: Access,
    pub(crate) netconf: Netconf,
    pub(crate) gnmi: Gnmi,
    pub(crate) agentx: Agentx,
    /// The store of a fleet, which has this switch's document.
    pub(crate) etcd: millrace_etcd::Settings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            switch: "unix:/run/millrace/millraced.sock".to_owned(),
            token_file: None,
            access: Access::default(),
            netconf: Netconf::default(),
            gnmi: Gnmi::default(),
            agentx: Agentx::default(),
            etcd: millrace_etcd::Settings::default(),
        }
    }
}

/// The groups of this machine whose members have a role. root is an administrator.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Access {
    pub(crate) read: Vec<String>,
    pub(crate) write: Vec<String>,
    pub(crate) admin: Vec<String>,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            read: vec!["millrace-read".to_owned()],
            write: vec!["millrace-write".to_owned()],
            admin: vec!["millrace-admin".to_owned()],
        }
    }
}

impl Access {
    /// Returns the groups of a role.
    pub(crate) fn of(&self, role: Role) -> &[String] {
        match role {
            Role::Read => &self.read,
            Role::Write => &self.write,
            Role::Admin => &self.admin,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Netconf {
    pub(crate) enabled: bool,
    /// The socket to which the program of sshd's subsystem connects.
    pub(crate) socket: PathBuf,
}

impl Default for Netconf {
    fn default() -> Netconf {
        Netconf {
            enabled: true,
            socket: PathBuf::from("/run/millrace-mgmt/netconf.sock"),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gnmi {
    /// A Unix socket for clients of this machine, who have the roles of their groups; empty for none.
    pub(crate) socket: PathBuf,
    /// TCP addresses; each needs the three files.
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// The certificates of the authorities that sign clients' certificates.
    pub(crate) client_ca: Option<PathBuf>,
    /// The roles of clients, by the common name or a DNS name of their certificates.
    pub(crate) clients: BTreeMap<String, RoleWord>,
}

impl Default for Gnmi {
    fn default() -> Gnmi {
        Gnmi {
            socket: PathBuf::from("/run/millrace-mgmt/gnmi.sock"),
            listen: Vec::new(),
            tls_cert: None,
            tls_key: None,
            client_ca: None,
            clients: BTreeMap::new(),
        }
    }
}

/// The state of the switch for the SNMP agent of this machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Agentx {
    pub(crate) enabled: bool,
    /// The socket of the SNMP agent.
    pub(crate) master: PathBuf,
    /// The SNMP context of the objects; empty for the default one, which snmpd fills with the kernel's interfaces.
    pub(crate) context: String,
    /// The bridge of BRIDGE-MIB and Q-BRIDGE-MIB; the first by name without one.
    pub(crate) bridge: Option<String>,
}

impl Default for Agentx {
    fn default() -> Agentx {
        Agentx {
            enabled: false,
            master: PathBuf::from("/var/agentx/master"),
            context: "millrace".to_owned(),
            bridge: None,
        }
    }
}

impl Agentx {
    /// Checks the context: an SnmpAdminString of 32 bytes at most (RFC 3411, section 3.3.1).
    fn check(&self) -> Result<()> {
        if self.context.len() > CONTEXT_SIZE_MAX {
            bail!(
                "agentx.context: {} bytes: expected at most {CONTEXT_SIZE_MAX}",
                self.context.len()
            );
        }
        Ok(())
    }
}

/// The size of the longest name of an SNMP context in bytes.
const CONTEXT_SIZE_MAX: usize = 32;

/// A role as the settings write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RoleWord {
    Read,
    Write,
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::Read => Role::Read,
            RoleWord::Write => Role::Write,
            RoleWord::Admin => Role::Admin,
        }
    }
}

/// The files of TLS, of which TCP needs all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TlsFiles<'a> {
    pub(crate) cert: &'a Path,
    pub(crate) key: &'a Path,
    pub(crate) client_ca: &'a Path,
}

impl Gnmi {
    /// Returns the files of TLS, if there is an address that needs them.
    pub(crate) fn tls(&self) -> Result<Option<TlsFiles<'_>>> {
        if self.listen.is_empty() {
            return Ok(None);
        }
        match (&self.tls_cert, &self.tls_key, &self.client_ca) {
            (Some(cert), Some(key), Some(client_ca)) => Ok(Some(TlsFiles { cert, key, client_ca })),
            _ => bail!(
                "gnmi.listen: expected tls_cert, tls_key and client_ca with it; for this machine, gnmi.socket needs no TLS"
            ),
        }
    }
}

impl Settings {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Settings> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let settings: Settings = toml::from_str(&text).with_context(|| path.display().to_string())?;
        settings.gnmi.tls()?;
        settings.agentx.check()?;
        settings.etcd.check()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_serves_this_machine_alone_and_tcp_needs_certificates() {
        let settings: Settings = toml::from_str("").unwrap();
        assert!(settings.gnmi.listen.is_empty() && settings.netconf.enabled);
        assert_eq!(settings.access.of(Role::Write), ["millrace-write"]);
        let settings: Settings = toml::from_str("[gnmi]\nlisten = [\"0.0.0.0:9339\"]").unwrap();
        assert!(settings.gnmi.tls().unwrap_err().to_string().contains("client_ca"));
        assert!(toml::from_str::<Settings>("[gnmi]\nlisten_on = []").is_err());
        assert!(toml::from_str::<Settings>("[gnmi.clients]\nalice = \"owner\"").is_err());
    }

    #[test]
    fn snmp_is_off_until_it_is_asked_for_and_its_context_has_a_bound() {
        let settings: Settings = toml::from_str("").unwrap();
        assert!(!settings.agentx.enabled);
        assert_eq!(settings.agentx.context, "millrace");
        let long = format!("[agentx]\ncontext = \"{}\"", "x".repeat(33));
        let settings: Settings = toml::from_str(&long).unwrap();
        let said = settings.agentx.check().unwrap_err().to_string();
        assert_eq!(said, "agentx.context: 33 bytes: expected at most 32");
        assert!(toml::from_str::<Settings>("[agentx]\nsocket = \"/x\"").is_err());
    }
}
