//! `monitor`: flow accounting. It drops no packet.
//!
//! A table of fixed size counts flows. A flow is exported as IPFIX after an idle time-out, after an active time-out, or when
//! its entry is evicted. A sketch finds the top senders; it counts all packets, also those of flows without an entry.

use core::fmt::Write;

use millrace_nf::{Access, Buffer, Context, Counters, Function, Kind, Outbox, SettingError, Setup, Verdict};
use millrace_types::{Duration, Time};

use crate::ipfix::{EndReason, Exporter, Record};
use crate::sketch::Sketch;
use millrace_nf::flow::{Endpoint, FlowId, FlowPacket};
use millrace_nf::table::Table;

/// The number of records in a message. Such a message fits into an IP packet of 1,500 bytes.
const RECORDS: usize = 18;
/// The largest observation domain id of the first instance: the ids of 65,535 further instances follow it.
const DOMAIN_MAX: u32 = u32::MAX - 0xffff;

pub(crate) const KIND: Kind = Kind {
    name: "monitor",
    about: "accounts flows, finds the top senders, exports IPFIX",
    settings: &[
        ("flows", "size of the flow table, 8 to 16777216 (65536)"),
        ("idle_s", "idle time-out of a flow in seconds (15)"),
        (
            "active_s",
            "active time-out: interval in seconds at which a continuing flow is exported (60)",
        ),
        (
            "domain",
            "observation domain id of the first instance, 1-4294901760 (1); further instances have the following ids",
        ),
        (
            "export",
            "target of the records: udp:HOST:PORT or file:PATH; none unless given",
        ),
    ],
    counters: &["packets", "bytes", "not_ip", "flows", "records", "records_lost"],
    reads: Access::LINK.or(Access::ADDRESSES).or(Access::PORTS),
    writes: Access::NONE,
    keeps_flows: false,
    outbox: (256, Exporter::size(RECORDS)),
    report: 4096,
    make: &|setup| Monitor::new(setup).map(|monitor| Box::new(monitor) as Box<dyn Function>),
    ..Kind::DEFAULT
};

/// Indices of the counters.
mod count {
    pub(super) const PACKETS: usize = 0;
    pub(super) const BYTES: usize = 1;
    pub(super) const NOT_IP: usize = 2;
    pub(super) const FLOWS: usize = 3;
    pub(super) const RECORDS: usize = 4;
    pub(super) const RECORDS_LOST: usize = 5;
}

/// Sets of the table that one tick scans.
const SWEEP: usize = 1024;
/// The interval at which the sketch starts over.
const EPOCH: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Tally {
    size: u64,
    packets: u64,
    start: Time,
    last: Time,
}

struct Monitor {
    flows: Table<FlowId, Tally>,
    sketch: Sketch,
    epoch: Time,
    idle: Duration,
    active: Duration,
    exporting: Option<Exporting>,
    report: Outbox,
    counters: Counters,
}

struct Exporting {
    exporter: Exporter,
    waiting: Vec<Record>,
    outbox: Outbox,
    zero_unix_millis: u64,
    counters: Counters,
}

impl Exporting {
    fn record(&mut self, id: FlowId, tally: &Tally, reason: EndReason, now: Time) {
        let unix = |time: Time| self.zero_unix_millis + time.nanos() / 1_000_000;
        self.waiting.push(Record {
            id,
            size: tally.size,
            packets: tally.packets,
            start: unix(tally.start),
            end: unix(tally.last),
            reason,
        });
        if self.waiting.len() == RECORDS {
            self.send(now);
        }
    }

    fn send(&mut self, now: Time) {
        let records = self.waiting.len() as u64;
        if records == 0 {
            return;
        }
        let unix = self.zero_unix_millis + now.nanos() / 1_000_000;
        let sent = self.outbox.send(|out| {
            self.exporter.message(&self.waiting, unix, out);
            true
        });
        let counter = if sent { count::RECORDS } else { count::RECORDS_LOST };
        self.counters.add(counter, records);
        self.waiting.clear();
    }
}

impl Monitor {
    fn new(setup: &Setup) -> Result<Monitor, SettingError> {
        let settings = &setup.settings;
        // The sequence numbers of a domain count its records over all messages (RFC 7011, section 3.1), and each function counts
        // for itself: each is a domain.
        let domain = settings.within("domain", 1, 1..=DOMAIN_MAX)? + setup.instance;
        let exporting = settings.one("export")?.map(|_| Exporting {
            exporter: Exporter::new(domain),
            waiting: Vec::with_capacity(RECORDS),
            outbox: setup.outbox.clone(),
            zero_unix_millis: setup.zero_unix_millis,
            counters: setup.counters.clone(),
        });
        Ok(Monitor {
            flows: Table::new(
                setup.table_len(settings.within("flows", 65_536_usize, 8..=16_777_216)?),
                setup.seed,
            ),
            sketch: Sketch::new(setup.seed),
            epoch: Time::ZERO,
            idle: Duration::from_secs(settings.within("idle_s", 15, 1..=86_400)?),
            active: Duration::from_secs(settings.within("active_s", 60, 1..=86_400)?),
            exporting,
            report: setup.report.clone(),
            counters: setup.counters.clone(),
        })
    }

    fn account(&mut self, id: FlowId, size: u64, now: Time) {
        self.sketch.add(id.source.address, size);
        if let Some(tally) = self.flows.get(&id, now) {
            tally.size += size;
            tally.packets += 1;
            tally.last = now;
            return;
        }
        let tally = Tally {
            size,
            packets: 1,
            start: now,
            last: now,
        };
        if let Ok(Some((id, tally))) = self.flows.insert(id, tally, now, |_, _| true)
            && let Some(exporting) = &mut self.exporting
        {
            exporting.record(id, &tally, EndReason::LackOfResources, now);
        }
    }

    fn write_report(&self, out: &mut Vec<u8>) -> bool {
        struct Text<'a>(&'a mut Vec<u8>);
        impl Write for Text<'_> {
            fn write_str(&mut self, text: &str) -> core::fmt::Result {
                // The text must not grow beyond the capacity, which would allocate.
                if self.0.len() + text.len() > self.0.capacity() {
                    return Err(core::fmt::Error);
                }
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        let mut text = Text(out);
        self.sketch.top().all(|talker| {
            let end = Endpoint {
                address: talker.address,
                port: 0,
            };
            writeln!(text, "{} {}", end.ip(), talker.size).is_ok()
        })
    }
}

impl Function for Monitor {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], _: &mut [Verdict]) {
        let (mut bytes, mut not_ip) = (0, 0);
        for packet in burst.iter() {
            let size = packet.len() as u64;
            bytes += size;
            match FlowPacket::of(&**packet) {
                Some(seen) => self.account(seen.id, size, context.now),
                None => not_ip += 1,
            }
        }
        self.counters.add(count::PACKETS, burst.len() as u64);
        self.counters.add(count::BYTES, bytes);
        self.counters.add(count::NOT_IP, not_ip);
        self.counters.set(count::FLOWS, self.flows.len() as u64);
    }

    fn tick(&mut self, now: Time) {
        let (idle, active) = (self.idle, self.active);
        let exporting = &mut self.exporting;
        // A continuing flow is removed as well, and gets a new entry with its next packet.
        self.flows.sweep(
            SWEEP,
            |tally, used| now.since(used) >= idle || now.since(tally.start) >= active,
            |id, tally| {
                let is_idle = now.since(tally.last) >= idle;
                let reason = if is_idle {
                    EndReason::Idle
                } else {
                    EndReason::Active
                };
                if let Some(exporting) = exporting {
                    exporting.record(id, &tally, reason, now);
                }
            },
        );
        if let Some(exporting) = exporting {
            exporting.send(now);
        }
        self.report.send(|out| self.write_report(out));
        if now.since(self.epoch) >= EPOCH {
            self.epoch = now;
            self.sketch.clear();
        }
        self.counters.set(count::FLOWS, self.flows.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Settings;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame};

    use super::*;

    fn datagram(source: u8, size: usize) -> Frame {
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        let payload = vec![0; size - 42];
        Frame::new(
            &ethernet
                .ipv4([10, 0, 0, source], [10, 0, 1, 1])
                .udp(1000, 53)
                .payload(&payload)
                .build(),
        )
    }

    fn run(function: &mut dyn Function, frame: &mut Frame, second: u64) {
        let context = Context {
            now: Time::from_secs(second),
            ..Context::default()
        };
        let mut verdicts = [Verdict::Next];
        function.process(&context, &mut [frame], &mut verdicts);
        assert_eq!(verdicts, [Verdict::Next]);
    }

    #[test]
    fn a_flow_is_exported_after_the_idle_and_the_active_time_out() {
        let settings =
            Settings::parse(["export=udp:127.0.0.1:4739", "flows=64", "idle_s=5", "active_s=20"]).unwrap();
        let setup = KIND.setup(&settings, 3, 1_700_000_000_000);
        let mut function = KIND.make_function(&setup).unwrap();
        let mut records = Vec::new();
        for second in 0..=30 {
            run(&mut *function, &mut datagram(1, 100), second);
            if second < 3 {
                run(&mut *function, &mut datagram(2, 200), second);
            }
            function.tick(Time::from_secs(second));
            while setup.outbox.receive(|message| {
                // Skip the header, the templates and the header of the set.
                let record = &message[16 + 92 + 4..];
                let number = |at: usize| u64::from_be_bytes(*record[at..].first_chunk().unwrap());
                records.push((second, record[3], number(13), number(21), record[45]));
            }) {}
        }
        assert_eq!(records, [(7, 2, 600, 3, 1), (20, 1, 2_100, 21, 2)]);
        assert_eq!(setup.counters.value("records"), Some(2));
    }

    #[test]
    fn each_instance_is_an_observation_domain_with_its_own_numbers() {
        let settings =
            Settings::parse(["export=udp:127.0.0.1:4739", "flows=64", "domain=7", "idle_s=1"]).unwrap();
        for instance in 0..3 {
            let mut setup = KIND.setup(&settings, 3, 0);
            setup.instance = instance;
            let mut function = KIND.make_function(&setup).unwrap();
            let mut headers = Vec::new();
            for second in [0, 10, 20] {
                run(&mut *function, &mut datagram(1, 100), second);
                function.tick(Time::from_secs(second + 5));
                while setup.outbox.receive(|message| {
                    let word = |at: usize| u32::from_be_bytes(*message[at..].first_chunk().unwrap());
                    headers.push((word(8), word(12)));
                }) {}
            }
            let domain = 7 + instance;
            assert_eq!(headers, [(0, domain), (1, domain), (2, domain)]);
        }
        for domain in ["domain=0", "domain=4294901761"] {
            let settings = Settings::parse([domain]).unwrap();
            assert!(KIND.check(&settings).is_err(), "{domain}");
        }
    }

    #[test]
    fn the_top_senders_are_reported() {
        let setup = KIND.setup(&Settings::default(), 3, 0);
        let mut function = KIND.make_function(&setup).unwrap();
        for _ in 0..10 {
            run(&mut *function, &mut datagram(1, 100), 1);
            run(&mut *function, &mut datagram(2, 300), 1);
        }
        function.tick(Time::from_secs(1));
        let mut text = String::new();
        assert!(
            setup
                .report
                .receive(|report| text = String::from_utf8(report.to_vec()).unwrap())
        );
        assert_eq!(text, "10.0.0.2 3000\n10.0.0.1 1000\n");
        assert_eq!(setup.counters.value("flows"), Some(2));
        assert!(setup.outbox.is_empty(), "no export is configured");
    }
}
