//! Alerts beside the frozen answers of another engine, where `../shared/data` is beside the repository.
//!
//! The sets are (mode, protocol, endpoints, sid). The capture is not compared: the answers attribute the first packet of a
//! capture to the capture before it. docs/ips-differences.md has the reasons for what differs. With `MILLRACE_ANSWERS=all`
//! every source is read, otherwise the smallest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_ips_engine::detect::{CompileSettings, Ruleset, compile};
use millrace_ips_engine::{Engine, Event, Mode, Settings};
use millrace_ips_offline::comparison_line;
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

/// The share of the answers that must be found, and the share of other alerts that may be there, in percent.
const FOUND: f64 = 97.5;
const EXTRA: f64 = 6.0;

/// Returns the folder with the data, if it is there.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data");
    folder.join("answers").is_dir().then_some(folder)
}

/// Returns the text of a file that `xz` compressed.
fn unpack(path: &Path) -> Vec<u8> {
    let output = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .output()
        .expect("xz unpacks the data");
    assert!(output.status.success(), "{}", path.display());
    output.stdout
}

fn compiled(text: &[u8]) -> Ruleset {
    let mut variables = Variables::usual();
    variables.set("HOME_NET", "any").unwrap();
    variables.set("EXTERNAL_NET", "any").unwrap();
    let mut set = RuleSet::default();
    set.add("rules", files::parse(Syntax::Suricata, "rules", text), &variables);
    let settings = CompileSettings {
        variables,
        ..CompileSettings::default()
    };
    let (ruleset, refusals) = compile(&set, &settings);
    assert!(refusals.is_empty(), "{refusals:?}");
    ruleset
}

/// Adds the alerts on a capture to the set.
fn read(rules: &Ruleset, mode: Mode, path: &Path, found: &mut BTreeSet<String>) {
    let settings = Settings {
        mode,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    // A capture that ends in the middle of a packet is read up to there.
    let _ = millrace_ips_offline::read(path, &mut engine, rules, |events, _| {
        for event in &events.list {
            if let Event::Alert(alert) = event {
                found.insert(comparison_line(mode, alert));
            }
        }
    });
}

#[test]
fn alerts_on_public_captures_equal_the_frozen_answers() {
    let Some(data) = data() else {
        println!("../shared/data is not there: the answers are not compared");
        return;
    };
    let is_whole = std::env::var("MILLRACE_ANSWERS").is_ok_and(|value| value == "all");
    let sources: &[&str] = if is_whole {
        &["arkime", "zeek", "mercury"]
    } else {
        &["arkime"]
    };
    let rules = compiled(&std::fs::read(data.join("rules/probes.rules")).unwrap());
    for source in sources {
        let answers = unpack(&data.join(format!("answers/{source}.probes.tsv.xz")));
        let answers = String::from_utf8(answers).unwrap();
        let without_capture = |line: &str| line.split_once('\t').map(|(_, rest)| rest.to_owned());
        let expected: BTreeSet<String> = answers
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(without_capture)
            .collect();
        let mut found = BTreeSet::new();
        let mut captures: Vec<PathBuf> = std::fs::read_dir(data.join("captures").join(source))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|it| it.to_string_lossy().starts_with("pcap"))
            })
            .collect();
        captures.sort();
        for mode in [Mode::Ids, Mode::Ips] {
            captures
                .iter()
                .for_each(|path| read(&rules, mode, path, &mut found));
        }
        let percent = |count: usize| 100.0 * count as f64 / expected.len() as f64;
        let (both, extra) = (
            expected.intersection(&found).count(),
            found.difference(&expected).count(),
        );
        println!(
            "{source}: {:.2} % found, {:.2} % extra",
            percent(both),
            percent(extra)
        );
        let mut by_rule: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for line in expected.symmetric_difference(&found) {
            let sid = line.rsplit('\t').next().unwrap_or_default();
            let counts = by_rule.entry(sid).or_default();
            match expected.contains(line) {
                true => counts.0 += 1,
                false => counts.1 += 1,
            }
        }
        let mut worst: Vec<_> = by_rule.into_iter().collect();
        worst.sort_by_key(|(_, (missing, extra))| std::cmp::Reverse(missing + extra));
        for (sid, (missing, extra)) in worst.iter().take(10) {
            println!("  sid {sid}: {missing} missing, {extra} extra");
        }
        assert!(percent(both) >= FOUND && percent(extra) <= EXTRA, "{source}");
    }
}
