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
fn import_prints_a_hop_and_a_command_with_the_files_and_variables_of_a_suricata_yaml() {
    let folder = folder();
    let yaml = include_str!("../../../../crates/ips/rules/tests/data/suricata.yaml");
    std::fs::write(folder.path().join("suricata.yaml"), yaml).unwrap();
    let output = ips(folder.path(), &["import", "suricata.yaml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("[[bridge.chain.hop]]\nname = \"ips\"\nfunction = \"ips\"\nsettings = [\n"),
        "{text}"
    );
    let string = |line: &str| serde_json::from_str::<String>(line.trim().strip_suffix(',').unwrap()).unwrap();
    let settings: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("  \""))
        .map(string)
        .collect();
    assert_eq!(
        settings[..6],
        [
            "rules=/etc/suricata/classification.config",
            "rules=/etc/suricata/reference.config",
            "rules=/etc/suricata/threshold.config",
            "rules=/var/lib/suricata/rules/suricata.rules",
            "rules=/etc/suricata/rules/local.rules",
            "home_net=[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]",
        ]
    );
    assert!(
        settings.iter().any(|it| it == "variable=EXTERNAL_NET=!$HOME_NET"),
        "{text}"
    );
    assert!(
        text.contains("# not understood: line 79: include: site.yaml"),
        "{text}"
    );
    // The arguments of the command are those of `check`.
    let command = text
        .lines()
        .find(|line| line.starts_with("# millrace ips check"))
        .unwrap();
    let arguments: Vec<&str> = command
        .split('\'')
        .skip(1)
        .step_by(2)
        .filter(|it| it.contains('='))
        .collect();
    let arguments: Vec<&str> = arguments.into_iter().flat_map(|value| ["--set", value]).collect();
    let output = ips(
        folder.path(),
        &[&["check", "a.rules"][..], &arguments[..]].concat(),
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn import_refuses_a_file_that_is_no_suricata_yaml() {
    let folder = folder();
    for bytes in [&b"hello"[..], b"", b"\xff\xfe"] {
        std::fs::write(folder.path().join("b.yaml"), bytes).unwrap();
        let output = ips(folder.path(), &["import", "b.yaml"]);
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("b.yaml") && text.contains("expected a suricata.yaml"),
            "{text}"
        );
    }
}

#[test]
fn files_that_include_many_or_have_no_end_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for level in 0..8 {
        let text = format!("include f{}.rules\n", level + 1).repeat(20);
        std::fs::write(folder.path().join(format!("f{level}.rules")), text).unwrap();
    }
    std::fs::write(
        folder.path().join("f8.rules"),
        "alert tcp any any -> any any (sid:1;)\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("loop.rules"), "include loop.rules\n").unwrap();
    for (file, expected) in [
        ("f0.rules", "more than 1000 files are included"),
        ("loop.rules", "files include each other more than 8 deep"),
        ("missing.rules", "cannot read missing.rules"),
    ] {
        let output = ips(folder.path(), &["check", file]);
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected), "{text}");
    }
    let output = ips(folder.path(), &["check", "/dev/zero"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("/dev/zero:1:1: file: more than 268435456 bytes in a file"),
        "{text}"
    );
    assert!(
        !output.status.success(),
        "a file of which nothing loads fails the check"
    );
}

/// Writes a capture with a datagram that has `payload`, and one that has not.
fn capture(path: &Path, payload: &[u8]) {
    use millrace_types::Mac;
    use pcap_file::pcap::{PcapPacket, PcapWriter};
    let mut writer = PcapWriter::new(std::fs::File::create(path).unwrap()).unwrap();
    for (number, payload) in [payload, b"harmless"].into_iter().enumerate() {
        let frame = millrace_wire::Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1000, 2000)
            .payload(payload)
            .build();
        let time = std::time::Duration::new(1_500_000_000 + number as u64, 250_000);
        let size = frame.len() as u32;
        writer.write_packet(&PcapPacket::new(time, size, &frame)).unwrap();
    }
}

#[test]
fn read_prints_alerts_and_writes_events_and_the_frames_that_raised_them() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("a.pcap"), b"some evil bytes");
    let rules = "alert udp any any -> any 2000 (msg:\"evil\"; content:\"evil\"; classtype:bad; metadata:tag x, tag y; sid:7; rev:3;)\n";
    std::fs::write(folder.path().join("a.rules"), rules).unwrap();
    let classes = "config classification: bad,Something bad,2\n";
    std::fs::write(folder.path().join("classification.config"), classes).unwrap();
    let files = ["--rules", "a.rules", "--rules", "classification.config"];
    let output = ips(folder.path(), &[&["read", "a.pcap"], &files[..]].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "packet 1 [1:7:3] evil 10.0.0.1 1000 -> 10.0.0.2 2000\n");

    let more = [
        "--eve",
        "out.json",
        "--alert-capture",
        "alerts.pcapng",
        "--packets",
        "--mode",
        "ips",
    ];
    let output = ips(
        folder.path(),
        &[&["read", "a.pcap"], &files[..], &more[..]].concat(),
    );
    assert!(output.status.success());
    let lines = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    let events: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["alert", "flow", "stats"]);
    let alert = &events[0];
    assert_eq!(alert["timestamp"], "2017-07-14T02:40:00.000250+0000");
    assert_eq!(
        (&alert["src_ip"], &alert["dest_port"]),
        (&"10.0.0.1".into(), &2000.into())
    );
    assert_eq!(alert["pcap_filename"], "a.pcap");
    assert_eq!(alert["alert"]["category"], "Something bad");
    assert_eq!(alert["alert"]["severity"], 2);
    assert_eq!(alert["alert"]["metadata"]["tag"], serde_json::json!(["x", "y"]));
    assert!(alert["packet"].as_str().unwrap().len() > 60);
    assert_eq!(events[1]["flow"]["pkts_toserver"], 2);
    assert_eq!(events[1]["flow"]["alerted"], true);
    let alerts = std::fs::read(folder.path().join("alerts.pcapng")).unwrap();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&alerts[..]).unwrap();
    let mut comments = Vec::new();
    while let Some(block) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.unwrap() {
            comments.push(format!("{:?}", packet.options));
        }
    }
    assert_eq!(comments.len(), 1);
    assert!(comments[0].contains("[1:7:3]"), "{comments:?}");
}

#[test]
fn read_drops_frames_in_the_path_and_names_captures_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("a.pcap"), b"some evil bytes");
    std::fs::write(folder.path().join("b.pcap"), b"not a capture at all").unwrap();
    let rules = "drop udp any any -> any any (msg:\"evil\"; content:\"evil\"; sid:7;)\n";
    std::fs::write(folder.path().join("a.rules"), rules).unwrap();
    let arguments = [
        "read", "a.pcap", "b.pcap", "--rules", "a.rules", "--mode", "ips", "--eve", "-",
    ];
    let output = ips(folder.path(), &arguments);
    assert!(!output.status.success());
    let events = String::from_utf8(output.stdout).unwrap();
    assert!(events.contains("\"action\":\"blocked\""), "{events}");
    // A rule on the payload of a datagram drops the datagram, not its flow.
    assert_eq!(events.matches("\"event_type\":\"drop\"").count(), 1, "{events}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("b.pcap: after 0 frames"), "{errors}");
    assert!(errors.contains("1 frames dropped"), "{errors}");
}

#[test]
fn read_counts_the_frames_before_the_damage_of_a_capture_and_takes_policies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    capture(&path, b"some evil bytes");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    std::fs::write(
        folder.path().join("a.rules"),
        "alert udp any any -> any any (content:\"evil\"; sid:7;)\n",
    )
    .unwrap();
    let with = |more: &[&str]| {
        let arguments = [&["read", "a.pcap", "--rules", "a.rules"], more].concat();
        String::from_utf8(ips(folder.path(), &arguments).stderr).unwrap()
    };
    let errors = with(&["--midstream", "--asymmetric", "--policy", "on_midstream=ignore"]);
    assert!(errors.contains("a.pcap: after 1 frames"), "{errors}");
    assert!(errors.contains("1 captures, 1 frames, 1 alerts"), "{errors}");
    assert!(with(&["--policy", "on_midstream=perhaps"]).contains("drop-flow"));
    assert!(with(&["--policy", "midstream=ignore"]).contains("on_midstream"));
}

#[test]
fn trace_names_the_first_condition_that_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("a.pcap"), b"some evil bytes");
    let rules = "alert udp any any -> any 2000 (msg:\"evil\"; content:\"some\"; content:\"evil\"; distance:1; sid:7;)\n\
        alert udp any any -> any 2001 (msg:\"port\"; content:\"evil\"; sid:8;)\n";
    std::fs::write(folder.path().join("a.rules"), rules).unwrap();
    let output = ips(
        folder.path(),
        &["trace", "a.pcap", "--sid", "7", "--rules", "a.rules"],
    );
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "packet 1 (10.0.0.1 1000 -> 10.0.0.2 2000, to_server), packet: alert",
            "packet 2 (10.0.0.1 1000 -> 10.0.0.2 2000, to_server), packet: no match: payload: content \"some\" [found: \"harmless\"]",
            "sid 7: 1 alert in 2 frames",
        ]
    );
    let output = ips(
        folder.path(),
        &["trace", "a.pcap", "--sid", "8", "--rules", "a.rules", "--json"],
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let step = &report["lines"][0]["conditions"][0];
    assert_eq!(
        (step["condition"].as_str(), step["holds"].as_bool()),
        (
            Some("protocol, addresses and ports are those of the header"),
            Some(false)
        )
    );
    let output = ips(
        folder.path(),
        &["trace", "a.pcap", "--sid", "9", "--rules", "a.rules"],
    );
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no rule that loads has sid 9"), "{text}");
}

#[test]
fn profile_counts_checks_and_hits_of_rules_and_searches() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("a.pcap"), b"some evil bytes");
    let rules = "alert udp any any -> any 2000 (msg:\"evil\"; content:\"evil\"; sid:7;)\n\
        alert udp any any -> any 2000 (msg:\"none\"; content:\"evil\"; content:\"absent\"; fast_pattern:only; sid:8;)\n";
    std::fs::write(folder.path().join("a.rules"), rules).unwrap();
    let arguments = [
        "profile", "a.pcap", "--rules", "a.rules", "--repeat", "16", "--json",
    ];
    let output = ips(folder.path(), &arguments);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let rules = report["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 1, "the prefilter leaves one rule: {report}");
    assert_eq!(
        (rules[0]["name"].as_str(), number(&rules[0]["checks"])),
        (Some("7 evil"), 16)
    );
    assert_eq!(number(&rules[0]["hits"]), 16);
    let group = &report["groups"][0];
    assert_eq!(
        (group["name"].as_str(), number(&group["checks"])),
        (Some("packets, UDP"), 32)
    );
    // One of 16 measurements is timed; there are 48.
    assert_eq!(number(&group["samples"]) + number(&rules[0]["samples"]), 3);
}

#[test]
fn rate_prints_megabits_and_packets_a_second_of_each_mix() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "alert http any any -> any any (http.method; content:\"GET\"; sid:1;)\n\
        alert tls any any -> any any (tls.sni; content:\".example.com\"; endswith; sid:2;)\n\
        alert dns any any -> any any (dns.query; content:\".com\"; endswith; sid:3;)\n\
        alert smtp any any -> any any (file.name; content:\".bin\"; endswith; sid:4;)\n";
    std::fs::write(folder.path().join("a.rules"), rules).unwrap();
    let arguments = [
        "rate",
        "--rules",
        "a.rules",
        "--rounds",
        "1",
        "--seconds",
        "0",
        "--json",
    ];
    let output = ips(folder.path(), &arguments);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mixes = report["mixes"].as_array().unwrap();
    let names: Vec<&str> = mixes.iter().map(|row| row["mix"].as_str().unwrap()).collect();
    assert_eq!(names, ["web", "http", "dns", "mail"]);
    for row in mixes {
        assert!(row["megabits_per_second"].as_f64().unwrap() > 0.0, "{row}");
        // Each of 400 connections raises an alert: the generated traffic reaches the rule.
        assert!(row["alerts"].as_u64().unwrap() >= 400, "{row}");
    }
}
