//! A function over the packets of a capture, in this process: frames in, frames and exported messages out.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use millrace_builtin::CATALOGUE;
use millrace_ips_engine::LinkType;
use millrace_ips_engine::packet::ip_packet;
use millrace_ips_offline::{CaptureError, CaptureReader, CapturedFrame};
use millrace_loader::ANY_LOADERS;
use millrace_nf::{Buffer, Context, Direction, Effects, Formatter, Function, Kind, Sending, Setup, Verdict};
use millrace_types::Time;
use millrace_wire::Frame;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use serde::Serialize;

use crate::cli::Run;
use crate::output::Session;

/// Largest number of packets in a burst. All have the same time.
const BURST: usize = 64;
/// The interval of the function's `tick` calls.
const TICK: millrace_types::Duration = millrace_types::Duration::from_millis(100);
/// The first time in seconds that a signed 32-bit field cannot hold. A frame with this or a later time gets the time of the
/// frame before it.
const IMPLAUSIBLE: Time = Time::from_secs(1 << 31);
/// Largest size of a frame that is written, in bytes: that of tcpdump, more than a GSO packet has.
const SNAPLEN: u32 = 262_144;
/// An Ethernet header without its EtherType, for packets of other link types: the addresses are locally administered.
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// The numbers of packets by verdict, and the function's counters.
#[derive(Serialize, Default)]
struct Outcome {
    packets: u64,
    next: u64,
    skipped: u64,
    /// Packets that the function sent.
    sent: u64,
    dropped: u64,
    to_port: u64,
    /// Frames of another link type than Ethernet that carry no IP; the function does not see them.
    not_ip: u64,
    counters: Vec<(&'static str, u64)>,
}

impl Outcome {
    fn text(&self) -> String {
        let mut text = format!(
            "{} packets: {} next, {} skip hops, {} dropped, {} to a port; {} sent by the function\n",
            self.packets, self.next, self.skipped, self.dropped, self.to_port, self.sent
        );
        if self.not_ip > 0 {
            text += &format!(
                "{} frames left out: their link type is not Ethernet, and they carry no IP\n",
                self.not_ip
            );
        }
        for (name, value) in &self.counters {
            text += &format!("{name} {value}\n");
        }
        text
    }

    fn count(&mut self, verdict: Verdict) {
        self.packets += 1;
        match verdict {
            Verdict::Next => self.next += 1,
            Verdict::Skip(_) => self.skipped += 1,
            Verdict::Drop => self.dropped += 1,
            Verdict::ToPort(_) => self.to_port += 1,
        }
    }
}

/// A packet that waits for its burst.
struct Waiting {
    time: Time,
    frame: Frame,
}

/// The frames of a capture as a function sees them: Ethernet frames, whose times never decrease.
struct Frames {
    reader: CaptureReader,
    last: Time,
    not_ip: u64,
    /// The reason why the capture was not read to its end.
    failure: Option<CaptureError>,
}

impl Frames {
    /// Returns the next frame; `None` at the end of the capture, or at its damage.
    fn next(&mut self) -> Option<Waiting> {
        loop {
            let captured = match self.reader.next_frame() {
                Ok(captured) => captured?,
                Err(error) => {
                    self.failure = Some(error);
                    return None;
                }
            };
            if captured.time < IMPLAUSIBLE {
                self.last = self.last.max(captured.time);
            }
            match ethernet(captured) {
                Some(bytes) => {
                    return Some(Waiting {
                        time: self.last,
                        frame: Frame::new(&bytes),
                    });
                }
                None => self.not_ip += 1,
            }
        }
    }
}

/// Returns a frame with an Ethernet header: its own, or one in the place of another link header. `None` for a frame of another
/// link type that carries no IP.
fn ethernet(captured: CapturedFrame) -> Option<Vec<u8>> {
    let link = LinkType(captured.link);
    if link.0 == LinkType::ETHERNET {
        return Some(captured.bytes);
    }
    let packet = ip_packet(&captured.bytes, link)?;
    let ether_type: [u8; 2] = match packet.first()? >> 4 {
        4 => [0x08, 0x00],
        6 => [0x86, 0xdd],
        _ => return None,
    };
    Some([&ADDRESSES[..], &ether_type, packet].concat())
}

/// The file of the setting `export`, with the messages of the function in their exported form.
struct Export {
    formatter: Option<Box<dyn Formatter>>,
    file: BufWriter<File>,
    text: Vec<u8>,
}

impl Export {
    /// Returns the export that the settings ask for; `None` without the setting.
    fn open(kind: &Kind, setup: &Setup) -> Result<Option<Export>> {
        let Some(to) = setup.settings.one("export")? else {
            return Ok(None);
        };
        let path = to.strip_prefix("file:").with_context(|| {
            format!("export={to}: expected file:PATH with --read, which sends nothing over the network")
        })?;
        let file = File::create(path).with_context(|| format!("cannot write {path}"))?;
        let mut formatter = kind
            .formatter
            .map(|make| make(&setup.settings, setup.zero_unix_millis));
        if let (Some(formatter), Some(value)) = (&mut formatter, &setup.shared) {
            formatter.share(value);
        }
        Ok(Some(Export {
            formatter,
            file: BufWriter::new(file),
            text: Vec::new(),
        }))
    }

    /// Writes the messages in the outbox.
    fn empty(&mut self, setup: &Setup) -> Result<()> {
        let Export { formatter, text, .. } = self;
        while setup.outbox.receive(|message| match formatter {
            Some(formatter) => formatter.format(message, text),
            None => text.extend_from_slice(message),
        }) {}
        self.write()
    }

    /// Writes the last report of the formatter.
    fn end(&mut self, setup: &Setup, now: Time) -> Result<()> {
        let unix_millis = setup.zero_unix_millis + now.nanos() / 1_000_000;
        if let Some(formatter) = &mut self.formatter {
            formatter.report(unix_millis, &setup.counters.read(), &mut self.text);
        }
        self.write()?;
        self.file.flush().context("cannot write the export")
    }

    fn write(&mut self) -> Result<()> {
        self.file
            .write_all(&self.text)
            .context("cannot write the export")?;
        self.text.clear();
        Ok(())
    }
}

/// The function and its outputs.
struct Offline {
    function: Box<dyn Function>,
    setup: Setup,
    direction: Direction,
    effects: Effects,
    export: Option<Export>,
    writer: Option<PcapWriter<BufWriter<File>>>,
    outcome: Outcome,
    next_tick: Time,
}

impl Offline {
    /// Passes packets of one time to the function.
    fn burst(&mut self, packets: &mut [Waiting], now: Time) -> Result<()> {
        if now >= self.next_tick {
            self.function.tick(now);
            self.next_tick = now + TICK;
        }
        let mut verdicts = vec![Verdict::Next; packets.len()];
        let mut burst: Vec<&mut dyn Buffer> = packets
            .iter_mut()
            .map(|packet| &mut packet.frame as &mut dyn Buffer)
            .collect();
        self.effects.reset(Sending::Allowed);
        self.function.process_with_effects(
            &Context::new(now, self.direction),
            &mut burst,
            &mut verdicts,
            &mut self.effects,
        );
        drop(burst);
        self.outcome.sent += self.effects.sent().count() as u64;
        for (packet, verdict) in packets.iter().zip(verdicts) {
            self.outcome.count(verdict);
            if let Some(writer) = self.writer.as_mut().filter(|_| verdict != Verdict::Drop) {
                let bytes = packet.frame.bytes();
                let time = core::time::Duration::from_nanos(packet.time.nanos());
                writer.write_packet(&PcapPacket::new(time, bytes.len() as u32, bytes))?;
            }
        }
        self.empty()
    }

    /// Takes the messages of the function. Without an export, nobody reads them.
    fn empty(&mut self) -> Result<()> {
        match &mut self.export {
            Some(export) => export.empty(&self.setup),
            None => {
                while self.setup.outbox.receive(|_| {}) {}
                Ok(())
            }
        }
    }

    /// Ends the state of the function: no packet follows.
    fn finish(&mut self, now: Time) -> Result<()> {
        self.function.tick(now);
        self.empty()?;
        loop {
            let has_more = self.function.finish();
            self.empty()?;
            if !has_more {
                break;
            }
        }
        if let Some(export) = &mut self.export {
            export.end(&self.setup, now)?;
        }
        self.outcome.counters = self.setup.counters.read();
        Ok(())
    }
}

pub(super) fn run(session: &Session, wanted: &Run, file: &Path) -> Result<()> {
    let kind = CATALOGUE.with_loaders(ANY_LOADERS).find(&wanted.function)?;
    let mut frames = Frames {
        reader: CaptureReader::open(file)?,
        last: Time::ZERO,
        not_ip: 0,
        failure: None,
    };
    let mut held = frames.next();
    // The clock of the function is zero at the whole millisecond of the first packet.
    let zero_unix_millis = held.as_ref().map_or(0, |first| first.time.nanos() / 1_000_000);
    let zero = millrace_types::Duration::from_millis(zero_unix_millis);
    let (setup, _) = crate::nf_rate::prepared(kind, &wanted.settings, zero_unix_millis)?;
    let function = kind.make_function(&setup)?;
    let writer = match &wanted.write {
        None => None,
        Some(path) => {
            let to = File::create(path).with_context(|| path.display().to_string())?;
            let header = PcapHeader {
                ts_resolution: TsResolution::NanoSecond,
                datalink: DataLink::ETHERNET,
                snaplen: SNAPLEN,
                ..PcapHeader::default()
            };
            Some(PcapWriter::with_header(BufWriter::new(to), header)?)
        }
    };
    let mut offline = Offline {
        function,
        export: Export::open(kind, &setup)?,
        setup,
        direction: match wanted.backward {
            false => Direction::Forward,
            true => Direction::Backward,
        },
        effects: Effects::new(),
        writer,
        outcome: Outcome::default(),
        next_tick: Time::ZERO,
    };
    let mut now = Time::ZERO;
    while let Some(first) = held.take() {
        let time = first.time;
        now = time - zero;
        let mut packets = vec![first];
        while packets.len() < BURST {
            held = frames.next();
            match held.take_if(|packet| packet.time == time) {
                Some(packet) => packets.push(packet),
                None => break,
            }
        }
        if packets.len() == BURST {
            held = frames.next();
        }
        offline.burst(&mut packets, now)?;
    }
    offline.finish(now)?;
    if let Some(writer) = offline.writer.take() {
        writer.into_writer().flush()?;
    }
    offline.outcome.not_ip = frames.not_ip;
    session.print(&offline.outcome, Outcome::text)?;
    match frames.failure {
        // The failure's text has the number of frames that were read.
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}
