//! Tests of `own`, `lock`, and of commands beside a front end whose revisions replace each other.

use millrace_api::fake::FakeServer;
use millrace_model::{Bridge, Config, MacTableSize};
use millrace_store::{Note, Origin, Proposal, UnixTime};

use crate::harness::{command, committed, json, refused, stdout, user};

/// Commits a bridge `br-int` as an Open vSwitch database does.
fn write_as_ovsdb(server: &FakeServer, size: u32) {
    let head = server.store().head();
    let mut config = Config::clone(&head.config);
    config.bridges.retain(|bridge| bridge.name.as_str() != "br-int");
    let mut bridge = Bridge::new("br-int".parse().unwrap());
    bridge.mac_table_size = MacTableSize::new(size).unwrap();
    config.bridges.push(bridge);
    let proposal = Proposal {
        expected: None,
        config,
        note: Note::new("ovsdb", "").of(Origin::OVSDB).external(size.into()),
    };
    let now = UnixTime::from(std::time::SystemTime::now());
    server.store().commit(proposal, now).unwrap();
}

#[test]
fn the_revision_before_the_newest_is_the_one_in_the_history_whatever_its_number() {
    let server = FakeServer::start().unwrap();
    for size in 100..110 {
        write_as_ovsdb(&server, size);
    }
    let history = stdout(&server, "show history");
    let newest = history.lines().nth(1).unwrap();
    assert!(
        newest.contains("2-11 ") && newest.contains(" ovsdb 109 "),
        "{history}"
    );
    assert_eq!(
        json(&server, "show history")["revisions"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let diff = stdout(&server, "diff");
    assert!(
        diff.starts_with("+ bridge br-int {") && diff.ends_with(" (of ovsdb)\n"),
        "{diff}"
    );
    let diff = stdout(&server, "diff 1 11");
    assert!(diff.ends_with(" (of ovsdb)\n"), "{diff}");
    let gone = refused(&server, "diff 5", 1);
    assert!(gone.contains("revision 5 is no longer stored"), "{gone}");
    // Nothing of people changed since, so a rollback leaves the bridge alone, and says so.
    let back = stdout(&server, "rollback --dry-run");
    assert!(
        back.starts_with("= bridge br-int belongs to ovsdb and stays as it is\n"),
        "{back}"
    );
}

#[test]
fn what_another_front_end_owns_is_left_alone_by_a_file_and_refused_to_single_changes_until_it_is_taken() {
    let server = FakeServer::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    std::fs::write(&file, stdout(&server, "show config")).unwrap();
    write_as_ovsdb(&server, 100);
    let owners = stdout(&server, "show owners");
    assert!(
        owners.contains("bridge/br-int  ovsdb\n") && owners.contains("bridge/br0     local\n"),
        "{owners}"
    );
    let stays = "= bridge br-int belongs to ovsdb and stays as it is\n";
    let diff = stdout(&server, &format!("diff {}", file.display()));
    assert_eq!(diff, format!("no difference\n{stays}"));
    let applied = committed(&server, &format!("apply {}", file.display()));
    assert!(
        applied.starts_with(&format!("{stays}nothing changes")),
        "{applied}"
    );
    for line in [
        "bridge remove br-int",
        "bridge set br-int tables=3",
        "bridge set br-int tables=3 --dry-run",
    ] {
        let text = refused(&server, line, 1);
        assert!(
            text.contains("use ovs-vsctl, or `millrace own br-int --local` to take it over"),
            "{text}"
        );
    }
    let text = refused(&server, "own br7 --local", 1);
    assert!(
        text.contains("no object `br7`") && text.contains("show owners"),
        "{text}"
    );
    assert_eq!(
        stdout(&server, "own br-int --local -m mine"),
        "br-int belongs to local: revision 3\n"
    );
    assert!(stdout(&server, "show history").contains(" change of owners  mine"));
    committed(&server, "bridge remove br-int");
    stdout(&server, "own br0 --origin ovsdb");
    assert!(refused(&server, "port remove br0 h1", 1).contains("belongs to ovsdb"));
}

#[test]
fn commands_of_the_session_with_the_lock_pass_and_others_are_told_who_holds_it() {
    let server = FakeServer::start().unwrap();
    assert_eq!(stdout(&server, "lock show"), "the lock is free\n");
    let taken = stdout(&server, "lock take --lease 10m");
    let token = taken.strip_prefix("MILLRACE_LOCK=").unwrap().trim();
    let holder = format!("{} (tester) holds the lock", user());
    assert!(stdout(&server, "lock show").starts_with(&holder));
    let text = refused(&server, "bridge add br1", 1);
    assert!(
        text.contains(&holder) && text.contains("millrace lock break"),
        "{text}"
    );
    assert!(refused(&server, "lock take", 1).contains(&holder));
    let with_token = |line: &str| {
        command(&server, line)
            .env("MILLRACE_LOCK", token)
            .output()
            .unwrap()
    };
    assert_eq!(with_token("bridge add br1 --wait 0").status.code(), Some(0));
    assert!(with_token("lock renew --lease 5m").status.success());
    assert!(with_token("lock release").status.success());
    assert!(!with_token("lock release").status.success(), "once only");
    stdout(&server, "lock take");
    assert_eq!(
        stdout(&server, "lock break"),
        format!("the lock of {} (tester) is broken\n", user())
    );
    let mut run = command(&server, "lock run -- sh -c");
    let output = run.arg("test ${#MILLRACE_LOCK} = 32 && exit 7").output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(7),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
