//! UDP ports of receivers: one port, or a range from which a receiver takes the first free one, as mosh-server(1) does.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;

use millrace_courier::io::UdpIo;
use millrace_courier::{ReceiveError, SessionError};

use crate::display::Result;
use crate::error::CommandError;

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
    /// The last port.
    last: u16,
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

    /// Returns a socket at the first free port.
    pub(crate) fn bind(self) -> Result<UdpIo> {
        let mut address = self.first;
        loop {
            match UdpIo::bind(address) {
                Ok(io) => return Ok(io),
                Err(error) if error.kind() != ErrorKind::AddrInUse || self.first.port() == self.last => {
                    return Err(SessionError::from(ReceiveError::Listen { address, error }).into());
                }
                Err(_) if address.port() < self.last => address.set_port(address.port() + 1),
                Err(_) => {
                    return Err(CommandError::PortsInUse {
                        first: self.first,
                        last: self.last,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_courier::io::DatagramIo;

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

    #[test]
    fn ports_in_use_are_passed_over_and_a_range_without_a_free_port_is_named() {
        // An address of the loopback interface that no other test has.
        let any = "127.0.0.78:0".parse().unwrap();
        // Two adjacent ports, the first of them in use.
        let (taken, first) = std::iter::repeat_with(|| UdpIo::bind(any).unwrap())
            .map(|io| {
                let address = io.local_address().unwrap();
                (io, address)
            })
            .find(|(_, address)| {
                let next = address.port().checked_add(1);
                next.is_some_and(|port| UdpIo::bind(SocketAddr::new(address.ip(), port)).is_ok())
            })
            .unwrap();
        let single = Listen {
            first,
            last: first.port(),
        };
        let error = single.bind().unwrap_err().to_string();
        let expected = format!("cannot listen at {first}: ");
        assert!(
            error.starts_with(&expected) && error.contains("--listen"),
            "{error}"
        );
        let range = Listen {
            first,
            last: first.port() + 1,
        };
        let second = range.bind().unwrap();
        assert_eq!(second.local_address().unwrap().port(), first.port() + 1);
        let error = range.bind().unwrap_err().to_string();
        let expected = format!(
            "UDP ports {} to {} of {} are all in use",
            first.port(),
            range.last,
            first.ip()
        );
        assert!(error.contains(&expected) && error.contains("--listen"), "{error}");
        drop(taken);
    }
}
