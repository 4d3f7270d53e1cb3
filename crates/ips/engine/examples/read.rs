//! Reads captures, and prints the alerts of a rule file as sets: capture, mode, protocol, endpoint, endpoint, sid.
//!
//! `cargo run -p millrace-ips-engine --example read -- RULES ids|ips CAPTURE…`
//!
//! Each capture begins without flows. Endpoints are sorted as text, and addresses of IPv6 are written in full, so that
//! the output compares line by line with answers in the same form.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use millrace_ips_engine::detect::{CompileSettings, DetectSettings, compile};
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Mode, Settings};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_types::Time;

#[path = "../tests/it/captures.rs"]
mod captures;

use captures::{address, frames, protocol};

type Failure = Box<dyn std::error::Error>;

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
