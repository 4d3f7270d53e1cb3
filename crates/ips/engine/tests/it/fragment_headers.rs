//! Fragments of IPv4 whose headers have options of any size: the first fragment may have more of them than the others (RFC 791,
//! section 3.2). In line, the receiver never gets all fragments of a packet with the forbidden word; beside the path, the word is
//! found whenever a receiver could assemble the packet.

use millrace_ips_engine::Mode;
use millrace_wire::checksum;

use crate::bed::{ATTACK, TestBed, datagram, fragment};
use crate::synthesis::random::Random;

/// Size of an IPv4 header without options, in bytes, and the largest total length.
const HEADER: usize = 20;
const LENGTH_MAX: usize = 65_535;

/// Returns an IPv4 packet with this number of bytes of options, a multiple of 4: no-operations, a time stamp that needs no entry,
/// or an end of the list and padding.
fn with_options(packet: &[u8], size: usize, random: &mut Random) -> Vec<u8> {
    let mut options = match random.below(3) {
        0 => vec![1; size],
        1 if size >= 8 => [&[68, 8, 9, 0, 0, 0, 0, 0][..], &vec![1; size - 8]].concat(),
        _ => vec![0; size],
    };
    options.truncate(size);
    let mut out = packet[..HEADER].to_vec();
    out.extend(options);
    out[0] = 0x40 | ((HEADER + size) / 4) as u8;
    let total = (HEADER + size + packet.len() - HEADER) as u16;
    out[2..4].copy_from_slice(&total.to_be_bytes());
    out[10..12].fill(0);
    let sum = checksum::internet(&out);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(&packet[HEADER..]);
    out
}

/// A generated packet: its fragments in the order in which they are sent, and true if a receiver can assemble them.
struct Variant {
    fragments: Vec<Vec<u8>>,
    fits: bool,
    text: String,
}

fn variant(seed: u64) -> Variant {
    let random = &mut Random(seed);
    let size = match random.below(4) {
        0 => 65_400 + random.below(100),
        1 => 2_000 + random.below(20_000),
        _ => 24 + random.below(400),
    };
    let mut payload = vec![b'.'; size];
    let at = random.below(size - 6);
    payload[at..at + 6].copy_from_slice(b"attack");
    let whole = datagram(&payload);
    let data = &whole[HEADER..];
    let mut fragments = Vec::new();
    let mut offset = 0;
    let mut first_size = 0;
    while offset < data.len() {
        let most = if size > 1_000 { 8_000 } else { 64 };
        let part = (8 * (1 + random.below(most / 8))).min(data.len() - offset);
        let end = offset + part;
        let options = 4 * match offset {
            0 => random.below(11),
            _ if random.one_in(3) => random.below(11),
            _ => 0,
        };
        if offset == 0 {
            first_size = HEADER + options;
        }
        let plain = fragment(&whole, offset, end < data.len(), &data[offset..end]);
        fragments.push(with_options(&plain, options, random));
        offset = end;
    }
    for at in (1..fragments.len()).rev() {
        if random.one_in(2) {
            fragments.swap(at, random.below(at + 1));
        }
    }
    let fits = fragments.len() > 1 && first_size + data.len() <= LENGTH_MAX;
    let text = format!("seed {seed}: {} bytes, first header {first_size}", data.len());
    Variant {
        fragments,
        fits,
        text,
    }
}

#[test]
fn options_of_any_fragment_hide_no_word_from_the_engine() {
    let (mut assembled, mut longest) = (0, 0);
    for seed in 0..400 {
        let Variant {
            fragments,
            fits,
            text,
        } = variant(seed);
        if fragments.len() < 2 {
            continue;
        }
        let mut bed = TestBed::inline();
        let dropped = fragments
            .iter()
            .filter(|fragment| bed.send((*fragment).clone()).is_dropped())
            .count();
        assert!(dropped > 0, "the receiver has every fragment: {text}");
        let mut bed = TestBed::new(Mode::Ids, ATTACK);
        bed.send_all(fragments);
        bed.finish();
        assert_eq!(bed.is_attack_found(), fits, "{text}");
        assembled += usize::from(fits);
        longest += usize::from(!fits);
    }
    assert!(assembled > 250 && longest > 5, "{assembled}, {longest}");
}
