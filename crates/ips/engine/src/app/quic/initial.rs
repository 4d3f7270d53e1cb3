//! Initial packets of QUIC 1 and 2 (RFC 9000, section 17.2.2; RFC 9001, section 5; RFC 9369): their keys follow from the first
//! connection identifier of the client, so anyone can read them.
//!
//! ```text
//!  first | version | DCID | SCID | token | length | packet number | CRYPTO, PADDING, ACK …
//!   ▲ four bits, and the packet number, under header protection      ▲ AES-128-GCM
//! ```

use ring::aead::{self, AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use ring::hkdf::{self, HKDF_SHA256, KeyType, Prk, Salt};

use crate::flow::Direction;

/// Largest size of a connection identifier (RFC 9000, section 17.2).
const ID_SIZE: usize = 20;
/// Bytes of protected payload that give the mask of the header, and their distance from the packet number (RFC 9001, section
/// 5.4.2).
const SAMPLE: usize = 16;
const SAMPLE_OFFSET: usize = 4;

/// The version of a packet as far as keys depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// RFC 9001, and its drafts from 33 on.
    One,
    /// RFC 9369.
    Two,
    /// Drafts 29 to 32.
    Draft29,
    /// Drafts 23 to 28.
    Draft23,
}

impl Version {
    /// Returns the version of a number in a long header.
    pub(super) fn of(number: [u8; 4]) -> Option<Version> {
        match number {
            [0, 0, 0, 1] | [0xff, 0, 0, 33..=34] => Some(Version::One),
            [0x6b, 0x33, 0x43, 0xcf] => Some(Version::Two),
            [0xff, 0, 0, 29..=32] => Some(Version::Draft29),
            [0xff, 0, 0, 23..=28] => Some(Version::Draft23),
            _ => None,
        }
    }

    fn salt(self) -> [u8; 20] {
        match self {
            Version::One => [
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c,
                0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            Version::Two => [
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d,
                0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
            Version::Draft29 => [
                0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11,
                0xe0, 0x43, 0x90, 0xa8, 0x99,
            ],
            Version::Draft23 => [
                0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4, 0x63,
                0x65, 0xbe, 0xf9, 0xf5, 0x02,
            ],
        }
    }

    /// Returns the labels of key, vector and header protection.
    fn labels(self) -> [&'static str; 3] {
        match self {
            Version::Two => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
            _ => ["quic key", "quic iv", "quic hp"],
        }
    }

    /// Returns true if the bits of the type of a long header are those of an Initial packet.
    fn is_initial(self, first: u8) -> bool {
        let kind = first >> 4 & 3;
        kind == if self == Version::Two { 1 } else { 0 }
    }
}

/// A size of HKDF's output.
struct Size(usize);

impl KeyType for Size {
    fn len(&self) -> usize {
        self.0
    }
}

/// Returns the output of HKDF-Expand-Label without context (RFC 8446, section 7.1).
fn expand<const N: usize>(secret: &Prk, label: &str) -> Option<[u8; N]> {
    let name = ["tls13 ", label].concat();
    let info = [
        &(N as u16).to_be_bytes()[..],
        &[name.len() as u8],
        name.as_bytes(),
        &[0],
    ];
    let mut out = [0; N];
    secret.expand(&info, Size(N)).ok()?.fill(&mut out).ok()?;
    Some(out)
}

/// The keys of a direction.
struct Keys {
    key: LessSafeKey,
    vector: [u8; aead::NONCE_LEN],
    header: quic::HeaderProtectionKey,
}

impl Keys {
    fn new(version: Version, id: &[u8], direction: Direction) -> Option<Keys> {
        let initial = Salt::new(HKDF_SHA256, &version.salt()).extract(id);
        let label = match direction {
            Direction::ToServer => "client in",
            Direction::ToClient => "server in",
        };
        let secret: [u8; 32] = expand(&initial, label)?;
        let secret = hkdf::Prk::new_less_safe(HKDF_SHA256, &secret);
        let [key, vector, header] = version.labels();
        let key: [u8; 16] = expand(&secret, key)?;
        let header: [u8; 16] = expand(&secret, header)?;
        Some(Keys {
            key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            vector: expand(&secret, vector)?,
            header: quic::HeaderProtectionKey::new(&quic::AES_128, &header).ok()?,
        })
    }
}

/// A long header up to the packet number.
pub(super) struct Header<'a> {
    pub(super) version: Version,
    pub(super) is_initial: bool,
    /// The identifier of the receiver.
    pub(super) destination: &'a [u8],
    /// The packet from its first byte to its end.
    packet: &'a [u8],
    /// Offset of the packet number.
    number_at: usize,
}

/// Removes an integer of variable size from the front (RFC 9000, section 16).
fn variable(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let size = 1usize << (first >> 6);
    let (head, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    let start = u64::from(first & 0x3f);
    Some(
        head[1..]
            .iter()
            .fold(start, |value, byte| value << 8 | u64::from(*byte)),
    )
}

fn take<'a>(bytes: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    Some(head)
}

/// Removes a packet with a long header from the front of a datagram. `None` for another packet, and for one without a length.
pub(super) fn next<'a>(datagram: &mut &'a [u8]) -> Option<Header<'a>> {
    let whole: &'a [u8] = datagram;
    let mut rest = whole;
    let first = *take(&mut rest, 1)?.first()?;
    if first & 0xc0 != 0xc0 {
        return None;
    }
    let version = Version::of(take(&mut rest, 4)?.try_into().ok()?)?;
    let mut identifier = || {
        let size = usize::from(*take(&mut rest, 1)?.first()?);
        take(&mut rest, size).filter(|_| size <= ID_SIZE)
    };
    let destination = identifier()?;
    identifier()?;
    // Retry has no length (RFC 9000, section 17.2.5).
    let kind = first >> 4 & 3;
    if kind == if version == Version::Two { 0 } else { 3 } {
        return None;
    }
    let is_initial = version.is_initial(first);
    if is_initial {
        let token = usize::try_from(variable(&mut rest)?).ok()?;
        take(&mut rest, token)?;
    }
    let size = usize::try_from(variable(&mut rest)?).ok()?;
    let number_at = whole.len() - rest.len();
    take(&mut rest, size)?;
    *datagram = rest;
    Some(Header {
        version,
        is_initial,
        destination,
        packet: &whole[..number_at + size],
        number_at,
    })
}

impl Header<'_> {
    /// Returns the frames of an Initial packet; `None` if the keys of the identifier do not fit.
    pub(super) fn decrypt(&self, id: &[u8], direction: Direction) -> Option<Vec<u8>> {
        let keys = Keys::new(self.version, id, direction)?;
        let sample_at = self.number_at + SAMPLE_OFFSET;
        let mask = keys
            .header
            .new_mask(self.packet.get(sample_at..sample_at + SAMPLE)?)
            .ok()?;
        let mut packet = self.packet.to_vec();
        packet[0] ^= mask[0] & 0x0f;
        let number_size = usize::from(packet[0] & 3) + 1;
        let payload_at = self.number_at + number_size;
        let mut number = 0u64;
        for (at, bits) in (self.number_at..payload_at).zip(&mask[1..]) {
            packet[at] ^= bits;
            number = number << 8 | u64::from(packet[at]);
        }
        let mut nonce = keys.vector;
        for (byte, bits) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= bits;
        }
        let mut payload = packet.split_off(payload_at);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let size = keys
            .key
            .open_in_place(nonce, Aad::from(&packet), &mut payload)
            .ok()?
            .len();
        payload.truncate(size);
        Some(payload)
    }
}

/// Calls `crypto` with the offset and the bytes of each CRYPTO frame; returns false if the frames are not those that Initial
/// packets may have (RFC 9000, section 12.4).
pub(super) fn frames(payload: &[u8], crypto: &mut dyn FnMut(u64, &[u8])) -> bool {
    let mut rest = payload;
    // PADDING frames are single bytes of 0, often a thousand of them.
    while let Some(at) = rest.iter().position(|byte| *byte != 0) {
        rest = &rest[at..];
        if frame(&mut rest, crypto).is_none() {
            return false;
        }
    }
    true
}

fn frame(rest: &mut &[u8], crypto: &mut dyn FnMut(u64, &[u8])) -> Option<()> {
    const PADDING: u64 = 0;
    const PING: u64 = 1;
    const ACK: u64 = 2;
    const ACK_ECN: u64 = 3;
    const CRYPTO: u64 = 6;
    const CLOSE: u64 = 0x1c;
    match variable(rest)? {
        PADDING | PING => {}
        kind @ (ACK | ACK_ECN) => {
            variable(rest)?;
            variable(rest)?;
            let ranges = variable(rest)?;
            variable(rest)?;
            for _ in 0..2 * ranges.min(rest.len() as u64) {
                variable(rest)?;
            }
            if kind == ACK_ECN {
                for _ in 0..3 {
                    variable(rest)?;
                }
            }
        }
        CRYPTO => {
            let offset = variable(rest)?;
            let size = usize::try_from(variable(rest)?).ok()?;
            crypto(offset, take(rest, size)?);
        }
        CLOSE => {
            variable(rest)?;
            variable(rest)?;
            let size = usize::try_from(variable(rest)?).ok()?;
            take(rest, size)?;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns an Initial packet with frames, protected by the keys of `id`.
    pub(in crate::app) fn protected(
        version: [u8; 4],
        id: &[u8],
        direction: Direction,
        frames: &[u8],
    ) -> Vec<u8> {
        let known = Version::of(version).unwrap();
        let keys = Keys::new(known, id, direction).unwrap();
        let first = if known == Version::Two { 0xd1 } else { 0xc1 };
        let mut packet = [&[first][..], &version, &[id.len() as u8], id, &[0, 0]].concat();
        let size = 2 + frames.len() + 16;
        packet.extend((size as u16 | 0x4000).to_be_bytes());
        let number_at = packet.len();
        packet.extend([0, 7]);
        let mut nonce = keys.vector;
        nonce[11] ^= 7;
        let mut payload = frames.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        keys.key
            .seal_in_place_append_tag(nonce, Aad::from(&packet), &mut payload)
            .unwrap();
        packet.extend(payload);
        let sample = &packet[number_at + SAMPLE_OFFSET..][..SAMPLE];
        let mask = keys.header.new_mask(sample).unwrap();
        packet[0] ^= mask[0] & 0x0f;
        packet[number_at] ^= mask[1];
        packet[number_at + 1] ^= mask[2];
        packet
    }

    #[test]
    fn keys_are_those_of_the_standard() {
        // RFC 9001, appendix A.1.
        let id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        let initial = Salt::new(HKDF_SHA256, &Version::One.salt()).extract(&id);
        let secret: [u8; 32] = expand(&initial, "client in").unwrap();
        let secret = Prk::new_less_safe(HKDF_SHA256, &secret);
        let key: [u8; 16] = expand(&secret, "quic key").unwrap();
        assert_eq!(
            u128::from_be_bytes(key),
            0x1f36_9613_dd76_d546_7730_efcb_e3b1_a22d
        );
        let header: [u8; 16] = expand(&secret, "quic hp").unwrap();
        assert_eq!(
            u128::from_be_bytes(header),
            0x9f50_449e_04a0_e810_283a_1e99_33ad_edd2
        );
        // RFC 9369, appendix A.1.
        let initial = Salt::new(HKDF_SHA256, &Version::Two.salt()).extract(&id);
        let secret: [u8; 32] = expand(&initial, "client in").unwrap();
        let secret = Prk::new_less_safe(HKDF_SHA256, &secret);
        let key: [u8; 16] = expand(&secret, "quicv2 key").unwrap();
        assert_eq!(
            u128::from_be_bytes(key),
            0x8b1a_0bc1_2128_4290_a29e_0971_b5cd_045d
        );
    }

    #[test]
    fn a_packet_is_decrypted_with_the_identifier_of_its_client_only() {
        let id = [1, 2, 3, 4, 5, 6, 7, 8];
        let plain = [&[6, 0, 5][..], b"hello", &[0; 40]].concat();
        for version in [
            [0, 0, 0, 1],
            [0x6b, 0x33, 0x43, 0xcf],
            [0xff, 0, 0, 29],
            [0xff, 0, 0, 24],
        ] {
            for direction in Direction::BOTH {
                let packet = protected(version, &id, direction, &plain);
                let datagram = [&packet[..], &packet, b"\x40tail"].concat();
                let mut rest = &datagram[..];
                for _ in 0..2 {
                    let header = next(&mut rest).unwrap();
                    assert!(header.is_initial && header.destination == id);
                    assert_eq!(header.decrypt(&id, direction).unwrap(), plain);
                    assert!(header.decrypt(&[9; 8], direction).is_none());
                    assert!(header.decrypt(&id, direction.reverse()).is_none());
                }
                assert!(next(&mut rest).is_none());
            }
        }
    }

    #[test]
    fn frames_of_other_kinds_are_refused() {
        let mut found = Vec::new();
        let payload = [&[1, 2, 5, 0, 1, 2, 3, 3, 0x06, 0x40, 0x10, 2][..], b"ab", &[0, 0]].concat();
        assert!(frames(&payload, &mut |offset, bytes| found
            .push((offset, bytes.to_vec()))));
        assert_eq!(found, [(16, b"ab".to_vec())]);
        for wrong in [&[8][..], &[6, 0, 5, 1], &[2, 5, 0, 200, 1]] {
            assert!(!frames(wrong, &mut |_, _| {}), "{wrong:?}");
        }
    }
}
