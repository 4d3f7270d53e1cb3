//! A capture that comes through a pipe is inspected as it comes.

use std::io::Write;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_engine::{Engine, Settings};
use millrace_ips_offline::read;
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

/// The header of a pcap file of raw IP frames (LINKTYPE_RAW), and the header of a frame of 29 bytes.
const HEADER: &[u8] = b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0\0\0\0\0\xff\xff\0\0\x65\0\0\0";
const FRAME: &[u8] = b"\0\0\0\0\0\0\0\0\x1d\0\0\0\x1d\0\0\0";
/// A datagram of one byte from 10.0.0.1 to 10.0.0.2.
const DATAGRAM: &[u8] = b"\x45\0\0\x1d\0\x01\0\0\x40\x11\0\0\x0a\0\0\x01\x0a\0\0\x02\0\x01\0\x02\0\x09\0\0x";

#[test]
fn the_alert_of_a_frame_comes_before_the_next_frame() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut set = RuleSet::default();
    let text = b"alert udp any any -> any any (content:\"x\"; sid:1;)";
    set.add(
        "test",
        files::parse(Syntax::Suricata, "test", text),
        &Variables::usual(),
    );
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    assert!(refusals.is_empty(), "{refusals:?}");
    std::thread::scope(|scope| {
        let (send, alerts) = mpsc::channel();
        let path = &pipe;
        let reader = scope.spawn(move || {
            let mut engine = Engine::new(Settings::default(), [1, 2]);
            read(path, &mut engine, &rules, |events, _| {
                send.send(events.list.len()).unwrap();
            })
        });
        let mut writer = std::fs::File::options().write(true).open(path).unwrap();
        writer.write_all(HEADER).unwrap();
        for _ in 0..2 {
            writer.write_all(&[FRAME, DATAGRAM].concat()).unwrap();
            alerts.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        drop(writer);
        assert_eq!(reader.join().unwrap().unwrap().frames, 2);
    });
}
