//! `millrace nf rate`: the rate of a function on this machine, without a switch.
//!
//! TCP connections are made in memory: handshake, data in both directions, close. Each pass over the
//! connections uses other addresses, so that a stateful function sees new connections and no retransmissions.
//! Only the calls of the function are timed, in bursts as large as those of a switch.

mod offered;
mod traffic;

use std::io::BufRead;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use millrace_builtin::CATALOGUE;
use millrace_loader::ANY_LOADERS;
use millrace_nf::{Buffer, Context, Effects, Function, Kind, Sending, Settings, Setup, Verdict};
use millrace_types::Time;
use serde::Serialize;

use crate::cli::Rate;
use crate::output::{Session, say};
use offered::{BURST, Offered, TICK};
use traffic::{Attacks, Processed, Traffic};

/// The interval between two packets on the function's clock, in nanoseconds: 10 million packets per second.
const PACKET_NANOS: u64 = 100;

/// Sizes of frames of Ethernet in bytes, with check sequence.
const FRAME_SIZES: RangeInclusive<usize> = 64..=1518;

/// The result of a measurement.
#[derive(Serialize)]
struct Measured {
    function: String,
    /// Size of data frames in bytes, with check sequence.
    frame: usize,
    packets: u64,
    seconds: f64,
    packets_per_second: f64,
    nanos_per_packet: f64,
    connections_per_second: f64,
    /// The results of the queue; only with `--offered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    under_load: Option<offered::Summary>,
    /// Packets that were not forwarded.
    dropped: u64,
    /// The attacks and how many passed; only with `--attacks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    attacks: Option<Attacks>,
    /// The description of the shared value, such as the number of rules. `load_seconds` is the time of its
    /// compilation.
    loaded: String,
    load_seconds: f64,
    counters: Vec<(&'static str, u64)>,
}

/// Returns a setup of a function, with its shared value. `zero_unix_millis` is the Unix time at which its clock is zero.
pub(crate) fn prepared(kind: &Kind, settings: &[String], zero_unix_millis: u64) -> Result<(Setup, String)> {
    let settings = Settings::parse(settings)?;
    let mut setup = kind.setup(&settings, 1, zero_unix_millis);
    let mut summary = String::new();
    if let Some(shared) = kind.shared {
        let source = (shared.read)(&settings).map_err(|reason| anyhow!(reason))?;
        let compiled = (shared.compile)(&source.bytes, None).map_err(|reason| anyhow!(reason))?;
        setup.shared = Some(compiled.value);
        summary = compiled.summary;
    }
    Ok((setup, summary))
}

pub(crate) fn run(session: &Session, wanted: &Rate) -> Result<()> {
    let frame = usize::from(wanted.frame);
    if !FRAME_SIZES.contains(&frame) {
        bail!("--frame {frame}: expected 64 to 1518 bytes, check sequence included");
    }
    let limit = wanted.seconds;
    if limit.is_zero() {
        bail!("--seconds 0: expected more than no time");
    }
    if let Some(rate) = wanted.offered.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
        bail!("--offered {rate}: expected a positive number of packets a second");
    }
    let kind = CATALOGUE.with_loaders(ANY_LOADERS).find(&wanted.function)?;
    let start = Instant::now();
    let (setup, loaded) = prepared(kind, &wanted.settings, 0)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let mut function = kind.make_function(&setup)?;
    let mut load = match wanted.http {
        Some(kib) => Traffic::http(wanted.connections, kib, wanted.attacks),
        None => Traffic::new(wanted.connections, wanted.data, frame),
    };
    let mut run = Passes::default();
    // The first pass warms caches and memory up, and does not count.
    run.pass(&mut *function, &mut load, &setup);
    run = Passes {
        now: run.now,
        number: run.number,
        ..Passes::default()
    };
    if wanted.wait {
        say("ready\n")?;
        await_start(&mut std::io::stdin().lock())?;
    }
    // Functions write their counters with each tick.
    function.tick(run.now);
    let before = setup.counters.read();
    let mut under_load = None;
    match wanted.offered {
        Some(rate) => {
            let reload = wanted.reload.then_some(kind.shared).flatten();
            let offered = Offered::new(rate, limit, run.number, run.now);
            let outcome = offered.run(&mut *function, &mut load, &setup, reload)?;
            run.processed = outcome.processed;
            run.elapsed = outcome.elapsed;
            run.now = outcome.now;
            under_load = Some(outcome.summary);
        }
        None => {
            while run.elapsed < limit {
                run.pass(&mut *function, &mut load, &setup);
            }
        }
    }
    function.tick(run.now);
    let seconds = run.elapsed.as_secs_f64();
    let counters = setup.counters.read().into_iter().zip(before);
    let Processed {
        packets,
        dropped,
        attacks,
    } = run.processed;
    if packets == 0 {
        bail!("no packet was offered in this time: expected more --seconds or a higher rate --offered");
    }
    let measured = Measured {
        function: wanted.function.clone(),
        frame,
        packets,
        seconds,
        packets_per_second: packets as f64 / seconds,
        nanos_per_packet: seconds * 1e9 / packets as f64,
        connections_per_second: packets as f64 / seconds / load.per_connection as f64,
        under_load,
        dropped,
        attacks: wanted.attacks.map(|_| attacks),
        loaded,
        load_seconds,
        counters: counters
            .map(|((name, after), (_, before))| (name, after.wrapping_sub(before)))
            .collect(),
    };
    session.print(&measured, |measured| {
        let loaded = match measured.loaded.as_str() {
            "" => String::new(),
            loaded => format!(", {loaded}"),
        };
        let mut text = format!(
            "{}: {:.2} Mpps, {:.0} ns a packet ({} byte frames{loaded}; {} of {} packets dropped)\n",
            measured.function,
            measured.packets_per_second / 1e6,
            measured.nanos_per_packet,
            measured.frame,
            measured.dropped,
            measured.packets
        );
        if let Some(under_load) = &measured.under_load {
            text += &under_load.to_string();
        }
        if let Some(Attacks { requests, passed }) = measured.attacks {
            text += &format!("{requests} attacks, of which {passed} passed\n");
        }
        for (name, value) in measured.counters.iter().filter(|(_, value)| *value != 0) {
            text += &format!("{name} {value}\n");
        }
        text
    })
}

/// Waits for the line that starts a measurement.
fn await_start(input: &mut impl BufRead) -> Result<()> {
    if input.read_line(&mut String::new())? == 0 {
        bail!("--wait: standard input has ended: expected a line, which starts the measurement");
    }
    Ok(())
}

/// The counts and the clock of all passes so far.
#[derive(Default)]
struct Passes {
    processed: Processed,
    elapsed: Duration,
    now: Time,
    next_tick: Time,
    /// The number of the pass.
    number: u64,
}

impl Passes {
    fn pass(&mut self, function: &mut dyn Function, load: &mut Traffic, setup: &Setup) {
        self.number += 1;
        load.renew(0..load.frames.len(), self.number);
        let mut effects = Effects::new();
        let mut at = 0;
        while at < load.frames.len() {
            // A burst has one direction.
            let (direction, len) = (load.templates[at].0, load.run(at, BURST));
            let mut burst: Vec<&mut dyn Buffer> = load.frames[at..at + len]
                .iter_mut()
                .map(|frame| frame as &mut dyn Buffer)
                .collect();
            let mut verdicts = [Verdict::Next; BURST];
            effects.reset(Sending::Allowed);
            let context = Context::new(self.now, direction);
            let start = Instant::now();
            function.process_with_effects(&context, &mut burst, &mut verdicts[..len], &mut effects);
            self.elapsed += start.elapsed();
            load.count(at, &verdicts[..len], &mut self.processed);
            self.now = self.now + millrace_types::Duration::from_nanos(len as u64 * PACKET_NANOS);
            if self.now >= self.next_tick {
                let start = Instant::now();
                function.tick(self.now);
                self.elapsed += start.elapsed();
                self.next_tick = self.now + TICK;
                // In a switch, the control thread empties the outbox, so this time is not measured.
                while setup.outbox.receive(|_| {}) {}
            }
            at += len;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Returns `ips` with rules, one a line, and its setup.
    fn ips(folder: &std::path::Path, text: &str) -> (&'static Kind, Setup) {
        let rules = folder.join("test.rules");
        std::fs::write(&rules, text).unwrap();
        let kind = CATALOGUE.find("ips").unwrap();
        let (setup, loaded) = prepared(kind, &[format!("rules={}", rules.display())], 0).unwrap();
        let count = text.lines().count();
        assert!(loaded.starts_with(&format!("{count} rule")), "{loaded}");
        (kind, setup)
    }

    #[test]
    fn a_load_that_cannot_be_offered_is_refused() {
        use clap::Parser;

        let cases = [
            "--seconds=-1",
            "--seconds=0",
            "--seconds=nan",
            "--seconds=inf",
            "--offered=-5",
            "--offered=0",
            "--offered=nan",
            "--offered=inf",
            "--frame=59",
            "--frame=63",
            "--frame=1519",
            "--offered=0.000001",
        ];
        for case in cases {
            let mut words = vec!["millrace", "nf", "rate", "monitor", case];
            if !case.starts_with("--seconds") {
                words.push("--seconds=0.01");
            }
            let error = match crate::cli::Cli::try_parse_from(words) {
                Ok(cli) => crate::run(cli).expect_err(case).to_string(),
                Err(error) => error.to_string(),
            };
            assert!(error.contains("expected"), "{case}: {error}");
        }
    }

    #[test]
    fn a_measurement_that_waits_starts_at_a_line_and_not_at_the_end_of_its_input() {
        assert!(await_start(&mut &b"\n"[..]).is_ok());
        let error = await_start(&mut &b""[..]).unwrap_err().to_string();
        assert!(error.contains("expected a line"), "{error}");
    }

    #[test]
    fn http_connections_are_parsed_and_closed() {
        let folder = tempfile::tempdir().unwrap();
        let rule =
            "alert http any any -> any any (msg:\"answer\"; file.data; content:\"quick brown fox\"; sid:1;)";
        let (kind, setup) = ips(folder.path(), rule);
        let mut function = kind.make_function(&setup).unwrap();
        let mut load = Traffic::http(8, 4, None);
        let mut passes = Passes::default();
        for _ in 0..2 {
            passes.pass(&mut *function, &mut load, &setup);
        }
        function.tick(passes.now);
        let count = |name: &str| setup.counters.value(name).unwrap();
        assert_eq!(
            (passes.processed.dropped, count("tcp_sessions"), count("tcp_gaps")),
            (0, 16, 0)
        );
        assert!(count("alerts") >= 16, "{}", count("alerts"));
        assert_eq!(count("memory_bytes"), 0, "all connections are closed");
    }

    #[test]
    fn attacks_of_each_nth_connection_are_dropped_with_their_answers_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let rules: String = ["uri", "user_agent", "request_body"]
            .iter()
            .zip(1..)
            .map(|(buffer, sid)| {
                format!(
                    "drop http any any -> any any (msg:\"attack\"; http.{buffer}; content:\"attack-0\"; sid:{sid};)\n"
                )
            })
            .collect();
        let (kind, setup) = ips(folder.path(), &rules);
        let mut function = kind.make_function(&setup).unwrap();
        // 25 attacks: ten with the names attack-00 to attack-09, six with others, and nine more from the first name on.
        let mut load = Traffic::http(50, 1, Some(2));
        let mut passes = Passes::default();
        passes.pass(&mut *function, &mut load, &setup);
        let Processed {
            packets,
            dropped,
            attacks,
        } = passes.processed;
        assert_eq!((attacks.requests, attacks.passed), (25, 6));
        // The request, the response, and three packets of the end.
        assert_eq!((packets, dropped), (50 * 8, 19 * 5));
    }

    #[test]
    fn packets_that_arrive_at_a_rate_are_carried_lost_or_wait_and_a_reload_comes_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (kind, setup) = ips(
            folder.path(),
            "alert tcp any any -> any any (content:\"never\"; sid:1;)",
        );
        let mut function = kind.make_function(&setup).unwrap();
        let mut load = Traffic::new(16, 7, 128);
        let offered = Offered::new(20_000.0, Duration::from_millis(300), 0, Time::ZERO);
        let outcome = offered
            .run(&mut *function, &mut load, &setup, kind.shared)
            .unwrap();
        let json = serde_json::to_value(&outcome.summary).unwrap();
        let [arrived, lost, waiting] =
            ["arrived", "lost", "waiting"].map(|name| json[name].as_u64().unwrap());
        assert!(arrived >= 6000, "{arrived}");
        assert_eq!(outcome.processed.packets + lost + waiting, arrived);
        assert!(json["reload"]["seconds"].as_f64().unwrap() > 0.0, "{json}");
        // A busy machine may carry all packets before the reload, or all during it.
        let latency = ["/latency_us/p50", "/reload/latency_us/p50"]
            .iter()
            .find_map(|pointer| json.pointer(pointer)?.as_f64());
        assert!(latency.unwrap() > 0.0, "{json}");
    }

    #[test]
    fn connections_are_valid_and_new_with_each_pass() {
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("test.rules");
        std::fs::write(
            &rules,
            "alert tcp-pkt any any -> any any (msg:\"each\"; ttl:>0; sid:1;)",
        )
        .unwrap();
        let kind = CATALOGUE.find("ips").unwrap();
        let (setup, loaded) = prepared(kind, &[format!("rules={}", rules.display())], 0).unwrap();
        assert!(loaded.starts_with("1 rule from"), "{loaded}");
        let mut function = kind.make_function(&setup).unwrap();
        let mut load = Traffic::new(10, 7, 128);
        let mut passes = Passes::default();
        for _ in 0..3 {
            passes.pass(&mut *function, &mut load, &setup);
        }
        function.tick(passes.now);
        let count = |name: &str| setup.counters.value(name).unwrap();
        assert_eq!(
            (passes.processed.packets, passes.processed.dropped),
            (3 * 10 * 13, 0)
        );
        assert_eq!(
            (count("tcp_sessions"), count("invalid"), count("rewritten")),
            (30, 0, 0)
        );
        assert_eq!(count("alerts"), 3 * 10 * 13);
    }
}
