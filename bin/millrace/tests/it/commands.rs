//! The program as a person runs it, against a server of a fake switch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use millrace_api::fake::FakeServer;
use serde_json::Value;

fn command(server: &FakeServer, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command
        .args(line.split_whitespace())
        .env_clear()
        .env("MILLRACE_API", server.url())
        .env("USER", "tester");
    command.stdin(Stdio::null());
    command
}

fn run(server: &FakeServer, line: &str) -> Output {
    command(server, line).output().unwrap()
}

fn stdout(server: &FakeServer, line: &str) -> String {
    let output = run(server, line);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{line}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a command that commits a change of which something does not run, and returns its standard output.
fn committed(server: &FakeServer, line: &str) -> String {
    let output = run(server, line);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{line}: {text}");
    assert!(output.stderr.is_empty(), "{line}");
    text
}

fn json(server: &FakeServer, line: &str) -> Value {
    let text = stdout(server, &format!("{line} --json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
}

fn refused(server: &FakeServer, line: &str, code: i32) -> String {
    let output = run(server, line);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout.is_empty(), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_list_is_shown_as_a_table_and_as_json() {
    let server = FakeServer::start().unwrap();
    for (what, word, pointer) in [
        (
            "status",
            "revision 1 desired, 1 running, degraded",
            "/status/state",
        ),
        ("bridges", "0000000000000001", "/0/dpid"),
        ("ports", "net_null0", "/br0/0/rx/packets"),
        ("flows", "tcp,in_port=1,dl_vlan=100", "/br0/1/match"),
        ("tables", "tuples", "/br0/0/classifier"),
        ("controllers", "connection refused", "/br0/1/last_error"),
        ("workers", "br0:h1/0", "/0/queues/0/port"),
        ("drops", "no_match", "/0/packets"),
        (
            "groups",
            "watches port 2, output:2",
            "/br0/0/buckets/1/watch_port",
        ),
        ("meters", "drop above 100 pktps, burst 50", "/br0/0/bands/0/rate"),
        ("policers", "25Mbps", "/br0/0/policer/red/packets"),
        ("queues", "2500Mbps", "/br0/1/max_bps"),
        ("macs", "02:00:00:00:00:aa", "/br0/0/mac"),
        ("config", "name = \"br0\"", "/bridge/0/name"),
        ("history", "begin", "/revisions/0/number"),
    ] {
        let text = stdout(&server, &format!("show {what}"));
        assert!(text.contains(word), "show {what}: {text}");
        let json = json(&server, &format!("show {what}"));
        assert!(
            json.pointer(pointer).is_some_and(|value| !value.is_null()),
            "show {what}: {json}"
        );
    }
    assert!(!stdout(&server, "show drops").contains("ttl_expired"));
    assert!(stdout(&server, "show drops --all").contains("ttl_expired"));
}

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

/// The priorities of the entries that are printed, in order.
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
    // The first look at a new revision finds it being applied.
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
    assert_eq!(waited["status"]["troubles"][0]["message"], "the link is down");
    let not_waited = json(&server, &apply("br3", "--wait 0"));
    assert_eq!(not_waited["status"], Value::Null);
    assert!(refused(&server, "apply x --wait 9999", 2).contains("3600"));
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
    assert!(refused(&server, "rollback 1", 1).contains("to fix it: `millrace confirm` keeps it"));
    assert_eq!(
        stdout(&server, "confirm --cancel"),
        "revision 3: cancelled, back to 1\n"
    );
    committed(&server, &format!("apply {} --confirm-within 600", file.display()));
    assert_eq!(stdout(&server, "confirm 4"), "revision 4 is confirmed\n");
    assert!(refused(&server, "confirm", 1).contains("no revision waits"));
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

#[test]
fn a_packet_is_traced() {
    let server = FakeServer::start().unwrap();
    let text = stdout(&server, "trace br0 in_port=h1,tcp,nw_dst=10.0.0.2,tp_dst=80");
    let expected = "\
bridge br0, packet of 60 bytes in from port 1
  in_port=1
table 0: priority=100,tcp,in_port=1,dl_vlan=100,nw_dst=10.0.0.0/8,tp_dst=80 actions=set_field:7->ip_dscp,output:2 (cookie 0x2a)
  set ip_dscp to 7
  output to port 2
out: port h2 (2), unchanged
";
    assert_eq!(text, expected);
    assert_eq!(
        json(&server, "trace br0 in_port=2 --hex 0200000000020200000000010800")["in_port"],
        2
    );
    assert!(stdout(&server, "trace br0 --live udp").contains("table 0"));
    assert!(refused(&server, "trace br0 --live tcp --timeout 0.1", 1).contains("no packet that matches"));
    let text = refused(&server, "trace br0 tcp,tp_dts=80", 1);
    assert!(
        text.contains("`tp_dts`: there is no such match field; did you mean tp_dst?"),
        "{text}"
    );
    assert!(refused(&server, "trace br9 tcp", 1).contains("expected one of br0"));
}

#[test]
fn a_capture_goes_to_a_file_or_a_pipe_and_a_refused_one_touches_no_file() {
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.pcapng");
    stdout(
        &server,
        &format!("capture br0 --count 3 --port h1 -w {}", file.display()),
    );
    let written = std::fs::read(&file).unwrap();
    assert_eq!(written[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let piped = run(&server, "capture br0 --count 3 --port h1 -w -");
    assert_eq!(piped.stdout, written);
    let text = refused(
        &server,
        &format!("capture br0 --match tpc -w {}", file.display()),
        1,
    );
    assert!(text.contains("did you mean tcp"), "{text}");
    let text = refused(
        &server,
        &format!("capture br0 --filter tpc -w {}", file.display()),
        1,
    );
    assert!(
        text.contains("--filter is no pcap filter: `tpc`: ") && text.contains("man pcap-filter"),
        "{text}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), written);
}

#[test]
fn rates_are_watched_without_a_terminal_as_plain_tables() {
    let server = FakeServer::start().unwrap();
    let text = stdout(&server, "watch --interval 0.1 --count 2");
    assert_eq!(text.matches("RX PPS").count(), 2, "{text}");
    assert!(!text.contains('\x1b'));
    let text = stdout(&server, "watch --interval 0.1 --count 2 --json");
    let looks: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        looks[1]["ports"][0]["rates"]["rx_pps"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0),
        "{text}"
    );
}

#[test]
fn a_daemon_that_does_not_answer_is_named_with_the_command_that_starts_it() {
    let server = FakeServer::start().unwrap();
    for line in ["show ports", "diff", "watch", "trace br0 tcp"] {
        let text = refused(&server, &format!("{line} --api http://127.0.0.1:1"), 3);
        assert!(
            text.contains("no answer at http://127.0.0.1:1") && text.contains("sudo millraced --config"),
            "{text}"
        );
    }
    assert!(refused(&server, "show ports --api nonsense", 1).contains("the form http://127.0.0.1:8080"));
    assert_eq!(run(&server, "show nonsense").status.code(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let server = FakeServer::start().unwrap();
    let mut child = command(&server, "completions bash")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success() && said.is_empty(), "{status}: {said}");
}

#[test]
fn the_doctor_says_what_the_daemon_says() {
    let server = FakeServer::start().unwrap();
    let output = run(&server, "doctor --json");
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    let daemon = findings.last().unwrap();
    assert_eq!(daemon["subject"], "millraced");
    assert!(
        daemon["remedy"]
            .as_str()
            .is_some_and(|remedy| remedy.contains("connect the other end")),
        "{daemon}"
    );
    let is_bad = findings.iter().any(|finding| finding["verdict"] == "bad");
    assert_eq!(output.status.success(), !is_bad);
}

#[test]
fn a_token_comes_from_a_file_or_from_the_environment() {
    use millrace_api::server::{Limits, Tcp, Token};
    let secret = "0123456789abcdef0123";
    let tcp = Tcp {
        listen: ([127, 0, 0, 1], 0).into(),
        token: Token::new(secret).unwrap(),
        tls: None,
    };
    let server = FakeServer::start_with(Some(tcp), Limits::default()).unwrap();
    let text = refused(&server, "show bridges", 1);
    assert!(text.contains("MILLRACE_TOKEN"), "{text}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{secret}").unwrap();
    stdout(
        &server,
        &format!("show bridges --token-file {}", file.path().display()),
    );
    let output = command(&server, "show bridges")
        .env("MILLRACE_TOKEN", secret)
        .output()
        .unwrap();
    assert!(output.status.success());
}

/// Returns the name of the user who runs the tests.
fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_user_without_access_to_the_socket_is_told_who_has_it_and_what_to_do() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if user() != "root" {
        eprintln!("skipped: to become another user needs root");
        return;
    }
    const NOBODY: u32 = 65_534;
    let server = FakeServer::start().unwrap();
    // Nobody may pass the folder, as /run/millrace, but not use the socket; and may run the program.
    let folder = server.directory();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("millrace");
    // Another process copies: a file that this one has open for writing would be inherited by programs that other
    // tests start meanwhile, and could then not be executed (ETXTBSY).
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_millrace"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let output = Command::new(&program)
        .args(["show", "status"])
        .current_dir("/")
        .env_clear()
        .env("MILLRACE_API", server.url())
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let socket = server.socket().display().to_string();
    for part in [socket.as_str(), "only root may connect", "sudo millrace"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn the_program_has_no_dpdk_inside() {
    let ldd = Command::new("ldd").arg(env!("CARGO_BIN_EXE_millrace")).output();
    let Ok(output) = ldd else { return };
    assert!(!String::from_utf8_lossy(&output.stdout).contains("librte"));
}

#[test]
fn lab_commands_name_what_is_missing() {
    let server = FakeServer::start().unwrap();
    assert!(refused(&server, "lab up /nothing.toml", 1).contains("cannot read /nothing.toml"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lab.toml");
    std::fs::write(&file, "[[host]]\nname = \"UPPER\"\n").unwrap();
    let text = refused(&server, &format!("lab up {}", file.display()), 1);
    assert!(
        text.contains("lab.toml:2:") && text.contains("expected"),
        "{text}"
    );
    assert!(refused(&server, "lab run --lab no-such-lab h1 true", 1).contains("lab"));
}

#[test]
fn the_levels_of_the_log_are_shown_and_changed() {
    let server = FakeServer::start().unwrap();
    assert!(stdout(&server, "log").starts_with("info\nlevels:  warn, info, debug\n"));
    assert_eq!(stdout(&server, "log debug"), "debug\n");
    assert_eq!(json(&server, "log")["filter"], "debug");
    let told = refused(&server, "log inof", 1);
    assert!(
        told.contains("`inof` is no log filter: expected warn, info, debug"),
        "{told}"
    );
}

#[test]
fn the_status_names_dpdk() {
    let server = FakeServer::start().unwrap();
    assert!(stdout(&server, "show status").starts_with("millrace 0.1.0, DPDK 22.11 with huge pages, up "));
    assert_eq!(json(&server, "show status")["version"]["dpdk"]["used"], true);
}

#[test]
fn a_lab_that_is_not_there_cannot_be_removed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: removing a lab needs root");
        return;
    }
    let server = FakeServer::start().unwrap();
    let told = refused(&server, "lab down no-such-lab", 1);
    assert!(told.contains("there is no lab no-such-lab: "), "{told}");
}

#[test]
fn flows_of_a_bridge_that_is_not_there_have_no_headings() {
    let server = FakeServer::start().unwrap();
    let told = refused(&server, "show flows nobr", 1);
    assert!(told.contains("nobr"), "{told}");
}

#[test]
fn each_cause_is_told_once() {
    let server = FakeServer::start().unwrap();
    for (line, cause) in [
        ("report /nonexistent", "No such file or directory"),
        (
            "nf run firewall --read /nonexistent --setting rule=foo",
            "expected allow or deny",
        ),
        ("apply /nonexistent", "No such file or directory"),
    ] {
        let told = refused(&server, line, 1);
        assert_eq!(told.matches(cause).count(), 1, "{line}: {told}");
    }
}
