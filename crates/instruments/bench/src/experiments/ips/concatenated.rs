//! All captures beneath a folder as one capture, several times with other addresses, so that each repetition has flows of its
//! own.
//!
//! ```text
//!  a.pcap, b.pcapng, … ──▶ frames of Ethernet ──▶ repetition 0: as captured  ──▶ one.pcap, in nanoseconds
//!                                            ├──▶ repetition 1: addresses + 1
//!                                            └──▶ …
//! ```
//!
//! * Addresses: the second byte of IPv4, and the second 16 bits of IPv6, plus the number of the repetition. Networks of 8 bits
//!   (10.0.0.0/8, 127.0.0.0/8) and of 16 bits (2001::/16, fe80::/16) stay the same. Multicast, broadcast and unspecified addresses stay, too;
//!   the other end of such a flow has another address. Checksums change by the difference, so that wrong ones stay wrong.
//!   Addresses within tunnels, ICMP errors and payload stay.
//! * Times: a capture begins [`GAP`] after the one before. Time stands still where it goes backwards in a capture, and passes
//!   [`STEP_MAX`] where it leaps, because some captures are joined from parts that were recorded years apart.
//! * Frames of IP without a link layer, of BSD's loopback, PPP and Linux's "cooked" captures get an Ethernet header. Captures of other
//!   link types are left out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_wire::rewrite::{ipv4_dst, ipv4_src, ipv6_dst, ipv6_src};
use millrace_wire::{Depth, L3, Layers};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{PcapError, TsResolution};

use super::frames::{each_frame, ethernet};
use crate::file_error::{FileError, file};

/// The time of the first frame, 2023-11-14, in seconds.
const START: Duration = Duration::from_secs(1_700_000_000);
/// Time between the last frame of a capture and the first one of the next.
const GAP: Duration = Duration::from_secs(1);
/// The longest time between two frames of a capture: longer than each timeout of flows.
const STEP_MAX: Duration = Duration::from_secs(3600);
/// The largest frame of the written capture, as `tcpdump` has it.
const SNAPLEN: u32 = 262_144;
/// Offsets of source and destination in the headers of IPv4 (RFC 791, section 3.1) and IPv6 (RFC 8200, section 3).
const IPV4: [usize; 2] = [12, 16];
const IPV6: [usize; 2] = [8, 24];

/// The frames of captures.
#[derive(Debug, Default)]
pub(super) struct Captures {
    frames: Vec<CapturedFrame>,
    /// Captures with frames of Ethernet, or of a link type that is converted.
    pub(super) files: usize,
    /// Captures that could be read up to some frame only.
    damaged: usize,
    /// Frames of other link types.
    left_out: usize,
    /// The link types of these frames, by the numbers that tcpdump.org assigns.
    link_types: BTreeSet<u32>,
}

/// A frame of Ethernet.
#[derive(Debug)]
struct CapturedFrame {
    /// Time since the frame before.
    step: Duration,
    /// Size in bytes on the wire.
    wire_size: u32,
    bytes: Vec<u8>,
}

/// The size of a written capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) frames: usize,
    /// Bytes of all frames.
    pub(super) bytes: u64,
}

impl Captures {
    /// Reads all captures beneath a folder, in the order of their paths.
    pub(super) fn read(folder: &Path) -> Result<Captures, FileError> {
        let mut captures = Captures::default();
        for path in paths(folder)? {
            captures.add(&path)?;
        }
        Ok(captures)
    }

    /// Returns the end of a sentence, about what is not taken; empty if all is.
    pub(super) fn not_taken(&self) -> String {
        let mut parts = vec![String::new()];
        if self.left_out > 0 {
            let types: Vec<String> = self.link_types.iter().map(u32::to_string).collect();
            parts.push(format!(
                "{} frames of the link types {} are left out",
                self.left_out,
                types.join(", ")
            ));
        }
        if self.damaged > 0 {
            parts.push(format!(
                "{} captures are damaged and read up to the damage",
                self.damaged
            ));
        }
        parts.join("; ")
    }

    fn add(&mut self, path: &Path) -> Result<(), FileError> {
        let mut last = None;
        let before = self.frames.len();
        let mut take = |link: u32, time: Duration, wire_size: u32, captured: &[u8]| {
            let Some(bytes) = ethernet(link, captured) else {
                self.left_out += 1;
                self.link_types.insert(link);
                return;
            };
            let step = match last.replace(time) {
                None => GAP,
                Some(last) => time.saturating_sub(last).min(STEP_MAX),
            };
            // Some captures have frames with more bytes than their size on the wire.
            let cut = (wire_size as usize).saturating_sub(captured.len());
            self.frames.push(CapturedFrame {
                step,
                wire_size: u32::try_from(bytes.len() + cut).unwrap_or(u32::MAX),
                bytes,
            });
        };
        let outcome = each_frame(path, &mut take)?;
        self.damaged += usize::from(outcome.is_err());
        self.files += usize::from(self.frames.len() > before);
        Ok(())
    }

    /// Writes the captures `repetitions` times as one.
    pub(super) fn write(&self, path: &Path, repetitions: u8) -> Result<Written, FileError> {
        let header = PcapHeader {
            snaplen: SNAPLEN,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let failed = |error: PcapError| match error {
            PcapError::IoError(source) => file(path)(source),
            other => file(path)(io::Error::other(other)),
        };
        let target = BufWriter::new(File::create(path).map_err(file(path))?);
        let mut writer = PcapWriter::with_header(target, header).map_err(failed)?;
        let mut written = Written { frames: 0, bytes: 0 };
        let mut time = START;
        let mut bytes = Vec::new();
        for repetition in 0..repetitions {
            for frame in &self.frames {
                time += frame.step;
                bytes.clear();
                bytes.extend_from_slice(&frame.bytes);
                set_addresses(&mut bytes, frame.wire_size as usize, repetition);
                let packet = PcapPacket::new(time, frame.wire_size, &bytes);
                writer.write_packet(&packet).map_err(failed)?;
                written.frames += 1;
                written.bytes += bytes.len() as u64;
            }
        }
        writer.into_writer().flush().map_err(file(path))?;
        Ok(written)
    }
}

/// Returns the paths of the captures beneath a folder, sorted.
fn paths(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(file(folder))? {
        let path = entry.map_err(file(folder))?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            found.extend(paths(&path)?);
        } else if matches!(extension, Some("pcap" | "pcapng" | "cap")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Gives a frame the addresses of a repetition.
fn set_addresses(frame: &mut [u8], wire_size: usize, repetition: u8) {
    let layers = Layers::parse_head(frame, wire_size, Depth::L4);
    let [ipv4, ipv6] = [IPV4, IPV6].map(|offsets| offsets.map(|offset| layers.l3_offset() + offset));
    match layers.l3() {
        L3::Ipv4 => {
            for (at, set) in ipv4.into_iter().zip([ipv4_src, ipv4_dst]) {
                if let Some(address) = ipv4_of(frame, at, repetition) {
                    set(frame, &layers, address.into());
                }
            }
        }
        L3::Ipv6 => {
            for (at, set) in ipv6.into_iter().zip([ipv6_src, ipv6_dst]) {
                if let Some(address) = ipv6_of(frame, at, repetition) {
                    set(frame, &layers, address.into());
                }
            }
        }
        _ => {}
    }
}

/// Returns the address of a repetition in the place of a unicast address.
fn ipv4_of(frame: &[u8], at: usize, repetition: u8) -> Option<[u8; 4]> {
    let mut address: [u8; 4] = frame.get(at..at + 4)?.try_into().ok()?;
    if !(1..224).contains(&address[0]) {
        return None;
    }
    address[1] = address[1].wrapping_add(repetition);
    Some(address)
}

/// As [`ipv4_of`].
fn ipv6_of(frame: &[u8], at: usize, repetition: u8) -> Option<[u8; 16]> {
    let mut address: [u8; 16] = frame.get(at..at + 16)?.try_into().ok()?;
    if address[0] == 0xff || address == [0; 16] {
        return None;
    }
    let second = u16::from_be_bytes([address[2], address[3]]).wrapping_add(repetition.into());
    address[2..4].copy_from_slice(&second.to_be_bytes());
    Some(address)
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use millrace_types::Mac;
    use millrace_wire::{Builder, tcp};
    use pcap_file::DataLink;
    use pcap_file::pcap::PcapReader;

    use super::*;

    /// Bytes of the frame of [`write_one`].
    pub(in super::super) const BYTES: usize = 47;

    /// Writes a capture with one frame.
    pub(in super::super) fn write_one(path: &Path) {
        write(path, 1, &[(0, udp(0))]);
    }

    fn write(path: &Path, link: u32, frames: &[(u64, Vec<u8>)]) {
        let header = PcapHeader {
            datalink: DataLink::from(link),
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
        for (seconds, bytes) in frames {
            let packet = PcapPacket::new(Duration::from_secs(*seconds), bytes.len() as u32, bytes);
            writer.write_packet(&packet).unwrap();
        }
    }

    fn started<'a>() -> Builder<'a> {
        Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
    }

    /// Returns the same frame as in repetition `number`: its addresses are written, and its checksums computed, anew.
    fn udp(number: u8) -> Vec<u8> {
        let frame = started().ipv4([10, number, 0, 1], [192, 168 + number, 0, 2]);
        frame.udp(53, 53).payload(b"query").build()
    }

    fn tcp(number: u8) -> Vec<u8> {
        // 255 is followed by 0.
        let frame = started()
            .vlan(7, 0)
            .ipv4([172, 255_u8.wrapping_add(number), 0, 1], [127, number, 0, 1]);
        let header = tcp::Repr {
            src: 1024,
            dst: 80,
            ..tcp::Repr::default()
        };
        frame.tcp(header).payload(b"GET /").build()
    }

    fn udp6(number: u8) -> Vec<u8> {
        let number = u16::from(number);
        let (src, dst) = (
            Ipv6Addr::new(0x2001, 0xdb8 + number, 0, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb),
        );
        started().ipv6(src, dst).udp(5353, 5353).payload(b"name").build()
    }

    /// Returns a frame whose addresses are those of every repetition.
    fn broadcast() -> Vec<u8> {
        let frame = started().ipv4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        frame.udp(68, 67).payload(b"discover").build()
    }

    /// Returns the frames of a capture, with their times.
    fn read(path: &Path) -> Vec<(Duration, Vec<u8>)> {
        let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            assert_eq!(packet.orig_len as usize, packet.data.len());
            frames.push((packet.timestamp, packet.data.into_owned()));
        }
        frames
    }

    #[test]
    fn every_frame_is_there_in_each_repetition_with_other_addresses_and_right_checksums() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        write(&folder.path().join("a.pcap"), 1, &[(50, udp(0)), (51, tcp(0))]);
        write(&inner.join("b.pcap"), 1, &[(20, udp6(0)), (21, broadcast())]);
        std::fs::write(folder.path().join("LICENSE"), "no capture").unwrap();
        let captures = Captures::read(folder.path()).unwrap();
        assert_eq!((captures.files, captures.not_taken()), (2, String::new()));
        let path = folder.path().join("out");
        let written = captures.write(&path, 3).unwrap();
        let frames = read(&path);
        let wanted: Vec<Vec<u8>> = (0..3)
            .flat_map(|number| [udp(number), tcp(number), udp6(number), broadcast()])
            .collect();
        let bytes: Vec<Vec<u8>> = frames.into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(bytes, wanted);
        assert_eq!(udp(0).len(), BYTES);
        let size = wanted.iter().map(|frame| frame.len() as u64).sum();
        assert_eq!(
            written,
            Written {
                frames: 12,
                bytes: size
            }
        );
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_and_none_stays_none() {
        let folder = tempfile::tempdir().unwrap();
        // The checksum of UDP is in bytes 40 and 41.
        let with = |mut frame: Vec<u8>, change: fn(u16) -> u16| {
            let checksum = u16::from_be_bytes([frame[40], frame[41]]);
            frame[40..42].copy_from_slice(&change(checksum).to_be_bytes());
            frame
        };
        let wrong = |sum: u16| if sum < 0x8000 { sum + 1 } else { sum - 1 };
        write(
            &folder.path().join("a.pcap"),
            1,
            &[(0, with(udp(0), |_| 0)), (0, with(udp(0), wrong))],
        );
        let path = folder.path().join("out");
        Captures::read(folder.path()).unwrap().write(&path, 2).unwrap();
        let frames = read(&path);
        assert_eq!(frames[2].1, with(udp(1), |_| 0));
        assert_ne!(frames[3].1, udp(1));
        assert_ne!(frames[3].1[26..34], frames[1].1[26..34]);
    }

    #[test]
    fn time_never_goes_backwards_and_does_not_leap() {
        let folder = tempfile::tempdir().unwrap();
        let years = 100_000_000;
        let times = [1000, 1010, 1005, years, years + 7];
        let of_second = times.map(|seconds| (seconds, udp(0)));
        write(&folder.path().join("a.pcap"), 1, &of_second);
        write(&folder.path().join("b.pcap"), 1, &[(3, udp(0)), (4, udp(0))]);
        let path = folder.path().join("out");
        Captures::read(folder.path()).unwrap().write(&path, 2).unwrap();
        let frames = read(&path);
        let steps: Vec<u64> = frames
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).as_secs())
            .collect();
        let (gap, leap) = (GAP.as_secs(), STEP_MAX.as_secs());
        assert_eq!(steps, [10, 0, leap, 7, gap, 1, gap, 10, 0, leap, 7, gap, 1]);
        assert_eq!(frames[0].0, START + GAP);
    }

    #[test]
    fn frames_of_other_link_types_are_converted_or_counted() {
        let folder = tempfile::tempdir().unwrap();
        let packet = udp(0)[14..].to_vec();
        let with = |header: &[u8]| vec![(0, [header, &packet].concat())];
        let mut cooked = [0; 16];
        cooked[14] = 8;
        let mut cooked2 = [0; 20];
        cooked2[0] = 8;
        for (name, link, frames) in [
            ("a", 0, with(&[2, 0, 0, 0])),
            ("b", 9, with(&[0xff, 3, 0, 0x21])),
            ("c", 101, with(&[])),
            ("d", 113, with(&cooked)),
            ("e", 228, with(&[])),
            ("f", 276, with(&cooked2)),
            ("g", 105, with(&[])),
            ("h", 105, with(&[])),
            ("i", 127, with(&[])),
        ] {
            write(&folder.path().join(format!("{name}.pcap")), link, &frames);
        }
        let captures = Captures::read(folder.path()).unwrap();
        assert_eq!(captures.files, 6);
        assert_eq!(
            captures.not_taken(),
            "; 3 frames of the link types 105, 127 are left out"
        );
        let path = folder.path().join("out");
        captures.write(&path, 2).unwrap();
        let frames = read(&path);
        assert_eq!(frames.len(), 12);
        for (_, frame) in &frames[..6] {
            assert_eq!(frame[12..], udp(0)[12..]);
        }
        for (_, frame) in &frames[6..] {
            assert_eq!(frame[12..], udp(1)[12..]);
        }
    }

    #[test]
    fn a_damaged_capture_is_read_up_to_the_damage_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        write(&path, 1, &[(0, udp(0)), (1, tcp(0))]);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        std::fs::write(folder.path().join("b.pcap"), "no capture").unwrap();
        let captures = Captures::read(folder.path()).unwrap();
        assert_eq!((captures.files, captures.frames.len()), (1, 1));
        assert_eq!(
            captures.not_taken(),
            "; 2 captures are damaged and read up to the damage"
        );
    }

    #[test]
    fn pcapng_is_read_in_the_units_of_its_interfaces() {
        let folder = tempfile::tempdir().unwrap();
        let block = |kind: u32, body: &[u8]| {
            let size = (body.len() as u32 + 12).to_le_bytes();
            [&kind.to_le_bytes()[..], &size, body, &size].concat()
        };
        let mut bytes = block(
            0x0a0d_0d0a,
            b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        );
        // The first interface counts microseconds, the second one milliseconds.
        bytes.extend(block(1, &[1, 0, 0, 0, 0, 0, 0, 0]));
        bytes.extend(block(
            1,
            &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ));
        let mut frame = udp(0);
        let size = frame.len() as u32;
        frame.resize(frame.len().next_multiple_of(4), 0);
        for (interface, units) in [(0_u32, 2_000_000_u32), (1, 5_000), (0, 6_000_000)] {
            let fields = [interface, 0, units, size, size].map(u32::to_le_bytes).concat();
            bytes.extend(block(6, &[&fields[..], &frame].concat()));
        }
        std::fs::write(folder.path().join("a.pcapng"), bytes).unwrap();
        let captures = Captures::read(folder.path()).unwrap();
        let steps: Vec<u64> = captures.frames.iter().map(|frame| frame.step.as_secs()).collect();
        assert_eq!(steps, [GAP.as_secs(), 3, 1]);
        assert!(captures.frames.iter().all(|frame| frame.bytes == udp(0)));
    }
}
