//! The workload of a measurement: rules as a file that `ovs-ofctl` sends to any switch, packets as a capture file that
//! any switch replays, and the shares of the packets that a correct switch sends to each port.

mod access;
mod chain;
mod header;
mod hostile;
mod mixed_routes;
mod nat;
mod parts;
mod pipeline;
mod rule;
mod sets;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

pub use header::{Header, SOURCE, Sizes, TARGET};
pub use hostile::Attack;
pub use rule::{Oracle, Prefix, Rule, Sink};
pub use sets::Filter;

use crate::random::Random;
use parts::Parts;

/// The smallest number of packets in a capture file: with fewer packets, rewinding the file would limit the driver.
pub const PACKETS_MIN: usize = 512;

/// The numbers of routes of [`Shape::MixedRoutes`].
const IPV6_ROUTES: usize = 30_000;
const IPV4_ROUTES: usize = 20_000;

/// The shape of a workload. A shape and a seed determine a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One rule on the ingress port, one flow.
    OneRule,
    /// Exact 5-tuple rules that rewrite the destination MAC address, one flow each.
    Exact(usize),
    /// Exact 5-tuple rules that translate addresses and ports, one flow each.
    Nat(usize),
    /// Rules over a number of masks, one flow each.
    Masked {
        /// The number of rules and flows.
        rules: usize,
        /// The number of masks.
        masks: usize,
    },
    /// A filter set.
    Filter {
        /// The type of the set.
        kind: Filter,
        /// The number of rules.
        rules: usize,
        /// The number of flows.
        flows: usize,
    },
    /// IPv4 routes.
    Routes {
        /// The number of routes.
        rules: usize,
        /// The number of flows.
        flows: usize,
    },
    /// 30,000 IPv6 and 20,000 IPv4 routes in two tables, each with the actions of a router.
    MixedRoutes {
        /// The number of flows.
        flows: usize,
        /// The percentage of packets that a route covers; the others are dropped.
        covered: u8,
    },
    /// A pipeline of eight tables.
    Pipeline {
        /// The number of flows.
        flows: usize,
    },
    /// An access list of 10,000 rules under attack.
    Attack {
        /// The type of attack.
        attack: Attack,
        /// The number of flows.
        flows: usize,
    },
    /// An allow-list of three rules, and one rule for all other packets.
    Explosion {
        /// True if packets explode the tuple space of the list.
        attack: bool,
    },
    /// Tables in sequence. The last table has exact entries.
    Tables {
        /// The number of tables.
        tables: usize,
        /// The number of entries of the last table, one flow each.
        flows: usize,
    },
    /// Hosts at access ports of one VLAN, as a learning controller programs them.
    Access {
        /// The number of hosts.
        hosts: usize,
        /// The number of flows.
        flows: usize,
    },
}

impl Shape {
    /// Returns the approximate numbers of rules and flows.
    pub fn lens(self) -> (usize, usize) {
        match self {
            Shape::OneRule => (1, PACKETS_MIN),
            Shape::Exact(len) | Shape::Nat(len) => (len, len),
            Shape::Masked { rules, .. } => (rules, rules),
            Shape::Filter { rules, flows, .. } | Shape::Routes { rules, flows } => (rules, flows),
            Shape::MixedRoutes { flows, .. } => (IPV6_ROUTES + IPV4_ROUTES + 1, flows),
            Shape::Pipeline { flows } => (pipeline::LEN, flows),
            Shape::Attack { flows, .. } => (hostile::RULES, flows),
            Shape::Explosion { .. } => (hostile::ALLOW_LIST, hostile::EXPLODING_PACKETS),
            Shape::Tables { flows, .. } => (flows, flows),
            Shape::Access { hosts, flows } => (access::rules_len(hosts), flows),
        }
    }
}

/// The rules and packets of a measurement.
#[derive(Debug)]
pub struct Workload {
    /// The number of flow entries.
    pub rules_len: usize,
    /// The packets in the order of sending, one for each flow.
    pub headers: Vec<Header>,
    /// The share of the packets that a correct switch sends to each [`Sink`].
    pub shares: [f64; 2],
    /// The smallest number of packets in a capture file.
    packets_min: usize,
    lines: String,
}

impl Workload {
    /// Returns the workload of this shape and seed.
    pub fn new(shape: Shape, seed: u64) -> Workload {
        let mut random = Random::new(seed);
        let (rules, mut headers) = match shape {
            Shape::OneRule => {
                return Workload {
                    rules_len: 1,
                    headers: vec![Header::udp(0x0a00_0001, 0x0a00_0002, 1000, 2000)],
                    shares: [1.0, 0.0],
                    packets_min: PACKETS_MIN,
                    lines: format!("priority=1,in_port=1,actions=output:{}\n", Sink::First.port()),
                };
            }
            Shape::Pipeline { flows } => {
                let parts = pipeline::pipeline(flows, &mut random);
                return Workload::written(parts, &mut random);
            }
            Shape::Tables { tables, flows } => {
                let parts = chain::chain(tables, flows, &mut random);
                return Workload::written(parts, &mut random);
            }
            Shape::Nat(connections) => {
                let parts = nat::nat(connections, &mut random);
                return Workload::written(parts, &mut random);
            }
            Shape::MixedRoutes { flows, covered } => {
                let sizes = mixed_routes::Sizes {
                    ipv6: IPV6_ROUTES,
                    ipv4: IPV4_ROUTES,
                    flows,
                    covered,
                };
                return Workload::written(mixed_routes::mixed_routes(sizes, &mut random), &mut random);
            }
            Shape::Access { hosts, flows } => {
                let parts = access::access(hosts, flows, &mut random);
                return Workload::written(parts, &mut random);
            }
            Shape::Attack { attack, flows } => hostile::access_list(attack, flows, &mut random),
            Shape::Explosion { attack } => hostile::explosion(attack, &mut random),
            Shape::Exact(len) => sets::exact(len, &mut random),
            Shape::Masked { rules, masks } => sets::masked(rules, masks, &mut random),
            Shape::Filter { kind, rules, flows } => sets::filter(kind, rules, flows, &mut random),
            Shape::Routes { rules, flows } => sets::routes(rules, flows, &mut random),
        };
        random.shuffle(&mut headers);
        let mut lines = String::new();
        for rule in &rules {
            rule.line(&mut lines);
        }
        Workload {
            rules_len: rules.len(),
            shares: sets::shares(&rules, &headers),
            headers,
            packets_min: PACKETS_MIN,
            lines,
        }
    }

    /// Returns the workload of these parts, with the packets in random order.
    fn written(mut parts: Parts, random: &mut Random) -> Workload {
        random.shuffle(&mut parts.headers);
        Workload {
            rules_len: parts.lines.lines().count(),
            headers: parts.headers,
            shares: parts.shares,
            packets_min: PACKETS_MIN,
            lines: parts.lines,
        }
    }

    /// Returns the same workload for files of at least `packets_min` packets, in which flows are repeated.
    pub fn repeated(mut self, packets_min: usize) -> Workload {
        self.packets_min = packets_min.max(PACKETS_MIN);
        self
    }

    /// Returns the flow entries, one per line, for `ovs-ofctl add-flows`.
    pub fn lines(&self) -> &str {
        &self.lines
    }

    /// Writes the packets to a capture file, each flow equally often. Returns the number of packets.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_packets(&self, path: &Path, sizes: &Sizes, seed: u64) -> io::Result<usize> {
        self.write_part(path, sizes, seed, 0, 1)
    }

    /// Writes every `of`th packet, beginning with packet number `part`. Files for several ports then have
    /// different flows.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_part(
        &self,
        path: &Path,
        sizes: &Sizes,
        seed: u64,
        part: usize,
        of: usize,
    ) -> io::Result<usize> {
        let mut random = Random::new(seed);
        // Every part has packets, even if there are fewer flows than parts, because all parts are offered at full rate.
        let first = part % self.headers.len().max(1);
        let headers: Vec<&Header> = self.headers.iter().skip(first).step_by(of.max(1)).collect();
        let repeat = self.packets_min.div_ceil(headers.len().max(1));
        let headers = std::iter::repeat_n(&headers, repeat).flatten();
        write_frames(path, headers.map(|header| header.frame(sizes.pick(&mut random))))
    }
}

/// Writes frames to a capture file. Returns their number.
pub(crate) fn write_frames(path: &Path, frames: impl Iterator<Item = Vec<u8>>) -> io::Result<usize> {
    let header = PcapHeader {
        snaplen: 65_535,
        ..PcapHeader::default()
    };
    let out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut writer = PcapWriter::with_header(out, header).map_err(io::Error::other)?;
    let mut packets = 0;
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        writer
            .write_packet(&PcapPacket::new(Duration::ZERO, len, &frame))
            .map_err(io::Error::other)?;
        packets += 1;
    }
    writer.into_writer().flush()?;
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_a_function_of_its_shape_and_seed() {
        let shape = Shape::Filter {
            kind: Filter::Acl,
            rules: 500,
            flows: 700,
        };
        let (one, two) = (Workload::new(shape, 1), Workload::new(shape, 1));
        assert_eq!((one.lines(), &one.headers), (two.lines(), &two.headers));
        assert_eq!((one.rules_len, one.headers.len()), (500, 700));
    }

    #[test]
    fn a_capture_file_has_every_flow_equally_often() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pcap");
        let workload = Workload::new(Shape::Exact(200), 1);
        let packets = workload.write_packets(&path, &Sizes::SMALLEST, 1).unwrap();
        assert_eq!(packets, 600);
        // The file header is 24 bytes long, a record header 16, and a frame 60.
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24 + 600 * 76);
    }
    #[test]
    fn every_part_has_packets_though_there_are_fewer_flows_than_parts() {
        let dir = tempfile::tempdir().unwrap();
        let workload = Workload::new(Shape::OneRule, 1);
        for part in 0..3 {
            let path = dir.path().join(format!("{part}.pcap"));
            let packets = workload.write_part(&path, &Sizes::SMALLEST, 1, part, 3).unwrap();
            assert_eq!(packets, PACKETS_MIN);
        }
    }
}
