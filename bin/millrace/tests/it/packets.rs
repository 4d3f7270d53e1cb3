//! Tests of `trace` and `capture`.

use millrace_api::fake::FakeServer;

use crate::harness::{json, refused, run, stdout};

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
    assert!(refused(&server, "trace br0 --live tcp --timeout 0.1", 1).contains("no packet matched"));
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
        text.contains("--filter is not a pcap filter: `tpc`: ") && text.contains("man pcap-filter"),
        "{text}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), written);
}

#[test]
fn registers_and_entries_of_a_nic_are_shown_as_tables_and_as_json() {
    let server = FakeServer::start().unwrap();
    let text = stdout(&server, "nic registers br0 h1");
    assert!(text.contains("0x434e524d") && text.contains("MRNC"), "{text}");
    let keys = text.lines().find(|line| line.contains("HASH_KEY")).unwrap();
    assert!(keys.contains(" -  only written"), "{keys}");
    assert!(
        text.lines()
            .any(|line| line.contains("COUNT_FRAMES") && line.contains(" 70 ")),
        "{text}"
    );
    assert_eq!(json(&server, "nic registers br0 1")[0]["value"], 0x434e_524d);
    let text = stdout(&server, "nic dump br0 h1");
    for word in ["17", "0x1011", "trust", "mark", "1234", "ip,nw_dst=10.0.0.2"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(json(&server, "nic dump br0 h1")[0]["slot"], 17);
    for line in ["nic registers br0 h2", "nic dump br0 h2"] {
        assert!(refused(&server, line, 1).contains("nic:PATH"), "{line}");
    }
    assert!(refused(&server, "nic dump br0 h9", 1).contains("h9"));
}
