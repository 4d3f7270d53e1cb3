//! Tests of `millrace nf` and `millrace chain`, against a server of a fake switch.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::process::{Command, Stdio};

use millrace_api::fake::FakeServer;
use serde_json::Value;

/// Returns the exit status, standard output and standard error.
fn run(server: &FakeServer, line: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(line.split_whitespace())
        .env_clear()
        .env("MILLRACE_API", server.url())
        .env("USER", "tester")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn functions_are_listed_counted_and_explained() {
    let server = FakeServer::start().unwrap();
    let (code, text, _) = run(&server, "nf list");
    assert_eq!(code, Some(0));
    assert!(
        text.contains("fw") && text.contains("isolated") && text.contains("down"),
        "{text}"
    );
    for of in ["nf list", "nf stats"] {
        let (_, text, _) = run(&server, of);
        assert!(
            text.contains("edge/watch is limited: processes 1 (cgroup), cpu_percent 50 (nothing)\n")
                && text.contains(
                    "edge/watch: cpu_percent is enforced by nothing: /sys/fs/cgroup/cpu: Read-only"
                ),
            "{text}"
        );
    }
    for of in ["nf list", "nf stats"] {
        let (_, text, _) = run(&server, of);
        assert!(
            text.contains(
                "br0: chain rim does not run: hop module: function wasm:/nonexistent.wasm: No such file"
            ),
            "{text}"
        );
    }
    let (_, text, _) = run(&server, "nf stats br0");
    assert!(text.contains("999958"), "{text}");
    assert!(
        text.contains("edge/fw: denied 42") && text.contains("edge/watch: 10.0.0.1 64000"),
        "{text}"
    );
    let (_, text, _) = run(&server, "nf stats --json");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json[0]["chains"][0]["hops"][0]["dropped"], 42);
    let (_, text, _) = run(&server, "nf functions");
    assert!(text.contains("firewall: stateful packet filter"), "{text}");
}

#[test]
fn the_files_of_a_hop_are_loaded_again_and_what_it_has_is_shown() {
    let server = FakeServer::start().unwrap();
    let (code, text, _) = run(&server, "nf reload br0 edge fw");
    assert_eq!((code, text.as_str()), (Some(0), "edge/fw: 3 rules\n"));
    let (_, text, _) = run(&server, "nf list br0");
    assert!(text.contains("edge/fw loaded: 3 rules\n"), "{text}");
    let (code, _, error) = run(&server, "nf reload br0 edge nobody");
    assert_eq!(code, Some(1));
    assert!(error.contains("has no hop edge/nobody"), "{error}");
}

#[test]
fn a_hop_is_restarted_by_name_and_one_that_is_not_there_is_named() {
    let server = FakeServer::start().unwrap();
    let (code, text, _) = run(&server, "nf restart br0 edge fw");
    assert_eq!((code, text.as_str()), (Some(0), "edge/fw: functions restarted\n"));
    let (code, _, error) = run(&server, "nf restart br0 edge nobody");
    assert_eq!(code, Some(1));
    assert!(
        error.contains("has no hop edge/nobody: expected one of edge/fw"),
        "{error}"
    );
    let (code, _, error) = run(&server, "nf scale br0 edge nobody 2");
    assert_eq!(code, Some(1));
    assert!(error.contains("no such"), "{error}");
}

#[test]
fn a_plan_says_how_many_workers_a_rate_takes() {
    let server = FakeServer::start().unwrap();
    // A packet costs 61.5 ns; 10 Gbit/s are 14.88 million packets per second.
    let (_, text, _) = run(&server, "chain plan --rate 10Gbps --frame 60");
    assert!(
        text.contains("edge: 62 ns per packet, 14.88 Mpps: 0.92 cores; lanes = 2 (now 1)"),
        "{text}"
    );
    assert!(text.contains("watch: not measured yet"), "{text}");
    assert!(text.contains("fw and watch read only"), "{text}");
    assert!(
        text.contains("rim does not run: hop module") && !text.contains("rim: 0 ns"),
        "{text}"
    );
}

#[test]
fn a_function_runs_over_a_capture_file() {
    use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
    let server = FakeServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    let mut writer = PcapWriter::new(std::fs::File::create(&from).unwrap()).unwrap();
    let frame = |port: u16| {
        let mac = |last| millrace_types::Mac([2, 0, 0, 0, 0, last]);
        let ethernet = millrace_wire::Builder::ethernet(mac(2), mac(1));
        ethernet
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, port)
            .payload(&[7; 40])
            .build()
    };
    for number in 0..200_u16 {
        let bytes = frame(50 + number % 4);
        let at = std::time::Duration::from_millis(number.into());
        let packet = PcapPacket::new(at, bytes.len() as u32, &bytes);
        writer.write_packet(&packet).unwrap();
    }
    drop(writer);
    let line = |function: &str| {
        format!(
            "nf run {function} --read {} --write {}",
            from.display(),
            to.display()
        )
    };
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(line("firewall").split_whitespace())
        .args(["--setting", "rule=allow udp port 53"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("200 packets: 50 next, 0 skip hops, 150 dropped"),
        "{text}"
    );
    assert!(text.contains("denied 150"), "{text}");
    let mut reader = PcapReader::new(std::fs::File::open(&to).unwrap()).unwrap();
    let mut passed = 0;
    while let Some(packet) = reader.next_packet() {
        assert_eq!(packet.unwrap().data.as_ref(), frame(53));
        passed += 1;
    }
    assert_eq!(passed, 50);
    // `tcpdump -i any` writes link type 113 (Linux cooked), in which these bytes are no IP.
    let mut cooked = std::fs::read(&from).unwrap();
    cooked[20..24].copy_from_slice(&113_u32.to_ne_bytes());
    let from = dir.path().join("cooked.pcap");
    std::fs::write(&from, cooked).unwrap();
    let (code, text, error) = run(&server, &format!("nf run macswap --read {}", from.display()));
    assert_eq!(code, Some(0), "{error}");
    assert!(
        text.contains("200 frames left out: their link type is not Ethernet, and they carry no IP"),
        "{text}"
    );
    let (code, _, error) = run(&server, &line("sieve"));
    assert_eq!(code, Some(1));
    assert!(
        error.contains("there is no function `sieve`") && error.contains("wasm:PATH"),
        "{error}"
    );
    let (code, _, error) = run(&server, "nf run macswap");
    assert_eq!(code, Some(1));
    assert!(error.contains("expected --read FILE, or a bridge"), "{error}");
}
