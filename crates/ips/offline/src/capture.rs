//! Capture files: pcap and pcapng, one frame at a time.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use millrace_types::Time;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{PcapError, TsResolution};
use thiserror::Error;

/// The first bytes of a pcapng file: the type of its section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The link type of Ethernet, for interfaces that a pcapng file does not describe.
const ETHERNET: u32 = 1;

/// Why a capture cannot be read.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is no capture, or damaged.
    #[error("{}: after {frames} frames: {source}; expected a pcap or pcapng file", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Frames before the damage.
        frames: u64,
        /// The reason.
        source: PcapError,
    },
}

/// A frame of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedFrame {
    /// The link type, by the number that tcpdump.org assigns.
    pub link: u32,
    /// Time of the capture.
    pub time: Time,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes that the frame had on the wire.
    pub wire_size: u32,
}

enum Format {
    Pcap(Box<PcapReader<Source>>),
    PcapNg {
        reader: Box<PcapNgReader<Source>>,
        /// The link types of the interfaces of the section.
        links: Vec<u32>,
    },
}

type Source = io::Chain<io::Cursor<Vec<u8>>, BufReader<File>>;

/// Reads the frames of a capture in their order.
pub struct CaptureReader {
    path: PathBuf,
    format: Format,
    frames: u64,
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
        let mut file = BufReader::new(File::open(path).map_err(open)?);
        let mut first = Vec::new();
        file.by_ref().take(4).read_to_end(&mut first).map_err(open)?;
        let is_pcapng = first == PCAPNG;
        let source = io::Cursor::new(first).chain(file);
        let format = |source| CaptureError::Format {
            path: path.to_owned(),
            frames: 0,
            source,
        };
        let format = match is_pcapng {
            true => Format::PcapNg {
                reader: Box::new(PcapNgReader::new(source).map_err(format)?),
                links: Vec::new(),
            },
            false => Format::Pcap(Box::new(PcapReader::new(source).map_err(format)?)),
        };
        Ok(CaptureReader {
            path: path.to_owned(),
            format,
            frames: 0,
        })
    }

    /// Returns the next frame, or `None` at the end.
    ///
    /// # Errors
    /// [`CaptureError::Format`].
    pub fn next_frame(&mut self) -> Result<Option<CapturedFrame>, CaptureError> {
        let frame = match &mut self.format {
            Format::Pcap(reader) => next_of_pcap(reader),
            Format::PcapNg { reader, links } => next_of_pcapng(reader, links),
        };
        let frame = frame.map_err(|source| CaptureError::Format {
            path: self.path.clone(),
            frames: self.frames,
            source,
        })?;
        self.frames += u64::from(frame.is_some());
        Ok(frame)
    }
}

fn next_of_pcap(reader: &mut PcapReader<Source>) -> Result<Option<CapturedFrame>, PcapError> {
    let header = reader.header();
    // Captures hold sizes beyond their own limit, so packets are read without checks of it.
    let Some(packet) = reader.next_raw_packet().transpose()? else {
        return Ok(None);
    };
    let fraction = match header.ts_resolution {
        TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
        TsResolution::NanoSecond => u64::from(packet.ts_frac),
    };
    Ok(Some(CapturedFrame {
        link: u32::from(header.datalink),
        time: Time::from_nanos(u64::from(packet.ts_sec) * 1_000_000_000 + fraction),
        wire_size: packet.orig_len,
        bytes: packet.data.into_owned(),
    }))
}

fn next_of_pcapng(
    reader: &mut PcapNgReader<Source>,
    links: &mut Vec<u32>,
) -> Result<Option<CapturedFrame>, PcapError> {
    while let Some(block) = reader.next_block().transpose()? {
        match block {
            Block::SectionHeader(_) => links.clear(),
            Block::InterfaceDescription(interface) => links.push(u32::from(interface.linktype)),
            Block::EnhancedPacket(packet) => {
                let link = links.get(packet.interface_id as usize).copied();
                return Ok(Some(CapturedFrame {
                    link: link.unwrap_or(ETHERNET),
                    time: Time::from_nanos(packet.timestamp.as_nanos() as u64),
                    wire_size: packet.original_len,
                    bytes: packet.data.into_owned(),
                }));
            }
            Block::SimplePacket(packet) => {
                return Ok(Some(CapturedFrame {
                    link: links.first().copied().unwrap_or(ETHERNET),
                    time: Time::ZERO,
                    wire_size: packet.original_len,
                    bytes: packet.data.into_owned(),
                }));
            }
            _ => {}
        }
    }
    Ok(None)
}
