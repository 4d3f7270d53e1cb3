//! Capture files: pcap and pcapng, one frame at a time.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use millrace_types::Time;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{PcapError, TsResolution};
use thiserror::Error;

use crate::summary::CaptureSummary;

/// The first bytes of a pcapng file: the type of its section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The link type of Ethernet, for interfaces that a pcapng file does not describe.
const ETHERNET: u32 = 1;

/// The reason why a capture cannot be read.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Open {
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is not a capture, or it is damaged.
    #[error("{}: after {frames} frames: {source}; expected a pcap or pcapng file", path.display())]
    Format {
        path: PathBuf,
        /// Frames before the damage.
        frames: u64,
        /// These frames, counted, if an engine inspected them.
        read: Box<CaptureSummary>,
        source: PcapError,
    },
}

/// A frame of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedFrame {
    /// The link type, by the number that tcpdump.org assigns.
    pub link: u32,
    /// Time of the capture.
    pub time: Time,
    pub bytes: Vec<u8>,
    /// Size of the frame on the wire in bytes.
    pub wire_size: u32,
}

enum Format {
    Pcap(Box<PcapReader<Source>>),
    PcapNg {
        reader: Box<PcapNgReader<Source>>,
        /// The interfaces of the section.
        interfaces: Vec<Interface>,
    },
}

/// An interface of a pcapng file.
#[derive(Clone, Copy)]
struct Interface {
    link: u32,
    /// Number of timestamp units in a second.
    units: u128,
    /// Seconds that are added to its timestamps (option `if_tsoffset`).
    offset: i64,
}

impl Interface {
    /// An interface without a description or options: its timestamps are in microseconds.
    const DEFAULT: Interface = Interface {
        link: ETHERNET,
        units: 1_000_000,
        offset: 0,
    };

    fn new(description: &InterfaceDescriptionBlock<'_>) -> Interface {
        let mut interface = Interface {
            link: u32::from(description.linktype),
            ..Interface::DEFAULT
        };
        for option in &description.options {
            match option {
                // The high bit selects a power of 2 instead of a power of 10. If a second has more units than
                // 128 bits can hold, every timestamp counts as 0.
                InterfaceDescriptionOption::IfTsResol(resolution) => {
                    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
                    let units = base.checked_pow(u32::from(resolution & 0x7f));
                    interface.units = units.unwrap_or(u128::MAX);
                }
                InterfaceDescriptionOption::IfTsOffset(offset) => {
                    // The reader returns this signed number as an unsigned one.
                    interface.offset = i64::from_ne_bytes(offset.to_ne_bytes());
                }
                _ => {}
            }
        }
        interface
    }

    /// Returns the time of a number of units.
    fn time(self, units: u128) -> Time {
        let nanos = units.saturating_mul(1_000_000_000) / self.units;
        let offset = i128::from(self.offset) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

type Source = io::Chain<io::Cursor<Vec<u8>>, BufReader<File>>;

/// Reads the frames of a capture in their order.
pub struct CaptureReader {
    path: PathBuf,
    format: Format,
    frames: u64,
    is_file: bool,
}

impl core::fmt::Debug for CaptureReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CaptureReader")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl CaptureReader {
    /// Opens a capture.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn open(path: &Path) -> Result<CaptureReader, CaptureError> {
        let open = |source| CaptureError::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(open)?;
        let is_file = file.metadata().map_err(open)?.is_file();
        let mut file = BufReader::new(file);
        let mut first = Vec::new();
        file.by_ref().take(4).read_to_end(&mut first).map_err(open)?;
        let is_pcapng = first == PCAPNG;
        let source = io::Cursor::new(first).chain(file);
        let format = |source| CaptureError::Format {
            path: path.to_owned(),
            frames: 0,
            read: Box::default(),
            source,
        };
        let format = match is_pcapng {
            true => Format::PcapNg {
                reader: Box::new(PcapNgReader::new(source).map_err(format)?),
                interfaces: Vec::new(),
            },
            false => Format::Pcap(Box::new(PcapReader::new(source).map_err(format)?)),
        };
        Ok(CaptureReader {
            path: path.to_owned(),
            format,
            frames: 0,
            is_file,
        })
    }

    /// Returns false if the capture comes from a pipe or a device.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Returns the next frame, or `None` at the end.
    ///
    /// # Errors
    /// [`CaptureError::Format`].
    pub fn next_frame(&mut self) -> Result<Option<CapturedFrame>, CaptureError> {
        let mut frame = CapturedFrame::default();
        Ok(self.read_frame(&mut frame)?.then_some(frame))
    }

    /// Reads the next frame into the memory of another; returns false at the end.
    ///
    /// # Errors
    /// [`CaptureError::Format`].
    pub fn read_frame(&mut self, frame: &mut CapturedFrame) -> Result<bool, CaptureError> {
        let result = match &mut self.format {
            Format::Pcap(reader) => next_of_pcap(reader, frame),
            Format::PcapNg { reader, interfaces } => next_of_pcapng(reader, interfaces, frame),
        };
        let is_read = result.map_err(|source| CaptureError::Format {
            path: self.path.clone(),
            frames: self.frames,
            read: Box::default(),
            source,
        })?;
        self.frames += u64::from(is_read);
        Ok(is_read)
    }
}

impl CapturedFrame {
    /// Replaces the frame, and keeps its memory.
    fn replace(&mut self, link: u32, time: Time, wire_size: u32, bytes: &[u8]) {
        (self.link, self.time, self.wire_size) = (link, time, wire_size);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }
}

fn next_of_pcap(reader: &mut PcapReader<Source>, frame: &mut CapturedFrame) -> Result<bool, PcapError> {
    let header = reader.header();
    // Some captures have frames longer than their snapshot length, so frames are read without a check of their size.
    let Some(packet) = reader.next_raw_packet().transpose()? else {
        return Ok(false);
    };
    let fraction = match header.ts_resolution {
        TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
        TsResolution::NanoSecond => u64::from(packet.ts_frac),
    };
    let time = Time::from_nanos(u64::from(packet.ts_sec) * 1_000_000_000 + fraction);
    frame.replace(u32::from(header.datalink), time, packet.orig_len, &packet.data);
    Ok(true)
}

fn next_of_pcapng(
    reader: &mut PcapNgReader<Source>,
    interfaces: &mut Vec<Interface>,
    frame: &mut CapturedFrame,
) -> Result<bool, PcapError> {
    while let Some(block) = reader.next_block().transpose()? {
        match block {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(description) => interfaces.push(Interface::new(&description)),
            Block::EnhancedPacket(packet) => {
                let interface = interfaces.get(packet.interface_id as usize).copied();
                let interface = interface.unwrap_or(Interface::DEFAULT);
                // The reader returns the number of units as nanoseconds, whatever the unit is.
                let time = interface.time(packet.timestamp.as_nanos());
                frame.replace(interface.link, time, packet.original_len, &packet.data);
                return Ok(true);
            }
            Block::SimplePacket(packet) => {
                let link = interfaces.first().unwrap_or(&Interface::DEFAULT).link;
                frame.replace(link, Time::ZERO, packet.original_len, &packet.data);
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Appends a block. The size of the body is a multiple of four bytes.
    fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let size = (body.len() as u32 + 12).to_le_bytes();
        out.extend(kind.to_le_bytes());
        out.extend(size);
        out.extend(body);
        out.extend(size);
    }

    /// Returns a capture with one frame. Its timestamp counts the units of an interface with these options.
    fn capture(options: &[u8], units: u64) -> Vec<u8> {
        let mut out = Vec::new();
        block(
            &mut out,
            0x0a0d_0d0a,
            b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        );
        block(&mut out, 1, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], options].concat());
        let mut packet = vec![0; 4];
        packet.extend(((units >> 32) as u32).to_le_bytes());
        packet.extend((units as u32).to_le_bytes());
        packet.extend([4, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]);
        block(&mut out, 6, &packet);
        out
    }

    #[test]
    fn times_of_pcapng_are_in_the_units_of_their_interface() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let wanted = Time::from_nanos(1_700_000_000_500_000_000);
        let cases: [(&[u8], u64); 6] = [
            (&[], 1_700_000_000_500_000),
            (&[9, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0], 1_700_000_000_500_000),
            (&[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0], 1_700_000_000_500_000_000),
            (&[9, 0, 1, 0, 0x81, 0, 0, 0, 0, 0, 0, 0], 3_400_000_001),
            (
                &[14, 0, 8, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                1_699_999_900_500_000,
            ),
            (
                &[14, 0, 8, 0, 156, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0],
                1_700_000_100_500_000,
            ),
        ];
        for (options, units) in cases {
            std::fs::write(&path, capture(options, units)).unwrap();
            let frame = CaptureReader::open(&path).unwrap().next_frame().unwrap().unwrap();
            assert_eq!(frame.time, wanted, "{options:?}");
            assert_eq!(frame.bytes, [1, 2, 3, 4]);
        }
        std::fs::write(&path, capture(&[9, 0, 1, 0, 0x7f, 0, 0, 0, 0, 0, 0, 0], u64::MAX)).unwrap();
        let frame = CaptureReader::open(&path).unwrap().next_frame().unwrap().unwrap();
        assert_eq!(frame.time, Time::ZERO);
    }
}
