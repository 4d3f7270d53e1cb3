//! Reads captures, and prints the alerts of a rule file as sets: capture, mode, protocol, endpoint, endpoint, sid.
//!
//! `cargo run -p millrace-ips-engine --example read -- RULES ids|ips CAPTURE…`
//!
//! Each capture begins without flows. Endpoints are sorted as text, and addresses of IPv6 are written in full, so that
//! the output compares line by line with answers in the same form.

use std::collections::BTreeSet;
use std::io::{Cursor, Write};
use std::net::IpAddr;
use std::path::Path;

use millrace_ips_engine::detect::{CompileSettings, DetectSettings, compile};
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Mode, Settings};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_types::Time;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

type Failure = Box<dyn std::error::Error>;

/// A frame of a capture.
struct Record {
    link: u32,
    nanos: u64,
    bytes: Vec<u8>,
}

/// Returns the frames of a capture up to the first that is not readable.
fn frames(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let Ok(mut reader) = PcapNgReader::new(Cursor::new(bytes)) else {
            return records;
        };
        let mut links: Vec<u32> = Vec::new();
        while let Some(Ok(block)) = reader.next_block() {
            match block {
                Block::SectionHeader(_) => links.clear(),
                Block::InterfaceDescription(interface) => links.push(u32::from(interface.linktype)),
                Block::EnhancedPacket(packet) => records.push(Record {
                    link: links.get(packet.interface_id as usize).copied().unwrap_or(1),
                    nanos: packet.timestamp.as_nanos() as u64,
                    bytes: packet.data.into_owned(),
                }),
                Block::SimplePacket(packet) => records.push(Record {
                    link: links.first().copied().unwrap_or(1),
                    nanos: 0,
                    bytes: packet.data.into_owned(),
                }),
                _ => {}
            }
        }
        return records;
    }
    let Ok(mut reader) = PcapReader::new(Cursor::new(bytes)) else {
        return records;
    };
    let link = u32::from(reader.header().datalink);
    let resolution = reader.header().ts_resolution;
    while let Some(Ok(packet)) = reader.next_raw_packet() {
        let fraction = match resolution {
            pcap_file::TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
            pcap_file::TsResolution::NanoSecond => u64::from(packet.ts_frac),
        };
        records.push(Record {
            link,
            nanos: u64::from(packet.ts_sec) * 1_000_000_000 + fraction,
            bytes: packet.data.into_owned(),
        });
    }
    records
}

/// Returns an address as the answers have it.
fn address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let groups: Vec<String> = address
                .segments()
                .iter()
                .map(|group| format!("{group:04x}"))
                .collect();
            groups.join(":")
        }
    }
}

/// Returns the name of an IP protocol.
fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        2 => "IGMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        0 => "HOPOPT".to_owned(),
        41 => "IPv6".to_owned(),
        44 => "IPv6-Frag".to_owned(),
        47 => "GRE".to_owned(),
        50 => "ESP".to_owned(),
        88 => "EIGRP".to_owned(),
        103 => "PIM".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        89 => "OSPF".to_owned(),
        132 => "SCTP".to_owned(),
        number => format!("{number:03}"),
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, rules, mode, captures @ ..] = &arguments[..] else {
        return Err("expected RULES ids|ips CAPTURE…".into());
    };
    let rounds: usize = std::env::var("ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let has_numbers = std::env::var_os("PACKETS").is_some();
    let mut variables = Variables::usual();
    variables.set("HOME_NET", "any")?;
    variables.set("EXTERNAL_NET", "any")?;
    let mut set = RuleSet::default();
    set.add(
        rules,
        files::parse(Syntax::Suricata, rules, &std::fs::read(rules)?),
        &variables,
    );
    let compile_settings = CompileSettings {
        variables,
        ..CompileSettings::default()
    };
    let (ruleset, refusals) = compile(&set, &compile_settings);
    for refusal in set.refusals().iter().chain(&refusals) {
        eprintln!("{refusal}");
    }
    eprintln!("{} rules", ruleset.rules.len());
    let settings = Settings {
        mode: match mode.as_str() {
            "ips" => Mode::Ips,
            _ => Mode::Ids,
        },
        detect: DetectSettings {
            alerts: std::env::var("ALERTS")
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(15),
            ..DetectSettings::default()
        },
        ..Settings::default()
    };
    let mut bytes = 0u64;
    let mut seconds = 0.0;
    let stdout = std::io::stdout();
    let mut stdout = std::io::BufWriter::new(stdout.lock());
    for path in captures {
        let name = Path::new(path)
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let name = name.split('.').next().unwrap_or_default();
        let records = frames(&std::fs::read(path)?);
        let mut lines = BTreeSet::new();
        for _ in 0..rounds {
            let mut engine = Engine::new(settings.clone(), [1, 2]);
            let mut events = Events::default();
            let start = std::time::Instant::now();
            for (at, record) in records.iter().enumerate() {
                let mut frame = record.bytes.clone();
                bytes += frame.len() as u64;
                let frame = Frame {
                    bytes: &mut frame,
                    link: LinkType(record.link),
                    time: Time::from_nanos(record.nanos),
                    number: at as u64 + 1,
                };
                engine.frame(&ruleset, frame, &mut events);
            }
            engine.finish(&ruleset, &mut events);
            seconds += start.elapsed().as_secs_f64();
            for event in &events.list {
                #[allow(irrefutable_let_patterns, reason = "there may be other events")]
                let Event::Alert(alert) = event else { continue };
                let subject = &alert.subject;
                let (source, destination) = subject.ports.unwrap_or_default();
                let mut ends = [
                    (address(subject.src), source),
                    (address(subject.dst), destination),
                ];
                ends.sort();
                let [(first, first_port), (second, second_port)] = ends;
                let protocol = protocol(subject.protocol);
                lines.insert(format!(
                    "{name}\t{mode}\t{protocol}\t{first} {first_port}\t{second} {second_port}\t{}{}",
                    alert.sid,
                    match has_numbers {
                        true => format!("\t{}", subject.packet),
                        false => String::new(),
                    }
                ));
            }
        }
        for line in lines {
            writeln!(stdout, "{line}")?;
        }
    }
    eprintln!(
        "{bytes} bytes in {seconds:.3} s: {:.0} Mbit/s",
        bytes as f64 * 8e-6 / seconds
    );
    Ok(())
}
