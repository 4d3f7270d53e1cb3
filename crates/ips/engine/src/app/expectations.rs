//! The connections that the flows of a lane expect.

use std::collections::HashMap;

use super::AppState;
use super::expectation::Expectation;
use crate::flow::FlowKey;
use crate::hash::Seed;
use crate::tcp::StreamChunk;

/// Largest number of connections that are expected at a time.
const EXPECTED: usize = 1024;

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

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::app::{AppProtocol, AppSettings};
    use crate::flow::Direction;

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
                is_download: true,
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
}
