//! Small captures, each with the rules that must find its attack. They need the folder `../shared/data/ips-cases` next to
//! the repository.
//!
//! Each case is read in both modes. A case is right if each of its rules raises an alert. In mode `ips` a policy may drop the
//! packets of the attack, too, but only behind the evaluation of the rules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_engine::policy::Policies;
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Engine, Event, Mode, Settings};
use millrace_ips_offline::read;
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

/// Returns the folder with the cases, if it is there.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/ips-cases");
    folder.join("cases.tsv").is_file().then_some(folder)
}

/// One line of `cases.tsv`.
struct Case {
    name: String,
    /// The rules that must raise an alert.
    sids: BTreeSet<u32>,
}

fn cases(folder: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(folder.join("cases.tsv")).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let case = |line: &str| {
        let mut fields = line.split('\t');
        let name = fields.next().unwrap().to_owned();
        let sids = fields.nth(1).unwrap().trim_matches(['{', '}']);
        Case {
            name,
            sids: sids.split(',').map(|sid| sid.trim().parse().unwrap()).collect(),
        }
    };
    lines.map(case).collect()
}

/// The outcome of a case in a mode.
#[derive(Debug, Default)]
struct Outcome {
    sids: BTreeSet<u32>,
    /// The names of the policies that dropped packets.
    refusals: BTreeSet<&'static str>,
    anomalies: BTreeSet<&'static str>,
}

impl Outcome {
    fn is_right(&self, case: &Case) -> bool {
        self.sids.is_superset(&case.sids)
    }
}

/// Reads a case, in mode `ips` with the policies of the profile "closed".
fn outcome(folder: &Path, case: &Case, mode: Mode) -> Outcome {
    let rules = std::fs::read(folder.join(format!("{}.rules", case.name))).unwrap();
    let mut set = RuleSet::default();
    let file = files::parse(Syntax::Suricata, "rules", &rules);
    set.add("rules", file, &Variables::usual());
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    assert_eq!(
        (set.refusals(), &refusals[..]),
        (&[][..], &[][..]),
        "{}",
        case.name
    );
    let settings = Settings {
        mode,
        policies: Policies::closed(),
        records: true,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    let mut outcome = Outcome::default();
    let path = folder.join(format!("{}.pcap", case.name));
    let result = read(&path, &mut engine, &rules, |events, _| {
        for event in &events.list {
            match event {
                Event::Alert(alert) => {
                    outcome.sids.insert(alert.sid);
                }
                Event::Drop(_, DropReason::Policy(cause), _) => {
                    outcome.refusals.insert(cause.name());
                }
                Event::Transaction(transaction) => outcome.anomalies.extend(&transaction.anomalies),
                Event::Anomaly(_, _, anomalies) => outcome.anomalies.extend(anomalies),
                _ => {}
            }
        }
    });
    result.unwrap();
    outcome
}

#[test]
fn the_rules_of_each_case_find_its_attack_in_both_modes() {
    let Some(folder) = folder() else {
        println!("../shared/data/ips-cases is not there: the cases are not read");
        return;
    };
    let mut wrong = BTreeSet::new();
    for case in cases(&folder) {
        for mode in [Mode::Ids, Mode::Ips] {
            let outcome = outcome(&folder, &case, mode);
            let is_right = outcome.is_right(&case);
            println!(
                "{} {mode:?}: {} {outcome:?}",
                case.name,
                if is_right { "right" } else { "WRONG" }
            );
            if !is_right {
                wrong.insert(format!("{} {mode:?}", case.name));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new(), "the cases that are not right");
}
