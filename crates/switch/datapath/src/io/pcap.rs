//! Capture files as a device: replays one file, and records into another.
//!
//! The file to replay is read into memory first, so that replaying costs a copy but no disk access.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use millrace_types::Mac;
use millrace_wire::Packet;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};

use super::allocate::Allocate;
use super::{
    Burst, Device, DeviceInfo, DeviceSpec, DeviceStats, OpenError, Opened, PortModes, RxQueue, TxQueue,
};

/// The longest frame that is recorded without truncation, in bytes.
const SNAPLEN: u32 = 65_535;

pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    rx: Option<&Path>,
    tx: Option<&Path>,
    repeat: bool,
    allocate: &Allocate<P>,
) -> Result<Opened<P>, OpenError> {
    let failed = |path: &Path, reason: String, next_step: &str| OpenError::Failed {
        device: spec.to_string(),
        reason: format!("{}: {reason}", path.display()),
        next_step: next_step.to_owned(),
    };
    let frames = match rx {
        None => Vec::new(),
        Some(path) => {
            let file = File::open(path).map_err(|error| OpenError::Missing {
                device: spec.to_string(),
                reason: format!("{}: {error}", path.display()),
                next_step: "name a capture file that this process may read".to_owned(),
            })?;
            let frames = read_all(BufReader::new(file))
                .map_err(|reason| failed(path, reason, "name a pcap file of Ethernet frames"))?;
            if let Some(reason) = too_long(&frames, allocate) {
                let next_step = "capture the frames as they are on the wire (ethtool -K … gro off tso off), or cut them with \
                                 editcap -s";
                return Err(failed(path, reason, next_step));
            }
            frames
        }
    };
    let writer = match tx {
        None => None,
        Some(path) => {
            let header = PcapHeader {
                datalink: DataLink::ETHERNET,
                snaplen: SNAPLEN,
                ..PcapHeader::default()
            };
            let writer = File::create(path)
                .map_err(|error| error.to_string())
                .and_then(|file| {
                    PcapWriter::with_header(BufWriter::new(file), header).map_err(|error| error.to_string())
                })
                .map_err(|reason| failed(path, reason, "name a file that this process may write"))?;
            Some(writer)
        }
    };
    let at = if repeat || !frames.is_empty() {
        0
    } else {
        frames.len()
    };
    Ok(Opened {
        rx: vec![Box::new(Replay {
            frames,
            at,
            repeat,
            allocate: Allocate::clone(allocate),
        })],
        tx: vec![Box::new(Record { writer })],
        device: Box::new(PcapDevice {
            rx: rx.map(PathBuf::from),
        }),
    })
}

fn read_all(file: impl Read) -> Result<Vec<Box<[u8]>>, String> {
    let mut reader = PcapReader::new(file).map_err(|error| error.to_string())?;
    if reader.header().datalink != DataLink::ETHERNET {
        return Err(format!(
            "its link type is {:?}, not Ethernet",
            reader.header().datalink
        ));
    }
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(|error| format!("packet {}: {error}", frames.len() + 1))?;
        frames.push(packet.data.into_owned().into_boxed_slice());
    }
    Ok(frames)
}

/// Returns the reason why the frames cannot be replayed, if one is longer than a packet of this switch may be. Such a
/// frame finds no buffer, whereas a short one does.
fn too_long<P>(frames: &[Box<[u8]>], allocate: &Allocate<P>) -> Option<String> {
    let (number, frame) = (1..).zip(frames).max_by_key(|(_, frame)| frame.len())?;
    if allocate(frame).is_some() || allocate(&[]).is_none() {
        return None;
    }
    let size = frame.len();
    Some(format!(
        "packet {number} has {size} bytes, and no buffer of the switch holds it"
    ))
}

struct Replay<P> {
    frames: Vec<Box<[u8]>>,
    at: usize,
    repeat: bool,
    allocate: Allocate<P>,
}

impl<P: Packet> RxQueue<P> for Replay<P> {
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        while !burst.is_full() {
            let Some(frame) = self.frames.get(self.at) else {
                return;
            };
            // No buffer is free: the same frame is tried again at the next burst.
            let Some(packet) = (self.allocate)(frame) else {
                return;
            };
            burst.push(packet);
            self.at += 1;
            if self.repeat && self.at == self.frames.len() {
                self.at = 0;
            }
        }
    }
}

/// Records sent packets; without a file, discards them.
struct Record {
    writer: Option<PcapWriter<BufWriter<File>>>,
}

impl<P: Packet> TxQueue<P> for Record {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let Some(writer) = &mut self.writer else {
            burst.clear();
            return;
        };
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        for packet in burst.drain(..) {
            let mut bytes = Vec::with_capacity(packet.len());
            packet.copy_to(&mut bytes, SNAPLEN as usize);
            let record = PcapPacket::new_owned(now, packet.len() as u32, bytes);
            if let Err(error) = writer.write_packet(&record) {
                tracing::warn!(%error, "capture file: writing stopped");
                self.writer = None;
                return;
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.into_writer().flush()
        {
            tracing::warn!(%error, "capture file: the last packets are lost");
        }
    }
}

struct PcapDevice {
    rx: Option<PathBuf>,
}

impl Device for PcapDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "pcap".to_owned(),
            mac: Mac([0x02, 0, 0, 0, 0, 0]),
            speed_mbps: None,
            link_up: self.rx.as_ref().is_none_or(|path| path.exists()),
            modes: PortModes::default(),
            mtu: 9582,
            numa_node: None,
            rx_queues: 1,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn set_link(&mut self, _up: bool) {}
}

#[cfg(test)]
mod tests {
    use millrace_wire::FramePool;

    use super::*;

    #[test]
    fn a_capture_with_a_frame_that_is_longer_than_a_buffer_is_refused_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gro.pcap");
        let spec = DeviceSpec::Pcap {
            rx: Some(path.clone()),
            tx: None,
            repeat: false,
        };
        let pool = FramePool::new(4, 9728);
        let allocate: Allocate<_> = std::sync::Arc::new(move |bytes: &[u8]| pool.take(bytes));
        for (longest, is_replayed) in [(9728, true), (20_000, false)] {
            let mut writer = PcapWriter::new(File::create(&path).unwrap()).unwrap();
            for size in [100, longest, 100] {
                let packet = PcapPacket::new_owned(core::time::Duration::ZERO, size as u32, vec![7; size]);
                writer.write_packet(&packet).unwrap();
            }
            drop(writer);
            let opened = open(&spec, Some(&path), None, false, &allocate);
            match opened {
                Ok(mut opened) => {
                    assert!(is_replayed);
                    let mut burst = Burst::new();
                    opened.rx[0].rx_burst(&mut burst);
                    assert_eq!(burst.len(), 3);
                }
                Err(error) => {
                    assert!(!is_replayed);
                    assert!(error.to_string().contains("packet 2 has 20000 bytes"), "{error}");
                }
            }
        }
    }
}
