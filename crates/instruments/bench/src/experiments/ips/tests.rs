//! Tests of the experiment `ips`, with shell scripts in the place of `millrace`.

use super::*;

/// Returns an experiment with a program of these lines of shell.
fn experiment(folder: &Path, script: &str) -> Experiment {
    use std::os::unix::fs::PermissionsExt;

    let program = folder.join("program");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let rules = folder.join("some.rules");
    std::fs::write(&rules, ONE_RULE).unwrap();
    let captures = folder.join("captures");
    std::fs::create_dir_all(&captures).unwrap();
    super::concatenated::tests::write_one(&captures.join("one.pcap"));
    Experiment {
        program,
        before: None,
        core: 0,
        rules: rules.clone(),
        all_rules: rules,
        captures,
        repetitions: 2,
        parts: Parts::All,
    }
}

const QUICK: RunLength = RunLength {
    rounds: 1,
    seconds: 0.1,
    quick: true,
};

#[test]
fn sigint_ends_a_run_in_whichever_measurement_it_comes() {
    // The text in the arguments of the measurement that SIGINT ends; all others succeed. A shell in the background starts
    // its jobs with SIGINT ignored.
    for measurement in [
        "ips rate",
        "ips read",
        "--frame 1518",
        "--http 256",
        "--offered",
        "--attacks",
        "--reload",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            r#"case "$*" in *"{measurement}"*) exec env --default-signal=INT sh -c 'kill -INT $$';; esac
            echo '{{"packets_per_second":1,"load_seconds":1,"connections_per_second":1,"packets":1,"rules":1,"mixes":[],
                "under_load":{{"latency_us":{{"p50":1,"p999":1}}}},"attacks":{{"requests":1,"passed":0}},
                "counters":[["frames",1],["uninspected",0],["tcp_sessions",1]]}}'"#
        );
        let experiment = experiment(folder.path(), &script);
        let mut log = crate::record::Log::create(&folder.path().join("ips.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let outcome = experiment.measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress));
        let interrupted = matches!(outcome, Err(IpsBenchError::Process(ProcessError::Interrupted)));
        assert!(interrupted, "{measurement}: {outcome:?}");
    }
}

#[test]
fn a_measurement_that_fails_without_a_word_has_its_status_as_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = experiment(folder.path(), "kill -KILL $$");
    let mut log = crate::record::Log::create(&folder.path().join("ips.jsonl")).unwrap();
    let mut progress = |_: &str| {};
    experiment
        .measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress))
        .unwrap();
    let rows = crate::gated::recorder::rows_of::<IpsRecord>(log.records());
    let row = rows
        .iter()
        .find(|row| row.case == "E7 one rule: 64 B, one core")
        .unwrap();
    let reason = row.reason.as_deref().unwrap();
    assert!(
        reason.contains("nf rate ips") && reason.contains("signal: 9"),
        "{reason}"
    );
}

#[test]
fn lanes_start_when_all_of_them_have_loaded_their_rules() {
    let folder = tempfile::tempdir().unwrap();
    // A lane that may begin counts the lanes that are ready.
    let script = format!(
        r#"case "$*" in *--wait*)
            touch "{0}/ready.$$"; echo ready; read line || exit 1; set -- "{0}"/ready.*
            echo "{{\"packets_per_second\":$#}}";;
        *) echo '{{"packets_per_second":4}}';; esac"#,
        folder.path().display()
    );
    let experiment = experiment(folder.path(), &script);
    let system = System::new(experiment.builds()[0], ONE, "ips", None);
    let ratio = experiment.lanes_over_one(&system, 4, 0.1).unwrap();
    assert_eq!(ratio, 4.0);
}

#[test]
fn the_error_of_a_lane_that_cannot_load_its_rules_is_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    // Of two lanes, the second one to come fails; the other one ends when it may not begin.
    let script = format!(
        r#"case "$*" in *--wait*)
            mkdir "{0}/first" 2> /dev/null || {{ echo no memory >&2; exit 1; }}
            echo ready; read line || {{ echo no line >&2; exit 1; }};; esac
        echo '{{"packets_per_second":4}}'"#,
        folder.path().display()
    );
    let experiment = experiment(folder.path(), &script);
    let system = System::new(experiment.builds()[0], ONE, "ips", None);
    let error = experiment
        .lanes_over_one(&system, 2, 0.1)
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("fails: no memory"), "{error}");
}

#[test]
fn what_cannot_be_measured_has_the_names_and_the_gates_of_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = Experiment {
        program: folder.path().join("no-program"),
        before: None,
        core: 0,
        rules: folder.path().join("no.rules"),
        all_rules: folder.path().join("no.rules"),
        captures: folder.path().join("no-captures"),
        repetitions: 2,
        parts: Parts::All,
    };
    let mut log = crate::record::Log::create(&folder.path().join("ips.jsonl")).unwrap();
    let mut progress = |_: &str| {};
    experiment
        .measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress))
        .unwrap();
    let rows = crate::gated::recorder::rows_of::<IpsRecord>(log.records());
    let gate = |name: &str| {
        let row = rows.iter().find(|row| row.case == name);
        row.unwrap_or_else(|| panic!("no row {name}")).gate.clone()
    };
    for (name, wanted) in [
        ("E7 one rule: 64 B, one core", "at least 8 Mpps"),
        ("E7 14,000 rules: 64 B, one core", "at least 4 Mpps"),
        (
            "RFC 9411 one rule: 1 KiB, connections",
            "at least 100000 a second",
        ),
        ("RFC 9411 14,000 rules: 64 KiB, bodies", ""),
        ("load, one rule: half, p99.9", "at most 200 us"),
        ("load, one rule: twice, closed, not inspected", "0 packets"),
        ("attacks, 14,000 rules: alone, passed", "0"),
        ("RFC 9411 7.5, one rule: followed", "at least 100 %"),
        ("reload of all rules: time", "at most 30 s"),
        ("engine, web: ratio to suricata", "at least 1.50"),
        (
            "captures, 14,000 rules: times as fast as the earlier build",
            "at least 1.65 times",
        ),
    ] {
        assert_eq!(gate(name), wanted, "{name}");
    }
    assert!(rows.iter().all(|row| row.reached.is_none()));
}

#[test]
fn damaged_rules_are_an_error_and_not_an_empty_set() {
    let folder = tempfile::tempdir().unwrap();
    let (packed, to) = (folder.path().join("a.rules.xz"), folder.path().join("a.rules"));
    std::fs::write(&packed, "no archive").unwrap();
    assert!(unpacked(&packed, &to).is_err());
    assert!(!to.exists());
}

/// Returns the rows of a run.
fn rows_of(experiment: &Experiment, folder: &Path) -> Vec<crate::gated::Row> {
    let mut log = crate::record::Log::create(&folder.join("ips.jsonl")).unwrap();
    let mut progress = |_: &str| {};
    experiment
        .measure_all(&mut Recorder::new(QUICK, &mut log, &mut progress))
        .unwrap();
    crate::gated::recorder::rows_of::<IpsRecord>(log.records())
}

fn row<'a>(rows: &'a [crate::gated::Row], name: &str) -> &'a crate::gated::Row {
    let row = rows.iter().find(|row| row.case == name);
    row.unwrap_or_else(|| panic!("no row {name}"))
}

#[test]
fn an_earlier_build_has_rows_without_gates_and_each_rate_is_compared_with_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    // The output of a build whose rates are all of this number.
    let output = |rate: u32| {
        format!(
            r#"echo '{{"packets_per_second":{rate},"load_seconds":1,"connections_per_second":{rate},"packets":{rate},"rules":9,
                "mixes":[{{"mix":"web","megabits_per_second":{rate}}}],
                "under_load":{{"latency_us":{{"p50":1,"p999":1}},"reload":{{"lost":0,"seconds":1,"exchange_us":1,
                "latency_us":{{"p999":1}}}}}},"attacks":{{"requests":1,"passed":0}},
                "counters":[["frames",1],["uninspected",0],["tcp_sessions",1]]}}'"#
        )
    };
    // The earlier build does not know objects of 4 KiB.
    let unknown = r#"case "$*" in *"--http 4"*) echo "unknown size" >&2; exit 2;; esac"#;
    let earlier_folder = folder.path().join("earlier");
    std::fs::create_dir(&earlier_folder).unwrap();
    let earlier = experiment(&earlier_folder, &format!("{unknown}\n{}", output(2)));
    let experiment = Experiment {
        before: Some(earlier.program),
        ..experiment(folder.path(), &output(4))
    };
    let rows = rows_of(&experiment, folder.path());
    for (name, unit) in [
        ("E7 one rule: 64 B, one core", "Mpps"),
        ("E7 14,000 rules: 1518 B, one core", "Mpps"),
        ("RFC 9411 one rule: 1 KiB, connections", "a second"),
        ("RFC 9411 7.5, 14,000 rules: one core", "Mpps"),
        ("engine, web: one core", "Mbit/s"),
    ] {
        let (this, earlier) = (row(&rows, name), row(&rows, &format!("{name}, earlier build")));
        assert_eq!(this.reached.unwrap() / earlier.reached.unwrap(), 2.0, "{name}");
        assert_eq!(
            (earlier.gate.as_str(), earlier.unit.as_str()),
            ("", unit),
            "{name}"
        );
        let over = row(&rows, &format!("{name}, over earlier build"));
        assert_eq!((over.reached, over.met), (Some(2.0), Some(true)), "{name}");
        assert_eq!(over.gate, "at least 0.9500 times");
    }
    // Each row of this build has one of the earlier build, except its ratios to it.
    // Programs that do nothing may have no user time.
    let left_out = |name: &str| {
        name.contains("earlier build") || name.contains(": 4 KiB") || name.starts_with("captures")
    };
    let measured = rows.iter().filter(|row| row.reached.is_some());
    for this in measured.filter(|row| !left_out(&row.case)) {
        let earlier = row(&rows, &format!("{}, earlier build", this.case));
        assert!(earlier.reached.is_some(), "{}", this.case);
    }
    let name = "RFC 9411 14,000 rules: 4 KiB, connections";
    assert_eq!(row(&rows, name).reached, Some(4.0));
    let missing = row(&rows, &format!("{name}, earlier build"));
    assert!(
        missing.reason.as_deref().unwrap().contains("unknown size"),
        "{missing:?}"
    );
    assert_eq!(row(&rows, &format!("{name}, over earlier build")).reached, None);
}

#[test]
fn captures_are_read_by_both_builds_and_their_user_times_compared() {
    let folder = tempfile::tempdir().unwrap();
    // A build that takes some user time, and prints the size of the capture, and a line for each argument.
    let script = r#"for file; do :; done
        i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done
        stat -c %s "$file"; for argument; do echo "$argument"; done"#;
    let program = experiment(folder.path(), script);
    let experiment = Experiment {
        before: Some(program.program.clone()),
        parts: Parts::Captures,
        ..program
    };
    let rows = rows_of(&experiment, folder.path());
    let reached = |what: &str| {
        row(&rows, &format!("captures, 14,000 rules: {what}"))
            .reached
            .unwrap()
    };
    // ips read --mode ids --set A --set B --rules FILE CAPTURE
    assert_eq!(reached("alerts"), 12.0);
    assert_eq!(reached("alerts, earlier build"), 12.0);
    let (this, earlier) = (reached("user time"), reached("user time, earlier build"));
    assert!(this > 0.0 && earlier > 0.0);
    let faster = row(
        &rows,
        "captures, 14,000 rules: times as fast as the earlier build",
    );
    assert_eq!(faster.reached, Some(earlier / this));
    assert_eq!(faster.gate, "at least 1.65 times");
    assert!(faster.asked.starts_with("2 times, "), "{}", faster.asked);
    let bytes = reached("rate by user time") * this / 8e-6;
    assert!(
        (bytes - 2.0 * super::concatenated::tests::BYTES as f64).abs() < 1.0,
        "{bytes}"
    );
}
