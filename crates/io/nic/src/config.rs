//! The configuration of a device as values of its registers, and the sizes that it reports.

use crate::hash::{FLOW_KEYS, HashKeys};
use crate::key::WORDS;
use crate::register::{DEFAULT_TPIDS, DEFAULT_TUNNELS, TPIDS, TUNNEL_PORTS, Tunnel, by_name};
use crate::{BANKS_MAX, PORTS_MAX, QUEUES_MAX, WAYS};

/// A tag protocol identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tpid {
    /// The EtherType.
    pub value: u16,
    /// True if the OpenFlow view knows the tag; otherwise only the hash does.
    pub openflow: bool,
}

/// The configuration that a driver writes before it enables a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The secret keys.
    pub keys: HashKeys,
    /// The tags.
    pub tpids: [Option<Tpid>; TPIDS],
    /// UDP destination ports of tunnels.
    pub tunnels: [Option<(u16, Tunnel)>; TUNNEL_PORTS],
}

impl Config {
    /// Returns the configuration under which a device computes the hash and the key of the switch.
    #[must_use]
    pub fn new(keys: HashKeys) -> Config {
        Config {
            keys,
            tpids: core::array::from_fn(|at| {
                let (value, openflow) = *DEFAULT_TPIDS.get(at)?;
                Some(Tpid { value, openflow })
            }),
            tunnels: core::array::from_fn(|at| DEFAULT_TUNNELS.get(at).copied()),
        }
    }

    /// Returns offsets and values of all registers of the configuration, without CONTROL.
    #[must_use]
    pub fn registers(&self) -> Vec<(u16, u32)> {
        let mut all = Vec::new();
        let mut add = |name: &str, values: &mut dyn Iterator<Item = u32>| {
            let offset = by_name(name).map_or(0, |register| register.offset);
            all.extend(
                (0..)
                    .zip(values)
                    .map(|(at, value)| ((offset + 4 * at) as u16, value)),
            );
        };
        add("HASH_KEY", &mut self.keys.flow.iter().flat_map(halves));
        add("TABLE_KEY", &mut self.keys.table.iter().flat_map(halves));
        let tpid = |tpid: &Option<Tpid>| {
            tpid.map_or(0, |tpid| u32::from(tpid.value) | u32::from(tpid.openflow) << 16)
        };
        add("TPID", &mut self.tpids.iter().map(tpid));
        let tunnel = |tunnel: &Option<(u16, Tunnel)>| {
            tunnel.map_or(0, |(port, kind)| u32::from(port) | (kind as u32) << 16)
        };
        add("TUNNEL_PORT", &mut self.tunnels.iter().map(tunnel));
        all
    }

    /// Returns the configuration that is in registers, which `read` reads by their offset. Any values are a configuration:
    /// an unknown kind of tunnel is none.
    #[must_use]
    pub fn from_registers(mut read: impl FnMut(u16) -> u32) -> Config {
        let mut array = |name: &str, at: usize| {
            let offset = by_name(name).map_or(0, |register| register.offset);
            read((offset + 4 * at) as u16)
        };
        let mut long = |name: &str, at: usize| {
            let [low, high] = [array(name, 2 * at), array(name, 2 * at + 1)];
            u64::from(high) << 32 | u64::from(low)
        };
        let mut keys = HashKeys {
            flow: [0; FLOW_KEYS],
            table: [0; WORDS],
        };
        for (at, key) in keys.flow.iter_mut().enumerate() {
            *key = long("HASH_KEY", at);
        }
        for (at, key) in keys.table.iter_mut().enumerate() {
            *key = long("TABLE_KEY", at);
        }
        Config {
            keys,
            tpids: core::array::from_fn(|at| {
                let value = array("TPID", at);
                (value as u16 != 0).then_some(Tpid {
                    value: value as u16,
                    openflow: value >> 16 & 1 == 1,
                })
            }),
            tunnels: core::array::from_fn(|at| {
                let value = array("TUNNEL_PORT", at);
                let kind = match value >> 16 & 7 {
                    1 => Tunnel::Vxlan,
                    2 => Tunnel::Geneve,
                    3 => Tunnel::GtpU,
                    4 => Tunnel::Mpls,
                    _ => return None,
                };
                Some((value as u16, kind))
            }),
        }
    }

    /// Returns the tag with an EtherType.
    #[must_use]
    pub fn tpid(&self, ether_type: u16) -> Option<Tpid> {
        self.tpids
            .iter()
            .flatten()
            .find(|tpid| tpid.value == ether_type)
            .copied()
    }

    /// Returns the kind of tunnel to a UDP port.
    #[must_use]
    pub fn tunnel(&self, port: u16) -> Option<Tunnel> {
        let tunnel = self.tunnels.iter().flatten().find(|(value, _)| *value == port);
        tunnel.map(|(_, kind)| *kind)
    }
}

fn halves(word: &u64) -> [u32; 2] {
    [*word as u32, (*word >> 32) as u32]
}

/// The sizes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Number of receive queues, 1 to 32.
    pub queues: u8,
    /// Number of mask banks, 1 to 16.
    pub banks: u8,
    /// Number of rules of the ternary table, 0 to 256.
    pub rules: u16,
    /// Each way of the exact table has 2 to the power of this many rows; at most 16.
    pub row_bits: u8,
    /// False without an exact table.
    pub has_rows: bool,
    /// Number of ports, 1 to 16.
    pub ports: u8,
    /// Number of drop counters, at most [`DROPS_MAX`]; 0 for a device that does not count by entry what entries drop.
    pub drops: u32,
}

/// The most drop counters that a device has.
pub const DROPS_MAX: u32 = 1 << 16;

impl Capabilities {
    /// The pinned configuration for an ECP5 at 100 MHz: 4 × 512 rows, 32 rules.
    pub const TEN: Capabilities = Capabilities {
        queues: 32,
        banks: 4,
        rules: 32,
        row_bits: 9,
        has_rows: true,
        ports: 4,
        drops: 0,
    };
    /// The pinned configuration for an UltraScale+ at 250 MHz: 4 × 16,384 rows, 64 rules.
    pub const FORTY: Capabilities = Capabilities {
        queues: 32,
        banks: 8,
        rules: 64,
        row_bits: 14,
        has_rows: true,
        ports: 4,
        drops: 0,
    };

    /// Returns the number of entries that the exact table holds.
    #[must_use]
    pub fn rows(&self) -> usize {
        if self.has_rows { WAYS << self.row_bits } else { 0 }
    }

    /// Returns the values of CAP_QUEUES, CAP_ROWS, CAP_PORTS and CAP_DROPS.
    #[must_use]
    pub fn to_registers(self) -> [u32; 4] {
        let ways = if self.has_rows { WAYS as u32 } else { 0 };
        [
            u32::from(self.queues) | u32::from(self.banks) << 8 | u32::from(self.rules) << 16,
            u32::from(self.row_bits) | ways << 8,
            self.ports.into(),
            self.drops,
        ]
    }

    /// Returns the capabilities that are in CAP_QUEUES, CAP_ROWS, CAP_PORTS and CAP_DROPS; `None` if one is out of its range.
    #[must_use]
    pub fn from_registers([queues, rows, ports, drops]: [u32; 4]) -> Option<Capabilities> {
        let ways = (rows >> 8 & 0xff) as usize;
        let capabilities = Capabilities {
            queues: queues as u8,
            banks: (queues >> 8) as u8,
            rules: (queues >> 16) as u16,
            row_bits: rows as u8,
            has_rows: ways != 0,
            ports: u8::try_from(ports).ok()?,
            drops,
        };
        let in_range = |value: u8, max: usize| (1..=max).contains(&usize::from(value));
        let is_valid = in_range(capabilities.queues, QUEUES_MAX)
            && in_range(capabilities.banks, BANKS_MAX)
            && in_range(capabilities.ports, PORTS_MAX)
            && capabilities.rules <= 256
            && capabilities.row_bits <= 16
            && capabilities.drops <= DROPS_MAX
            && (ways == 0 || ways == WAYS);
        is_valid.then_some(capabilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_configuration_comes_back_from_its_registers() {
        let config = Config::new(HashKeys::new(7));
        let registers: BTreeMap<u16, u32> = config.registers().into_iter().collect();
        let read = Config::from_registers(|offset| registers.get(&offset).copied().unwrap_or_default());
        assert_eq!(read, config);
        assert_eq!(read.tunnel(4789), Some(Tunnel::Vxlan));
        assert_eq!(
            read.tpid(0x9100),
            Some(Tpid {
                value: 0x9100,
                openflow: false
            })
        );
    }

    #[test]
    fn capabilities_come_back_from_their_registers_and_impossible_ones_are_refused() {
        let counting = Capabilities {
            drops: DROPS_MAX,
            ..Capabilities::TEN
        };
        for capabilities in [Capabilities::TEN, Capabilities::FORTY, counting] {
            let registers = capabilities.to_registers();
            assert_eq!(Capabilities::from_registers(registers), Some(capabilities));
            for (at, value) in [
                (0, 0),
                (0, 33),
                (1, 17 | 4 << 8),
                (1, 9 | 3 << 8),
                (2, 0),
                (2, 17),
                (2, 257),
                (3, DROPS_MAX + 1),
            ] {
                let mut wrong = registers;
                wrong[at] = value;
                assert_eq!(
                    Capabilities::from_registers(wrong),
                    None,
                    "register {at} with {value}"
                );
            }
        }
    }
}
