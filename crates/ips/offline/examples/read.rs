//! Reads captures, and prints the alerts of a rule file as sets: capture, mode, protocol, endpoint, endpoint, sid.
//!
//! `cargo run -p millrace-ips-offline --example read -- RULES ids|ips CAPTURE…`
//!
//! Each capture begins without flows, so that the output compares line by line with answers in the same form. With
//! `PACKETS=1` each line ends with the number of the packet; `ALERTS=N` changes the number of alerts of a packet.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use millrace_ips_engine::detect::{CompileSettings, DetectSettings, compile};
use millrace_ips_engine::{Engine, Event, Mode, Settings};
use millrace_ips_offline::{comparison_line, read};
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
        detect: DetectSettings {
            alerts: alerts.unwrap_or(detect.alerts),
            ..detect
        },
        ..Settings::default()
    };
    let (mut bytes, mut time) = (0, Duration::ZERO);
    let mut engine = Engine::new(settings, [1, 2]);
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    for path in captures {
        let name = Path::new(path)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let name = name.split('.').next().unwrap_or_default();
        let mut lines = BTreeSet::new();
        let result = read(Path::new(path), &mut engine, &ruleset, |events, _| {
            for event in &events.list {
                let Event::Alert(alert) = event else { continue };
                let mut line = format!("{name}\t{}", comparison_line(mode, alert));
                if has_numbers {
                    line += &format!("\t{}", alert.subject.packet);
                }
                lines.insert(line);
            }
        });
        match result {
            Ok(summary) => {
                bytes += summary.bytes;
                time += summary.engine;
            }
            Err(error) => eprintln!("{error}"),
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
