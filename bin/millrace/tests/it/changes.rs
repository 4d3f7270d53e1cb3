//! Tests of `apply`, `confirm`, `diff` and `rollback`.

use millrace_api::fake::FakeServer;
use serde_json::Value;

use crate::harness::{committed, json, refused, stdout, user};

#[test]
fn a_file_with_very_many_mistakes_is_refused_with_the_first_twenty_and_a_count() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    let mistakes: String = (0..45).map(|number| format!("colour{number} = 1\n")).collect();
    std::fs::write(&file, mistakes).unwrap();
    let text = refused(&server, &format!("apply {}", file.display()), 1);
    assert_eq!(
        text.lines().filter(|line| line.contains("colour")).count(),
        20,
        "{text}"
    );
    assert!(text.ends_with("and 25 more errors\n"), "{text}");
}

#[test]
fn a_configuration_is_shown_applied_compared_and_taken_back() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.toml");
    let shown = stdout(&server, "show config");
    std::fs::write(&file, shown.replace("number = 2", "number = 7")).unwrap();
    let file = file.display();
    assert_eq!(
        stdout(&server, &format!("diff {file}")),
        "~ bridge br0 port h2 number: 2 -> 7\n"
    );
    assert!(refused(&server, &format!("diff {file} 1"), 1).contains("not the number of a revision"));
    assert!(refused(&server, "diff /nothing.toml", 1).contains("cannot read /nothing.toml"));
    let dry = stdout(&server, &format!("apply {file} --dry-run"));
    let end = format!("dry run: revision 1 stays in force\n{file}: 1 bridge, 2 ports\n");
    assert!(dry.ends_with(&end), "{dry}");
    let shortfall = "! /bridge/br0/port/h2: the link is down\n  to fix it: connect the other end\n";
    let applied = committed(&server, &format!("apply {file} -m seven"));
    assert!(
        applied.ends_with(&format!("revision 2\n{shortfall}")),
        "{applied}"
    );
    assert!(committed(&server, &format!("apply {file}")).contains("nothing changes"));
    assert_eq!(stdout(&server, "diff"), "~ bridge br0 port h2 number: 2 -> 7\n");
    assert_eq!(
        stdout(&server, "diff 2 1"),
        "~ bridge br0 port h2 number: 7 -> 2\n"
    );
    let history = json(&server, "show history");
    assert_eq!(
        (
            &history["revisions"][0]["author"],
            &history["revisions"][0]["comment"]
        ),
        (&format!("{} (tester)", user()).into(), &"seven".into())
    );
    let back = committed(&server, "rollback 1");
    assert!(back.ends_with(&format!("revision 3\n{shortfall}")), "{back}");
    assert_eq!(stdout(&server, "show config"), shown);
    assert_eq!(stdout(&server, "show config --revision 3"), shown);
    assert!(refused(&server, "rollback 9", 1).contains("revision 9 does not exist"));
    assert!(refused(&server, &format!("apply {file} --expect 1"), 1).contains("at revision 3"));
}

#[test]
fn a_change_is_waited_for_until_it_runs_unless_it_is_not_wanted() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.toml");
    let apply = |name: &str, options: &str| {
        std::fs::write(&file, format!("[[bridge]]\nname = \"{name}\"\n")).unwrap();
        format!("apply {} {options}", file.display())
    };
    // The first status request after a commit still shows the old revision, and the second one the new revision before
    // its problem.
    assert!(stdout(&server, &apply("br1", "--wait 0")).ends_with("revision 2\n"));
    assert!(stdout(&server, "show status").contains("revision 2 desired, 1 running, being changed"));
    let waited: Value = serde_json::from_str(&committed(&server, &apply("br2", "--json"))).unwrap();
    assert_eq!(
        (
            &waited["revision"]["number"],
            &waited["status"]["running_revision"]
        ),
        (&3.into(), &3.into()),
        "{waited}"
    );
    assert_eq!(waited["status"]["problems"][0]["message"], "the link is down");
    let not_waited = json(&server, &apply("br3", "--wait 0"));
    assert_eq!(not_waited["status"], Value::Null);
    assert!(refused(&server, "apply x --wait 9999", 2).contains("0s to 1h"));
}

#[test]
fn a_change_that_this_machine_could_not_start_with_is_refused_by_its_key() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.toml");
    std::fs::write(&file, "[system]\nworker_cores = [900]\n").unwrap();
    for options in ["", "--dry-run"] {
        let text = refused(&server, &format!("apply {} {options}", file.display()), 1);
        assert!(
            text.contains("/system/worker_cores/0: there is no core 900"),
            "{text}"
        );
    }
}

#[test]
fn a_change_waits_to_be_confirmed_or_cancelled() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.json");
    std::fs::write(&file, r#"{"bridge": [{"name": "br7"}]}"#).unwrap();
    let text = committed(&server, &format!("apply {} --confirm-within 600", file.display()));
    assert!(text.contains("unless confirmed: millrace confirm 2"), "{text}");
    assert!(stdout(&server, "show status").contains("revision 2 is rolled back at "));
    assert!(refused(&server, "rollback 1", 1).contains("to fix it: confirm it with `millrace confirm`"));
    // A confirmation makes no revision that could have a comment.
    assert!(refused(&server, "confirm 2 -m tested", 2).contains("--cancel"));
    assert_eq!(
        stdout(&server, "confirm --cancel -m wrong"),
        "revision 3: cancelled, back to 1\n"
    );
    committed(&server, &format!("apply {} --confirm-within 600", file.display()));
    assert_eq!(stdout(&server, "confirm 4"), "revision 4 is confirmed\n");
    assert!(refused(&server, "confirm", 1).contains("no revision waits"));
}

#[test]
fn a_file_is_compared_and_a_rollback_refused_while_a_revision_waits_to_be_confirmed() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.json");
    let write = |name: &str| {
        std::fs::write(&file, format!(r#"{{"bridge": [{{"name": "{name}"}}]}}"#)).unwrap();
    };
    let file = file.display();
    write("br7");
    committed(&server, &format!("apply {file} --confirm-within 600"));
    write("br8");
    assert_eq!(
        stdout(&server, &format!("diff {file}")),
        "- bridge br7 { name = \"br7\" }\n+ bridge br8 { name = \"br8\" }\n"
    );
    assert!(stdout(&server, &format!("apply {file} --dry-run --confirm-within 600")).contains("dry run"));
    for line in [
        format!("apply {file} --dry-run"),
        "rollback 1 --dry-run".to_owned(),
    ] {
        assert!(
            refused(&server, &line, 1).contains("revision 2 waits to be confirmed"),
            "{line}"
        );
    }
}

#[test]
fn another_order_alone_is_said_to_be_a_revision_of_its_own() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new.toml");
    let apply = |bridges: [&str; 2]| {
        let text = bridges
            .map(|name| format!("[[bridge]]\nname = \"{name}\"\n"))
            .concat();
        std::fs::write(&file, text).unwrap();
        format!("apply {}", file.display())
    };
    committed(&server, &apply(["br1", "br2"]));
    let text = committed(&server, &apply(["br2", "br1"]));
    assert!(text.starts_with("only the order changes: revision 3\n"), "{text}");
    let text = committed(&server, &apply(["br2", "br1"]));
    assert!(
        text.starts_with("nothing changes: revision 3 is the same\n"),
        "{text}"
    );
}

#[test]
fn a_file_with_mistakes_is_refused_with_every_line_before_the_daemon_is_asked() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    std::fs::write(
        &file,
        "[[bridge]]\nname = \"br0\"\ntables = 300\ncolour = \"red\"\n",
    )
    .unwrap();
    let text = refused(
        &server,
        &format!("apply {} --api http://127.0.0.1:1", file.display()),
        1,
    );
    assert!(
        text.contains("bad.toml:3:") && text.contains("bad.toml:4:"),
        "{text}"
    );
    assert!(refused(&server, "apply /nothing.toml", 1).contains("cannot read /nothing.toml"));
}
