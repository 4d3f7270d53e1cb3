//! Rates of trunks from the interface counters of their ports, which switches send in counter samples of sFlow.
//!
//! A counter sample names the bridge and the OpenFlow port (sFlow, structure 1004), so no mapping of interface
//! numbers is needed. A rate is the difference of two readings, divided by the uptime of the agent between them.

use std::collections::HashMap;

use millrace_ix_model::{Exchange, PortId, Timestamp, TrunkId};
use millrace_sflow::CounterSample;

/// The age at which a rate is no longer present, in milliseconds: three intervals of the longest usual polling
/// interval of counters, 30 s.
const STALE_MS: u64 = 90_000;
/// The largest number of ports with readings.
const PORTS_MAX: usize = 65_536;

/// The last reading of a port.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Timestamp,
    /// The uptime of the agent in milliseconds, which wraps at 32 bits.
    uptime_ms: u32,
    /// The counters of bytes: received and sent.
    bytes: [u64; 2],
    /// The rates in bit/s: received and sent; `None` until a second reading.
    rates: Option<[f64; 2]>,
}

/// The last readings of ports, by datapath id and OpenFlow port.
#[derive(Debug, Default)]
pub(crate) struct PortRates(HashMap<(u64, u32), Reading>);

impl PortRates {
    /// Records a counter sample of an agent. Samples without bridge and port are ignored.
    pub(crate) fn take(&mut self, sample: &CounterSample, uptime_ms: u32, at: Timestamp) {
        let (Some(port), Some(counters)) = (sample.openflow, sample.counters) else {
            return;
        };
        let key = (port.dpid, port.number);
        let bytes = [counters.in_octets, counters.out_octets];
        let before = self.0.get(&key).copied();
        if before.is_none() && self.0.len() >= PORTS_MAX {
            return;
        }
        let rates = before.and_then(|before| {
            // A counter that decreased was reset, and an uptime that decreased belongs to a restarted agent.
            let millis = uptime_ms.wrapping_sub(before.uptime_ms);
            let received = bytes[0].checked_sub(before.bytes[0])?;
            let sent = bytes[1].checked_sub(before.bytes[1])?;
            (1..u32::MAX / 2)
                .contains(&millis)
                .then(|| [received, sent].map(|bytes| bytes as f64 * 8000.0 / f64::from(millis)))
        });
        let reading = Reading {
            at,
            uptime_ms,
            bytes,
            rates,
        };
        self.0.insert(key, reading);
    }

    /// Returns the rates of a port in bit/s: received and sent; `None` if they are not known.
    fn port(&self, exchange: &Exchange, port: PortId, now: Timestamp) -> Option<[f64; 2]> {
        let dpid = exchange.switches.get(&port.switch)?.dpid;
        let reading = self.0.get(&(dpid.0, port.port.raw()))?;
        let age = now.millis().abs_diff(reading.at.millis());
        reading.rates.filter(|_| age < STALE_MS)
    }

    /// Returns the rates of trunks in bit/s: from the first end to the second, and back. The rates of a trunk are
    /// those of its first end, or those of its second end if the first is not known. A trunk of which neither end
    /// is known is absent.
    pub(crate) fn trunks<'a>(
        &'a self,
        exchange: &'a Exchange,
        now: Timestamp,
    ) -> impl Iterator<Item = (TrunkId, [f64; 2])> + 'a {
        exchange.trunks.iter().filter_map(move |(id, trunk)| {
            let [first, second] = trunk.ends.map(|end| self.port(exchange, end, now));
            let of_first = first.map(|[received, sent]| [sent, received]);
            Some((*id, of_first.or(second)?))
        })
    }
}
