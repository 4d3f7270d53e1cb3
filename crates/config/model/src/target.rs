//! Addresses of controllers and listeners, in the syntax of Open vSwitch: `tcp:HOST:PORT` and `tls:HOST:PORT`;
//! `ptcp:PORT:HOST`, `ptls:PORT:HOST` and `punix:FILE`. `ssl:` and `pssl:` are synonyms of `tls:` and `ptls:`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::decode::text_field;
use crate::node::shorten;

/// The TCP port that IANA assigned to OpenFlow.
pub const OPENFLOW_PORT: u16 = 6653;

/// The error for a text that is not a target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a valid {what}: {reason}", shorten(.text))]
pub struct TargetError {
    /// "controller", "listener", "socket" or "database server".
    pub what: &'static str,
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: &'static str,
}

/// The remote host of a connection that the switch opens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A host name that the agent resolves at each attempt: letters, digits, `-` and `.`.
    Name(String),
}

impl fmt::Display for Host {
    /// Writes an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Host::Ip(ip) => write!(f, "{ip}"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

/// A controller that the switch connects to: `tcp:HOST[:PORT]` or `tls:HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerTarget {
    is_tls: bool,
    host: Host,
    port: u16,
}

impl ControllerTarget {
    /// Returns true if the connection uses TLS, with certificates on both sides.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the host of the controller.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the TCP port, never zero.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for ControllerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "tls" } else { "tcp" };
        write!(f, "{scheme}:{}:{}", self.host, self.port)
    }
}

impl FromStr for ControllerTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<ControllerTarget, TargetError> {
        let refuse = |reason| TargetError {
            what: "controller",
            text: text.to_owned(),
            reason,
        };
        let scheme = strip_scheme(text, &[("tcp:", false), ("tls:", true), ("ssl:", true)]);
        let Some((is_tls, rest)) = scheme else {
            return Err(refuse(match text.split(':').next() {
                Some("ptcp" | "pssl" | "ptls") => {
                    "the switch waits there; expected tcp:HOST:PORT or tls:HOST:PORT here, and ptcp: or ptls: under \
                     `listen`"
                }
                _ => "expected tcp:HOST:PORT as in tcp:127.0.0.1:6653, or tls:HOST:PORT",
            }));
        };
        let (host, port) = split_host(rest)
            .ok_or_else(|| refuse("expected HOST:PORT after the scheme, an IPv6 address in brackets"))?;
        let port = match port {
            None => OPENFLOW_PORT,
            Some(port) => parse_port(port)
                .filter(|port| *port != 0)
                .ok_or_else(|| refuse("expected a port from 1 to 65535 at the end"))?,
        };
        let host = parse_host(host)
            .ok_or_else(|| refuse("expected an IP address or a host name after the scheme"))?;
        Ok(ControllerTarget { is_tls, host, port })
    }
}

/// Returns the value of the matching scheme and the text after it.
fn strip_scheme<'a, T: Copy>(text: &'a str, schemes: &[(&str, T)]) -> Option<(T, &'a str)> {
    schemes
        .iter()
        .find_map(|(scheme, meaning)| Some((*meaning, text.strip_prefix(scheme)?)))
}

/// The address on which the switch accepts controllers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenTarget {
    /// A TCP address: `ptcp:[PORT][:HOST]`. The default host is the loopback address; port zero lets the system
    /// choose.
    Tcp(SocketAddr),
    /// A TCP address with TLS and certificates on both sides: `ptls:[PORT][:HOST]`.
    Tls(SocketAddr),
    /// A Unix socket that only its owner can connect to: `punix:FILE`.
    Unix(SocketPath),
}

impl ListenTarget {
    /// Returns the IP address and port to bind; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            ListenTarget::Tcp(address) | ListenTarget::Tls(address) => Some(*address),
            ListenTarget::Unix(_) => None,
        }
    }

    /// Returns true if connections use TLS, with certificates on both sides.
    pub fn is_tls(&self) -> bool {
        matches!(self, ListenTarget::Tls(_))
    }
}

/// An absolute path that fits a Unix socket address: at most 107 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketPath(String);

impl SocketPath {
    /// The length limit of the path, in bytes (`sun_path`, unix(7), without its NUL).
    pub const MAX_SIZE: usize = 107;

    /// The default path of the socket at which `millraced` serves the REST API.
    pub const API: &str = "/run/millrace/millraced.sock";

    /// Returns [`SocketPath::API`].
    pub fn api() -> SocketPath {
        SocketPath(SocketPath::API.to_owned())
    }

    /// Returns the directory in which Open vSwitch has its sockets.
    pub fn openvswitch() -> SocketPath {
        SocketPath("/run/openvswitch".to_owned())
    }

    fn parse(text: &str) -> Option<SocketPath> {
        let is_path = text.starts_with('/') && !text.ends_with('/');
        let fits = text.len() <= Self::MAX_SIZE && !text.contains('\0');
        (is_path && fits).then(|| SocketPath(text.to_owned()))
    }

    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<std::path::Path> for SocketPath {
    fn as_ref(&self) -> &std::path::Path {
        std::path::Path::new(&self.0)
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SocketPath {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<SocketPath, TargetError> {
        SocketPath::parse(text).ok_or_else(|| TargetError {
            what: "socket",
            text: text.to_owned(),
            reason: "expected an absolute path of at most 107 bytes",
        })
    }
}

impl fmt::Display for ListenTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, address) = match self {
            ListenTarget::Tcp(address) => ("ptcp", address),
            ListenTarget::Tls(address) => ("ptls", address),
            ListenTarget::Unix(path) => return write!(f, "punix:{}", path.0),
        };
        write!(f, "{scheme}:{}:{}", address.port(), Host::Ip(address.ip()))
    }
}

impl FromStr for ListenTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<ListenTarget, TargetError> {
        let refuse = |reason| TargetError {
            what: "listener",
            text: text.to_owned(),
            reason,
        };
        if let Some(path) = text.strip_prefix("punix:") {
            return SocketPath::parse(path)
                .map(ListenTarget::Unix)
                .ok_or_else(|| refuse("expected an absolute path of at most 107 bytes after punix:"));
        }
        type Bound = fn(SocketAddr) -> ListenTarget;
        let schemes: [(&str, Bound); 3] = [
            ("ptcp:", ListenTarget::Tcp),
            ("ptls:", ListenTarget::Tls),
            ("pssl:", ListenTarget::Tls),
        ];
        let Some((bound, rest)) = strip_scheme(text, &schemes) else {
            return Err(refuse(match text.split(':').next() {
                Some("tcp" | "ssl" | "tls") => {
                    "the switch connects there; expected ptcp:PORT:HOST or ptls:PORT:HOST here, and tcp: or tls: under \
                     `controllers`"
                }
                _ => "expected ptcp:PORT:HOST as in ptcp:6654:127.0.0.1, ptls:PORT:HOST, or punix:FILE",
            }));
        };
        let (port, host) = match rest.split_once(':') {
            Some((port, host)) => (port, Some(host)),
            None => (rest, None),
        };
        let port = match port {
            "" => OPENFLOW_PORT,
            digits => parse_port(digits)
                .ok_or_else(|| refuse("expected a port from 0 to 65535 after the scheme"))?,
        };
        let host = match host {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(text) => parse_ip(text).ok_or_else(|| refuse("expected an IP address after the port"))?,
        };
        Ok(bound(SocketAddr::new(host, port)))
    }
}

/// Splits `HOST[:PORT]`; an IPv6 address must be in brackets.
fn split_host(text: &str) -> Option<(&str, Option<&str>)> {
    if text.starts_with('[') {
        let (host, rest) = text.split_at(text.find(']')? + 1);
        return match rest {
            "" => Some((host, None)),
            _ => rest.strip_prefix(':').map(|port| (host, Some(port))),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

/// Returns the host and the port of `HOST[:PORT]`; without one, the port is `default`.
pub(crate) fn split_target(text: &str, default: u16) -> Option<(Host, u16)> {
    let (host, port) = split_host(text)?;
    let port = match port {
        None => default,
        Some(port) => parse_port(port).filter(|port| *port != 0)?,
    };
    Some((parse_host(host)?, port))
}

fn parse_port(digits: &str) -> Option<u16> {
    if digits.bytes().all(|c| c.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// Returns an IP address, or a host name by RFC 1123, section 2.1 (a name of only digits and dots is a mistyped
/// address).
fn parse_host(text: &str) -> Option<Host> {
    if let Some(ip) = parse_ip(text) {
        return Some(Host::Ip(ip));
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name =
        text.len() <= 253 && text.split('.').all(label) && text.bytes().any(|c| c.is_ascii_alphabetic());
    is_name.then(|| Host::Name(text.to_ascii_lowercase()))
}

text_field!(
    SocketPath,
    "an absolute path of at most 107 bytes",
    "/run/millrace/millraced.sock"
);
text_field!(
    ControllerTarget,
    "a controller tcp:HOST:PORT or tls:HOST:PORT",
    "tcp:127.0.0.1:6653"
);
text_field!(
    ListenTarget,
    "an address ptcp:PORT:HOST or ptls:PORT:HOST, or a socket punix:FILE",
    "ptcp:6654:127.0.0.1"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_print_as_they_are_written_with_their_defaults_filled_in() {
        for (text, full) in [
            ("tcp:127.0.0.1:6633", "tcp:127.0.0.1:6633"),
            ("tcp:[::1]", "tcp:[::1]:6653"),
            ("tcp:Ctl-1.example:7", "tcp:ctl-1.example:7"),
            ("tls:10.0.0.1", "tls:10.0.0.1:6653"),
            ("ssl:ctl:6633", "tls:ctl:6633"),
        ] {
            let target: ControllerTarget = text.parse().unwrap();
            assert_eq!(target.to_string(), full);
            assert_eq!(full.parse(), Ok(target));
        }
        for (text, full) in [
            ("ptcp:", "ptcp:6653:127.0.0.1"),
            ("ptcp:6654", "ptcp:6654:127.0.0.1"),
            ("ptcp:0:[::]", "ptcp:0:[::]"),
            ("ptcp:6654:::1", "ptcp:6654:[::1]"),
            ("ptls:6654", "ptls:6654:127.0.0.1"),
            ("pssl:6654:[::]", "ptls:6654:[::]"),
            ("punix:/run/millrace/br0.mgmt", "punix:/run/millrace/br0.mgmt"),
        ] {
            let target: ListenTarget = text.parse().unwrap();
            assert_eq!(target.to_string(), full);
            assert_eq!(full.parse(), Ok(target));
        }
    }

    #[test]
    fn a_wrong_target_is_refused_with_what_was_expected() {
        for text in [
            "",
            "tcp:",
            "tcp:h:0",
            "tcp:h:+1",
            "tcp:::1:6653",
            "tcp:1.2.3.999",
            "tcp:a b:1",
            "tls:",
            "ssl:h:0",
            "ptcp:1",
            "h:1",
        ] {
            let error = text.parse::<ControllerTarget>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{error}");
        }
        for text in [
            "",
            "ptcp",
            "ptcp:65536",
            "ptcp:1:host",
            "tcp:127.0.0.1:1",
            "pssl:x",
            "tls:127.0.0.1:1",
            "ptcp:1:1.2.3",
            "punix:",
            "punix:br0.mgmt",
            "punix:/run/",
            &format!("punix:/{}", "a".repeat(107)),
        ] {
            let error = text.parse::<ListenTarget>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{error}");
        }
    }
}
