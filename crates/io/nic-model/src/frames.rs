//! Seeded frames for tests and for the comparison with a simulator: every header chain, and mutations of them.
//!
//! A frame is built from the inside: each header is put before what is there, and the type of the result is what the next
//! header has to announce.

use millrace_types::split_mix;
use millrace_wire::checksum;

use crate::proto;

/// Pseudorandom numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        split_mix::next(&mut self.0)
    }

    /// Returns a number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() >> 32) as usize % limit.max(1)
    }

    /// Returns true once in `of` calls.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn byte(&mut self) -> u8 {
        self.bits() as u8
    }

    /// Returns one of the values.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The type of the first header of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ethernet,
    EtherType(u16),
    Proto(u8),
}

/// Headers from some header inwards.
#[derive(Clone, Debug)]
struct Stack {
    kind: Kind,
    bytes: Vec<u8>,
}

/// A header to put before a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Header {
    Ethernet,
    Tag(u16),
    Snap,
    Pbb,
    /// Label stack of a number of entries.
    Mpls(u8),
    /// As [`Self::Mpls`], with a control word.
    Pseudowire(u8),
    Ipv4,
    /// IPv4 with words of options.
    Ipv4Options(u8),
    Ipv4First,
    Ipv4Later,
    Ipv6,
    Extension(u8),
    Ipv6Fragment(u16),
    Gre,
    GreKey,
    Vxlan,
    Geneve,
    Gtp,
    GtpExtended,
    MplsUdp,
    Icmp,
    Icmpv6,
}

/// UDP destination port of VXLAN.
const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;
const MPLS_UDP: u16 = 6635;

fn transport(proto: u8, random: &mut Random) -> Stack {
    let mut bytes: Vec<u8> = (0..4).map(|_| random.byte()).collect();
    // Ports above those of tunnels.
    bytes[2] |= 0x80;
    match proto {
        proto::TCP => {
            bytes.extend((0..8).map(|_| random.byte()));
            bytes.extend([0x50 | random.byte() & 0xf, random.byte(), 1, 2, 3, 4, 0, 0]);
        }
        proto::UDP | proto::UDP_LITE => {
            bytes.extend([0, 16, 0, 0]);
        }
        _ => bytes.extend((0..12).map(|_| random.byte())),
    }
    bytes.extend((0..8).map(|_| random.byte()));
    Stack {
        kind: Kind::Proto(proto),
        bytes,
    }
}

impl Stack {
    fn before(mut self, header: &[u8], kind: Kind) -> Stack {
        self.bytes.splice(0..0, header.iter().copied());
        self.kind = kind;
        self
    }

    fn ether_type(&self) -> u16 {
        match self.kind {
            Kind::Ethernet => 0x6558,
            Kind::EtherType(kind) => kind,
            Kind::Proto(_) => 0x88b5,
        }
    }

    fn proto(&self) -> u8 {
        match self.kind {
            Kind::Ethernet => 59,
            Kind::EtherType(0x0800) => 4,
            Kind::EtherType(0x86dd) => 41,
            Kind::EtherType(_) => 47,
            Kind::Proto(proto) => proto,
        }
    }

    fn udp(self, to: u16, random: &mut Random) -> Stack {
        let size = (8 + self.bytes.len()) as u16;
        let header = [0xc000 | random.bits() as u16 & 0x3fff, to, size, 0]
            .map(u16::to_be_bytes)
            .concat();
        self.before(&header, Kind::Proto(17))
    }

    fn ipv4(self, options: u8, fragment: u16, random: &mut Random) -> Stack {
        let size = 20 + 4 * usize::from(options);
        let total = (size + self.bytes.len()) as u16;
        let mut header = vec![
            0x45 + options,
            random.byte(),
            0,
            0,
            random.byte(),
            random.byte(),
            0,
            0,
            64,
            self.proto(),
            0,
            0,
        ];
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header.extend([10, 0, 0, random.byte(), 10, 1, 0, random.byte()]);
        header.resize(size, 1);
        let sum = checksum::internet(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        self.before(&header, Kind::EtherType(0x0800))
    }

    fn ipv6(self, random: &mut Random) -> Stack {
        let mut header = vec![
            0x60 | random.byte() & 0xf,
            random.byte(),
            1,
            2,
            0,
            0,
            self.proto(),
            64,
        ];
        header[4..6].copy_from_slice(&(self.bytes.len() as u16).to_be_bytes());
        for end in 0..2 {
            header.extend([
                0x20,
                1,
                0xd,
                0xb8,
                0,
                0,
                0,
                end,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                random.byte(),
            ]);
        }
        self.before(&header, Kind::EtherType(0x86dd))
    }

    fn labels(self, len: u8, word: bool, random: &mut Random) -> Stack {
        let mut header = Vec::new();
        for at in (0..len.max(1)).rev() {
            let entry = (random.bits() as u32) << 12 | u32::from(at == 0) << 8 | 64;
            header.extend(entry.to_be_bytes());
        }
        if word {
            header.extend([0, 0, random.byte(), random.byte()]);
        }
        self.before(&header, Kind::EtherType(0x8847))
    }

    /// Puts a header before the stack, with what it needs between.
    fn wrap(self, header: Header, random: &mut Random) -> Stack {
        let ether_type = self.ether_type().to_be_bytes();
        match header {
            Header::Ethernet => {
                let mut bytes: Vec<u8> = (0..12).map(|_| random.byte()).collect();
                bytes.extend(ether_type);
                self.before(&bytes, Kind::Ethernet)
            }
            Header::Tag(tpid) => {
                let tci = [random.byte(), random.byte()];
                self.before(&[tci, ether_type].concat(), Kind::EtherType(tpid))
            }
            Header::Snap => {
                let size = (8 + self.bytes.len()).min(1500) as u16;
                let bytes = [&[0xaa, 0xaa, 3, 0, 0, 0][..], &ether_type].concat();
                self.before(&bytes, Kind::EtherType(size))
            }
            Header::Pbb => {
                let mut bytes: Vec<u8> = (0..16).map(|_| random.byte()).collect();
                bytes.extend(ether_type);
                self.before(&bytes, Kind::EtherType(0x88e7))
            }
            Header::Mpls(len) => self.labels(len, false, random),
            Header::Pseudowire(len) => self.wrap(Header::Ethernet, random).labels(len, true, random),
            Header::Ipv4 => self.ipv4(0, 0x4000, random),
            Header::Ipv4Options(words) => self.ipv4(words, 0, random),
            Header::Ipv4First => self.ipv4(0, 0x2000, random),
            Header::Ipv4Later => self.ipv4(0, 0x2007, random),
            Header::Ipv6 => self.ipv6(random),
            Header::Extension(kind) => {
                let proto = self.proto();
                let words = random.below(2) as u8;
                let length = if kind == 51 { 2 + 2 * words } else { words };
                let size = if kind == 51 {
                    4 * (usize::from(length) + 2)
                } else {
                    8 * (usize::from(length) + 1)
                };
                let mut bytes = vec![proto, length];
                bytes.resize(size, 0);
                self.before(&bytes, Kind::Proto(kind))
            }
            Header::Ipv6Fragment(field) => {
                let [high, low] = field.to_be_bytes();
                let proto = self.proto();
                self.before(&[proto, 0, high, low, 0, 0, 0, 9], Kind::Proto(44))
            }
            Header::Gre => self.before(&[&[0, 0][..], &ether_type].concat(), Kind::Proto(47)),
            Header::GreKey => self.before(
                &[&[0xb0, 0][..], &ether_type, &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1]].concat(),
                Kind::Proto(47),
            ),
            Header::Vxlan => {
                let inner = if self.kind == Kind::Ethernet {
                    self
                } else {
                    self.wrap(Header::Ethernet, random)
                };
                inner
                    .before(&[8, 0, 0, 0, 0, 0, random.byte(), 0], Kind::Proto(0))
                    .udp(VXLAN, random)
            }
            Header::Geneve => {
                let options = random.below(3) as u8;
                let mut bytes = vec![options, 0, ether_type[0], ether_type[1], 0, 0, random.byte(), 0];
                bytes.resize(8 + 4 * usize::from(options), 3);
                self.before(&bytes, Kind::Proto(0)).udp(GENEVE, random)
            }
            Header::Gtp => self
                .before(&[0x30, 255, 0, 0, 0, 0, 0, 5], Kind::Proto(0))
                .udp(GTP_U, random),
            Header::GtpExtended => {
                let bytes = [0x36, 255, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0x85, 1, 0, 3, 0];
                self.before(&bytes, Kind::Proto(0)).udp(GTP_U, random)
            }
            Header::MplsUdp => self.labels(1, false, random).udp(MPLS_UDP, random),
            Header::Icmp => {
                let kind = random.pick(&[3, 4, 5, 11, 12, 8]);
                self.before(&[kind, 1, 0, 0, 0, 0, 0, 0], Kind::Proto(1))
            }
            Header::Icmpv6 => {
                let kind = random.pick(&[1, 2, 3, 4, 128, 135]);
                self.before(&[kind, 0, 0, 0, 0, 0, 0, 0], Kind::Proto(58))
            }
        }
    }
}

/// Returns a frame with the headers, from the outermost, over a transport protocol.
fn frame(headers: &[Header], proto: u8, random: &mut Random) -> Vec<u8> {
    let mut stack = transport(proto, random);
    for header in headers.iter().rev() {
        stack = stack.wrap(*header, random);
    }
    stack.wrap(Header::Ethernet, random).bytes
}

type Chain = (&'static str, &'static [Header], u8);

use Header as H;

/// Header chains, from the outermost header after Ethernet, over a transport protocol. The name of a chain that does not fit the
/// window contains "past".
const CHAINS: [Chain; 36] = [
    ("TCP over IPv4", &[H::Ipv4], proto::TCP),
    ("UDP over IPv4", &[H::Ipv4], proto::UDP),
    ("SCTP over IPv4", &[H::Ipv4], proto::SCTP),
    ("UDP-Lite over IPv6", &[H::Ipv6], proto::UDP_LITE),
    ("DCCP over IPv6", &[H::Ipv6], proto::DCCP),
    ("TCP over IPv6", &[H::Ipv6], proto::TCP),
    ("one tag", &[H::Tag(0x8100), H::Ipv4], proto::TCP),
    ("QinQ", &[H::Tag(0x88a8), H::Tag(0x8100), H::Ipv6], proto::UDP),
    (
        "old outer tag",
        &[H::Tag(0x9100), H::Tag(0x8100), H::Ipv4],
        proto::UDP,
    ),
    ("SNAP", &[H::Snap, H::Ipv4], proto::UDP),
    ("tag and SNAP", &[H::Tag(0x8100), H::Snap, H::Ipv4], proto::UDP),
    ("MPLS", &[H::Mpls(1), H::Ipv4], proto::TCP),
    ("two labels over IPv6", &[H::Mpls(2), H::Ipv6], proto::TCP),
    ("pseudowire", &[H::Mpls(2), H::Ethernet, H::Ipv4], proto::TCP),
    (
        "pseudowire with a control word",
        &[H::Pseudowire(2), H::Ipv4],
        proto::TCP,
    ),
    ("labels over something", &[H::Mpls(3)], proto::TCP),
    ("PBB", &[H::Pbb, H::Ipv4], proto::TCP),
    (
        "PBB with tags inside and outside",
        &[H::Tag(0x88a8), H::Pbb, H::Tag(0x8100), H::Ipv4],
        proto::UDP,
    ),
    ("options", &[H::Ipv4Options(4)], proto::UDP),
    ("first fragment", &[H::Ipv4First], proto::UDP),
    ("later fragment", &[H::Ipv4Later], proto::UDP),
    (
        "hop-by-hop and destination options",
        &[
            H::Ipv6,
            H::Extension(proto::HOP_BY_HOP),
            H::Extension(proto::DEST_OPTIONS),
        ],
        proto::TCP,
    ),
    (
        "authentication header",
        &[H::Ipv6, H::Extension(proto::AH)],
        proto::TCP,
    ),
    (
        "mobility header",
        &[H::Ipv6, H::Extension(proto::MOBILITY)],
        proto::NO_NEXT,
    ),
    (
        "first fragment of IPv6",
        &[H::Ipv6, H::Ipv6Fragment(1)],
        proto::UDP,
    ),
    (
        "later fragment of IPv6",
        &[H::Ipv6, H::Ipv6Fragment(0x0102)],
        proto::UDP,
    ),
    ("GRE", &[H::Ipv4, H::Gre, H::Ipv4], proto::TCP),
    (
        "Ethernet over GRE with options",
        &[H::Ipv4, H::GreKey, H::Ethernet, H::Ipv4],
        proto::UDP,
    ),
    ("VXLAN", &[H::Ipv4, H::Vxlan, H::Ipv4], proto::UDP),
    ("Geneve", &[H::Ipv4, H::Geneve, H::Ethernet, H::Ipv4], proto::UDP),
    ("GTP-U", &[H::Ipv4, H::Gtp, H::Ipv4], proto::UDP),
    (
        "GTP-U with an extension header",
        &[H::Ipv4, H::GtpExtended, H::Ipv4],
        proto::UDP,
    ),
    ("MPLS over UDP", &[H::Ipv4, H::MplsUdp, H::Ipv4], proto::TCP),
    ("IP in IP", &[H::Ipv4, H::Ipv6], proto::TCP),
    ("ICMP error", &[H::Ipv4, H::Icmp, H::Ipv4], proto::UDP),
    (
        "VXLAN over IPv6 past the window",
        &[H::Tag(0x8100), H::Ipv6, H::Vxlan, H::Ipv6],
        proto::UDP,
    ),
];

/// Returns a frame of each header chain, with its name.
#[must_use]
pub fn chains() -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random::new(3);
    CHAINS
        .map(|(name, headers, proto)| (name, frame(headers, proto, &mut random)))
        .into()
}

/// Returns a frame with up to 12, and sometimes up to 30, headers in any order; what is announced may make no sense.
fn any(random: &mut Random) -> Vec<u8> {
    let headers: [&[Header]; 7] = [
        &[H::Tag(0x8100), H::Tag(0x88a8), H::Tag(0x9100), H::Snap, H::Pbb],
        &[H::Mpls(1), H::Mpls(2), H::Mpls(5), H::Pseudowire(1), H::Ethernet],
        &[
            H::Ipv4,
            H::Ipv4,
            H::Ipv4Options(1),
            H::Ipv4Options(10),
            H::Ipv4First,
            H::Ipv4Later,
        ],
        &[
            H::Ipv6,
            H::Ipv6,
            H::Extension(proto::HOP_BY_HOP),
            H::Extension(proto::ROUTING),
            H::Extension(proto::AH),
            H::Extension(proto::DEST_OPTIONS),
        ],
        &[
            H::Ipv6Fragment(0),
            H::Ipv6Fragment(1),
            H::Ipv6Fragment(8),
            H::Icmp,
            H::Icmpv6,
        ],
        &[H::Gre, H::GreKey, H::Vxlan, H::Geneve],
        &[H::Gtp, H::GtpExtended, H::MplsUdp],
    ];
    let deepest = if random.once_in(4) { 30 } else { 12 };
    let depth = 1 + random.below(deepest);
    let chosen: Vec<Header> = (0..depth)
        .map(|_| {
            let of = random.pick(&headers);
            random.pick(of)
        })
        .collect();
    let proto = random.pick(&[
        proto::TCP,
        proto::UDP,
        proto::UDP,
        proto::DCCP,
        proto::ICMPV6,
        proto::ICMPV4,
        proto::SCTP,
        proto::UDP_LITE,
        proto::ESP,
    ]);
    frame(&chosen, proto, random)
}

/// Returns a frame of a header chain or of headers in any order; mostly with some bytes changed, cut, padded, or all of it.
pub fn mutated(random: &mut Random) -> Vec<u8> {
    let mut frame = if random.once_in(3) {
        any(random)
    } else {
        let (_, headers, proto) = random.pick(&CHAINS);
        frame(headers, proto, random)
    };
    let changes = if random.once_in(3) { 0 } else { random.below(4) };
    for _ in 0..changes {
        let at = random.below(frame.len().min(150));
        frame[at] = match random.below(4) {
            0 => random.byte(),
            1 => frame[at] ^ 1 << random.below(8),
            2 => random.pick(&[
                0, 1, 4, 6, 17, 41, 43, 44, 47, 51, 58, 60, 0x45, 0x46, 0x60, 0xff, 0x81, 0x88,
            ]),
            _ => frame[at].wrapping_add(1),
        };
    }
    match random.below(6) {
        0 => frame.truncate(14 + random.below(frame.len())),
        1 => frame.resize(frame.len() + random.below(200), 0),
        _ => {}
    }
    if random.once_in(50) {
        frame.resize(14 + random.below(9587), 0x5a);
    }
    frame.resize(frame.len().max(14), 0);
    frame
}
