//! `tap`: copies packets in pcapng format to a file or a pipe.
//!
//! Blocks are written to messages of the outbox, which the exporter concatenates. If no message is free,
//! packets are counted and not copied; they pass.

use millrace_nf::{
    Access, Buffer, Context, Counters, Direction, Function, Kind, Outbox, SettingError, Setup, Verdict,
};
use millrace_types::Time;

/// Size of a message in bytes: it holds a few long frames or many short ones.
const MESSAGE_SIZE: usize = 32 * 1024;

pub(crate) const KIND: Kind = Kind {
    name: "tap",
    about: "copies packets to a pcapng file or pipe",
    settings: &[
        ("export", "target of the copies: file:PATH, which may be a pipe"),
        ("snap", "snapshot length in bytes, 14 to 16384 (16384)"),
    ],
    counters: &["copied", "missed"],
    reads: Access::LINK
        .or(Access::ADDRESSES)
        .or(Access::PORTS)
        .or(Access::HEADERS)
        .or(Access::PAYLOAD),
    writes: Access::NONE,
    keeps_flows: false,
    outbox: (128, MESSAGE_SIZE),
    report: 0,
    make: &|setup| Tap::new(setup).map(|tap| Box::new(tap) as Box<dyn Function>),
    ..Kind::DEFAULT
};

/// Block types and options (draft-ietf-opsawg-pcapng).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINK_ETHERNET: u16 = 1;
/// Option `epb_flags`: the value of bits 0 and 1 is 1 for inbound and 2 for outbound packets.
const EPB_FLAGS: u16 = 2;
/// Option `if_tsresol`: the resolution of time stamps.
const IF_TSRESOL: u16 = 9;

struct Tap {
    outbox: Outbox,
    snap: usize,
    zero_unix_millis: u64,
    counters: Counters,
}

impl Tap {
    fn new(setup: &Setup) -> Result<Tap, SettingError> {
        if setup.settings.one("export")?.is_none() {
            return Err(SettingError::Missing {
                key: "export",
                expected: "file:PATH".to_owned(),
            });
        }
        Ok(Tap {
            outbox: setup.outbox.clone(),
            snap: setup.settings.within("snap", 16_384, 14..=16_384)?,
            zero_unix_millis: setup.zero_unix_millis,
            counters: setup.counters.clone(),
        })
    }
}

/// Appends a block. `write` appends its body.
fn block(out: &mut Vec<u8>, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    write(out);
    let size = ((out.len() - at + 4) as u32).to_le_bytes();
    out[at + 4..at + 8].copy_from_slice(&size);
    out.extend_from_slice(&size);
}

fn prologue(out: &mut Vec<u8>) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&u64::MAX.to_le_bytes());
    });
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&LINK_ETHERNET.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&IF_TSRESOL.to_le_bytes());
        out.extend_from_slice(&[1, 0, 9, 0, 0, 0]);
        out.extend_from_slice(&[0; 4]);
    });
}

/// Bytes of a packet block besides the packet: header 28, padding 3, options 12, trailer 4.
const OVERHEAD: usize = 47;
/// Bytes of the section header block and the interface description block.
const PROLOGUE: usize = 28 + 32;

fn packet_block(out: &mut Vec<u8>, packet: &dyn Buffer, snap: usize, nanos: u64, direction: Direction) {
    let head = packet.head();
    let kept = &head[..head.len().min(snap)];
    block(out, ENHANCED_PACKET, |out| {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&((nanos >> 32) as u32).to_le_bytes());
        out.extend_from_slice(&(nanos as u32).to_le_bytes());
        out.extend_from_slice(&(kept.len() as u32).to_le_bytes());
        out.extend_from_slice(&(packet.len() as u32).to_le_bytes());
        out.extend_from_slice(kept);
        out.extend_from_slice(&[0; 3][..kept.len().wrapping_neg() & 3]);
        let flags: u32 = match direction {
            Direction::Forward => 1,
            Direction::Backward => 2,
        };
        out.extend_from_slice(&EPB_FLAGS.to_le_bytes());
        out.extend_from_slice(&[4, 0]);
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    });
}

impl Function for Tap {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], _: &mut [Verdict]) {
        let nanos = self.zero_unix_millis * 1_000_000 + (context.now.since(Time::ZERO)).as_nanos() as u64;
        let mut done = 0;
        while done < burst.len() {
            let sent = self.outbox.send(|out| {
                // Any message may be the first of a file: the target is opened late, or rotated.
                prologue(out);
                while let Some(packet) = burst.get(done) {
                    let kept = packet.head().len().min(self.snap);
                    // A message must not grow beyond its capacity, which would allocate.
                    if out.len() + kept + OVERHEAD > MESSAGE_SIZE {
                        break;
                    }
                    packet_block(out, &**packet, self.snap, nanos, context.direction);
                    done += 1;
                }
                true
            });
            if !sent {
                break;
            }
        }
        const { assert!(PROLOGUE + 16_384 + OVERHEAD <= MESSAGE_SIZE) };
        self.counters.add(0, done as u64);
        self.counters.add(1, (burst.len() - done) as u64);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Settings;
    use millrace_wire::Frame;
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    #[test]
    fn another_reader_finds_the_packets() {
        let settings = Settings::parse(["export=file:/dev/null", "snap=100"]).unwrap();
        let setup = KIND.setup(&settings, 0, 1_700_000_000_000);
        let mut function = KIND.make_function(&setup).unwrap();
        let mut frames: Vec<Frame> = (0..3_u8)
            .map(|i| Frame::new(&vec![i; 61 + 60 * usize::from(i)]))
            .collect();
        let mut burst: Vec<&mut dyn Buffer> =
            frames.iter_mut().map(|frame| frame as &mut dyn Buffer).collect();
        let context = Context {
            now: Time::from_millis(1_500),
            ..Context::new(Time::ZERO, Direction::Backward)
        };
        function.process(&context, &mut burst, &mut [Verdict::Next; 3]);
        let mut file = Vec::new();
        while setup.outbox.receive(|message| file.extend_from_slice(message)) {}
        let mut reader = PcapNgReader::new(&file[..]).unwrap();
        let mut seen = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                seen.push((
                    packet.data.len(),
                    packet.original_len,
                    packet.data[0],
                    packet.timestamp.as_millis(),
                ));
            }
        }
        let time = 1_700_000_001_500;
        assert_eq!(
            seen,
            [(61, 61, 0, time), (100, 121, 1, time), (100, 181, 2, time)]
        );
        assert_eq!(setup.counters.value("copied"), Some(3));
    }

    #[test]
    fn each_message_is_a_whole_file() {
        let settings = Settings::parse(["export=file:/dev/null"]).unwrap();
        let setup = KIND.setup(&settings, 0, 0);
        let mut function = KIND.make_function(&setup).unwrap();
        let mut frame = Frame::new(&[7; 100]);
        for _ in 0..2 {
            function.process(&Context::default(), &mut [&mut frame], &mut [Verdict::Next]);
        }
        // The first message is lost, as if its target could not be opened.
        let mut messages = Vec::new();
        while setup.outbox.receive(|message| messages.push(message.to_vec())) {}
        assert_eq!(messages.len(), 2);
        let mut reader = PcapNgReader::new(&messages[1][..]).unwrap();
        let blocks: Vec<_> =
            std::iter::from_fn(|| reader.next_block().map(|block| block.unwrap().into_owned())).collect();
        assert!(
            blocks
                .iter()
                .any(|block| matches!(block, Block::EnhancedPacket(packet) if packet.data[..] == [7; 100]))
        );
    }

    #[test]
    fn packets_pass_when_nobody_carries_copies_away() {
        let settings = Settings::parse(["export=file:/dev/null"]).unwrap();
        let setup = KIND.setup(&settings, 0, 0);
        let mut function = KIND.make_function(&setup).unwrap();
        let mut frame = Frame::new(&[0; 9000]);
        for _ in 0..2_000 {
            let mut verdicts = [Verdict::Next];
            function.process(&Context::default(), &mut [&mut frame], &mut verdicts);
            assert_eq!(verdicts, [Verdict::Next]);
        }
        assert!(setup.counters.value("missed").unwrap() > 0);
        assert_eq!(setup.outbox.len(), 128);
    }
}
