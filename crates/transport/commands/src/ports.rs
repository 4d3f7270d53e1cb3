//! UDP ports of receivers: one port, or a range from which a receiver takes the first free one, as mosh-server(1) does.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// UDP ports from the first to the last one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// At least 1.
    first: u16,
    /// At least `first`.
    last: u16,
}

impl PortRange {
    /// Parses `PORT` or `FIRST:LAST`.
    pub(crate) fn parse(text: &str) -> std::result::Result<PortRange, String> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        let range = match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) if (1..=last).contains(&first) => Some(PortRange { first, last }),
            _ => None,
        };
        range.ok_or_else(|| {
            format!(
                "`{text}` is no UDP port and no range of ports; expected PORT or FIRST:LAST from 1 to 65535, such as 7800 or \
                 7800:7809"
            )
        })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortRange { first, last } = self;
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}:{last}")
        }
    }
}

/// The address of a receiver and its UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address with the first port; port 0: any free port.
    pub(crate) first: SocketAddr,
    /// The last port, at least the first one.
    pub(crate) last: u16,
}

impl Listen {
    /// Parses `ADDRESS:PORT` or `ADDRESS:FIRST:LAST`.
    pub(crate) fn parse(text: &str) -> std::result::Result<Listen, String> {
        if let Ok(first) = text.parse::<SocketAddr>() {
            let last = first.port();
            return Ok(Listen { first, last });
        }
        let range = text.rsplit_once(':').and_then(|(first, last)| {
            let first: SocketAddr = first.parse().ok()?;
            let last: u16 = last.parse().ok()?;
            (1..=last)
                .contains(&first.port())
                .then_some(Listen { first, last })
        });
        range.ok_or_else(|| {
            format!(
                "`{text}` is no address with a UDP port; expected ADDRESS:PORT or ADDRESS:FIRST:LAST, such as 0.0.0.0:7800 or \
                 [::]:7800:7809"
            )
        })
    }
}

/// An address or a name for a ticket, and the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketAddress {
    host: String,
    /// 0: the port at which the receiver listens.
    port: u16,
}

impl TicketAddress {
    /// Parses `HOST`, `HOST:PORT`, an IP address, or `[IPV6]:PORT`.
    pub(crate) fn parse(text: &str) -> std::result::Result<TicketAddress, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(TicketAddress {
                host: ip.to_string(),
                port: 0,
            });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(TicketAddress {
                host: address.ip().to_string(),
                port: address.port(),
            });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)),
            None => (text, Some(0)),
        };
        match port {
            Some(port) if !host.is_empty() && !host.contains([':', '/', '@']) => Ok(TicketAddress {
                host: host.to_owned(),
                port,
            }),
            _ => Err(format!(
                "`{text}` is no address for a ticket; expected an IP address or a name, with or without :PORT, such as \
                 203.0.113.7:7801"
            )),
        }
    }

    /// Returns the addresses of the host; port 0 stands for the port at which the receiver listens.
    ///
    /// # Errors
    /// If the name cannot be resolved.
    pub(crate) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok((&*self.host, self.port).to_socket_addrs()?.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_a_ticket_is_an_address_or_a_name_with_or_without_a_mapped_port() {
        let resolved = |text: &str| TicketAddress::parse(text).unwrap().resolve().unwrap();
        for (text, address) in [
            ("203.0.113.7", "203.0.113.7:0"),
            ("203.0.113.7:9", "203.0.113.7:9"),
            ("2001:db8::1", "[2001:db8::1]:0"),
            ("[2001:db8::1]", "[2001:db8::1]:0"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(resolved(text), [address.parse().unwrap()], "{text}");
        }
        assert!(resolved("localhost:9").iter().all(|address| address.port() == 9));
        for wrong in ["", ":9", "host:0", "host:x", "a/b", "key@host", "a:b:c"] {
            let error = TicketAddress::parse(wrong).unwrap_err();
            assert!(error.contains("203.0.113.7:7801"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_port_or_a_range_is_parsed_or_refused_with_an_example() {
        for text in ["1", "7800", "7800:7809", "65535"] {
            assert_eq!(PortRange::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(PortRange::parse("9:9").unwrap().to_string(), "9");
        for wrong in [
            "",
            "0",
            "0:9",
            "9:8",
            "7800:",
            ":7800",
            "65536",
            "1:2:3",
            "7800-7809",
        ] {
            let error = PortRange::parse(wrong).unwrap_err();
            assert!(error.contains("7800:7809"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_address_has_a_port_or_a_range() {
        let listen = |first: &str, last| {
            let first = first.parse().unwrap();
            Ok(Listen { first, last })
        };
        assert_eq!(Listen::parse("0.0.0.0:0"), listen("0.0.0.0:0", 0));
        assert_eq!(Listen::parse("[::]:7800"), listen("[::]:7800", 7800));
        assert_eq!(Listen::parse("0.0.0.0:7800:7809"), listen("0.0.0.0:7800", 7809));
        assert_eq!(Listen::parse("[::1]:7800:7809"), listen("[::1]:7800", 7809));
        for wrong in [
            "7800",
            "host:7800",
            "0.0.0.0:0:9",
            "0.0.0.0:9:8",
            "0.0.0.0:7800:",
            "::1:7800",
        ] {
            let error = Listen::parse(wrong).unwrap_err();
            assert!(error.contains("[::]:7800:7809"), "{wrong}: {error}");
        }
    }
}
