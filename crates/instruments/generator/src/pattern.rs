//! Generation of packets from a description: the number of flows, their sizes and addresses.

use std::net::Ipv4Addr;
use std::str::FromStr;

use millrace_types::Mac;
use millrace_wire::{Builder, tcp};

/// The smallest Ethernet frame in bytes, with check sequence.
pub const SIZE_MIN: u16 = 64;
/// The largest frame in bytes, with check sequence.
pub const SIZE_MAX: u16 = 9000;
/// The smallest number of packets in a cycle.
const CYCLE_MIN: usize = 512;
/// The smallest number of packets in a cycle of mixed sizes, so that the shares of the sizes are right.
const MIXED_CYCLE_MIN: usize = 12 * 1024;

/// Frame sizes in bytes, each with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<(u16, u32)>);

impl Sizes {
    /// Returns a single size, clamped to [`SIZE_MIN`]..=[`SIZE_MAX`].
    pub fn fixed(size: u16) -> Sizes {
        Sizes(vec![(size.clamp(SIZE_MIN, SIZE_MAX), 1)])
    }

    /// Returns the simple IMIX: 7 of 64, 4 of 594 and 1 of 1518 bytes (RFC 6985, section 4).
    pub fn imix() -> Sizes {
        Sizes(vec![(64, 7), (594, 4), (1518, 1)])
    }

    fn pick(&self, random: &mut Random) -> u16 {
        let total: u64 = self.0.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut remaining = random.below(total);
        for (size, weight) in &self.0 {
            match remaining.checked_sub(u64::from(*weight)) {
                Some(rest) => remaining = rest,
                None => return *size,
            }
        }
        self.0.last().map_or(SIZE_MIN, |(size, _)| *size)
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// Parses `64`, `imix`, or sizes with weights: `64:7,594:4,1518:1`.
    fn from_str(text: &str) -> Result<Sizes, String> {
        if text == "imix" {
            return Ok(Sizes::imix());
        }
        let item = |item: &str| {
            let (size, weight) = item.split_once(':').unwrap_or((item, "1"));
            let size = size
                .parse()
                .ok()
                .filter(|size| (SIZE_MIN..=SIZE_MAX).contains(size))?;
            let weight = weight.parse().ok().filter(|weight| *weight > 0)?;
            Some((size, weight))
        };
        let sizes: Option<Vec<_>> = text.split(',').map(item).collect();
        sizes.map(Sizes).ok_or_else(|| {
            format!(
                "expected imix, a size from {SIZE_MIN} to {SIZE_MAX}, or sizes with weights as in 64:7,594:4,1518:1"
            )
        })
    }
}

/// The order of the addresses of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Addresses {
    /// Consecutive: source address and source port count up.
    Sequential,
    /// Random addresses and ports, which depend on the seed only.
    Random,
}

/// The protocol above IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Proto {
    Udp,
    Tcp,
}

/// A description of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The number of flows.
    pub flows: usize,
    /// The frame sizes.
    pub sizes: Sizes,
    /// The order of addresses.
    pub addresses: Addresses,
    /// The protocol above IP.
    pub proto: Proto,
    /// The VLAN id of a tag; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// The source MAC address.
    pub eth_src: Mac,
    /// The destination MAC address.
    pub eth_dst: Mac,
    /// The source address of the first flow.
    pub src: Ipv4Addr,
    /// The destination address.
    pub dst: Ipv4Addr,
    /// The seed of random addresses and sizes.
    pub seed: u64,
}

impl Default for Pattern {
    fn default() -> Pattern {
        Pattern {
            flows: 1,
            sizes: Sizes::fixed(64),
            addresses: Addresses::Sequential,
            proto: Proto::Udp,
            vlan: None,
            eth_src: Mac([0x02, 0, 0, 0, 0x01, 0x01]),
            eth_dst: Mac([0x02, 0, 0, 0, 0x02, 0x02]),
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(192, 168, 0, 1),
            seed: 1,
        }
    }
}

impl Pattern {
    /// Returns the packets of one cycle, which has the same number of packets for each flow.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> {
        let least = if self.sizes.0.len() > 1 {
            MIXED_CYCLE_MIN
        } else {
            CYCLE_MIN
        };
        let flows = self.flows;
        let rounds = if flows == 0 { 0 } else { least.div_ceil(flows) };
        let mut sizes = Random(self.seed);
        (0..rounds).flat_map(move |_| 0..flows).map(move |flow| {
            let size = self.sizes.pick(&mut sizes);
            self.frame(flow as u64, size)
        })
    }

    /// Returns a packet of a flow. `size` includes the check sequence, which the device adds.
    fn frame(&self, flow: u64, size: u16) -> Vec<u8> {
        let (src, dst, sport, dport) = match self.addresses {
            Addresses::Sequential => (
                u32::from(self.src).wrapping_add(flow as u32),
                u32::from(self.dst),
                1024 + (flow % 60_000) as u16,
                9,
            ),
            Addresses::Random => {
                // The multiplication makes the sequences of consecutive flows independent.
                let mut random = Random(self.seed ^ flow.wrapping_mul(0x2545_f491_4f6c_dd1d));
                (
                    u32::from(self.src) & 0xff00_0000 | random.word() as u32 >> 8,
                    u32::from(self.dst) & 0xffff_0000 | random.word() as u32 >> 16,
                    1024 + random.below(60_000) as u16,
                    random.word() as u16,
                )
            }
        };
        let size = usize::from(size) - 4;
        let mut builder = Builder::ethernet(self.eth_dst, self.eth_src);
        let mut headers = 14 + 20;
        if let Some(vid) = self.vlan {
            builder = builder.vlan(vid, 0);
            headers += 4;
        }
        builder = builder.ipv4(src, dst);
        builder = match self.proto {
            Proto::Udp => {
                headers += 8;
                builder.udp(sport, dport)
            }
            Proto::Tcp => {
                headers += 20;
                builder.tcp(tcp::Repr {
                    src: sport,
                    dst: dport,
                    ..tcp::Repr::default()
                })
            }
        };
        builder
            .payload(&vec![0; size.saturating_sub(headers)])
            .pad_to(size)
            .build()
    }
}

/// A pseudorandom number generator.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        millrace_types::split_mix::next(&mut self.0)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imix_is_seven_to_four_to_one() {
        let pattern = Pattern {
            sizes: "imix".parse().unwrap(),
            ..Pattern::default()
        };
        let sizes: Vec<usize> = pattern.frames().map(|frame| frame.len()).collect();
        let share =
            |size| sizes.iter().filter(|other| **other == size).count() as f64 / sizes.len() as f64 * 12.0;
        for (size, wanted) in [(60, 7.0), (590, 4.0), (1514, 1.0)] {
            assert!((share(size) - wanted).abs() < 0.3, "{size}: {}", share(size));
        }
    }

    #[test]
    fn sizes_are_read_from_text_and_wrong_ones_refused_with_what_was_expected() {
        assert_eq!("9000".parse(), Ok(Sizes::fixed(9000)));
        assert_eq!("64:7,594:4,1518:1".parse(), Ok(Sizes::imix()));
        for wrong in ["", "63", "9001", "64:0", "64;128", "big"] {
            assert!(
                wrong.parse::<Sizes>().unwrap_err().starts_with("expected"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn sequential_addresses_count_up_and_random_ones_follow_the_seed() {
        let pattern = Pattern {
            flows: 3,
            ..Pattern::default()
        };
        let sources: Vec<Vec<u8>> = pattern.frames().take(4).map(|f| f[26..30].to_vec()).collect();
        assert_eq!(
            sources,
            [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3], [10, 0, 0, 1]]
        );
        let random = |seed| {
            let pattern = Pattern {
                flows: 50,
                addresses: Addresses::Random,
                seed,
                ..Pattern::default()
            };
            pattern.frames().collect::<Vec<_>>()
        };
        assert_eq!(random(1), random(1));
        assert_ne!(random(1), random(2));
    }

    #[test]
    fn every_size_and_protocol_has_the_size_that_was_asked_for() {
        for proto in [Proto::Udp, Proto::Tcp] {
            for size in [64, 1518, 9000] {
                let pattern = Pattern {
                    proto,
                    vlan: Some(7),
                    sizes: Sizes::fixed(size),
                    ..Pattern::default()
                };
                let frame = pattern.frames().next().unwrap();
                assert_eq!(frame.len(), usize::from(size) - 4);
            }
        }
    }
}
