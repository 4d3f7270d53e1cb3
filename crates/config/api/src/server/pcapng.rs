//! The parts of the pcapng capture file format (draft-ietf-opsawg-pcapng) that a capture needs: one section,
//! an interface for each port, and enhanced packet blocks with nanosecond times, directions and drop counts.

use millrace_types::PortNo;

use super::live::{CapturedPacket, Direction};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u16 = 1;

mod option {
    pub(super) const END: u16 = 0;
    /// `shb_userappl`: the application that wrote the section (draft-ietf-opsawg-pcapng, section 4.1).
    pub(super) const USER_APPLICATION: u16 = 4;
    /// `if_name`: the name of an interface (draft-ietf-opsawg-pcapng, section 4.2).
    pub(super) const NAME: u16 = 2;
    /// `if_description`: the description of an interface (draft-ietf-opsawg-pcapng, section 4.2).
    pub(super) const DESCRIPTION: u16 = 3;
    /// `if_tsresol`: the negative power of ten of the time unit (draft-ietf-opsawg-pcapng, section 4.2).
    pub(super) const TIME_RESOLUTION: u16 = 9;
    /// `epb_flags`: the flags of a packet (draft-ietf-opsawg-pcapng, section 4.3.1).
    pub(super) const FLAGS: u16 = 2;
    /// `epb_dropcount`: the number of packets lost before this one (draft-ietf-opsawg-pcapng, section 4.3).
    pub(super) const DROP_COUNT: u16 = 4;
}

/// The encoder of one capture. The caller sends the blocks in the order in which methods return them.
#[derive(Debug)]
pub(super) struct Writer {
    snap_size: u32,
    /// The port of each interface, by interface number.
    ports: Vec<PortNo>,
}

impl Writer {
    /// Returns a writer, and the first blocks: the section header and an interface for each port.
    pub(super) fn new(ports: &[(PortNo, String, String)], snap_size: u32) -> (Writer, Vec<u8>) {
        let mut writer = Writer {
            snap_size,
            ports: Vec::new(),
        };
        let mut out = Vec::new();
        block(&mut out, SECTION_HEADER, |body| {
            body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
            body.extend([1, 0, 0, 0]);
            body.extend(u64::MAX.to_le_bytes());
            put_option(
                body,
                option::USER_APPLICATION,
                concat!("millrace ", env!("CARGO_PKG_VERSION")).as_bytes(),
            );
            put_option(body, option::END, &[]);
        });
        for (port, name, device) in ports {
            writer.interface(&mut out, *port, name, device);
        }
        (writer, out)
    }

    fn interface(&mut self, out: &mut Vec<u8>, port: PortNo, name: &str, device: &str) {
        block(out, INTERFACE_DESCRIPTION, |body| {
            body.extend(ETHERNET.to_le_bytes());
            body.extend([0, 0]);
            body.extend(self.snap_size.to_le_bytes());
            put_option(body, option::NAME, name.as_bytes());
            put_option(
                body,
                option::DESCRIPTION,
                format!("port {port}: {device}").as_bytes(),
            );
            put_option(body, option::TIME_RESOLUTION, &[9]);
            put_option(body, option::END, &[]);
        });
        self.ports.push(port);
    }

    /// Returns the block of one packet, preceded by an interface block if its port is new.
    pub(super) fn packet(&mut self, packet: &CapturedPacket) -> Vec<u8> {
        let mut out = Vec::new();
        let known = self.ports.iter().position(|port| *port == packet.port);
        let interface = known.unwrap_or_else(|| {
            self.interface(
                &mut out,
                packet.port,
                &format!("port {}", packet.port),
                "added during the capture",
            );
            self.ports.len() - 1
        });
        block(&mut out, ENHANCED_PACKET, |body| {
            body.extend((interface as u32).to_le_bytes());
            body.extend(((packet.unix_nanos >> 32) as u32).to_le_bytes());
            body.extend((packet.unix_nanos as u32).to_le_bytes());
            body.extend((packet.bytes.len() as u32).to_le_bytes());
            body.extend(packet.size.to_le_bytes());
            body.extend(&packet.bytes);
            pad(body);
            let direction: u32 = match packet.direction {
                Direction::Rx => 1,
                Direction::Tx => 2,
            };
            put_option(body, option::FLAGS, &direction.to_le_bytes());
            if packet.lost_before > 0 {
                put_option(body, option::DROP_COUNT, &packet.lost_before.to_le_bytes());
            }
            put_option(body, option::END, &[]);
        });
        out
    }
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Appends a block: type, length, body, length again (draft-ietf-opsawg-pcapng, section 3.1).
fn block(out: &mut Vec<u8>, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    let mut body = Vec::new();
    write(&mut body);
    out.extend(body);
    let size = (out.len() - start + 4) as u32;
    out.extend(size.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&size.to_le_bytes());
}

/// Appends an option; a value is truncated to 255 bytes.
fn put_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(255)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_whole_and_says_its_length_twice() {
        let ports = [(PortNo::from_raw(1), "p1".to_owned(), "net_null0".to_owned())];
        let (mut writer, mut file) = Writer::new(&ports, 96);
        for port in [1, 7] {
            file.extend(writer.packet(&CapturedPacket {
                unix_nanos: 1_700_000_000_123_456_789,
                port: PortNo::from_raw(port),
                direction: Direction::Tx,
                size: 61,
                bytes: vec![0xab; 61],
                lost_before: 3,
            }));
        }
        let (mut rest, mut kinds) = (&file[..], Vec::new());
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
            let size = word(4) as usize;
            assert_eq!(size % 4, 0);
            assert_eq!(word(size - 4) as usize, size);
            kinds.push(word(0));
            rest = &rest[size..];
        }
        let expected = [
            SECTION_HEADER,
            INTERFACE_DESCRIPTION,
            ENHANCED_PACKET,
            INTERFACE_DESCRIPTION,
            ENHANCED_PACKET,
        ];
        assert_eq!(kinds, expected);
    }
}
