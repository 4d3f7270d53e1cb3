//! Bytes made by os-ken (`golden/make_golden.py`): we read them, write the same bytes, and agree on the
//! number of every error.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use millrace_openflow::{ErrorCode, Message, decode, encode};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn vectors() -> Vec<(String, Vec<u8>)> {
    let mut vectors: Vec<_> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "hex"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, from_hex(&std::fs::read_to_string(path).unwrap()))
        })
        .collect();
    vectors.sort();
    vectors
}

#[test]
fn what_os_ken_wrote_is_read_and_written_back_the_same() {
    let vectors = vectors();
    assert!(vectors.len() >= 50, "only {} vectors", vectors.len());
    for (name, bytes) in vectors {
        let (header, message) = decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut written = Vec::new();
        encode(&message, header.xid, &mut written).unwrap();
        assert_eq!(written, bytes, "{name}: {message:?}");
    }
}

#[test]
fn os_kens_values_are_found_in_their_places() {
    let vectors = vectors();
    let message = |name: &str| {
        let (_, bytes) = vectors.iter().find(|(found, _)| found == name).unwrap();
        decode(bytes).unwrap().1
    };
    let Message::FlowMod(flow) = message("flow_mod_match_tcp") else {
        panic!()
    };
    assert_eq!(
        format!("{:?}", flow.match_),
        "{eth_type: 0x800, ip_dscp: 0xa, ip_ecn: 0x2, ip_proto: 0x6, \
         ipv4_src: 0xa000000/0xff000000, ipv4_dst: 0xa010203, tcp_src: 0x400, tcp_dst: 0x50}"
    );
    let Message::FlowMod(flow) = message("flow_mod_delete") else {
        panic!()
    };
    assert!(flow.command.is_delete());
    assert_eq!(
        (flow.out_port.raw(), flow.out_group.0, flow.cookie_mask),
        (9, 10, 0xff)
    );
    let Message::FlowMod(flow) = message("flow_mod_all_actions") else {
        panic!()
    };
    assert_eq!(flow.instructions.actions().count(), 16);
}

#[test]
fn error_codes_have_the_numbers_that_os_ken_knows() {
    let list = std::fs::read_to_string(directory().join("errors.txt")).unwrap();
    let mut count = 0;
    for line in list.lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let mut number = || words.next().unwrap().parse::<u16>().unwrap();
        let (type_, code) = (number(), number());
        assert_eq!(ErrorCode { type_, code }.name(), Some(name));
        count += 1;
    }
    assert!(count >= 100);
}
