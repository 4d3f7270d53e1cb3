//! Connections that a control connection announces: the data connections of FTP.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use super::AppProtocol;
use crate::app::heap::heap;
use crate::flow::{Direction, FlowKey};

/// Largest number of connections that are expected at a time.
const EXPECTED: usize = 1024;

/// A connection that is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// Address to which it is opened.
    pub server: IpAddr,
    /// Port to which it is opened.
    pub port: u16,
    /// Address from which it is opened.
    pub client: IpAddr,
    /// The protocol of the connection.
    pub protocol: AppProtocol,
    /// Name of the file that it carries; empty if it is not known yet.
    pub file_name: Vec<u8>,
    /// Direction of the file in the expected connection.
    pub direction: Direction,
}

heap!(Expectation { file_name });

/// The connections that are expected, oldest first.
#[derive(Debug, Default)]
pub struct Expectations {
    list: VecDeque<Expectation>,
}

impl Expectations {
    /// Adds an expectation; the oldest goes if there are too many.
    pub fn add(&mut self, expectation: Expectation) {
        self.list.retain(|known| {
            (known.server, known.port, known.client)
                != (expectation.server, expectation.port, expectation.client)
        });
        if self.list.len() >= EXPECTED {
            self.list.pop_front();
        }
        self.list.push_back(expectation);
    }

    /// Takes the expectation that a new flow meets.
    pub fn take(&mut self, key: &FlowKey) -> Option<Expectation> {
        let is_it = |known: &Expectation| {
            known.server == key.server && known.port == key.server_port && known.client == key.client
        };
        let index = self.list.iter().position(is_it)?;
        self.list.remove(index)
    }

    /// Forgets all expectations.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

/// Returns address and port of "h1,h2,h3,h4,p1,p2" (RFC 959, section 4.1.2).
pub(super) fn port_argument(text: &[u8]) -> Option<(IpAddr, u16)> {
    let start = text.iter().position(u8::is_ascii_digit)?;
    let end = text[start..]
        .iter()
        .position(|byte| !byte.is_ascii_digit() && !b", ".contains(byte));
    let list = core::str::from_utf8(&text[start..end.map_or(text.len(), |end| start + end)]).ok()?;
    let numbers: Vec<u8> = list
        .split(',')
        .map(|number| number.trim().parse().ok())
        .collect::<Option<_>>()?;
    let [a, b, c, d, high, low] = numbers.try_into().ok()?;
    Some((
        IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        u16::from_be_bytes([high, low]),
    ))
}

/// Returns address and port of "|2|address|port|" (RFC 2428); the address may be absent.
pub(super) fn extended_argument(text: &[u8]) -> Option<(Option<IpAddr>, u16)> {
    let start = text.iter().position(|&byte| byte == b'|')?;
    let text = core::str::from_utf8(&text[start..]).ok()?;
    let mut parts = text.split('|').skip(2);
    let address = parts.next()?.parse().ok();
    Some((address, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_port_and_passive_replies_are_read() {
        let expected = Some((IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 0x0402));
        assert_eq!(port_argument(b"10,0,0,1,4,2"), expected);
        assert_eq!(port_argument(b"Entering Passive Mode (10,0,0,1,4,2)."), expected);
        assert_eq!(port_argument(b"10,0,0,1,4"), None);
        assert_eq!(port_argument(b"10,0,0,1,400,2"), None);
        assert_eq!(
            extended_argument(b"|1|10.0.0.1|1026|"),
            expected.map(|(address, port)| (Some(address), port))
        );
        assert_eq!(extended_argument(b"Extended (|||1026|)"), Some((None, 1026)));
    }
}
