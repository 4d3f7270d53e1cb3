//! The classic pcap file format, as far as these tests need it: little-endian, microseconds, Ethernet.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::path::Path;

pub(crate) fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, 1_u32] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let size = u32::try_from(frame.len()).unwrap();
        for word in [0, 0, size, size] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

pub(crate) fn read(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<16>() {
        let size = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        frames.push(tail[..size].to_vec());
        rest = &tail[size..];
    }
    frames
}
