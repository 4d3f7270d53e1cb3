//! Test of a simulated run, from the command line to the record. It needs valgrind, and the daemon that `cargo build
//! -p millraced` builds beside this program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Returns true if valgrind and a current daemon are installed; prints the reason if not.
fn is_there() -> bool {
    let millraced = Path::new(env!("CARGO_BIN_EXE_millrace")).with_file_name("millraced");
    let knows = |program: &Path, option: &str| {
        let output = Command::new(program).arg(option).output();
        output.is_ok_and(|output| output.status.success())
    };
    let wanted: [(&Path, &str); 2] = [(Path::new("valgrind"), "valgrind"), (&millraced, "millraced")];
    let are_there = wanted.into_iter().all(|(program, package)| {
        let there = knows(program, "--version");
        if !there {
            eprintln!(
                "skipped: {} does not start; install or build {package}",
                program.display()
            );
        }
        there
    });
    let refusal = Command::new(&millraced).args(["--simulate", "/nowhere"]).output();
    let is_older = refusal.is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("unexpected"));
    if is_older {
        eprintln!(
            "skipped: {} is older than this test; build millraced",
            millraced.display()
        );
    }
    are_there && !is_older
}

#[test]
fn a_small_case_is_simulated_and_what_comes_of_it_says_so() {
    if !is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args([
            "profile",
            "--simulate",
            "--case",
            "one-rule",
            "--packets",
            "512",
            "--json",
            "--out",
        ])
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let runs: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &runs[0];
    assert!(
        run["label"]
            .as_str()
            .unwrap()
            .starts_with("simulated, not measured")
    );
    assert_eq!((&run["case"], &run["packets"]), (&"one-rule".into(), &512.into()));
    // Valgrind's processor has no AVX-512, which the switch detects.
    assert!(
        ["avx2", "plain"].contains(&run["model"]["simd"].as_str().unwrap()),
        "{run}"
    );
    let count = |name: &str| run["counts"][name].as_u64().unwrap();
    // A lower bound that holds for a build without optimisation, too.
    assert!(count("instructions") > 512 * 50, "{run}");
    assert!(count("data_reads") > 512 * 10 && count("branches") > 512, "{run}");
    assert!(count("l1d_read_misses") < count("data_reads") / 5, "{run}");
    assert!(count("llc_misses") <= count("l2_misses").max(512), "{run}");
    assert!(count("dtlb_misses") < count("data_reads") / 5, "{run}");
    let record = std::fs::read_to_string(dir.path().join("profile-simulated.jsonl")).unwrap();
    let kinds: Vec<String> = record
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].to_string())
        .collect();
    assert_eq!(kinds, ["\"run\"", "\"simulated\""]);
}
