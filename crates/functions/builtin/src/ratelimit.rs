//! `ratelimit`: a policer for each source address, or one for all packets.
//!
//! The policer is the Generic Cell Rate Algorithm (ITU-T I.371, annex A), whose state is the theoretical arrival time.

use millrace_nf::{Access, Buffer, Context, Counters, Function, Kind, SettingError, Setup, Verdict};
use millrace_types::{BitRate, Duration, Time};

use millrace_nf::flow::FlowPacket;
use millrace_nf::table::Table;

pub(crate) const KIND: Kind = Kind {
    name: "ratelimit",
    about: "polices packets to a bit rate, for each source address or for all",
    settings: &[
        ("rate", "the bit rate, such as 10Mbps"),
        (
            "burst_ms",
            "the burst tolerance in milliseconds of the rate, 1 to 10000 (20)",
        ),
        (
            "per",
            "source or all (source); packets other than IP share one policer",
        ),
        (
            "sources",
            "size of the source table, 8 to 16777216 (65536); sources beyond it share one policer",
        ),
    ],
    counters: &["passed", "dropped", "sources"],
    reads: Access::ADDRESSES,
    writes: Access::NONE,
    keeps_flows: true,
    outbox: (0, 0),
    report: 0,
    make: &|setup| RateLimit::new(setup).map(|limit| Box::new(limit) as Box<dyn Function>),
    ..Kind::DEFAULT
};

/// Sets of the table that one tick scans.
const SWEEP: usize = 1024;

/// A theoretical arrival time with a resolution of a picosecond: at high rates, a short packet costs only a few
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    time: Time,
    /// Picoseconds after `time`, below 1000.
    picos: u64,
}

impl Arrival {
    fn at(time: Time) -> Arrival {
        Arrival { time, picos: 0 }
    }

    fn after(self, picos: u64) -> Arrival {
        let rest = self.picos + picos % 1_000;
        Arrival {
            time: self.time + Duration::from_nanos(picos / 1_000 + rest / 1_000),
            picos: rest % 1_000,
        }
    }
}

struct RateLimit {
    /// The rate in bit/s, above zero.
    rate: u64,
    /// The burst tolerance.
    burst: Duration,
    /// The theoretical arrival time of each source address; `None` if all packets share one.
    sources: Option<Table<[u8; 16], Arrival>>,
    /// The shared theoretical arrival time.
    shared: Arrival,
    counters: Counters,
}

impl RateLimit {
    fn new(setup: &Setup) -> Result<RateLimit, SettingError> {
        let settings = &setup.settings;
        let rate: BitRate = match settings.one("rate")? {
            Some(text) => text
                .parse()
                .map_err(|error| SettingError::value("rate", text, error))?,
            None => {
                return Err(SettingError::Missing {
                    key: "rate",
                    expected: "a bit rate, such as 10Mbps".to_owned(),
                });
            }
        };
        let bits = rate.bps();
        if bits == 0 {
            return Err(SettingError::value("rate", "0", "expected a rate above zero"));
        }
        let capacity = settings.within("sources", 65_536_usize, 8..=16_777_216)?;
        let sources = match settings.one("per")? {
            None | Some("source") => Some(Table::new(setup.table_len(capacity), setup.seed)),
            Some("all") => None,
            Some(other) => return Err(SettingError::value("per", other, "expected source or all")),
        };
        Ok(RateLimit {
            rate: bits,
            burst: Duration::from_millis(settings.within("burst_ms", 20, 1..=10_000)?),
            sources,
            shared: Arrival::at(Time::ZERO),
            counters: setup.counters.clone(),
        })
    }

    /// Returns whether a packet conforms, and updates the policer if it does.
    fn passes(&mut self, packet: &dyn Buffer, now: Time) -> bool {
        let cost = picos(packet.len(), self.rate);
        let source = match &self.sources {
            Some(_) => FlowPacket::of(packet).map(|seen| seen.id.source.address),
            None => None,
        };
        let (burst, shared) = (self.burst, &mut self.shared);
        let theoretical_arrival_time = match (source, &mut self.sources) {
            (Some(source), Some(table)) => {
                if table.get(&source, now).is_none() {
                    // A full set evicts its least recently used entry if the arrival time of that entry has passed.
                    // Otherwise `shared` polices this source.
                    let _full = table.insert(source, Arrival::at(Time::ZERO), now, |arrival, _| {
                        *arrival <= Arrival::at(now)
                    });
                }
                table.get(&source, now).unwrap_or(shared)
            }
            _ => shared,
        };
        let from = (*theoretical_arrival_time).max(Arrival::at(now));
        let next = from.after(cost);
        // A packet that arrives at its theoretical arrival time or later conforms, however long it is.
        if next.time.since(now) > burst.max(Duration::from_nanos(cost / 1_000)) {
            return false;
        }
        *theoretical_arrival_time = next;
        true
    }
}

/// Returns the time in picoseconds that `bytes` take at a rate in bit/s.
fn picos(bytes: usize, rate: u64) -> u64 {
    const PICOS_PER_SECOND: u64 = 1_000_000_000_000;
    let bits = 8 * bytes as u64;
    match bits.checked_mul(PICOS_PER_SECOND) {
        Some(dividend) => dividend / rate,
        // A packet of more than 2 MB.
        None => u64::try_from(u128::from(bits) * u128::from(PICOS_PER_SECOND) / u128::from(rate))
            .unwrap_or(u64::MAX),
    }
}

impl Function for RateLimit {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        let mut dropped = 0;
        for (packet, verdict) in burst.iter().zip(verdicts) {
            if !self.passes(&**packet, context.now) {
                *verdict = Verdict::Drop;
                dropped += 1;
            }
        }
        self.counters.add(0, burst.len() as u64 - dropped);
        self.counters.add(1, dropped);
    }

    fn tick(&mut self, now: Time) {
        if let Some(table) = &mut self.sources {
            table.sweep(SWEEP, |arrival, _| *arrival <= Arrival::at(now), |_, _| {});
            self.counters.set(2, table.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Settings;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame};

    use super::*;

    fn frame(source: u8) -> Frame {
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        Frame::new(
            &ethernet
                .ipv4([10, 0, 0, source], [10, 0, 1, 1])
                .udp(1, 2)
                .payload(&[0; 958])
                .build(),
        )
    }

    fn passed(function: &mut dyn Function, source: u8, millis: u64) -> bool {
        let context = Context {
            now: Time::from_millis(millis),
            ..Context::default()
        };
        let mut verdicts = [Verdict::Next];
        function.process(&context, &mut [&mut frame(source)], &mut verdicts);
        verdicts == [Verdict::Next]
    }

    fn make(settings: &[&str]) -> Result<Box<dyn Function>, millrace_nf::MakeError> {
        KIND.make_function(&KIND.setup(&Settings::parse(settings).unwrap(), 1, 0))
    }

    #[test]
    fn each_source_has_its_rate() {
        // 1,000 bytes each millisecond, ten at once.
        let mut limit = make(&["rate=8Mbps", "burst_ms=10"]).unwrap();
        let at_once = (0..20).filter(|_| passed(&mut *limit, 1, 1_000)).count();
        assert_eq!(at_once, 10);
        assert!(passed(&mut *limit, 2, 1_000), "another source");
        let later = (0..20).filter(|_| passed(&mut *limit, 1, 1_005)).count();
        assert_eq!(later, 5);
    }

    #[test]
    fn a_packet_longer_than_the_burst_passes_at_its_rate() {
        // A packet costs 16 ms, and the burst is 10 ms.
        let mut limit = make(&["rate=500kbps", "burst_ms=10"]).unwrap();
        let times = (0..96).filter(|millis| passed(&mut *limit, 1, 10_000 + millis));
        assert_eq!(times.collect::<Vec<_>>(), [0, 16, 32, 48, 64, 80]);
    }

    #[test]
    fn short_packets_cost_parts_of_nanoseconds() {
        // 64 bytes cost 12.8 ns at 40 Gbit/s, and 1.706 ns at 300 Gbit/s. Times are compared in whole nanoseconds.
        assert_eq!(short_packets("40Gbps", 80_000), 78_125);
        assert_eq!(short_packets("300Gbps", 590_000), 586_167);
    }

    /// Returns the number of packets of 64 bytes that pass at once, in a burst of a millisecond.
    fn short_packets(rate: &str, offered: usize) -> usize {
        let mut limit = make(&[&format!("rate={rate}"), "burst_ms=1", "per=all"]).unwrap();
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        let short = ethernet.ipv4([10, 0, 0, 1], [10, 0, 1, 1]).udp(1, 2);
        let mut short = Frame::new(&short.payload(&[0; 22]).build());
        let context = Context {
            now: Time::from_millis(1_000),
            ..Context::default()
        };
        let at_once = (0..offered).filter(|_| {
            let mut verdicts = [Verdict::Next];
            limit.process(&context, &mut [&mut short], &mut verdicts);
            verdicts == [Verdict::Next]
        });
        at_once.count()
    }

    #[test]
    fn all_sources_may_share_one() {
        let mut limit = make(&["rate=8Mbps", "burst_ms=10", "per=all"]).unwrap();
        let at_once = (0..20)
            .filter(|source| passed(&mut *limit, *source, 1_000))
            .count();
        assert_eq!(at_once, 10);
    }

    #[test]
    fn a_rate_is_needed() {
        let error = make(&[]).err().unwrap().to_string();
        assert!(error.contains("`rate` is missing"), "{error}");
    }
}
