//! Comparison of alerts with the frozen answers of another engine. It needs the folder `../shared/data` next to
//! the repository.
//!
//! The sets are (mode, protocol, endpoints, sid). Alerts are also counted: the number of captures in which each of them is raised.
//! The captures themselves are not compared: the answers attribute the last alerts of flows that end in idleness to a later one.
//! With `MILLRACE_ANSWERS=all` every source is read, otherwise the smallest; the table of
//! differences by reason in docs/ips-differences.md is then compared, too, and written with `MILLRACE_BLESS=1`. With
//! `MILLRACE_DIFFERENCES=FILE` each difference is written to a file: missing or extra, the captures of its flow, the reason, and
//! the alert.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_ips_engine::detect::{CompileSettings, DetectSettings, Rule, Ruleset, compile};
use millrace_ips_engine::policy::{Cause, Policies, Policy};
use millrace_ips_engine::{Engine, Event, Events, Mode, Settings};
use millrace_ips_offline::{comparison_line, finish, read_part};
use millrace_ips_rules::{Refusal, RuleSet, Syntax, Variables, files};

/// The share of the answers that must be found, and the share of other alerts that may be there, in percent.
const FOUND: f64 = 98.9;
const EXTRA: f64 = 1.5;
/// The share of the answers of all captures that may be missing, and the share of other alerts, if they are counted by capture, in
/// percent.
const MISSING_COUNTED: f64 = 1.4;
const EXTRA_COUNTED: f64 = 1.5;
/// The least share of the public rules that load, in percent.
const LOADED: f64 = 99.9;

/// Alerts of a packet in a run that keeps all of them.
const UNLIMITED: usize = 100_000;
/// The captures during which the reference ended idle flows: it attributes the last alerts of such flows to them.
const IDLE_SEARCHES: &[&str] = &[
    "dd4a132843d09700",
    "8c71b50eb9ea6a6a",
    "a14681ca4964ea32",
    "d361c2ef1e0e22ad",
    "fdb64642de04ae04",
    "222af8ca41ae72ac",
    "1ebd87ddac2bb0d7",
    "8b54bbf5aa77f58c",
    "933cae5dd8285075",
    "a6129637c63b061f",
    "88e588a1037c3573",
];
/// The page with the table of differences, and the lines around the table.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/ips-differences.md");
const BEGIN: &str = "<!-- differences by reason: begin -->\n";
const END: &str = "<!-- differences by reason: end -->";

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

/// Returns the compiled rules, and those that are refused.
fn compiled(text: &[u8]) -> (Ruleset, Vec<Refusal>) {
    let mut variables = Variables::usual();
    variables.set("HOME_NET", "any").unwrap();
    variables.set("EXTERNAL_NET", "any").unwrap();
    let mut set = RuleSet::default();
    set.add("rules", files::parse(Syntax::Suricata, "rules", text), &variables);
    let settings = CompileSettings {
        variables,
        ..CompileSettings::default()
    };
    compile(&set, &settings)
}

/// The reason of a difference, as far as the alerts themselves show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Limit,
    EarlierCapture,
    OtherProtocol,
    Unseen,
    StreamWindow,
    Open,
}

impl Reason {
    fn words(self) -> &'static str {
        match self {
            Reason::Limit => "the packet has more than 15 alerts, and others are among the 15",
            Reason::EarlierCapture => {
                "the connection is also in another capture of the run, whose state the reference still has"
            }
            Reason::OtherProtocol => {
                "protocols other than TCP and UDP: tunnels that only one of both decodes, fragments"
            }
            Reason::Unseen => {
                "one of both has no alert on the flow in this mode: it was dropped, or is in a tunnel"
            }
            Reason::StreamWindow => "content of the stream, inspected in other windows",
            Reason::Open => "open",
        }
    }
}

/// The alerts of an engine on the captures of a source.
#[derive(Default)]
struct Found {
    /// Alert lines of a run with the limit on alerts of a packet.
    lines: BTreeSet<String>,
    /// Alert lines of a run without that limit.
    unlimited: BTreeSet<String>,
    /// Flows (mode, protocol, endpoints) with a packet that has more alerts than the limit.
    crowded: BTreeSet<String>,
    /// Captures by flow.
    captures: BTreeMap<String, BTreeSet<PathBuf>>,
    /// Captures by alert line, of the run with the limit.
    counted: BTreeMap<String, BTreeSet<PathBuf>>,
}

/// Returns the flow of a line: all but the sid.
fn flow(line: &str) -> &str {
    line.rsplit_once('\t').map_or(line, |(flow, _)| flow)
}

impl Found {
    /// Adds the alerts on the captures of a run; `has_reasons` is true if differences are sorted by reason.
    fn read(&mut self, rules: &Ruleset, mode: Mode, captures: &[PathBuf], has_reasons: bool) {
        let limit = DetectSettings::default().alerts;
        let limits = [limit, UNLIMITED];
        for &alerts in &limits[..1 + usize::from(has_reasons)] {
            let settings = Settings {
                mode,
                // The reference seldom searches for idle flows, whatever the times of packets are.
                idle_search: 0,
                detect: DetectSettings {
                    alerts,
                    ..DetectSettings::default()
                },
                // The reference parses ambiguous messages in one way, and goes on.
                policies: Policies::default().with(Cause::AmbiguousMessage, Policy::Ignore),
                ..Settings::default()
            };
            let mut engine = Engine::new(settings, [1, 2]);
            let mut previous = captures[0].as_path();
            for path in captures {
                // A capture that ends in the middle of a packet is read up to there.
                let result = read_part(path, &mut engine, rules, |events, _| {
                    self.add(mode, alerts, events, [path, previous]);
                });
                previous = path;
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                if let Ok(summary) = result
                    && IDLE_SEARCHES.contains(&&*name)
                {
                    let mut events = Events::default();
                    engine.expire(rules, summary.last, &mut events);
                    self.add(mode, alerts, &events, [path; 2]);
                }
            }
            let last = Path::new("end of the run");
            finish(&mut engine, rules, |events, _| {
                self.add(mode, alerts, events, [last; 2]);
            });
        }
    }

    /// Adds the alerts of a frame, at most `alerts` of each packet. `previous` is the capture before, to which the answers
    /// attribute the first packet.
    fn add(&mut self, mode: Mode, alerts: usize, events: &Events, [path, previous]: [&Path; 2]) {
        let limit = DetectSettings::default().alerts;
        let alerts_of = events.list.iter().filter_map(|event| match event {
            Event::Alert(alert) => Some((comparison_line(mode, alert), alert.subject.packet)),
            _ => None,
        });
        let numbered: Vec<(String, u64)> = alerts_of.collect();
        for (line, packet) in numbered.iter().filter(|_| alerts == limit) {
            let capture = if *packet == 1 { previous } else { path };
            let captures = self.counted.entry(line.clone()).or_default();
            captures.insert(capture.to_owned());
        }
        let new: Vec<String> = numbered.into_iter().map(|(line, _)| line).collect();
        for line in &new {
            let captures = self.captures.entry(flow(line).to_owned()).or_default();
            captures.insert(path.to_owned());
            let is_of_flow = |other: &&String| flow(other) == flow(line);
            if alerts == UNLIMITED && new.iter().filter(is_of_flow).count() > limit {
                self.crowded.insert(flow(line).to_owned());
            }
        }
        match alerts == limit {
            true => self.lines.extend(new),
            false => self.unlimited.extend(new),
        }
    }

    /// Returns the reason for a difference. `flows` are the flows of the answers, `streams` the rules over streams.
    fn reason(&self, line: &str, flows: &BTreeSet<&str>, streams: &BTreeSet<u32>) -> Reason {
        let flow = flow(line);
        let is_extra = self.lines.contains(line);
        let is_known = |flow: &str| self.captures.contains_key(flow);
        let sid = line
            .rsplit('\t')
            .next()
            .and_then(|sid| sid.parse().ok())
            .unwrap_or(0);
        let protocol = line.split('\t').nth(1).unwrap_or_default();
        if is_extra && self.crowded.contains(flow) || !is_extra && self.unlimited.contains(line) {
            Reason::Limit
        } else if self.captures.get(flow).is_some_and(|captures| captures.len() > 1) {
            Reason::EarlierCapture
        } else if protocol != "TCP" && protocol != "UDP" {
            Reason::OtherProtocol
        } else if is_extra && !flows.contains(flow) || !is_extra && !is_known(flow) {
            Reason::Unseen
        } else if streams.contains(&sid) && protocol == "TCP" {
            Reason::StreamWindow
        } else {
            Reason::Open
        }
    }
}

/// Compares the table of differences with the page, or writes it.
fn check_table(total: usize, reasons: &BTreeMap<Reason, (usize, usize)>) {
    let percent = |count: usize| 100.0 * count as f64 / total as f64;
    let mut table = String::from("| missing | extra | reason |\n| --- | --- | --- |\n");
    for (reason, (missing, extra)) in reasons {
        table += &format!(
            "| {missing} ({:.2} %) | {extra} ({:.2} %) | {} |\n",
            percent(*missing),
            percent(*extra),
            reason.words()
        );
    }
    let missing = reasons.values().map(|(missing, _)| missing).sum::<usize>();
    let extra = reasons.values().map(|(_, extra)| extra).sum::<usize>();
    table += &format!(
        "| **{missing} ({:.2} %)** | **{extra} ({:.2} %)** | all, of {total} answers |\n",
        percent(missing),
        percent(extra)
    );
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (known, after) = rest.split_once(END).unwrap();
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(
            known, table,
            "{PAGE} is not up to date; MILLRACE_BLESS=1 writes it"
        );
    }
}

/// Returns true if all sources are read, and the sources to read.
fn sources() -> (bool, &'static [&'static str]) {
    match std::env::var("MILLRACE_ANSWERS").is_ok_and(|value| value == "all") {
        true => (true, &["arkime", "zeek", "mercury"]),
        false => (false, &["arkime"]),
    }
}

/// Returns the answers of a source for a set of rules, without the name of the capture, each with the number of captures.
fn answers(data: &Path, source: &str, rules: &str) -> BTreeMap<String, usize> {
    let text = unpack(&data.join(format!("answers/{source}.{rules}.tsv.xz")));
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut counts = BTreeMap::new();
    for (_, line) in lines.filter_map(|line| line.split_once('\t')) {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Returns the number of alerts of the answers that are missing, and of those that are extra, counted by capture.
fn counted(expected: &BTreeMap<String, usize>, found: &Found) -> (usize, usize) {
    let lines: BTreeSet<&String> = expected.keys().chain(found.counted.keys()).collect();
    let differences = lines.into_iter().map(|line| {
        let expected = expected.get(line).copied().unwrap_or(0);
        let found = found.counted.get(line).map_or(0, BTreeSet::len);
        (expected.saturating_sub(found), found.saturating_sub(expected))
    });
    differences.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Returns the position of a folder in the order in which the reference read a source. The answers show the
/// order: they attribute the first packet of a capture to the capture before it.
fn folder_order(path: &str) -> usize {
    const ZEEK: &[&str] = &[
        "Traces",
        "ftp",
        "dhcp",
        "modbus",
        "http",
        "261",
        "ldap",
        "chksums",
        "dce-rpc",
        "krb",
        "igmp",
        "gnutella",
        "mobile-ipv6",
        "dns",
        "contentline",
        "finger",
        "icmp",
        "dnp3",
        "bittorrent",
        "dnssec",
        "communityid",
        "ipv4",
    ];
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    ZEEK.iter().position(|name| *name == folder).unwrap_or(0)
}

/// Returns the captures of a source that the reference could read, in the order in which it read them: folder by folder,
/// by name in each. Flows continue from one capture to the next.
fn captures(data: &Path, source: &str) -> Vec<PathBuf> {
    let list = std::fs::read_to_string(data.join(format!("answers/{source}.captures.tsv"))).unwrap();
    // The digest of the file, and its path in the source.
    let mut rows: Vec<(&str, &str)> = list
        .lines()
        .filter(|line| !line.starts_with('#') && line.ends_with("\tyes"))
        .filter_map(|line| {
            let mut fields = line.split('\t');
            Some((fields.next()?, fields.nth(1)?))
        })
        .collect();
    rows.sort_by_key(|(_, path)| (folder_order(path), *path));
    let files = std::fs::read_dir(data.join("captures").join(source)).unwrap();
    let files: BTreeMap<String, PathBuf> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|kind| kind.to_string_lossy().starts_with("pcap"))
        })
        .filter_map(|path| Some((path.file_stem()?.to_string_lossy().into_owned(), path)))
        .collect();
    let path = |(digest, _): (&str, &str)| files.get(digest).cloned().expect(digest);
    rows.into_iter().map(path).collect()
}

#[test]
fn alerts_of_public_rules_equal_the_frozen_answers() {
    let Some(data) = data() else {
        println!("../shared/data is not there: the answers are not compared");
        return;
    };
    let (rules, refusals) = compiled(&unpack(&data.join("rules/et-open-suricata5-2023-05-15.rules.xz")));
    let share = 100.0 * rules.rules.len() as f64 / (rules.rules.len() + refusals.len()) as f64;
    println!("{} rules, {} refused", rules.rules.len(), refusals.len());
    assert!(share >= LOADED, "{refusals:?}");
    let (mut total, mut missing, mut extra) = (0, 0, 0);
    for source in sources().1 {
        let expected = answers(&data, source, "et-open")
            .into_keys()
            .collect::<BTreeSet<_>>();
        let mut found = Found::default();
        for mode in [Mode::Ids, Mode::Ips] {
            found.read(&rules, mode, &captures(&data, source), false);
        }
        for line in expected.symmetric_difference(&found.lines) {
            println!("{source}: only one of both has {line}");
        }
        total += expected.len();
        missing += expected.difference(&found.lines).count();
        extra += found.lines.difference(&expected).count();
    }
    println!("{total} answers, {missing} missing, {extra} extra");
    // At most one in 200.
    assert!(total > 0 && 200 * missing <= total && 200 * extra <= total);
}

#[test]
fn alerts_on_public_captures_equal_the_frozen_answers() {
    let Some(data) = data() else {
        println!("../shared/data is not there: the answers are not compared");
        return;
    };
    let (is_whole, sources) = sources();
    let (rules, refusals) = compiled(&std::fs::read(data.join("rules/probes.rules")).unwrap());
    assert!(refusals.is_empty(), "{refusals:?}");
    let on_stream = |rule: &&Rule| rule.on_stream && !rule.payload.is_empty();
    let streams: BTreeSet<u32> = rules
        .rules
        .iter()
        .filter(on_stream)
        .map(|rule| rule.sid)
        .collect();
    let mut reasons = BTreeMap::new();
    let mut differences = String::new();
    let mut total = 0;
    for source in sources {
        let counts = answers(&data, source, "probes");
        let expected: BTreeSet<String> = counts.keys().cloned().collect();
        let mut found = Found::default();
        let captures = captures(&data, source);
        for mode in [Mode::Ids, Mode::Ips] {
            found.read(&rules, mode, &captures, is_whole);
        }
        let percent = |count: usize| 100.0 * count as f64 / expected.len() as f64;
        let (both, extra) = (
            expected.intersection(&found.lines).count(),
            found.lines.difference(&expected).count(),
        );
        println!(
            "{source}: {:.2} % found, {:.2} % extra",
            percent(both),
            percent(extra)
        );
        let alerts: usize = counts.values().sum();
        let (missing, more) = counted(&counts, &found);
        let share = |count: usize| 100.0 * count as f64 / alerts as f64;
        println!("  counted by capture: {alerts}, {missing} missing, {more} extra");
        assert!(
            share(missing) <= MISSING_COUNTED && share(more) <= EXTRA_COUNTED,
            "{source}"
        );
        let mut by_rule: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let flows: BTreeSet<&str> = expected.iter().map(|line| flow(line)).collect();
        for line in expected.symmetric_difference(&found.lines) {
            let sid = line.rsplit('\t').next().unwrap_or_default();
            let reason = found.reason(line, &flows, &streams);
            let kind = if expected.contains(line) {
                "missing"
            } else {
                "extra"
            };
            let captures = found.captures.get(flow(line)).into_iter().flatten();
            let names: Vec<_> = captures.filter_map(|path| path.file_stem()?.to_str()).collect();
            differences += &format!("{kind}\t{}\t{reason:?}\t{line}\n", names.join(","));
            for counts in [
                by_rule.entry(sid).or_default(),
                reasons.entry(reason).or_insert((0, 0)),
            ] {
                match expected.contains(line) {
                    true => counts.0 += 1,
                    false => counts.1 += 1,
                }
            }
        }
        total += expected.len();
        let mut worst: Vec<_> = by_rule.into_iter().collect();
        worst.sort_by_key(|(_, (missing, extra))| std::cmp::Reverse(missing + extra));
        for (sid, (missing, extra)) in worst.iter().take(10) {
            println!("  sid {sid}: {missing} missing, {extra} extra");
        }
        if let Some(path) = std::env::var_os("MILLRACE_DIFFERENCES") {
            std::fs::write(path, &differences).unwrap();
        }
        assert!(percent(both) >= FOUND && percent(extra) <= EXTRA, "{source}");
    }
    if is_whole {
        check_table(total, &reasons);
    }
}
