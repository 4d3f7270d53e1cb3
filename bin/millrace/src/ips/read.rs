//! `millrace ips read`: inspects captures with the engine, and writes its events.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_ips_engine::app::AppSettings;
use millrace_ips_engine::app::file::STORE_LIMIT;
use millrace_ips_engine::detect::Ruleset;
use millrace_ips_engine::event::Alert;
use millrace_ips_engine::{Engine, Event, Events, Settings};
use millrace_ips_eve::{Census, Layout, RuleTables, Statistics, Storage, StorageLimits, Version, Writer};
use millrace_ips_offline::{CaptureError, CaptureSummary, CapturedFrame, read};
use millrace_types::Time;
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use serde::Serialize;

use super::load::load_with_data;
use crate::cli::{ReadArgs, ReadRecords};
use crate::output::Session;

/// The result of a run.
#[derive(Debug, Default, Serialize)]
struct Summary {
    rules: usize,
    refused: usize,
    captures: usize,
    frames: u64,
    bytes: u64,
    alerts: u64,
    dropped: u64,
    /// Files that were stored, and files that were not because of a bound.
    files_stored: u64,
    files_refused: u64,
    /// Seconds in the engine.
    seconds: f64,
    megabits_per_second: f64,
    /// Captures that could not be read, or not to their end.
    failures: Vec<String>,
}

impl Summary {
    fn text(&self) -> String {
        let mut text = String::new();
        for failure in &self.failures {
            text += &format!("{failure}\n");
        }
        if self.files_stored + self.files_refused > 0 {
            text += &format!(
                "{} files stored, {} not (--data-mib)\n",
                self.files_stored, self.files_refused
            );
        }
        text + &format!(
            "{} rules ({} refused; `millrace ips check` names them), {} captures, {} frames, {} alerts, {} frames dropped; \
             {:.3} s in the engine, {:.0} Mbit/s\n",
            self.rules,
            self.refused,
            self.captures,
            self.frames,
            self.alerts,
            self.dropped,
            self.seconds,
            self.megabits_per_second
        )
    }

    fn add(&mut self, capture: &CaptureSummary) {
        self.frames += capture.frames;
        self.bytes += capture.bytes;
        self.dropped += capture.dropped;
        self.seconds += capture.engine.as_secs_f64();
    }
}

/// The destinations of events.
struct Outputs {
    writer: Writer,
    /// Lines of EVE; `None` if alerts are printed as text.
    eve: Option<Box<dyn Write>>,
    capture: Option<AlertCapture>,
    storage: Option<Storage>,
    rules: Vec<((u32, u32), String)>,
    last: Time,
    alerts: u64,
    census: Census,
    line: Vec<u8>,
    failure: Option<anyhow::Error>,
}

pub(super) fn run(session: &Session, args: &ReadArgs) -> Result<()> {
    let loaded = load_with_data(&args.rules, &args.files, args.data.as_deref())?;
    let (ruleset, refused) = loaded.compile()?;
    let mut summary = Summary {
        rules: ruleset.rules.len(),
        refused,
        ..Summary::default()
    };
    let writes_records = args.eve.is_some() && args.records == ReadRecords::All;
    let defaults = Settings::default();
    let policies = args
        .policies
        .iter()
        .fold(defaults.policies, |policies, (cause, policy)| {
            policies.with(*cause, *policy)
        });
    let settings = Settings {
        mode: args.mode.into(),
        checks_checksums: args.checksums,
        accepts_midstream: args.midstream,
        accepts_async: args.asymmetric,
        policies,
        records: args.eve.is_some(),
        frames: args.frames,
        evidence: args.packets && args.eve.is_some(),
        arp: args.arp,
        // The statistics count them.
        packet_events: writes_records,
        app: AppSettings {
            store_limit: if args.data.is_some() { STORE_LIMIT } else { 0 },
            details: args.details,
            content_codings: args.content_codings.into(),
            ..defaults.app
        },
        ..defaults
    };
    let mut tables = RuleTables::new(&loaded.set, &loaded.classes).with_bits(&ruleset.names);
    if args.details {
        tables = tables.with_rules(&loaded.set, &loaded.references);
    }
    let mut outputs = Outputs::new(args, &ruleset, tables)?;
    // All captures share one engine, so that its memory is allocated once. The seed is fixed: a run repeats exactly.
    let mut engine = Engine::new(settings, [1, 2]);
    for path in &args.captures {
        outputs.writer.set_capture(&path.display().to_string());
        let result = read(path, &mut engine, &ruleset, |events, frame| {
            outputs.take(events, frame, writes_records);
        });
        outputs.check()?;
        match result {
            Ok(capture) => summary.add(&capture),
            Err(error @ CaptureError::Open { .. }) => return Err(error.into()),
            Err(error) => {
                if let CaptureError::Format { read, .. } = &error {
                    summary.add(read);
                }
                summary.failures.push(error.to_string());
            }
        }
        summary.captures += 1;
    }
    summary.alerts = outputs.alerts;
    let stored = outputs
        .storage
        .as_ref()
        .map(Storage::counters)
        .unwrap_or_default();
    (summary.files_stored, summary.files_refused) = (stored.stored, stored.refused);
    if writes_records {
        outputs.statistics(&engine, &summary)?;
    }
    outputs.flush()?;
    if summary.seconds > 0.0 {
        summary.megabits_per_second = summary.bytes as f64 * 8e-6 / summary.seconds;
    }
    match session.json() && args.eve.as_deref() != Some(Path::new("-")) {
        true => session.print(&summary, Summary::text)?,
        false => io::stderr().write_all(summary.text().as_bytes())?,
    }
    match summary.failures.is_empty() {
        true => Ok(()),
        false => bail!("{} captures were not read to their end", summary.failures.len()),
    }
}

impl Outputs {
    fn new(args: &ReadArgs, ruleset: &Ruleset, tables: RuleTables) -> Result<Outputs> {
        let layout = Layout {
            version: match args.eve_version {
                8 => Version::Eight,
                _ => Version::Seven,
            },
            packets: args.packets,
            packet_anomalies: args.anomalies,
            netflow: args.netflow,
            ethernet: args.ethernet,
            details: args.details,
        };
        let create =
            |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let eve: Option<Box<dyn Write>> = match args.eve.as_deref() {
            None => None,
            Some(path) if path == Path::new("-") => Some(Box::new(BufWriter::new(io::stdout()))),
            Some(path) => Some(Box::new(BufWriter::new(create(path)?))),
        };
        let capture = match args.alert_capture.as_deref() {
            None => None,
            Some(path) => Some(AlertCapture::new(create(path)?)?),
        };
        let storage = match args.data.as_deref() {
            None => None,
            Some(folder) => {
                let limits = StorageLimits {
                    bytes: args.data_mib << 20,
                    ..StorageLimits::default()
                };
                let mut storage = Storage::open(folder, limits)?;
                storage.share(&ruleset.saved_sets);
                Some(storage)
            }
        };
        let mut rules: Vec<_> = ruleset
            .rules
            .iter()
            .map(|rule| ((rule.gid, rule.sid), rule.msg.to_string()))
            .collect();
        rules.sort_unstable();
        Ok(Outputs {
            writer: Writer::new(layout, tables),
            eve,
            capture,
            storage,
            rules,
            last: Time::ZERO,
            alerts: 0,
            census: Census::default(),
            line: Vec::new(),
            failure: None,
        })
    }

    /// Writes the events of a frame. Errors are kept for [`Outputs::check`].
    fn take(&mut self, events: &Events, frame: Option<&CapturedFrame>, writes_records: bool) {
        if self.failure.is_none()
            && let Err(error) = self.write(events, frame, writes_records)
        {
            self.failure = Some(error);
        }
    }

    /// Returns the first error.
    fn check(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn write(&mut self, events: &Events, frame: Option<&CapturedFrame>, writes_records: bool) -> Result<()> {
        if let Some(frame) = frame {
            self.last = self.last.max(frame.time);
            if writes_records {
                self.census.frame(&frame.bytes, frame.link);
            }
        }
        let mut raised = Vec::new();
        for event in &events.list {
            if let Some(storage) = &mut self.storage {
                storage.take(event)?;
            }
            if let Event::Alert(alert) = event {
                self.alerts += 1;
                raised.push((alert.gid, alert.sid, alert.rev));
            }
            if writes_records {
                self.census.event(event);
            }
            match (&mut self.eve, event) {
                (Some(eve), event) if writes_records || matches!(event, Event::Alert(_)) => {
                    self.line.clear();
                    let bytes = frame.map(|frame| (frame.bytes.as_slice(), frame.link));
                    self.writer.write(event, bytes, &mut self.line);
                    eve.write_all(&self.line).context("cannot write events")?;
                }
                (None, Event::Alert(alert)) => {
                    let message = self.message(alert);
                    writeln!(io::stdout(), "{}", sentence(alert, message))?;
                }
                _ => {}
            }
        }
        if let (Some(capture), Some(frame)) = (&mut self.capture, frame)
            && !raised.is_empty()
        {
            capture.write(frame, &raised)?;
        }
        Ok(())
    }

    fn message(&self, alert: &Alert) -> &str {
        let found = self
            .rules
            .binary_search_by_key(&(alert.gid, alert.sid), |(rule, _)| *rule);
        found.ok().map_or("", |at| self.rules[at].1.as_str())
    }

    fn statistics(&mut self, engine: &Engine, summary: &Summary) -> Result<()> {
        let statistics = Statistics {
            uptime: summary.seconds as u64,
            engine: *engine.counters(),
            bytes: summary.bytes,
            flows: engine.flow_counters().created,
            alerts: self.alerts,
            alerts_lost: engine.detect_counters().alerts_lost,
            rules: (summary.rules, summary.refused),
            census: core::mem::take(&mut self.census),
        };
        self.line.clear();
        self.writer
            .write_statistics(self.last, &statistics, &mut self.line);
        match &mut self.eve {
            Some(eve) => eve.write_all(&self.line).context("cannot write events"),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(eve) = &mut self.eve {
            eve.flush().context("cannot write events")?;
        }
        if let Some(storage) = &mut self.storage {
            storage.flush()?;
        }
        match &mut self.capture {
            Some(capture) => capture
                .writer
                .get_mut()
                .flush()
                .context("cannot write the alert capture"),
            None => Ok(()),
        }
    }
}

/// Returns an alert as a line for people.
fn sentence(alert: &Alert, message: &str) -> String {
    let subject = &alert.subject;
    let (source, destination) = subject.ports.unwrap_or_default();
    format!(
        "packet {} [{}:{}:{}] {message} {} {source} -> {} {destination}",
        subject.packet, alert.gid, alert.sid, alert.rev, subject.src, subject.dst
    )
}

/// A pcapng file of the frames that raised alerts.
struct AlertCapture {
    writer: PcapNgWriter<BufWriter<File>>,
    /// The link types of the interfaces that the file has so far.
    links: Vec<u32>,
}

impl AlertCapture {
    fn new(file: File) -> Result<AlertCapture> {
        let writer = PcapNgWriter::new(BufWriter::new(file)).context("cannot write the alert capture")?;
        Ok(AlertCapture {
            writer,
            links: Vec::new(),
        })
    }

    fn write(&mut self, frame: &CapturedFrame, rules: &[(u32, u32, u32)]) -> Result<()> {
        let interface = match self.links.iter().position(|link| *link == frame.link) {
            Some(interface) => interface,
            None => {
                let block = InterfaceDescriptionBlock {
                    linktype: DataLink::from(frame.link),
                    snaplen: 0,
                    // Times are in nanoseconds.
                    options: vec![InterfaceDescriptionOption::IfTsResol(9)],
                };
                self.writer.write_block(&block.into_block())?;
                self.links.push(frame.link);
                self.links.len() - 1
            }
        };
        let words: Vec<String> = rules
            .iter()
            .map(|(gid, sid, rev)| format!("[{gid}:{sid}:{rev}]"))
            .collect();
        let block = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_nanos(frame.time.nanos()),
            original_len: frame.wire_size,
            data: frame.bytes.as_slice().into(),
            options: vec![EnhancedPacketOption::Comment(words.join(" ").into())],
        };
        self.writer.write_block(&block.into_block())?;
        Ok(())
    }
}
