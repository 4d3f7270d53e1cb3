//! The Open vSwitch database whose bridges the switch realises.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::bridge::Tls;
use crate::decode::text_field;
use crate::section::{deserialize, section};
use crate::target::{Host, SocketPath, TargetError, split_target};

section! {
    /// A database of Open vSwitch (RFC 7047), in which `ovs-vsctl` and others configure bridges. The switch takes the part
    /// of ovs-vswitchd: it makes the bridges of the database, which belong to the origin `ovsdb`, and writes their state
    /// back. See docs/ovsdb.md.
    pub struct Ovsdb (live) {
        required {}
        optional {
            /// The address of ovsdb-server: `unix:FILE`, `ssl:HOST:PORT` with the files of `tls`, or `tcp:ADDRESS:PORT` with
            /// a loopback address. Unset, the switch follows no database; bridges that it made stay as they are.
            pub connect: Option<OvsdbTarget> = None,
            /// The keys and certificates for a server at `ssl:`.
            pub tls: Option<Tls> = None,
            /// The directory in which each bridge of the database listens for `ovs-ofctl`, at `BRIDGE.mgmt`. It is made if
            /// it is absent.
            pub run_dir: SocketPath = SocketPath::openvswitch(),
        }
    }
}

deserialize!(Ovsdb);

impl Default for Ovsdb {
    fn default() -> Ovsdb {
        Ovsdb::new()
    }
}

/// The address of a database server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OvsdbTarget {
    /// A Unix socket: `unix:FILE`.
    Unix(SocketPath),
    /// A TCP address of this machine: `tcp:ADDRESS:PORT`.
    Tcp(SocketAddr),
    /// A server with TLS, and certificates on both sides: `ssl:HOST:PORT`.
    Tls {
        host: Host,
        /// The TCP port, never zero.
        port: u16,
    },
}

/// The TCP port that IANA assigned to OVSDB (RFC 7047, section 6).
const OVSDB_PORT: u16 = 6640;

impl fmt::Display for OvsdbTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OvsdbTarget::Unix(path) => write!(f, "unix:{path}"),
            OvsdbTarget::Tcp(address) => write!(f, "tcp:{address}"),
            OvsdbTarget::Tls { host, port } => write!(f, "ssl:{host}:{port}"),
        }
    }
}

impl FromStr for OvsdbTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<OvsdbTarget, TargetError> {
        let refuse = |reason| TargetError {
            what: "database server",
            text: text.to_owned(),
            reason,
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return path
                .parse()
                .map(OvsdbTarget::Unix)
                .map_err(|_| refuse("expected an absolute path of at most 107 bytes after unix:"));
        }
        if let Some(rest) = text.strip_prefix("ssl:").or_else(|| text.strip_prefix("tls:")) {
            return split_target(rest, OVSDB_PORT)
                .map(|(host, port)| OvsdbTarget::Tls { host, port })
                .ok_or_else(|| refuse("expected HOST:PORT after ssl:, an IPv6 address in brackets"));
        }
        let address = text
            .strip_prefix("tcp:")
            .and_then(|rest| rest.parse::<SocketAddr>().ok());
        match address {
            Some(address) if address.ip().is_loopback() && address.port() != 0 => {
                Ok(OvsdbTarget::Tcp(address))
            }
            // OVSDB over TCP has neither encryption nor password, and who answers there controls the switch.
            Some(_) => Err(refuse(
                "expected a loopback address and a port, or unix:FILE; a server on another machine needs ssl:HOST:PORT",
            )),
            None => Err(refuse(
                "expected unix:FILE as in unix:/run/openvswitch/db.sock, ssl:HOST:6640, or tcp:127.0.0.1:6640",
            )),
        }
    }
}

text_field!(
    OvsdbTarget,
    "unix:FILE, ssl:HOST:PORT, or tcp:ADDRESS:PORT with a loopback address",
    "unix:/run/openvswitch/db.sock"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_socket_or_an_address_of_this_machine() {
        for text in [
            "unix:/run/openvswitch/db.sock",
            "tcp:127.0.0.1:6640",
            "tcp:[::1]:6640",
            "ssl:192.0.2.1:6640",
            "ssl:db.example:7000",
            "ssl:[2001:db8::1]:6640",
        ] {
            assert_eq!(
                text.parse::<OvsdbTarget>().map(|target| target.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "unix:db.sock",
            "tcp:192.0.2.1:6640",
            "tcp:127.0.0.1",
            "tcp:127.0.0.1:0",
            "ssl:",
            "ssl:db.example:0",
            "ssl:2001:db8::1:6640:x",
            "/run/db.sock",
        ] {
            let error = text.parse::<OvsdbTarget>().map_err(|error| error.to_string());
            assert!(
                error.as_ref().is_err_and(|error| error.contains("expected")),
                "{text}: {error:?}"
            );
        }
    }
}
