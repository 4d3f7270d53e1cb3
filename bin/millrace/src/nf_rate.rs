//! `millrace nf rate`: the rate of a function on this machine, without a switch.
//!
//! TCP connections are made in memory: handshake, data in both directions, close. With each pass over them their addresses
//! change, so that a function with state sees new connections and no retransmissions. Only the calls of the function are
//! timed, in bursts as large as those of a switch.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use millrace_builtin::CATALOGUE;
use millrace_loader::ANY_LOADERS;
use millrace_nf::{Buffer, Context, Direction, Effects, Function, Kind, Settings, Setup, Verdict};
use millrace_types::{Mac, Time};
use millrace_wire::tcp::flags::{ACK, FIN, PSH, SYN};
use millrace_wire::{Builder, Frame, Packet, tcp};
use serde::Serialize;

use crate::cli::Rate;
use crate::output::Session;

/// Packets of a burst, as of a switch's worker.
const BURST: usize = 32;
/// The interval of the function's `tick` calls.
const TICK: millrace_types::Duration = millrace_types::Duration::from_millis(100);
/// Bytes of the headers of a frame, and of its check sequence.
const HEADERS: usize = 54;
const FCS: usize = 4;
/// The time of the switch that passes with each packet, in nanoseconds: 10 million packets a second.
const PACKET_NANOS: u64 = 100;

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
    /// Packets that were not forwarded.
    dropped: u64,
    /// The shared value, such as the number of rules, and the time in seconds that making it took.
    loaded: String,
    load_seconds: f64,
    counters: Vec<(&'static str, u64)>,
}

/// Returns a setup of a function, with its shared value.
pub(crate) fn prepared(kind: &Kind, settings: &[String]) -> Result<(Setup, String)> {
    let settings = Settings::parse(settings)?;
    let mut setup = kind.setup(&settings, 1, 0);
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
    if !(HEADERS + FCS + 1..=1518).contains(&frame) {
        bail!("--frame {frame}: expected 64 to 1518 bytes, check sequence included");
    }
    let kind = CATALOGUE.with_loaders(ANY_LOADERS).find(&wanted.function)?;
    let start = Instant::now();
    let (setup, loaded) = prepared(kind, &wanted.settings)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let mut function = kind.make_function(&setup)?;
    let mut load = Traffic::new(wanted.connections, wanted.data, frame);
    let limit = Duration::from_secs_f64(wanted.seconds);
    let mut run = Passes::default();
    // The first pass warms caches and memory up, and does not count.
    run.pass(&mut *function, &mut load, &setup);
    run = Passes {
        now: run.now,
        ..Passes::default()
    };
    let before = setup.counters.read();
    while run.elapsed < limit {
        run.pass(&mut *function, &mut load, &setup);
    }
    function.tick(run.now);
    let seconds = run.elapsed.as_secs_f64();
    let counters = setup.counters.read().into_iter().zip(before);
    let measured = Measured {
        function: wanted.function.clone(),
        frame,
        packets: run.packets,
        seconds,
        packets_per_second: run.packets as f64 / seconds,
        nanos_per_packet: seconds * 1e9 / run.packets as f64,
        dropped: run.dropped,
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
        for (name, value) in measured.counters.iter().filter(|(_, value)| *value != 0) {
            text += &format!("{name} {value}\n");
        }
        text
    })
}

/// The connections of a pass: their packets in the order in which a link carries them.
struct Traffic {
    templates: Vec<(Direction, Vec<u8>)>,
    frames: Vec<Frame>,
    passes: u32,
}

impl Traffic {
    /// Returns `connections` connections that are open at the same time, each with `data` data segments.
    fn new(connections: u16, data: u16, frame: usize) -> Traffic {
        let payload: Vec<u8> = (0..frame - FCS - HEADERS)
            .map(|at| b'a' + (at % 23) as u8)
            .collect();
        let size = payload.len() as u32;
        let mut templates = Vec::new();
        for step in 0..data + 6 {
            for connection in 0..connections {
                let packet = |direction, flags, seq, ack, payload: &[u8]| {
                    (
                        direction,
                        segment(connection, direction, flags, (seq, ack), payload),
                    )
                };
                let (client, server) = (Direction::Forward, Direction::Backward);
                let sent = |by: u16| 1 + u32::from(step.saturating_sub(3).div_ceil(2).min(by)) * size;
                let of_client = 1 + u32::from(step.saturating_sub(3).div_ceil(2)) * size;
                let of_server = 1 + u32::from(step.saturating_sub(3) / 2) * size;
                let all = (sent(data.div_ceil(2)), 1 + u32::from(data / 2) * size);
                templates.push(match step {
                    0 => packet(client, SYN, 0, 0, &[]),
                    1 => packet(server, SYN | ACK, 0, 1, &[]),
                    2 => packet(client, ACK, 1, 1, &[]),
                    step if step == data + 3 => packet(client, ACK | FIN, all.0, all.1, &[]),
                    step if step == data + 4 => packet(server, ACK | FIN, all.1, all.0 + 1, &[]),
                    step if step == data + 5 => packet(client, ACK, all.0 + 1, all.1 + 1, &[]),
                    step if step % 2 == 1 => packet(client, ACK | PSH, of_client, of_server, &payload),
                    _ => packet(server, ACK | PSH, of_server, of_client, &payload),
                });
            }
        }
        // A burst has one direction.
        let frames = templates.iter().map(|(_, bytes)| Frame::new(bytes)).collect();
        Traffic {
            templates,
            frames,
            passes: 0,
        }
    }

    /// Makes the packets of the next pass, whose clients have other addresses.
    fn renew(&mut self) {
        self.passes = self.passes.wrapping_add(1);
        let added = (self.passes as u16).to_be_bytes();
        for ((direction, template), frame) in self.templates.iter().zip(&mut self.frames) {
            let head = Packet::head_mut(frame);
            head.copy_from_slice(template);
            // The second half of the client's address; the first one of the pair of checksums is of IPv4.
            let at = match direction {
                Direction::Forward => 28,
                Direction::Backward => 32,
            };
            let old = [head[at], head[at + 1]];
            head[at..at + 2].copy_from_slice(&added);
            let change = millrace_wire::checksum::Change::of_bytes(&old, &added);
            for checksum in [24, 50] {
                let sum = u16::from_be_bytes([head[checksum], head[checksum + 1]]);
                head[checksum..checksum + 2].copy_from_slice(&change.apply(sum).to_be_bytes());
            }
        }
    }
}

/// Returns a segment of a connection.
fn segment(connection: u16, direction: Direction, flags: u16, numbers: (u32, u32), data: &[u8]) -> Vec<u8> {
    const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
    const SERVER: [u8; 4] = [192, 0, 2, 1];
    let client = ([10, 0, 0, 0], 1024 + connection);
    let (ends, ports) = match direction {
        Direction::Forward => ((client.0, SERVER), (client.1, 80)),
        Direction::Backward => ((SERVER, client.0), (80, client.1)),
    };
    let repr = tcp::Repr {
        src: ports.0,
        dst: ports.1,
        seq: numbers.0,
        ack: numbers.1,
        flags,
        window: 65_535,
        urgent: 0,
        options: tcp::Options::default(),
    };
    Builder::ethernet(MACS[0], MACS[1])
        .ipv4(ends.0, ends.1)
        .tcp(repr)
        .payload(data)
        .build()
}

/// The passes so far.
#[derive(Default)]
struct Passes {
    packets: u64,
    dropped: u64,
    elapsed: Duration,
    now: Time,
    next_tick: Time,
}

impl Passes {
    fn pass(&mut self, function: &mut dyn Function, load: &mut Traffic, setup: &Setup) {
        load.renew();
        let mut effects = Effects::new();
        let directions: Vec<Direction> = load.templates.iter().map(|(direction, _)| *direction).collect();
        let mut at = 0;
        while at < load.frames.len() {
            let direction = directions[at];
            let same = directions[at..].iter().take_while(|other| **other == direction);
            let len = same.take(BURST).count();
            let mut burst: Vec<&mut dyn Buffer> = load.frames[at..at + len]
                .iter_mut()
                .map(|frame| frame as &mut dyn Buffer)
                .collect();
            let mut verdicts = [Verdict::Next; BURST];
            effects.reset(true);
            let context = Context::new(self.now, direction);
            let start = Instant::now();
            function.process_with_effects(&context, &mut burst, &mut verdicts[..len], &mut effects);
            self.elapsed += start.elapsed();
            self.packets += len as u64;
            self.dropped += verdicts
                .iter()
                .filter(|verdict| **verdict == Verdict::Drop)
                .count() as u64;
            self.now = self.now + millrace_types::Duration::from_nanos(len as u64 * PACKET_NANOS);
            if self.now >= self.next_tick {
                let start = Instant::now();
                function.tick(self.now);
                self.elapsed += start.elapsed();
                self.next_tick = self.now + TICK;
                // The control side empties the outbox in time of its own.
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
        let (setup, loaded) = prepared(kind, &[format!("rules={}", rules.display())]).unwrap();
        assert!(loaded.starts_with("1 rules"), "{loaded}");
        let mut function = kind.make_function(&setup).unwrap();
        let mut load = Traffic::new(10, 7, 128);
        let mut passes = Passes::default();
        for _ in 0..3 {
            passes.pass(&mut *function, &mut load, &setup);
        }
        function.tick(passes.now);
        let count = |name: &str| setup.counters.value(name).unwrap();
        assert_eq!((passes.packets, passes.dropped), (3 * 10 * 13, 0));
        assert_eq!(
            (count("tcp_sessions"), count("invalid"), count("rewritten")),
            (30, 0, 0)
        );
        assert_eq!(count("alerts"), 3 * 10 * 13);
    }
}
