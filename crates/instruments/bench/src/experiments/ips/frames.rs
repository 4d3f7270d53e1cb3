//! The frames of capture files, pcap and pcapng, as frames of Ethernet.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use millrace_wire::EtherType;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{PcapError, TsResolution};

use crate::file_error::{FileError, file};

/// The first bytes of a pcapng file: the type of its section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Bytes of an Ethernet header before its EtherType.
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// Passes each frame of a capture on: link type, time, size on the wire, bytes. Link types have the numbers that tcpdump.org
/// assigns. Returns the damage up to which the capture was read, if there is any.
pub(super) fn each_frame(
    path: &Path,
    take: &mut impl FnMut(u32, Duration, u32, &[u8]),
) -> Result<Result<(), PcapError>, FileError> {
    let mut source = BufReader::new(File::open(path).map_err(file(path))?);
    let mut first = Vec::new();
    let start = source.by_ref().take(4).read_to_end(&mut first);
    start.map_err(file(path))?;
    let is_pcapng = first == PCAPNG;
    let source = io::Cursor::new(first).chain(source);
    Ok(match is_pcapng {
        true => each_of_pcapng(source, take),
        false => each_of_pcap(source, take),
    })
}

/// As [`each_frame`], of a pcap file.
fn each_of_pcap(
    source: impl io::Read,
    take: &mut impl FnMut(u32, Duration, u32, &[u8]),
) -> Result<(), PcapError> {
    let mut reader = PcapReader::new(source)?;
    let header = reader.header();
    let nanos = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    // Some captures have frames longer than their snapshot length, so frames are read without a check of their size.
    while let Some(packet) = reader.next_raw_packet().transpose()? {
        let time = Duration::from_secs(packet.ts_sec.into())
            + Duration::from_nanos(u64::from(packet.ts_frac) * nanos);
        take(u32::from(header.datalink), time, packet.orig_len, &packet.data);
    }
    Ok(())
}

/// As [`each_frame`], of a pcapng file. Only differences of times matter, so offsets of interfaces are not read.
fn each_of_pcapng(
    source: impl io::Read,
    take: &mut impl FnMut(u32, Duration, u32, &[u8]),
) -> Result<(), PcapError> {
    let mut reader = PcapNgReader::new(source)?;
    // Link type of each interface of the section, and nanoseconds of a unit of its timestamps.
    let mut interfaces: Vec<(u32, u64)> = Vec::new();
    while let Some(block) = reader.next_block().transpose()? {
        match block {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(description) => {
                let digits = description.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfTsResol(digits) => Some(*digits),
                    _ => None,
                });
                let unit = 10_u64.pow(9_u32.saturating_sub(digits.unwrap_or(6).into()));
                interfaces.push((u32::from(description.linktype), unit));
            }
            Block::EnhancedPacket(packet) => {
                let Some((link, unit)) = interfaces.get(packet.interface_id as usize) else {
                    return Err(PcapError::InvalidField(
                        "a frame of an interface that is not described",
                    ));
                };
                // The reader returns the number of units as nanoseconds, whatever the unit is.
                let units = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
                let time = Duration::from_nanos(units.saturating_mul(*unit));
                take(*link, time, packet.original_len, &packet.data);
            }
            Block::SimplePacket(packet) => {
                let Some((link, _)) = interfaces.first() else {
                    return Err(PcapError::InvalidField(
                        "a frame of an interface that is not described",
                    ));
                };
                take(*link, Duration::ZERO, packet.original_len, &packet.data);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns a frame as one of Ethernet; `None` if its link type is not converted.
pub(super) fn ethernet(link: u32, bytes: &[u8]) -> Option<Vec<u8>> {
    const ETHERNET: u32 = 1;
    const NULL: u32 = 0;
    const PPP: u32 = 9;
    const RAW: u32 = 101;
    const LOOP: u32 = 108;
    const LINUX_SLL: u32 = 113;
    const IPV4: u32 = 228;
    const IPV6: u32 = 229;
    const LINUX_SLL2: u32 = 276;
    let protocol = |at: usize| {
        Some(EtherType(u16::from_be_bytes(
            bytes.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    // The EtherType and the size of the header that is replaced.
    let (ether_type, header) = match link {
        ETHERNET => return Some(bytes.to_vec()),
        NULL | LOOP => (of_version(bytes.get(4..)?)?, 4),
        PPP => match bytes.get(..4)? {
            [0xff, 0x03, 0x00, 0x21] => (EtherType::IPV4, 4),
            [0xff, 0x03, 0x00, 0x57] => (EtherType::IPV6, 4),
            [0x00, 0x21, ..] => (EtherType::IPV4, 2),
            [0x00, 0x57, ..] => (EtherType::IPV6, 2),
            _ => return None,
        },
        RAW | IPV4 | IPV6 => (of_version(bytes)?, 0),
        LINUX_SLL => (protocol(14)?, 16),
        LINUX_SLL2 => (protocol(0)?, 20),
        _ => return None,
    };
    let packet = bytes.get(header..)?;
    Some([&ADDRESSES[..], &ether_type.0.to_be_bytes(), packet].concat())
}

/// Returns the EtherType of an IP packet by its version.
fn of_version(packet: &[u8]) -> Option<EtherType> {
    match packet.first()? >> 4 {
        4 => Some(EtherType::IPV4),
        6 => Some(EtherType::IPV6),
        _ => None,
    }
}
