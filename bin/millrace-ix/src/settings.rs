//! The settings of the process: listeners, database, keys. Everything of the exchange itself is in the database.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use millrace_controller::driver::{Target, TlsFiles};
use millrace_ix_api::RouteServer;
use millrace_ix_series::{Offset, TimeZone};
use serde::Deserialize;

use crate::routing::{Bgp, Irr, Rpki};

/// The settings file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) database: Database,
    /// The places to which signatures of the audit chain are sent.
    #[serde(default)]
    pub(crate) audit: Audit,
    /// The connections of switches.
    pub(crate) openflow: OpenFlow,
    /// The control socket of the command line.
    #[serde(default)]
    pub(crate) control: Control,
    #[serde(default)]
    pub(crate) engine: Engine,
    /// The REST API and the web page.
    #[serde(default)]
    pub(crate) api: Api,
    /// The BGP sessions of members and route servers.
    #[serde(default)]
    pub(crate) bgp: Bgp,
    /// The RPKI caches.
    #[serde(default)]
    pub(crate) rpki: Rpki,
    /// The routing registry.
    #[serde(default)]
    pub(crate) irr: Option<Irr>,
    /// sFlow of the switches; without it, no rates are known.
    #[serde(default)]
    pub(crate) sflow: Option<Sflow>,
    /// The time series behind graphs and bills.
    #[serde(default)]
    pub(crate) series: Series,
}

/// `[series]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Series {
    /// False for an exchange without graphs and bills.
    pub(crate) enabled: bool,
    /// The folder of the files; beside the database by default.
    pub(crate) folder: Option<PathBuf>,
    /// The time zone of the exchange, in which months begin: `Europe/Berlin`, or an offset from UTC such as `+09:00`.
    pub(crate) time_zone: String,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            enabled: true,
            folder: None,
            time_zone: "+00:00".to_owned(),
        }
    }
}

impl Series {
    /// Returns the time zone.
    pub(crate) fn zone(&self) -> Result<TimeZone> {
        let name = &self.time_zone;
        if !name.starts_with(['+', '-']) {
            return TimeZone::get(name).with_context(|| {
                format!(
                    "series.time_zone {name:?}: expected a name of the database of time zones (/usr/share/zoneinfo, package tzdata) \
                     such as \"Europe/Berlin\", or an offset from UTC such as \"+09:00\""
                )
            });
        }
        let offset = offset_seconds(name).and_then(|seconds| Offset::from_seconds(seconds).ok());
        offset.map(TimeZone::fixed).with_context(|| {
            format!("series.time_zone {name:?}: expected an offset from UTC such as \"+09:00\" or \"-03:30\"")
        })
    }
}

/// Returns the seconds of an offset from UTC, `+HH:MM` or `-HH:MM`.
fn offset_seconds(text: &str) -> Option<i32> {
    let (sign, rest) = text.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i32>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let seconds = (hours * 60 + minutes) * 60;
    (hours <= 14 && minutes < 60).then_some(if sign == "-" { -seconds } else { seconds })
}

/// `[sflow]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sflow {
    /// The UDP address to which switches send sFlow.
    #[serde(default = "Sflow::any")]
    pub(crate) listen: SocketAddr,
    /// The addresses of the switches. Datagrams from other addresses are dropped.
    pub(crate) switches: BTreeSet<IpAddr>,
}

impl Sflow {
    /// Returns the port of sFlow at all addresses.
    fn any() -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], millrace_sflow::UDP_PORT))
    }
}

/// `[api]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Api {
    /// The loopback address of the listener; `None` for no listener. A TLS proxy makes the page public.
    pub(crate) listen: Option<SocketAddr>,
    /// The name of the exchange, for the page.
    pub(crate) name: String,
    /// The number of the exchange in the database of IX-F, for the member list.
    pub(crate) ixf_id: Option<u32>,
    /// A folder with the built page, instead of the one that is built in.
    pub(crate) page: Option<PathBuf>,
    /// The route servers of peering LANs.
    pub(crate) route_servers: Vec<RouteServer>,
    /// True if webhooks may go to private addresses, and without TLS.
    pub(crate) webhooks_to_private: bool,
    /// The provider of OpenID Connect by which people can sign in.
    pub(crate) oidc: Option<Oidc>,
    /// The way to the mail relay; without it, the exchange sends no mail.
    pub(crate) mail: Option<Mail>,
}

/// `[api.mail]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mail {
    /// The loopback address of a mail server on this machine, which relays to others.
    pub(crate) relay: SocketAddr,
    /// The mail address of the sender.
    pub(crate) from: String,
    /// The address of the page in links: `https://ix.example`.
    pub(crate) page: String,
    /// The language of people who have chosen none: `en`, `ja` or `ko`.
    #[serde(default = "Mail::english")]
    pub(crate) language: String,
}

impl Mail {
    fn english() -> String {
        "en".to_owned()
    }
}

/// `[api.oidc]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Oidc {
    /// The issuer, as the provider writes it: `https://auth.peeringdb.com`.
    pub(crate) issuer: String,
    /// The name of the provider on the page.
    pub(crate) name: String,
    /// The identifier of the exchange at the provider.
    pub(crate) client_id: String,
    /// A file with the secret of the exchange at the provider, mode 0600; a public client has none.
    #[serde(default)]
    pub(crate) client_secret_file: Option<PathBuf>,
    /// The address of the page to which the provider returns: `https://ix.example/sign-in/callback`.
    pub(crate) redirect_uri: String,
    /// The scopes that the exchange requests.
    #[serde(default = "Oidc::usual_scopes")]
    pub(crate) scopes: Vec<String>,
}

impl Oidc {
    /// Returns the scopes of PeeringDB.
    fn usual_scopes() -> Vec<String> {
        ["openid", "profile", "networks"].map(str::to_owned).to_vec()
    }
}

impl Default for Api {
    fn default() -> Api {
        Api {
            listen: None,
            name: "Millrace exchange".to_owned(),
            page: None,
            route_servers: Vec::new(),
            webhooks_to_private: false,
            oidc: None,
            mail: None,
            ixf_id: None,
        }
    }
}

/// `[database]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    /// The SQLite file, which is created with mode 0600. With `postgres` there is no such file, but the keys and the series of this
    /// engine lie beside its place.
    pub(crate) path: PathBuf,
    /// The PostgreSQL database that several engines share, as libpq writes it: `host=/run/postgresql dbname=millrace_ix`.
    #[serde(default)]
    pub(crate) postgres: Option<String>,
    /// A file with the password for `postgres`, mode 0600.
    #[serde(default)]
    pub(crate) postgres_password_file: Option<PathBuf>,
    /// The authorities that sign the certificates of servers, in PEM. Required for a server on another machine.
    #[serde(default)]
    pub(crate) postgres_ca_certificate: Option<PathBuf>,
    /// The Ed25519 key that signs the audit chain, in PKCS #8; it is created with mode 0600. Default: beside the
    /// database, with the ending `.key`.
    #[serde(default)]
    pub(crate) audit_key: Option<PathBuf>,
}

impl Database {
    pub(crate) fn audit_key(&self) -> PathBuf {
        self.audit_key
            .clone()
            .unwrap_or_else(|| self.path.with_extension("key"))
    }

    /// Returns the file of the key that seals secrets in the database.
    pub(crate) fn seal_key(&self) -> PathBuf {
        self.path.with_extension("seal")
    }
}

/// `[audit]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Audit {
    /// A URL that gets each signed head by POST; `None` for no URL.
    pub(crate) webhook: Option<String>,
    /// A program and its arguments. It gets the newest signed head on standard input: it can mail it, or have it stamped.
    pub(crate) command: Vec<String>,
    /// The shortest time between two runs of the program, in seconds.
    pub(crate) command_every_secs: u64,
}

impl Default for Audit {
    fn default() -> Audit {
        Audit {
            webhook: None,
            command: Vec::new(),
            command_every_secs: 3600,
        }
    }
}

/// `[openflow]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenFlow {
    /// The addresses: `tcp:127.0.0.1:6653`, `ssl:0.0.0.0:6653`, `unix:/run/millrace-ix/openflow.sock`.
    pub(crate) listen: Vec<String>,
    /// The private key of the controller, in PEM.
    #[serde(default)]
    pub(crate) private_key: Option<PathBuf>,
    /// The certificate of the controller, in PEM.
    #[serde(default)]
    pub(crate) certificate: Option<PathBuf>,
    /// The authorities that sign the certificates of switches, in PEM.
    #[serde(default)]
    pub(crate) ca_certificate: Option<PathBuf>,
    /// For each datapath id: the SHA-256 fingerprint (of the DER form, hexadecimal) of the switch's
    /// certificate.
    #[serde(default)]
    pub(crate) certificates: BTreeMap<String, String>,
    /// True if `tcp:` is permitted at addresses that are not loopback: everybody who reaches them can speak as any switch.
    #[serde(default)]
    pub(crate) insecure: bool,
}

impl OpenFlow {
    /// Returns the files of TLS, if all are given.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            private_key: self.private_key.clone()?,
            certificate: self.certificate.clone()?,
            ca_certificate: self.ca_certificate.clone()?,
        })
    }

    /// Returns the addresses.
    pub(crate) fn targets(&self) -> Result<Vec<Target>> {
        self.listen
            .iter()
            .map(|text| target(text, self.insecure))
            .collect()
    }
}

/// Parses an address of the OpenFlow listener.
fn target(text: &str, insecure: bool) -> Result<Target> {
    let address = |text: &str| -> Result<SocketAddr> {
        text.parse()
            .with_context(|| format!("openflow.listen: {text:?} is no address: expected 127.0.0.1:6653"))
    };
    match text.split_once(':') {
        Some(("tcp", rest)) => {
            let address = address(rest)?;
            if !address.ip().to_canonical().is_loopback() {
                if !insecure {
                    bail!(
                        "openflow.listen: {text:?}: everybody who reaches this address could speak as any switch; expected \
                         ssl:, or openflow.insecure = true on a closed network"
                    );
                }
                tracing::warn!(%address, "OpenFlow without TLS beyond loopback, as openflow.insecure permits");
            }
            Ok(Target::Tcp(address))
        }
        Some(("ssl", rest)) => Ok(Target::Tls(address(rest)?)),
        Some(("unix", path)) => Ok(Target::Unix(PathBuf::from(path))),
        _ => bail!("openflow.listen: {text:?}: expected tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or unix:PATH"),
    }
}

/// `[control]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Control {
    /// The Unix socket of the command line, with mode 0600.
    pub(crate) socket: PathBuf,
}

impl Default for Control {
    fn default() -> Control {
        Control {
            socket: PathBuf::from("/run/millrace-ix/control.sock"),
        }
    }
}

/// `[engine]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Engine {
    /// The name of this engine among those of a shared database; required with `database.postgres`.
    pub(crate) name: String,
    /// The address of this engine's page, which another engine tells people while this one leads: `https://ix-1.example`.
    pub(crate) address: String,
    /// The treatment of entries that the exchange did not install.
    pub(crate) foreign_entries: ForeignEntries,
    /// True if every switch has the match extensions of Open vSwitch.
    pub(crate) match_extensions: bool,
    /// Seconds between two reconciliations of a switch; 60 without a value.
    pub(crate) resync_secs: Option<u64>,
    /// The longest verification of a change, in seconds; without a value, and with 0, changes are not verified.
    pub(crate) verification_secs: Option<u64>,
}

/// The values of `engine.foreign_entries`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ForeignEntries {
    /// The engine reports and removes foreign entries.
    #[default]
    Remove,
    /// The engine reports and keeps foreign entries.
    Leave,
}

impl Settings {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Settings> {
        let text = std::fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("--config {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn addresses_have_the_forms_of_open_vswitch() {
        assert_eq!(
            target("tcp:127.0.0.1:6653", false).unwrap(),
            Target::Tcp("127.0.0.1:6653".parse().unwrap())
        );
        assert_eq!(
            target("ssl:[::1]:6653", false).unwrap(),
            Target::Tls("[::1]:6653".parse().unwrap())
        );
        assert_eq!(
            target("unix:/run/of.sock", false).unwrap(),
            Target::Unix("/run/of.sock".into())
        );
        for text in ["127.0.0.1:6653", "tcp:localhost", "udp:127.0.0.1:1"] {
            assert!(target(text, true).is_err(), "{text}");
        }
    }

    #[test]
    fn openflow_without_tls_is_served_beyond_loopback_only_if_told_so() {
        for text in [
            "tcp:0.0.0.0:6653",
            "tcp:[::]:6653",
            "tcp:192.0.2.1:6653",
            "tcp:[::ffff:192.0.2.1]:6653",
        ] {
            let refused = target(text, false).unwrap_err().to_string();
            assert!(refused.contains("openflow.insecure"), "{refused}");
            assert!(target(text, true).is_ok(), "{text}");
        }
        assert!(target("ssl:0.0.0.0:6653", false).is_ok());
    }

    #[test]
    fn a_provider_of_sign_ins_has_its_secret_in_a_file() {
        let text = "[database]\npath = \"/x\"\n[openflow]\nlisten = []\n[api.oidc]\nissuer = \"https://auth.example\"\n\
            name = \"Example\"\nclient_id = \"ix\"\nredirect_uri = \"https://ix.example/sign-in/callback\"\n";
        let settings: Settings = toml::from_str(&format!("{text}client_secret_file = \"/s\"\n")).unwrap();
        let oidc = settings.api.oidc.unwrap();
        assert_eq!(oidc.scopes, ["openid", "profile", "networks"]);
        assert_eq!(oidc.client_secret_file, Some("/s".into()));
        assert!(toml::from_str::<Settings>(&format!("{text}client_secret = \"s\"\n")).is_err());
    }

    #[test]
    fn months_begin_in_a_time_zone_or_at_an_offset_from_utc() {
        let zone = |text: &str| {
            let time_zone = text.to_owned();
            Series {
                time_zone,
                ..Series::default()
            }
            .zone()
        };
        let fixed = |minutes: i32| TimeZone::fixed(Offset::from_seconds(minutes * 60).unwrap());
        assert_eq!(Series::default().zone().unwrap(), fixed(0));
        for (text, minutes) in [("+09:00", 540), ("-03:30", -210), ("+14:00", 840)] {
            assert_eq!(zone(text).unwrap(), fixed(minutes), "{text}");
        }
        for wrong in [
            "09:00",
            "+9:00",
            "+09",
            "+15:00",
            "+09:60",
            "+0x:00",
            "Mars/Olympus",
            "",
        ] {
            let error = zone(wrong).unwrap_err().to_string();
            assert!(error.starts_with("series.time_zone"), "{wrong}: {error}");
        }
        if std::path::Path::new("/usr/share/zoneinfo/Europe/Berlin").exists() {
            assert_eq!(zone("Europe/Berlin").unwrap().iana_name(), Some("Europe/Berlin"));
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let text = "[database]\npath = \"/x\"\n[openflow]\nlisten = []\n";
        assert!(toml::from_str::<Settings>(text).is_ok());
        assert!(toml::from_str::<Settings>(&format!("{text}lisen = []\n")).is_err());
    }
}
