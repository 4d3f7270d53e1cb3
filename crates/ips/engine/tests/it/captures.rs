//! Captures, and the form in which alerts are compared; the example `read` has it too.

use std::io::Cursor;
use std::net::IpAddr;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// A frame of a capture.
pub(crate) struct Record {
    /// Link layer, as pcap numbers it.
    pub(crate) link: u32,
    /// Time since 1970 in nanoseconds.
    pub(crate) nanos: u64,
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
}

/// Returns the frames of a capture up to the first that is not readable.
pub(crate) fn frames(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let Ok(mut reader) = PcapNgReader::new(Cursor::new(bytes)) else {
            return records;
        };
        let mut links: Vec<u32> = Vec::new();
        while let Some(Ok(block)) = reader.next_block() {
            match block {
                Block::SectionHeader(_) => links.clear(),
                Block::InterfaceDescription(interface) => links.push(u32::from(interface.linktype)),
                Block::EnhancedPacket(packet) => records.push(Record {
                    link: links.get(packet.interface_id as usize).copied().unwrap_or(1),
                    nanos: packet.timestamp.as_nanos() as u64,
                    bytes: packet.data.into_owned(),
                }),
                Block::SimplePacket(packet) => records.push(Record {
                    link: links.first().copied().unwrap_or(1),
                    nanos: 0,
                    bytes: packet.data.into_owned(),
                }),
                _ => {}
            }
        }
        return records;
    }
    let Ok(mut reader) = PcapReader::new(Cursor::new(bytes)) else {
        return records;
    };
    let link = u32::from(reader.header().datalink);
    let resolution = reader.header().ts_resolution;
    while let Some(Ok(packet)) = reader.next_raw_packet() {
        let fraction = match resolution {
            pcap_file::TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
            pcap_file::TsResolution::NanoSecond => u64::from(packet.ts_frac),
        };
        records.push(Record {
            link,
            nanos: u64::from(packet.ts_sec) * 1_000_000_000 + fraction,
            bytes: packet.data.into_owned(),
        });
    }
    records
}

/// Returns an address as the answers have it.
pub(crate) fn address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let groups: Vec<String> = address
                .segments()
                .iter()
                .map(|group| format!("{group:04x}"))
                .collect();
            groups.join(":")
        }
    }
}

/// Returns the name of an IP protocol.
pub(crate) fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        2 => "IGMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        0 => "HOPOPT".to_owned(),
        41 => "IPv6".to_owned(),
        44 => "IPv6-Frag".to_owned(),
        47 => "GRE".to_owned(),
        50 => "ESP".to_owned(),
        88 => "EIGRP".to_owned(),
        103 => "PIM".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        89 => "OSPF".to_owned(),
        132 => "SCTP".to_owned(),
        number => format!("{number:03}"),
    }
}
