//! Tests of `show flows`, `flow` and `port`.

use std::io::Write;
use std::process::Stdio;

use millrace_api::fake::FakeServer;

use crate::harness::{command, json, refused, run, stdout};

#[test]
fn flows_read_like_those_of_ovs_ofctl() {
    let server = FakeServer::start().unwrap();
    let expected = "\
TABLE  PRIO      PACKETS          BYTES     AGE  FLOW
    0   100      1234567       98765432  62m05s  hard_timeout=300,cookie=0x2a,tcp,in_port=1,dl_vlan=100,nw_dst=10.0.0.0/8,tp_dst=80 actions=set_field:7->ip_dscp,output:2
";
    assert_eq!(stdout(&server, "show flows br0 --match tcp"), expected);
    assert_eq!(stdout(&server, "show flows --table 1").lines().count(), 2);
    assert_eq!(stdout(&server, "show flows --limit 2").lines().count(), 3);
}

/// Returns the priorities of the printed entries, in order.
fn priorities(text: &str) -> Vec<u16> {
    let rows = text.lines().skip(1);
    rows.map(|row| row.split_whitespace().nth(1).unwrap().parse().unwrap())
        .collect()
}

#[test]
fn flows_are_sorted_by_each_key_and_selected_by_cookie() {
    let server = FakeServer::start().unwrap();
    for (options, expected) in [
        ("", vec![200, 100, 0, 0]),
        ("--sort priority", vec![200, 100, 0, 0]),
        ("--sort packets --reverse", vec![0, 0, 100, 200]),
        ("--sort bytes", vec![0, 0, 100, 200]),
        ("--sort bytes --limit 1", vec![0]),
        ("--sort priority --limit 1", vec![200]),
        ("--sort table --reverse --limit 2", vec![0, 0]),
        ("--cookie 0x2a", vec![200, 100, 0, 0]),
        ("--cookie 0x02/0x0f", vec![]),
        ("--cookie 0x0a/0x0f --table 1", vec![0]),
        ("--match in_port=h1,tcp", vec![100]),
    ] {
        let shown = stdout(&server, &format!("show flows br0 {options}"));
        assert_eq!(priorities(&shown), expected, "{options}: {shown}");
    }
    let first = json(&server, "show flows br0 --sort bytes --limit 1");
    assert_eq!(first["br0"][0]["priority"], 0);
    assert!(refused(&server, "show flows --cookie 1/", 1).contains("cookie: column 3"));
    assert_eq!(run(&server, "show flows --reverse").status.code(), Some(2));
}

#[test]
fn flow_entries_are_added_changed_and_removed_from_arguments_files_and_standard_input() {
    let server = FakeServer::start().unwrap();
    assert_eq!(
        stdout(
            &server,
            "flow add br0 in_port=h1,actions=output:h2 arp,actions=drop"
        ),
        "2 entries added\n"
    );
    assert_eq!(
        stdout(&server, "flow mod br0 --strict arp,priority=3,actions=drop"),
        "1 entry changed\n"
    );
    assert_eq!(stdout(&server, "flow del br0 tcp"), "1 entry removed\n");
    assert_eq!(stdout(&server, "flow del br0 --all"), "1 entry removed\n");
    assert_eq!(json(&server, "flow add br0 actions=drop")["added"], 1);
    assert!(refused(&server, "flow del br0", 1).contains("--all"));
    for flows in [["", "tcp"], ["tcp", " "]] {
        let output = command(&server, "flow del br0").args(flows).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flows:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("--all"),
            "{flows:?}"
        );
    }
    assert!(refused(&server, "flow add br0", 1).contains("--file FILE"));
    assert!(refused(&server, "flow del br0 priority=3,arp", 1).contains("`priority`: it has no effect here"));
    let wrong = refused(&server, "flow add br0 arp,actions=drop tpc,actions=drop", 1);
    assert!(
        wrong.contains("`tpc,actions=drop`: column 1") && wrong.contains("nothing was changed"),
        "{wrong}"
    );
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().display().to_string();
    write!(file, "# rules\n\narp,actions=drop\n  tcp actions=output:2\n").unwrap();
    assert_eq!(
        stdout(&server, &format!("flow add br0 --file {name}")),
        "2 entries added\n"
    );
    writeln!(file, "table=254,actions=drop").unwrap();
    let full = refused(&server, &format!("flow add br0 -f {name}"), 1);
    assert!(full.contains(&format!("{name}:5: table 254 is full")), "{full}");
    let mut child = command(&server, "flow add br0 --file -")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for number in 0..12_000 {
        writeln!(input, "priority={number},actions=drop").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "12000 entries added\n");
}

#[test]
fn counters_of_flows_and_ports_are_set_to_zero() {
    let server = FakeServer::start().unwrap();
    assert_eq!(
        stdout(&server, "flow reset br0"),
        "counters of 4 entries set to zero\n"
    );
    assert_eq!(
        stdout(&server, "flow reset br0 tcp --table 0"),
        "counters of 1 entry set to zero\n"
    );
    assert_eq!(
        stdout(&server, "port reset br0"),
        "counters of 2 ports set to zero\n"
    );
    assert_eq!(
        stdout(&server, "port reset br0 h1"),
        "counters of 1 port set to zero\n"
    );
    assert!(refused(&server, "port reset br0 h9", 1).contains("expected one of h1, h2"));
}

#[test]
fn flows_of_a_bridge_that_is_not_there_have_no_headings() {
    let server = FakeServer::start().unwrap();
    let told = refused(&server, "show flows nobr", 1);
    assert!(told.contains("nobr"), "{told}");
}
