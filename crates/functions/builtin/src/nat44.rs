//! `nat44`: many inside addresses behind one outside address (RFC 3022, with the endpoint-independent mapping of RFC 4787).
//!
//! A forward packet leaves with the outside address, and an outside port for each inside address and port. A backward packet
//! to that port is translated back. TCP, UDP and ICMP echo are translated, and ICMP errors together with the packet inside.
//! Other IPv4 packets are dropped, and packets other than IPv4 pass.

use core::net::Ipv4Addr;

use millrace_nf::{
    Access, Buffer, Context, Counters, Direction, Function, Kind, SettingError, Setup, Verdict,
};
use millrace_types::{Duration, Time};
use millrace_wire::{L3, L4, Layers, rewrite};

use millrace_nf::flow::FlowPacket;
use millrace_nf::table::Table;

pub(crate) const KIND: Kind = Kind {
    name: "nat44",
    about: "translates IPv4 sources to one outside address, by port",
    settings: &[
        ("outside", "the outside IPv4 address"),
        ("ports", "outside ports, LOW-HIGH (1024-65535)"),
        ("idle_s", "idle time-out of a mapping in seconds (300)"),
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
/// Ports that are tried before a packet is dropped.
const TRIES: u32 = 64;

/// An inside endpoint: protocol, address, port.
type Inside = (u8, [u8; 4], u16);

#[derive(Clone, Copy, Debug)]
struct Owner {
    inside: Inside,
    used: Time,
}

struct Nat {
    outside: Ipv4Addr,
    low: u16,
    high: u16,
    idle: Duration,
    /// The outside port of each inside endpoint.
    mappings: Table<Inside, u16>,
    /// The inside endpoint of each outside port, by protocol (TCP, UDP, ICMP) and port.
    owners: [Box<[Option<Owner>]>; 3],
    next: u32,
    counters: Counters,
}

fn plane(proto: u8) -> Option<usize> {
    match proto {
        6 => Some(0),
        17 => Some(1),
        1 => Some(2),
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
        Ok(Nat {
            outside,
            low,
            high,
            idle: Duration::from_secs(settings.within("idle_s", 300, 1..=86_400)?),
            mappings: Table::new(3 * ports, setup.seed),
            owners: core::array::from_fn(|_| vec![None; ports].into_boxed_slice()),
            next: setup.seed as u32,
            counters: setup.counters.clone(),
        })
    }

    /// Returns the outside port of an inside endpoint, and allocates one if it has none.
    fn port_of(&mut self, inside: Inside, plane: usize, now: Time) -> Option<u16> {
        if let Some(port) = self.mappings.get(&inside, now) {
            let port = *port;
            if let Some(owner) = &mut self.owners[plane][usize::from(port - self.low)] {
                owner.used = now;
            }
            return Some(port);
        }
        let ports = u32::from(self.high - self.low) + 1;
        for _ in 0..TRIES.min(ports) {
            self.next = self.next.wrapping_add(1);
            let index = (self.next % ports) as usize;
            match &self.owners[plane][index] {
                Some(owner) if now.since(owner.used) < self.idle => continue,
                Some(owner) => {
                    let old = owner.inside;
                    self.mappings.remove(&old);
                }
                None => {}
            }
            let port = self.low + index as u16;
            if self.mappings.insert(inside, port, now, |_, _| false).is_err() {
                self.owners[plane][index] = None;
                return None;
            }
            self.owners[plane][index] = Some(Owner { inside, used: now });
            return Some(port);
        }
        None
    }

    fn owner(&mut self, plane: usize, port: u16, now: Time) -> Option<Inside> {
        let index = usize::from(port.checked_sub(self.low)?);
        let owner = self.owners[plane].get_mut(index)?.as_mut()?;
        if now.since(owner.used) >= self.idle {
            return None;
        }
        owner.used = now;
        let inside = owner.inside;
        self.mappings.get(&inside, now);
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
        match context.direction {
            Direction::Forward => {
                let inside = (seen.id.proto, v4(seen.id.source.address), seen.id.source.port);
                let Some(port) = self.port_of(inside, plane, context.now) else {
                    return count::NO_PORT;
                };
                rewrite::ipv4_src(head, &layers, self.outside);
                set_port(head, &layers, port, true);
            }
            Direction::Backward => {
                if v4(seen.id.destination.address) != self.outside.octets() {
                    return count::NO_MAPPING;
                }
                let Some((_, address, port)) = self.owner(plane, seen.id.destination.port, context.now)
                else {
                    return count::NO_MAPPING;
                };
                rewrite::ipv4_dst(head, &layers, address.into());
                set_port(head, &layers, port, false);
            }
        }
        count::TRANSLATED
    }

    /// Translates an ICMP error. The error quotes a packet of the other direction, in its translated form.
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
        // Backward, the inner source is the outside address. Forward, the inner destination is an inside endpoint.
        let (address, port, address_at, port_at) = match context.direction {
            Direction::Backward => {
                if v4(cause.source.address) != self.outside.octets() {
                    return count::NO_MAPPING;
                }
                match self.owner(plane, cause.source.port, context.now) {
                    Some((_, address, port)) => (address, port, inner + 12, inner_l4),
                    None => return count::NO_MAPPING,
                }
            }
            Direction::Forward => {
                let inside = (cause.proto, v4(cause.destination.address), cause.destination.port);
                match self.mappings.get(&inside, context.now) {
                    Some(port) => (self.outside.octets(), *port, inner + 16, inner_l4 + 2),
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

/// Updates the checksum of the IPv4 header inside an error. Receivers do not verify the checksum of its transport header.
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
        let owners = &mut self.owners;
        self.mappings.sweep(
            SWEEP,
            |_, used| now.since(used) >= idle,
            |inside, port| {
                if let Some(plane) = plane(inside.0) {
                    owners[plane][usize::from(port - low)] = None;
                }
            },
        );
        self.counters.set(count::MAPPINGS, self.mappings.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Settings;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame, ipv4, udp};

    use super::*;

    struct TestBed {
        setup: Setup,
        nat: Box<dyn Function>,
    }

    const INSIDE: [u8; 4] = [192, 168, 0, 5];
    const OUTSIDE: [u8; 4] = [203, 0, 113, 1];
    const SERVER: [u8; 4] = [198, 51, 100, 7];

    impl TestBed {
        fn new(settings: &[&str]) -> TestBed {
            let all = ["outside=203.0.113.1"]
                .into_iter()
                .chain(settings.iter().copied());
            let setup = KIND.setup(&Settings::parse(all).unwrap(), 9, 0);
            let nat = KIND.make_function(&setup).unwrap();
            TestBed { setup, nat }
        }

        fn run(&mut self, bytes: &[u8], direction: Direction, second: u64) -> Option<Vec<u8>> {
            let mut frame = Frame::new(bytes);
            let context = Context::new(Time::from_secs(second), direction);
            let mut verdicts = [Verdict::Next];
            self.nat.process(&context, &mut [&mut frame], &mut verdicts);
            (verdicts == [Verdict::Next]).then(|| frame.bytes().to_vec())
        }
    }

    fn datagram(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        ethernet
            .ipv4(from.0, to.0)
            .udp(from.1, to.1)
            .payload(b"hello")
            .build()
    }

    /// Returns source and destination, after a check of every checksum.
    fn ends(frame: &[u8]) -> (([u8; 4], u16), ([u8; 4], u16)) {
        let flow = FlowPacket::of(&Frame::new(frame)).unwrap();
        let header = &frame[14..34];
        assert_eq!(millrace_wire::checksum::internet(header), 0, "IPv4 checksum");
        let rebuilt = {
            let (s, d) = (flow.id.source, flow.id.destination);
            datagram((v4(s.address), s.port), (v4(d.address), d.port))
        };
        assert_eq!(frame, rebuilt, "UDP checksum");
        let _sizes = (ipv4::MIN_SIZE, udp::SIZE);
        let end = |end: millrace_nf::flow::Endpoint| (v4(end.address), end.port);
        (end(flow.id.source), end(flow.id.destination))
    }

    #[test]
    fn what_goes_out_comes_back_to_where_it_came_from() {
        let mut bed = TestBed::new(&[]);
        let out = bed
            .run(&datagram((INSIDE, 5000), (SERVER, 53)), Direction::Forward, 0)
            .unwrap();
        let (source, destination) = ends(&out);
        assert_eq!((source.0, destination), (OUTSIDE, (SERVER, 53)));
        let back = bed
            .run(&datagram((SERVER, 53), source), Direction::Backward, 1)
            .unwrap();
        assert_eq!(ends(&back), ((SERVER, 53), (INSIDE, 5000)));
        let again = bed
            .run(&datagram((INSIDE, 5000), (SERVER, 54)), Direction::Forward, 2)
            .unwrap();
        assert_eq!(ends(&again).0, source, "endpoint-independent");
        let other = bed
            .run(&datagram((INSIDE, 5001), (SERVER, 53)), Direction::Forward, 2)
            .unwrap();
        assert_ne!(ends(&other).0, source);
        assert_eq!(bed.setup.counters.value("mappings"), Some(2));
    }

    #[test]
    fn nothing_comes_in_that_was_not_asked_for() {
        let mut bed = TestBed::new(&[]);
        assert_eq!(
            bed.run(&datagram((SERVER, 53), (OUTSIDE, 4000)), Direction::Backward, 0),
            None
        );
        assert_eq!(
            bed.run(&datagram((SERVER, 53), (INSIDE, 4000)), Direction::Backward, 0),
            None
        );
        assert_eq!(bed.setup.counters.value("no_mapping"), Some(2));
    }

    #[test]
    fn ports_run_out_and_come_back() {
        let mut bed = TestBed::new(&["ports=4000-4003", "idle_s=10"]);
        let mut ports = std::collections::BTreeSet::new();
        for inside in 0..4 {
            let out = bed
                .run(&datagram((INSIDE, inside), (SERVER, 53)), Direction::Forward, 0)
                .unwrap();
            ports.insert(ends(&out).0.1);
        }
        assert_eq!(ports.into_iter().collect::<Vec<_>>(), [4000, 4001, 4002, 4003]);
        assert_eq!(
            bed.run(&datagram((INSIDE, 9), (SERVER, 53)), Direction::Forward, 5),
            None
        );
        assert!(
            bed.run(&datagram((INSIDE, 9), (SERVER, 53)), Direction::Forward, 10)
                .is_some()
        );
        bed.nat.tick(Time::from_secs(30));
        assert_eq!(bed.setup.counters.value("mappings"), Some(0));
    }

    #[test]
    fn an_error_about_a_translated_packet_finds_its_sender() {
        let mut bed = TestBed::new(&[]);
        let sent = datagram((INSIDE, 5000), (SERVER, 53));
        let out = bed.run(&sent, Direction::Forward, 0).unwrap();
        let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&out[14..42]);
        let sum = millrace_wire::checksum::internet(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let mut error = ethernet.ipv4(SERVER, OUTSIDE).payload(&message).build();
        error[23] = 1;
        error[24..26].fill(0);
        let sum = millrace_wire::checksum::internet(&error[14..34]);
        error[24..26].copy_from_slice(&sum.to_be_bytes());
        let back = bed.run(&error, Direction::Backward, 1).unwrap();
        assert_eq!(back[30..34], INSIDE);
        assert_eq!(millrace_wire::checksum::internet(&back[14..34]), 0);
        assert_eq!(millrace_wire::checksum::internet(&back[34..]), 0);
        assert_eq!(
            back[42..62],
            sent[14..34],
            "the packet inside is the one that was sent"
        );
        assert_eq!(back[62..64], 5000_u16.to_be_bytes());
    }
}
