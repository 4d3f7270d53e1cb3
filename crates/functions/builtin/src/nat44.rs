//! `nat44`: many inside addresses behind one outside address (RFC 3022, with the endpoint-independent mapping of RFC 4787).
//!
//! A forward packet gets the outside address as its source, and the outside port of its inside address and port. A
//! backward packet to that port is translated back. TCP, UDP and ICMP echo are translated, and ICMP errors together
//! with the packet inside. Other IPv4 packets are dropped, and packets other than IPv4 pass.

mod mapping;
#[cfg(test)]
mod tests;

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use millrace_nf::{
    Access, Buffer, Context, Counters, Direction, Function, Kind, SettingError, Setup, Verdict,
};
use millrace_types::{Duration, Time};
use millrace_wire::{IpProto, L3, L4, Layers, rewrite};

use mapping::{Idle, Mapping, Segment, State};
use millrace_nf::flow::FlowPacket;
use millrace_nf::table::Table;

pub(crate) const KIND: Kind = Kind {
    name: "nat44",
    about: "translates IPv4 sources to one outside address, by port",
    settings: &[
        ("outside", "the outside IPv4 address"),
        ("ports", "outside ports, LOW-HIGH (1024-65535)"),
        ("idle_s", "idle time-out of a mapping in seconds (300)"),
        (
            "tcp_idle_s",
            "idle time-out of a mapping with an established TCP connection in seconds (7440)",
        ),
    ],
    counters: &["translated", "no_mapping", "no_port", "unsupported", "mappings"],
    reads: Access::ADDRESSES.or(Access::PORTS),
    writes: Access::ADDRESSES.or(Access::PORTS),
    keeps_flows: true,
    outbox: (0, 0),
    report: 0,
    make: &|setup| Nat::new(setup).map(|nat| Box::new(nat) as Box<dyn Function>),
    ..Kind::DEFAULT
};

/// Indices of the counters.
mod count {
    pub(super) const TRANSLATED: usize = 0;
    pub(super) const NO_MAPPING: usize = 1;
    pub(super) const NO_PORT: usize = 2;
    pub(super) const UNSUPPORTED: usize = 3;
    pub(super) const MAPPINGS: usize = 4;
}

/// Sets of the table that one tick scans.
const SWEEP: usize = 1024;
/// Maximum number of ports that one burst searches for expired mappings while no port is free. Each port costs a random
/// access to the table, so the limit is per burst and not per packet.
const TRIES: usize = 64;

/// An inside endpoint: protocol, address, port.
type Inside = (u8, [u8; 4], u16);

struct Nat {
    outside: Ipv4Addr,
    low: u16,
    idle: Idle,
    mappings: Table<Inside, Mapping>,
    /// The inside endpoint of each outside port, by protocol (TCP, UDP, ICMP) and port.
    owners: [Box<[Option<Inside>]>; 3],
    /// The outside ports without an owner, by protocol.
    free: [VecDeque<u16>; 3],
    /// The index of the port at which the next search for an expired mapping begins.
    next: usize,
    /// The number of ports that the current burst may still search.
    tries: usize,
    counters: Counters,
}

/// The index of TCP in `owners` and `free`.
const TCP: usize = 0;

fn plane(proto: u8) -> Option<usize> {
    match IpProto(proto) {
        IpProto::TCP => Some(TCP),
        IpProto::UDP => Some(1),
        IpProto::ICMPV4 => Some(2),
        _ => None,
    }
}

impl Nat {
    fn new(setup: &Setup) -> Result<Nat, SettingError> {
        let settings = &setup.settings;
        let Some(text) = settings.one("outside")? else {
            return Err(SettingError::Missing {
                key: "outside",
                expected: "an IPv4 address".to_owned(),
            });
        };
        let outside = text
            .parse()
            .map_err(|_| SettingError::value("outside", text, "expected an IPv4 address"))?;
        let text = settings.one("ports")?.unwrap_or("1024-65535");
        let range = text.split_once('-').and_then(|(low, high)| {
            let (low, high) = (low.parse::<u16>().ok()?, high.parse::<u16>().ok()?);
            (low != 0 && low <= high).then_some((low, high))
        });
        let (low, high) =
            range.ok_or_else(|| SettingError::value("ports", text, "expected LOW-HIGH, both 1 to 65535"))?;
        let ports = setup.table_len(usize::from(high - low) + 1);
        let port = |number: usize| low + ((number + setup.seed as usize % ports) % ports) as u16;
        Ok(Nat {
            outside,
            low,
            idle: Idle {
                open: Duration::from_secs(settings.within("tcp_idle_s", 7_440, 1..=86_400)?),
                other: Duration::from_secs(settings.within("idle_s", 300, 1..=86_400)?),
            },
            mappings: Table::new(3 * ports, setup.seed),
            owners: core::array::from_fn(|_| vec![None; ports].into_boxed_slice()),
            free: core::array::from_fn(|_| (0..ports).map(port).collect()),
            next: 0,
            tries: 0,
            counters: setup.counters.clone(),
        })
    }

    /// Returns the outside port of an inside endpoint that sends a packet. Allocates a port if the endpoint has none.
    /// Returns `None` if no port or no table entry is free.
    fn port_of(&mut self, inside: Inside, plane: usize, segment: Segment, now: Time) -> Option<u16> {
        if let Some(mapping) = self.mappings.get(&inside, now) {
            mapping.state = mapping.state.next(segment);
            return Some(mapping.port);
        }
        let port = self.free_port(plane, now)?;
        let state = State::new(plane == TCP);
        if self
            .mappings
            .insert(inside, Mapping { port, state }, now, |_, _| false)
            .is_err()
        {
            self.free[plane].push_back(port);
            return None;
        }
        self.owners[plane][usize::from(port - self.low)] = Some(inside);
        Some(port)
    }

    /// Returns a port without an owner. If there is none, removes an expired mapping that the scan of the table has not
    /// reached yet, and returns its port.
    fn free_port(&mut self, plane: usize, now: Time) -> Option<u16> {
        if let Some(port) = self.free[plane].pop_front() {
            return Some(port);
        }
        let ports = self.owners[plane].len();
        while self.tries != 0 {
            self.tries -= 1;
            self.next = (self.next + 1) % ports;
            if let Some(inside) = self.owners[plane][self.next]
                && self.mapping(&inside, now).is_none()
            {
                self.mappings.remove(&inside);
                self.owners[plane][self.next] = None;
                return Some(self.low + self.next as u16);
            }
        }
        None
    }

    /// Returns the mapping of an inside endpoint, if it has not expired. Does not refresh the mapping.
    fn mapping(&self, inside: &Inside, now: Time) -> Option<&Mapping> {
        let (mapping, used) = self.mappings.peek(inside)?;
        (!self.idle.is_over(mapping, used, now)).then_some(mapping)
    }

    /// Returns the inside endpoint of an outside port.
    fn owner(&self, plane: usize, port: u16) -> Option<Inside> {
        let index = usize::from(port.checked_sub(self.low)?);
        *self.owners[plane].get(index)?
    }

    /// Returns the inside endpoint that receives a packet sent to an outside port.
    fn receiver(&mut self, plane: usize, port: u16, segment: Segment, now: Time) -> Option<Inside> {
        let inside = self.owner(plane, port)?;
        let idle = self.idle;
        let is_over = |mapping: &Mapping, used| idle.is_over(mapping, used, now);
        let mapping = self.mappings.get_unless(&inside, now, is_over)?;
        mapping.state = mapping.state.next(segment);
        Some(inside)
    }

    fn translate(&mut self, packet: &mut dyn Buffer, context: &Context) -> usize {
        let Some(seen) = FlowPacket::of(packet).filter(|seen| seen.layers.l3() == L3::Ipv4) else {
            return usize::MAX;
        };
        let layers = seen.layers;
        if let Some(cause) = seen.cause(packet) {
            return self.translate_error(packet, &layers, cause, context);
        }
        let is_echo = layers.l4() == L4::Icmpv4 && matches!(seen.icmp_type, 0 | 8);
        let plane = plane(seen.id.proto).filter(|_| matches!(layers.l4(), L4::Tcp | L4::Udp) || is_echo);
        let Some(plane) = plane else {
            return count::UNSUPPORTED;
        };
        let head = packet.head_mut();
        let segment = Segment {
            flags: seen.tcp_flags,
            has_payload: has_payload(head, &layers),
            is_from_outside: context.direction == Direction::Backward,
        };
        match context.direction {
            Direction::Forward => {
                let inside = (seen.id.proto, v4(seen.id.source.address), seen.id.source.port);
                let Some(port) = self.port_of(inside, plane, segment, context.now) else {
                    return count::NO_PORT;
                };
                rewrite::ipv4_src(head, &layers, self.outside);
                set_port(head, &layers, port, true);
            }
            Direction::Backward => {
                if v4(seen.id.destination.address) != self.outside.octets() {
                    return count::NO_MAPPING;
                }
                let to = seen.id.destination.port;
                let Some((_, address, port)) = self.receiver(plane, to, segment, context.now) else {
                    return count::NO_MAPPING;
                };
                rewrite::ipv4_dst(head, &layers, address.into());
                set_port(head, &layers, port, false);
            }
        }
        count::TRANSLATED
    }

    /// Translates an ICMP error. The error quotes a packet of the other direction, in its translated form. An
    /// error does not refresh the mapping (RFC 5508, REQ-6).
    fn translate_error(
        &mut self,
        packet: &mut dyn Buffer,
        layers: &Layers,
        cause: millrace_nf::flow::FlowId,
        context: &Context,
    ) -> usize {
        let Some(plane) = plane(cause.proto) else {
            return count::UNSUPPORTED;
        };
        let head = packet.head_mut();
        let inner = layers.l4_offset() + 8;
        let inner_l4 = inner + usize::from(head[inner] & 15) * 4;
        // In direction backward, the inner source is the outside address. In direction forward, the inner destination
        // is an inside endpoint.
        let (address, port, address_at, port_at) = match context.direction {
            Direction::Backward => {
                if v4(cause.source.address) != self.outside.octets() {
                    return count::NO_MAPPING;
                }
                let owner = self.owner(plane, cause.source.port);
                match owner.filter(|inside| self.mapping(inside, context.now).is_some()) {
                    Some((_, address, port)) => (address, port, inner + 12, inner_l4),
                    None => return count::NO_MAPPING,
                }
            }
            Direction::Forward => {
                let inside = (cause.proto, v4(cause.destination.address), cause.destination.port);
                match self.mapping(&inside, context.now) {
                    Some(mapping) => (self.outside.octets(), mapping.port, inner + 16, inner_l4 + 2),
                    None => return count::NO_MAPPING,
                }
            }
        };
        // The identifier of an echo message is at another offset than ports.
        let port_at = if plane == 2 { inner_l4 + 4 } else { port_at };
        let Some(bytes) = head.get_mut(address_at..address_at + 4) else {
            return count::NO_MAPPING;
        };
        bytes.copy_from_slice(&address);
        let Some(bytes) = head.get_mut(port_at..port_at + 2) else {
            return count::NO_MAPPING;
        };
        bytes.copy_from_slice(&port.to_be_bytes());
        fix_inner(head, inner, inner_l4);
        match context.direction {
            Direction::Backward => rewrite::ipv4_dst(head, layers, address.into()),
            Direction::Forward => rewrite::ipv4_src(head, layers, self.outside),
        };
        let (at, end) = (layers.l4_offset(), layers.l4_offset() + layers.l4_size());
        if let Some(message) = head.get_mut(at..end) {
            message[2..4].fill(0);
            let sum = millrace_wire::checksum::internet(message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        count::TRANSLATED
    }
}

/// Returns true for a TCP segment with payload.
fn has_payload(head: &[u8], layers: &Layers) -> bool {
    let header_size = head
        .get(layers.l4_offset() + 12)
        .map_or(0, |byte| usize::from(byte >> 4) * 4);
    layers.l4() == L4::Tcp && layers.l4_size() > header_size
}

/// Updates the checksum of the IPv4 header that an ICMP error quotes. Receivers do not verify the checksum of the
/// quoted transport header.
fn fix_inner(head: &mut [u8], inner: usize, inner_l4: usize) {
    if let Some(header) = head.get_mut(inner..inner_l4) {
        header[10..12].fill(0);
        let sum = millrace_wire::checksum::internet(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn set_port(head: &mut [u8], layers: &Layers, port: u16, source: bool) {
    match (layers.l4(), source) {
        (L4::Icmpv4, _) => {
            let at = layers.l4_offset();
            if let Some(header) = head.get_mut(at..).and_then(|l4| l4.first_chunk_mut::<8>()) {
                let old = u16::from_be_bytes([header[4], header[5]]);
                let sum = u16::from_be_bytes([header[2], header[3]]);
                let sum = millrace_wire::checksum::Change::of16(old, port).apply(sum);
                header[2..4].copy_from_slice(&sum.to_be_bytes());
                header[4..6].copy_from_slice(&port.to_be_bytes());
            }
        }
        (l4, true) => {
            rewrite::l4_src(head, layers, l4, port);
        }
        (l4, false) => {
            rewrite::l4_dst(head, layers, l4, port);
        }
    }
}

fn v4(address: [u8; 16]) -> [u8; 4] {
    [address[12], address[13], address[14], address[15]]
}

impl Function for Nat {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        self.tries = TRIES;
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let outcome = self.translate(&mut **packet, context);
            if outcome == usize::MAX {
                continue;
            }
            self.counters.add(outcome, 1);
            if outcome != count::TRANSLATED {
                *verdict = Verdict::Drop;
            }
        }
        self.counters.set(count::MAPPINGS, self.mappings.len() as u64);
    }

    fn tick(&mut self, now: Time) {
        let (idle, low) = (self.idle, self.low);
        let (owners, free) = (&mut self.owners, &mut self.free);
        self.mappings.sweep(
            SWEEP,
            |mapping, used| idle.is_over(mapping, used, now),
            |inside, Mapping { port, .. }| {
                if let Some(plane) = plane(inside.0) {
                    owners[plane][usize::from(port - low)] = None;
                    free[plane].push_back(port);
                }
            },
        );
        self.counters.set(count::MAPPINGS, self.mappings.len() as u64);
    }
}
