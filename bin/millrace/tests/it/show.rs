//! Tests of the commands that show state: `show`, `watch`, `doctor`, `log`.

use millrace_api::fake::FakeServer;
use serde_json::Value;

use crate::harness::{json, refused, run, stdout};

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
        ("mirrors", "received by p1, VLAN 10,20", "/br0/0/lost"),
        ("sflow", "1:1000", "/br0/0/collectors/0/datagrams"),
        ("ipfix", "Connection refused", "/br0/0/collectors/1/last_error"),
        ("macs", "02:00:00:00:00:aa", "/br0/0/mac"),
        ("vrfs", "synchronised", "/0/source"),
        ("interfaces --drops", "ttl_expired", "/0/drops/0/packets"),
        ("routes", "via 10.0.20.2 dev v20", "/blue/1/nexthops/0/mac"),
        ("routes blue --to 192.0.2.9", "bgp", "/blue/0/prefix"),
        ("routes blue --within 2001:db8::/32", "blackhole", "/blue/0/kind"),
        (
            "routes blue --after 10.0.20.0/24 --limit 1",
            "bgp",
            "/blue/0/prefix",
        ),
        ("nexthops", "dev v20", "/blue/1/routes"),
        ("neighbours", "reachable", "/blue/0/mac"),
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
    let rest = stdout(&server, "show routes blue --after 192.0.2.0/24");
    assert!(
        rest.contains("2001:db8:bad::/48") && !rest.contains("192.0.2.0/24"),
        "{rest}"
    );
    assert_eq!(rest.matches("PREFIX").count(), 1, "{rest}");
    assert!(!stdout(&server, "show drops").contains("ttl_expired"));
    assert!(stdout(&server, "show drops --all").contains("ttl_expired"));
}

#[test]
fn the_status_names_dpdk() {
    let server = FakeServer::start().unwrap();
    assert!(stdout(&server, "show status").starts_with("millrace 0.1.0, DPDK 22.11 with huge pages, up "));
    assert_eq!(json(&server, "show status")["version"]["dpdk"]["used"], true);
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
fn the_doctor_says_what_the_daemon_says() {
    let server = FakeServer::start().unwrap();
    let output = run(&server, "doctor --json");
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    let daemon = findings.last().unwrap();
    assert_eq!(daemon["subject"], "millraced");
    assert!(
        daemon["next_step"]
            .as_str()
            .is_some_and(|next_step| next_step.contains("connect the other end")),
        "{daemon}"
    );
    let is_bad = findings.iter().any(|finding| finding["verdict"] == "bad");
    assert_eq!(output.status.success(), !is_bad);
}

#[test]
fn the_levels_of_the_log_are_shown_and_changed() {
    let server = FakeServer::start().unwrap();
    assert!(stdout(&server, "log").starts_with("info\nlevels:  warn, info, debug\n"));
    assert_eq!(stdout(&server, "log debug"), "debug\n");
    assert_eq!(json(&server, "log")["filter"], "debug");
    let told = refused(&server, "log inof", 1);
    assert!(
        told.contains("`inof` is not a log filter: expected warn, info, debug"),
        "{told}"
    );
}
