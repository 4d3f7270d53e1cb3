//! Connections that a control connection announces: the data connections of FTP.

use std::collections::HashMap;

use super::{AppProtocol, AppState};
use crate::app::heap::heap;
use crate::flow::{Direction, FlowKey};
use crate::hash::Seed;
use crate::tcp::StreamChunk;

/// Largest number of connections that are expected at a time.
const EXPECTED: usize = 1024;

/// A connection that is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The endpoints. The client is the end that opens the connection; its port is unknown, and 0 here.
    pub key: FlowKey,
    /// The protocol of the connection.
    pub protocol: AppProtocol,
    /// Name of the file that it carries; empty if the command has none.
    pub file_name: Vec<u8>,
    /// Direction of the file in the expected connection.
    pub direction: Direction,
}

heap!(Expectation { file_name });

/// The connections that are expected, in a hash table: the number of announced connections that are never
/// opened does not change the cost of a new flow.
#[derive(Debug)]
pub(crate) struct Expectations {
    /// Expectations with their numbers, by the endpoints.
    list: HashMap<FlowKey, (u64, Expectation), Seed>,
    /// Number of the next expectation.
    next: u64,
}

impl Expectations {
    pub(crate) fn new(seed: Seed) -> Expectations {
        Expectations {
            list: HashMap::with_hasher(seed),
            next: 0,
        }
    }

    /// Adds an expectation. It replaces one with the same endpoints; otherwise the oldest is removed if there
    /// are too many.
    pub(crate) fn add(&mut self, expectation: Expectation) {
        if self.list.len() >= EXPECTED && !self.list.contains_key(&expectation.key) {
            let oldest = self.list.iter().min_by_key(|(_, (number, _))| *number);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.list.remove(&key);
            }
        }
        self.list.insert(expectation.key, (self.next, expectation));
        self.next += 1;
    }

    /// Sets the protocol of a flow that another flow announced. `chunk` holds the first data of the flow. The
    /// announcement is looked up at the first data and not at the SYN, because most clients open the
    /// connection before they ask for the file.
    #[inline]
    pub(crate) fn apply(&mut self, key: &FlowKey, app: &mut AppState, chunk: &StreamChunk<'_>) {
        if !self.list.is_empty() && !chunk.bytes.is_empty() && app.is_untouched() {
            let key = FlowKey {
                client_port: 0,
                ..*key
            };
            if let Some((_, expectation)) = self.list.remove(&key) {
                app.apply_expectation(expectation);
            }
        }
    }

    /// Forgets all expectations.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }
}

/// Returns the port of "h1,h2,h3,h4,p1,p2" (RFC 959, section 4.1.2).
pub(super) fn port_argument(text: &[u8]) -> Option<u16> {
    let start = text.iter().position(u8::is_ascii_digit)?;
    let end = text[start..]
        .iter()
        .position(|byte| !byte.is_ascii_digit() && !b", ".contains(byte));
    let list = core::str::from_utf8(&text[start..end.map_or(text.len(), |end| start + end)]).ok()?;
    let numbers: Vec<u8> = list
        .split(',')
        .map(|number| number.trim().parse().ok())
        .collect::<Option<_>>()?;
    let [_, _, _, _, high, low] = numbers.try_into().ok()?;
    Some(u16::from_be_bytes([high, low]))
}

/// Returns the port of "|2|address|port|" (RFC 2428); the address may be absent.
pub(super) fn extended_argument(text: &[u8]) -> Option<u16> {
    let start = text.iter().position(|&byte| byte == b'|')?;
    let text = core::str::from_utf8(&text[start..]).ok()?;
    text.split('|').nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::app::AppSettings;

    fn key(port: u16, client_port: u16) -> FlowKey {
        FlowKey {
            client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            server: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
            client_port,
            server_port: port,
            protocol: 6,
            vlans: [0; 3],
            tunnel_depth: 0,
        }
    }

    fn is_met(expectations: &mut Expectations, key: FlowKey) -> bool {
        let mut app = AppState::new(AppSettings::default());
        expectations.apply(&key, &mut app, &StreamChunk::of(Direction::ToClient, b"x"));
        app.protocol == Some(AppProtocol::FtpData)
    }

    #[test]
    fn an_expectation_is_met_once_and_the_oldest_goes_when_there_are_too_many() {
        let mut expectations = Expectations::new(Seed([1, 2]));
        for port in 1..=1025 {
            expectations.add(Expectation {
                key: key(port, 0),
                protocol: AppProtocol::FtpData,
                file_name: Vec::new(),
                direction: Direction::ToClient,
            });
        }
        assert!(!is_met(&mut expectations, key(1, 40_000)));
        assert!(is_met(&mut expectations, key(2, 40_000)));
        assert!(!is_met(&mut expectations, key(2, 40_000)));
        let in_vlan = FlowKey {
            vlans: [7, 0, 0],
            ..key(3, 40_000)
        };
        assert!(!is_met(&mut expectations, in_vlan));
        assert!(is_met(&mut expectations, key(1025, 40_000)));
    }

    #[test]
    fn ports_of_port_and_passive_replies_are_read() {
        assert_eq!(port_argument(b"10,0,0,1,4,2"), Some(0x0402));
        assert_eq!(
            port_argument(b"Entering Passive Mode (10,0,0,1,4,2)."),
            Some(0x0402)
        );
        assert_eq!(port_argument(b"10,0,0,1,4"), None);
        assert_eq!(port_argument(b"10,0,0,1,400,2"), None);
        assert_eq!(extended_argument(b"|1|10.0.0.1|1026|"), Some(1026));
        assert_eq!(extended_argument(b"Extended (|||1026|)"), Some(1026));
    }
}
