//! Tests of `millrace ips`, which needs no daemon.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `millrace ips` with these arguments.
fn ips(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command
        .current_dir(folder)
        .arg("ips")
        .args(arguments)
        .output()
        .unwrap()
}

/// Returns a folder with a rule file in which two of four rules are wrong.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let rules = "alert http $HOME_NET any -> any any (msg:\"one\"; http.uri; content:\"x\"; sid:1; rev:2;)\n\
        alert tcp $INSIDE any -> any any (sid:2;)\n\
        alert tcp any any -> any any (lua:x.lua; sid:3;)\n\
        #alert tcp any any -> any any (sid:4;)\n";
    std::fs::write(folder.path().join("a.rules"), rules).unwrap();
    folder
}

#[test]
fn check_counts_rules_and_names_each_that_is_refused() {
    let folder = folder();
    let output = ips(folder.path(), &["check", "a.rules"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("a.rules:2:1: sid 2: source addresses: the variable $INSIDE is not set"),
        "{text}"
    );
    assert!(text.contains("a.rules:3:31: sid 3: lua: not supported"), "{text}");
    assert!(text.contains("1 loaded, 2 refused"), "{text}");
    assert!(
        !ips(folder.path(), &["check", "--strict", "a.rules"])
            .status
            .success()
    );

    let output = ips(
        folder.path(),
        &["check", "a.rules", "--set", "INSIDE=10.0.0.0/8", "--json"],
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (report["loaded"].as_u64(), report["refused"].as_u64()),
        (Some(2), Some(1))
    );
    assert_eq!(report["refusals"][0]["option"], "lua");
    assert_eq!(report["reasons"][0]["reason"], "not supported");
}

#[test]
fn explain_says_in_words_which_conditions_a_rule_has() {
    let folder = folder();
    let output = ips(folder.path(), &["explain", "1", "--rules", "a.rules"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("the normalised URI of the HTTP request contains \"x\""),
        "{text}"
    );
    let output = ips(folder.path(), &["explain", "3", "--rules", "a.rules"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("sid 3 is refused: a.rules:3:31"), "{text}");
}

#[test]
fn import_prints_variables_and_rule_files_as_toml() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "vars:\n  address-groups:\n    HOME_NET: \"[10.0.0.0/8]\"\ndefault-rule-path: /rules\nrule-files:\n  - a.rules\n";
    std::fs::write(folder.path().join("suricata.yaml"), yaml).unwrap();
    let output = ips(folder.path(), &["import", "suricata.yaml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "[ips]\nrule_files = [\"/rules/a.rules\"]\n\n[ips.variables]\n\"HOME_NET\" = \"[10.0.0.0/8]\"\n"
    );
}
