//! Files from other people: labs, and captures that a port replays.

use std::path::PathBuf;
use std::sync::OnceLock;

use arrayvec::ArrayVec;
use millrace_datapath::io::{Backend, DeviceOptions, DeviceSpec, HeapBackend};
use millrace_flow::classify::BURST;
use millrace_lab::Topology;
use millrace_wire::{Frame, Packet};

/// Parses the bytes as a lab file.
///
/// Properties: every error has a location in the file and is one line; an accepted file is parsed the same again.
pub(crate) fn lab(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Topology::parse("fuzz.toml", text) {
        Ok(topology) => assert_eq!(topology, Topology::parse("fuzz.toml", text).unwrap()),
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("fuzz.toml:"), "{error}");
        }
    }
}

/// Opens the bytes as the capture file of a port, and receives all packets.
///
/// Properties: an error names the file and the next step; no packet is longer than the file.
pub(crate) fn pcap(bytes: &[u8]) {
    static BACKEND: OnceLock<HeapBackend> = OnceLock::new();
    let backend = BACKEND.get_or_init(HeapBackend::new);
    let path = scratch();
    std::fs::write(&path, bytes).unwrap();
    let spec = DeviceSpec::Pcap {
        rx: Some(path),
        tx: None,
        repeat: false,
    };
    let options = DeviceOptions::PLAIN;
    let mut opened = match backend.open(&spec, options) {
        Ok(opened) => opened,
        Err(error) => {
            let error = error.to_string();
            assert!(
                error.contains("millrace-fuzz") && error.contains("To fix it: "),
                "{error}"
            );
            return;
        }
    };
    let mut received = 0;
    loop {
        let mut burst: ArrayVec<Frame, BURST> = ArrayVec::new();
        opened.rx[0].rx_burst(&mut burst);
        if burst.is_empty() {
            break;
        }
        received += burst.iter().map(Packet::len).sum::<usize>();
        assert!(received <= bytes.len());
    }
}

/// Returns a file of this process.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("millrace-fuzz-{}.pcap", std::process::id()))
}
