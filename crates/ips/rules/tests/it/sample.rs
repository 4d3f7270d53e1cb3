//! The frozen sample of public rules: how many are accepted, and that each is printed as it was read.

use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_ips_rules::{Rule, RuleSet, Syntax, Variables, files};

/// Returns the unpacked text of a file of `../shared/data/rules`, or prints the reason why it is not there.
fn sample(name: &str) -> Option<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/rules");
    let path: PathBuf = root.join(name);
    let output = Command::new("xz").arg("-dc").arg(&path).output();
    match output {
        Ok(output) if output.status.success() => Some(output.stdout),
        _ => {
            eprintln!("skipped: xz or {} is not there", path.display());
            None
        }
    }
}

/// Reads a file, prints the figures, and checks the share of accepted rules and the round trip of each.
fn check(syntax: Syntax, name: &str, text: &[u8], expected: usize) {
    let mut variables = Variables::usual();
    variables.set("HOME_NET", "any").unwrap();
    let file = files::parse(syntax, name, text);
    for parsed in file.rules.iter().chain(&file.disabled) {
        let printed = parsed.rule.to_string();
        let again =
            Rule::parse(syntax, "printed", &printed).unwrap_or_else(|refusal| panic!("{refusal}\n{printed}"));
        assert_eq!(again, parsed.rule, "{printed}");
    }
    let mut set = RuleSet::default();
    set.add(name, file, &variables);
    for refusal in set.refusals() {
        eprintln!("{refusal}");
    }
    let (loaded, refused) = (set.rules().len(), set.refusals().len());
    let (disabled, disabled_refused) = set.disabled();
    eprintln!(
        "{name}: {loaded} loaded, {refused} refused; {disabled} disabled, and {disabled_refused} that would be refused"
    );
    assert_eq!(
        loaded + refused,
        expected,
        "every enabled rule is loaded or refused"
    );
    assert!(loaded * 1000 >= expected * 999, "99.9 % are loaded");
}

#[test]
fn the_rules_for_suricata_are_read_and_printed_again() {
    if let Some(text) = sample("et-open-suricata5-2023-05-15.rules.xz") {
        check(Syntax::Suricata, "suricata5", &text, 31_080);
    }
}

#[test]
fn the_frozen_fourteen_thousand_are_read_and_printed_again() {
    if let Some(text) = sample("et-open-suricata5-2023-05-15-14k.rules.xz") {
        check(Syntax::Suricata, "14k", &text, 14_000);
    }
}

#[test]
fn the_rules_for_snort_2_9_are_read_and_printed_again() {
    if let Some(text) = sample("et-open-snort29-2021-03-03.rules.xz") {
        check(Syntax::Snort2, "snort29", &text, 12_099);
    }
}

#[test]
fn the_sample_in_the_repository_is_read_and_printed_again() {
    let text = include_bytes!("../data/et-open-sample.rules");
    check(Syntax::Suricata, "et-open-sample.rules", text, 200);
}

#[test]
fn the_shipped_rules_of_snort_2_are_read_and_printed_again() {
    let text = include_bytes!("../data/et-open-snort29-sample.rules");
    check(Syntax::Snort2, "et-open-snort29-sample.rules", text, 120);
}

#[test]
fn the_rules_of_snort_3_are_read_and_printed_again() {
    check(
        Syntax::Snort3,
        "snort3.rules",
        include_bytes!("../data/snort3.rules"),
        40,
    );
}
