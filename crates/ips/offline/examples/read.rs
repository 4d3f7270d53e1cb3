//! Reads captures, and prints the alerts of a rule file as sets: capture, mode, protocol, endpoint, endpoint, sid.
//!
//! `cargo run -p millrace-ips-offline --example read -- RULES ids|ips CAPTURE…`
//!
//! Each capture begins without flows, so that the output can be compared line by line with expected alerts.
//! With `KEEP=1`, flows continue from one capture to the next. With `PACKETS=1`, every alert has a line,
//! which ends with the number of the packet, the number of the inspection and the port of the sender.
//! `ALERTS=N` sets the limit of alerts for each packet.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use millrace_ips_engine::detect::{CompileSettings, DetectSettings, compile};
use millrace_ips_engine::{Engine, Event, Events, Mode, Settings};
use millrace_ips_offline::{CapturedFrame, comparison_line, finish, read, read_part};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, rules, mode, captures @ ..] = &arguments[..] else {
        return Err("expected RULES ids|ips CAPTURE…".into());
    };
    let mode = match mode.as_str() {
        "ips" => Mode::Ips,
        _ => Mode::Ids,
    };
    let has_numbers = std::env::var_os("PACKETS").is_some();
    let keeps_flows = std::env::var_os("KEEP").is_some();
    let alerts = std::env::var("ALERTS").ok().and_then(|text| text.parse().ok());
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
    let detect = DetectSettings::default();
    let settings = Settings {
        mode,
        idle_search: if keeps_flows {
            0
        } else {
            Settings::default().idle_search
        },
        detect: DetectSettings {
            alerts: alerts.unwrap_or(detect.alerts),
            ..detect
        },
        ..Settings::default()
    };
    let (mut bytes, mut time) = (0, Duration::ZERO);
    let mut engine = Engine::new(settings, [1, 2]);
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    let mut inspections = 0u64;
    for path in captures {
        let name = Path::new(path)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let name = name.split('.').next().unwrap_or_default();
        let mut lines = Vec::new();
        let mut each = |events: &Events, _: Option<&CapturedFrame>| {
            // Alerts of an inspection are in the order of the rules.
            let mut last = None;
            for event in &events.list {
                let Event::Alert(alert) = event else { continue };
                let place = (alert.subject.src, alert.subject.ports, alert.subject.packet);
                if last.is_none_or(|(other, rule)| other != place || rule > alert.rule) {
                    inspections += 1;
                }
                last = Some((place, alert.rule));
                let mut line = format!("{name}\t{}", comparison_line(mode, alert));
                if has_numbers {
                    let (packet, port) = (alert.subject.packet, alert.subject.ports.unwrap_or_default().0);
                    line += &format!("\t{packet}\t{inspections}\t{port}");
                }
                lines.push(line);
            }
        };
        let swept = std::env::var("SWEEP").unwrap_or_default();
        let result = match keeps_flows {
            true => read_part(Path::new(path), &mut engine, &ruleset, &mut each),
            false => read(Path::new(path), &mut engine, &ruleset, &mut each),
        };
        if swept.contains(name)
            && let Ok(summary) = &result
        {
            let mut events = Events::default();
            engine.expire(&ruleset, summary.last, &mut events);
            each(&events, None);
        }
        if keeps_flows && Some(path) == captures.last() {
            finish(&mut engine, &ruleset, &mut each);
        }
        match result {
            Ok(summary) => {
                bytes += summary.bytes;
                time += summary.engine;
            }
            Err(error) => eprintln!("{error}"),
        }
        if !has_numbers {
            lines.sort();
            lines.dedup();
        }
        for line in lines {
            writeln!(stdout, "{line}")?;
        }
    }
    let seconds = time.as_secs_f64();
    eprintln!(
        "{bytes} bytes in {seconds:.3} s: {:.0} Mbit/s",
        bytes as f64 * 8e-6 / seconds
    );
    Ok(())
}
