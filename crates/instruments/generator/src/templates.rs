//! The packets to send repeatedly, built once: sending one is a copy and a stamp.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use thiserror::Error;

use crate::pattern::Pattern;
use crate::stamp::StampLocation;

/// The longest frame in bytes.
pub const FRAME_MAX: usize = 9_600;
/// The shortest frame in bytes: an Ethernet header.
const FRAME_MIN: usize = 14;

/// An error in the packets to send.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a capture file.
    #[error("{}: not a capture file (pcap): {reason}. To fix it: convert it, `editcap -F pcap IN OUT`", .path.display())]
    Format {
        path: PathBuf,
        /// The error of the parser.
        reason: String,
    },
    /// The packet is too short or too long.
    #[error("packet {number} has {size} bytes: expected {FRAME_MIN} to {FRAME_MAX}, without check sequence")]
    Size {
        /// The number of the packet, from 1.
        number: usize,
        /// The size of the packet in bytes.
        size: usize,
    },
    /// The list of packets is empty.
    #[error("there is no packet to send. To fix it: give a capture file with packets, or --flows 1 or more")]
    Empty,
}

/// A packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    start: usize,
    size: u16,
    /// The location of the stamp; `None` if the packet has no room for one.
    pub location: Option<StampLocation>,
    /// The index of the flow.
    pub flow: u32,
}

impl Template {
    /// Returns the size of the packet in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        usize::from(self.size)
    }
}

/// The packets, in the order of sending.
#[derive(Debug, Clone)]
pub struct Templates {
    bytes: Vec<u8>,
    list: Vec<Template>,
    flows: usize,
    size_max: usize,
}

impl Templates {
    /// Returns the packets of a capture file.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn from_pcap(path: &Path) -> Result<Templates, TemplateError> {
        let format = |error: pcap_file::PcapError| TemplateError::Format {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let file = File::open(path).map_err(|source| TemplateError::File {
            path: path.to_owned(),
            source,
        })?;
        let mut reader = PcapReader::new(BufReader::with_capacity(1 << 20, file)).map_err(format)?;
        let mut builder = TemplatesBuilder::default();
        while let Some(packet) = reader.next_packet() {
            builder.add(&packet.map_err(format)?.data)?;
        }
        builder.finish()
    }

    /// Returns the packets of a pattern.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn from_pattern(pattern: &Pattern) -> Result<Templates, TemplateError> {
        let mut builder = TemplatesBuilder::default();
        pattern.frames().try_for_each(|frame| builder.add(&frame))?;
        builder.finish()
    }

    /// Returns the number of packets.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows
    }

    /// Returns the size of the longest packet in bytes.
    pub fn size_max(&self) -> usize {
        self.size_max
    }

    /// Returns the number of packets with room for a stamp.
    pub fn stampable(&self) -> usize {
        self.list
            .iter()
            .filter(|template| template.location.is_some())
            .count()
    }

    /// Returns true if every packet of a range has room for a stamp.
    pub fn are_stampable(&self, range: Range<usize>) -> bool {
        let packets = self.list.get(range).unwrap_or_default();
        packets.iter().all(|template| template.location.is_some())
    }

    /// Returns the packet at an index below [`Templates::len`], and its bytes.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&Template, &[u8])> {
        let template = self.list.get(index)?;
        let bytes = self.bytes.get(template.start..template.start + template.size())?;
        Some((template, bytes))
    }
}

#[derive(Default)]
struct TemplatesBuilder {
    bytes: Vec<u8>,
    list: Vec<Template>,
    flows: HashMap<Vec<u8>, u32>,
    size_max: usize,
}

impl TemplatesBuilder {
    fn add(&mut self, frame: &[u8]) -> Result<(), TemplateError> {
        if !(FRAME_MIN..=FRAME_MAX).contains(&frame.len()) {
            return Err(TemplateError::Size {
                number: self.list.len() + 1,
                size: frame.len(),
            });
        }
        let next = self.flows.len() as u32;
        let flow = *self.flows.entry(flow_key(frame)).or_insert(next);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        let location = StampLocation::of(frame);
        if let (Some(location), Some(copy)) = (location, self.bytes.get_mut(start..)) {
            location.clear(copy);
        }
        self.size_max = self.size_max.max(frame.len());
        self.list.push(Template {
            start,
            // The size is at most FRAME_MAX, as checked above.
            size: frame.len() as u16,
            location,
            flow,
        });
        Ok(())
    }

    fn finish(self) -> Result<Templates, TemplateError> {
        if self.list.is_empty() {
            return Err(TemplateError::Empty);
        }
        Ok(Templates {
            bytes: self.bytes,
            list: self.list,
            flows: self.flows.len(),
            size_max: self.size_max,
        })
    }
}

/// Returns the bytes that identify the flow: MAC addresses, the outermost VLAN tag, and the 5-tuple if there is one.
fn flow_key(frame: &[u8]) -> Vec<u8> {
    use millrace_wire::{Depth, L3, L4, Layers};
    let layers = Layers::parse(frame, Depth::L4);
    let mut key = frame[..12].to_vec();
    let mut add = |from: usize, to: usize| key.extend_from_slice(frame.get(from..to).unwrap_or_default());
    if layers.vlan_count() > 0 {
        add(12, 16);
    }
    let l3 = layers.l3_offset();
    match layers.l3() {
        L3::Ipv4 => {
            add(l3 + 9, l3 + 10);
            add(l3 + 12, l3 + 20);
        }
        L3::Ipv6 => {
            add(l3 + 6, l3 + 7);
            add(l3 + 8, l3 + 40);
        }
        _ => add(12, l3.max(14)),
    }
    if matches!(layers.l4(), L4::Tcp | L4::Udp | L4::Sctp) {
        add(layers.l4_offset(), layers.l4_offset() + 4);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Addresses, Sizes};
    use std::time::Duration;

    use pcap_file::pcap::{PcapPacket, PcapWriter};

    #[test]
    fn flows_are_told_apart_by_their_addresses_and_ports() {
        let pattern = Pattern {
            flows: 100,
            addresses: Addresses::Random,
            ..Pattern::default()
        };
        let templates = Templates::from_pattern(&pattern).unwrap();
        assert_eq!(templates.flows(), 100);
        assert!(templates.len() >= 512 && templates.len().is_multiple_of(100));
        assert_eq!(templates.stampable(), templates.len());
        let (first, bytes) = templates.get(0).unwrap();
        assert_eq!((first.size(), bytes.len()), (60, 60));
        assert!(templates.get(templates.len()).is_none());
    }

    #[test]
    fn a_capture_file_is_taken_as_it_is_but_for_the_place_of_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pcap");
        let frames: Vec<Vec<u8>> = Pattern {
            sizes: Sizes::fixed(128),
            flows: 3,
            ..Pattern::default()
        }
        .frames()
        .take(6)
        .collect();
        let mut writer = PcapWriter::new(File::create(&path).unwrap()).unwrap();
        for frame in &frames {
            let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, frame);
            writer.write_packet(&packet).unwrap();
        }
        let templates = Templates::from_pcap(&path).unwrap();
        assert_eq!((templates.len(), templates.flows()), (6, 3));
        let (template, bytes) = templates.get(4).unwrap();
        let end = template.location.unwrap().end();
        assert_eq!(bytes[end..], frames[4][end..]);
        assert_eq!(bytes[..42], frames[4][..42]);
    }

    #[test]
    fn a_range_without_the_packet_that_has_no_room_for_a_stamp_is_stampable() {
        let mut builder = TemplatesBuilder::default();
        let frames: Vec<_> = Pattern::default().frames().take(2).collect();
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        for frame in [&frames[0], &frames[1], &arp] {
            builder.add(frame).unwrap();
        }
        let templates = builder.finish().unwrap();
        assert_eq!((templates.len(), templates.stampable()), (3, 2));
        let are_stampable = [0..2, 1..2, 0..3, 2..3].map(|range| templates.are_stampable(range));
        assert_eq!(are_stampable, [true, true, false, false]);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_its_number() {
        let mut builder = TemplatesBuilder::default();
        builder.add(&[0; 60]).unwrap();
        let error = builder.add(&[0; 10]).unwrap_err();
        assert!(error.to_string().starts_with("packet 2 has 10 bytes"), "{error}");
        assert!(matches!(
            TemplatesBuilder::default().finish(),
            Err(TemplateError::Empty)
        ));
    }
}
