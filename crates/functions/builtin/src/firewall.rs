//! `firewall`: a stateful packet filter.
//!
//! Rules decide about the first packet of a connection. Packets of a connection that was allowed pass in both
//! directions. A TCP connection starts with a segment that has SYN and not ACK. ICMP errors pass if they refer to a
//! known connection. ARP and IPv6 neighbour discovery pass. The setting `non_ip` decides about other packets that are
//! not IP, and `fragments` about later fragments, which have no ports. A first fragment that ends before the ports or
//! TCP flags, and a packet whose transport header is malformed or not in its first segment, are dropped, since no rule
//! can judge them (RFC 1858; RFC 7112 for IPv6).

use millrace_nf::{Access, Buffer, Context, Counters, Function, Kind, SettingError, Setup, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::{Depth, EtherType, Fragment, IpProto, L3, L4, Layers};

use crate::rules::{Decision, Rule};
use millrace_nf::flow::{FlowId, FlowPacket, flag};
use millrace_nf::table::Table;

/// The kind of function.
pub const KIND: Kind = Kind {
    name: "firewall",
    about: "stateful packet filter: allows connections by rules",
    settings: &[
        (
            "rule",
            "`allow|deny [tcp|udp|icmp|sctp|N] [from PREFIX] [to PREFIX] [port N[-M]]`; the first match decides",
        ),
        ("default", "allow or deny if no rule matches (deny)"),
        ("non_ip", "allow or deny packets other than IP and ARP (deny)"),
        ("fragments", "allow or deny fragments after the first (deny)"),
        (
            "connections",
            "size of the connection table, 8 to 16777216 (65536)",
        ),
        (
            "idle_s",
            "idle time-out of a connection in seconds (300; at most 60 for UDP and others, 30 for opening TCP, 10 for closing \
             TCP)",
        ),
    ],
    counters: &[
        "allowed",
        "denied",
        "known",
        "invalid",
        "fragments",
        "table_full",
        "connections",
    ],
    reads: Access::LINK
        .or(Access::ADDRESSES)
        .or(Access::PORTS)
        .or(Access::HEADERS),
    writes: Access::NONE,
    keeps_flows: true,
    outbox: (0, 0),
    report: 0,
    make: &|setup| Firewall::new(setup).map(|firewall| Box::new(firewall) as Box<dyn Function>),
    ..Kind::DEFAULT
};

/// Indices of the counters.
mod count {
    pub(super) const ALLOWED: usize = 0;
    pub(super) const DENIED: usize = 1;
    pub(super) const KNOWN: usize = 2;
    pub(super) const INVALID: usize = 3;
    pub(super) const FRAGMENTS: usize = 4;
    pub(super) const TABLE_FULL: usize = 5;
    pub(super) const CONNECTIONS: usize = 6;
}

/// Sets of the table that one tick scans. A table for a million connections is scanned in 26 s.
const SWEEP: usize = 1024;
/// Idle time-out of protocols other than TCP.
const DATAGRAM_IDLE: Duration = Duration::from_secs(60);
/// Idle time-out of a TCP connection during its handshake. It is short, so that a SYN flood does not fill the table.
const OPENING_IDLE: Duration = Duration::from_secs(30);
/// Idle time-out of a TCP connection that is closing.
const CLOSING_IDLE: Duration = Duration::from_secs(10);

/// The state of a connection.
///
/// ```text
///         SYN and ACK of           ACK of              FIN               FIN of
///         the other end         the opening end                       the other end
/// Opening -------------> Answered ------------> Open -----> HalfClosed ------------> Closing
///   |  RST                 |  RST                 |  RST      | RST                     ^
///   +----------------------+----------------------+-----------+-------------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The protocol has no connections; this state never changes.
    Datagrams,
    /// One end has sent SYN: the source of the canonical direction (false) or its destination (true).
    Opening(bool),
    /// The other end has answered with SYN and ACK. The opening end has not acknowledged the answer.
    Answered(bool),
    /// The handshake is complete. Neither end has sent FIN or RST.
    Open,
    /// One end has sent FIN: the source of the canonical direction (false) or its destination (true).
    HalfClosed(bool),
    /// Both ends have sent FIN, or one has sent RST.
    Closing,
}

struct Firewall {
    rules: Box<[Rule]>,
    default: Decision,
    non_ip: Decision,
    fragments: Decision,
    idle: Duration,
    connections: Table<FlowId, State>,
    counters: Counters,
}

impl Firewall {
    fn new(setup: &Setup) -> Result<Firewall, SettingError> {
        let settings = &setup.settings;
        let rule = |text: &str| {
            text.parse()
                .map_err(|reason: String| SettingError::value("rule", text, reason))
        };
        let capacity = settings.within("connections", 65_536_usize, 8..=16_777_216)?;
        Ok(Firewall {
            rules: settings.all("rule").map(rule).collect::<Result<_, _>>()?,
            default: settings.value("default", Decision::Deny)?,
            non_ip: settings.value("non_ip", Decision::Deny)?,
            fragments: settings.value("fragments", Decision::Deny)?,
            idle: Duration::from_secs(settings.within("idle_s", 300, 1..=86_400)?),
            connections: Table::new(setup.table_len(capacity), setup.seed),
            counters: setup.counters.clone(),
        })
    }

    fn idle_of(idle: Duration, state: State) -> Duration {
        match state {
            State::Open | State::HalfClosed(_) => idle,
            State::Datagrams => idle.min(DATAGRAM_IDLE),
            State::Opening(_) | State::Answered(_) => idle.min(OPENING_IDLE),
            State::Closing => idle.min(CLOSING_IDLE),
        }
    }

    /// Returns the index of the counter for a packet. The packet passes for `ALLOWED` and `KNOWN`.
    fn judge(&mut self, packet: &dyn Buffer, now: Time) -> usize {
        let Some(seen) = FlowPacket::of(packet) else {
            return match (is_arp(packet.head()), self.non_ip) {
                (true, _) | (_, Decision::Allow) => count::ALLOWED,
                (_, Decision::Deny) => count::DENIED,
            };
        };
        if seen.is_later_fragment {
            return match self.fragments {
                Decision::Allow => count::ALLOWED,
                Decision::Deny => count::FRAGMENTS,
            };
        }
        if has_no_ports(&seen.layers) {
            return match seen.layers.fragment() {
                Fragment::First => count::FRAGMENTS,
                Fragment::Whole | Fragment::Later => count::INVALID,
            };
        }
        if let Some(cause) = seen.cause(packet) {
            // An error does not refresh its connection (RFC 5508, REQ-6).
            let entry = self.connections.peek(&cause.canonical().0);
            let known = entry.is_some_and(|(state, used)| now.since(used) < Self::idle_of(self.idle, *state));
            return if known { count::KNOWN } else { count::INVALID };
        }
        // Router and neighbour discovery (RFC 4861).
        if seen.is_v6 && (133..=137).contains(&seen.icmp_type) {
            return count::ALLOWED;
        }
        let (key, is_reversed) = seen.id.canonical();
        let idle = self.idle;
        let begins = seen.tcp_flags & (flag::SYN | flag::ACK) == flag::SYN;
        let used_before = self.connections.used(&key);
        if let Some(state) = self.connections.get(&key, now) {
            let is_old = used_before.is_some_and(|used| now.since(used) >= Self::idle_of(idle, *state));
            // A new connection may reuse the ports of a closing connection.
            let is_reused = begins && *state == State::Closing;
            if !is_old && !is_reused {
                *state = next_state(*state, seen.tcp_flags, is_reversed);
                return count::KNOWN;
            }
            self.connections.remove(&key);
        }
        if seen.is_tcp() && !begins {
            return count::INVALID;
        }
        let rule = self.rules.iter().find(|rule| rule.matches(&seen));
        if rule.map_or(self.default, |rule| rule.decision) == Decision::Deny {
            return count::DENIED;
        }
        let state = if seen.is_tcp() {
            State::Opening(is_reversed)
        } else {
            State::Datagrams
        };
        let may_go = |state: &State, used| now.since(used) >= Self::idle_of(idle, *state);
        match self.connections.insert(key, state, now, may_go) {
            Ok(_) => count::ALLOWED,
            Err(_) => count::TABLE_FULL,
        }
    }
}

fn next_state(state: State, flags: u8, is_reversed: bool) -> State {
    let (is_fin, handshake) = (flags & flag::FIN != 0, flags & (flag::SYN | flag::ACK));
    match state {
        State::Datagrams => State::Datagrams,
        _ if flags & flag::RST != 0 => State::Closing,
        State::Opening(by) if handshake == flag::SYN | flag::ACK && by != is_reversed => State::Answered(by),
        State::Answered(by) if handshake == flag::ACK && by == is_reversed => match is_fin {
            true => State::HalfClosed(is_reversed),
            false => State::Open,
        },
        State::Open if is_fin => State::HalfClosed(is_reversed),
        State::HalfClosed(by) if is_fin && by != is_reversed => State::Closing,
        state => state,
    }
}

/// Returns true if the transport header, or an IPv6 extension header before it, is malformed or not whole in the first
/// segment.
fn has_no_ports(layers: &Layers) -> bool {
    let proto = layers.ip_proto();
    let has_header = matches!(
        proto,
        IpProto::TCP | IpProto::UDP | IpProto::SCTP | IpProto::ICMPV4 | IpProto::ICMPV6
    );
    let is_extension = layers.l3() == L3::Ipv6
        && matches!(
            proto,
            IpProto::HOP_BY_HOP | IpProto::ROUTING | IpProto::FRAGMENT | IpProto::AH | IpProto::DEST_OPTIONS
        );
    layers.l4() == L4::None && (has_header || is_extension)
}

fn is_arp(head: &[u8]) -> bool {
    Layers::parse_head(head, head.len(), Depth::L2).ether_type() == EtherType::ARP
}

impl Function for Firewall {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        let mut counts = [0_u64; count::CONNECTIONS];
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let outcome = self.judge(&**packet, context.now);
            counts[outcome] += 1;
            if !matches!(outcome, count::ALLOWED | count::KNOWN) {
                *verdict = Verdict::Drop;
            }
        }
        for (index, amount) in counts.into_iter().enumerate() {
            if amount != 0 {
                self.counters.add(index, amount);
            }
        }
        self.counters
            .set(count::CONNECTIONS, self.connections.len() as u64);
    }

    fn tick(&mut self, now: Time) {
        let idle = self.idle;
        self.connections.sweep(
            SWEEP,
            |state, used| now.since(used) >= Self::idle_of(idle, *state),
            |_, _| {},
        );
        self.counters
            .set(count::CONNECTIONS, self.connections.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Settings;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame, tcp};

    use super::*;

    struct TestBed {
        setup: Setup,
        function: Box<dyn Function>,
    }

    impl TestBed {
        fn new(settings: &[&str]) -> TestBed {
            let setup = KIND.setup(&Settings::parse(settings).unwrap(), 1, 0);
            let function = KIND.make_function(&setup).unwrap();
            TestBed { setup, function }
        }

        /// Returns whether a packet passes at a time in seconds.
        fn passes(&mut self, bytes: &[u8], second: u64) -> bool {
            let mut frame = Frame::new(bytes);
            let mut verdicts = [Verdict::Next];
            let context = Context {
                now: Time::from_secs(second),
                ..Context::default()
            };
            self.function.process(&context, &mut [&mut frame], &mut verdicts);
            verdicts == [Verdict::Next]
        }

        /// Returns whether the handshake of a connection passes.
        fn opens(&mut self, second: u64) -> bool {
            [out(SYN), back(SYN | ACK), out(ACK)]
                .iter()
                .all(|segment| self.passes(segment, second))
        }

        fn counter(&self, name: &str) -> u64 {
            self.setup.counters.value(name).unwrap()
        }
    }

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 0, 0, 2];

    fn ethernet() -> Builder<'static> {
        Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
    }

    fn segment(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u16) -> Vec<u8> {
        let repr = tcp::Repr {
            src: from.1,
            dst: to.1,
            flags,
            ..tcp::Repr::default()
        };
        ethernet().ipv4(from.0, to.0).tcp(repr).build()
    }

    fn out(flags: u16) -> Vec<u8> {
        segment((CLIENT, 4000), (SERVER, 80), flags)
    }

    fn back(flags: u16) -> Vec<u8> {
        segment((SERVER, 80), (CLIENT, 4000), flags)
    }

    use tcp::flags::{ACK, FIN, RST, SYN};

    #[test]
    fn a_connection_passes_in_both_directions_once_it_was_allowed_to_begin() {
        let mut testbed = TestBed::new(&["rule=allow tcp from 10.0.0.1 port 80"]);
        assert!(!testbed.passes(&back(SYN | ACK), 0), "there is no connection yet");
        assert!(!testbed.passes(&out(ACK), 0), "TCP begins with SYN");
        assert!(testbed.passes(&out(SYN), 1));
        assert!(testbed.passes(&back(SYN | ACK), 1));
        assert!(testbed.passes(&out(ACK), 2));
        assert!(
            !testbed.passes(&segment((SERVER, 81), (CLIENT, 4000), SYN), 2),
            "the other way round is denied"
        );
        assert_eq!((testbed.counter("allowed"), testbed.counter("known")), (1, 2));
        assert_eq!((testbed.counter("invalid"), testbed.counter("denied")), (2, 1));
        assert_eq!(testbed.counter("connections"), 1);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let mut testbed = TestBed::new(&["default=allow", "rule=deny tcp port 22", "rule=allow tcp port 22"]);
        assert!(!testbed.passes(&segment((CLIENT, 1), (SERVER, 22), SYN), 0));
        assert!(testbed.passes(&segment((CLIENT, 1), (SERVER, 23), SYN), 0));
    }

    #[test]
    fn a_closed_connection_is_forgotten_soon_and_an_idle_one_later() {
        let mut testbed = TestBed::new(&["default=allow", "idle_s=100"]);
        assert!(testbed.opens(0));
        assert!(
            testbed.passes(&out(FIN | ACK), 1) && testbed.passes(&out(ACK), 60),
            "half closed"
        );
        assert!(testbed.passes(&back(FIN | ACK), 61) && testbed.passes(&out(ACK), 62));
        assert!(!testbed.passes(&out(ACK), 73), "closed for ten seconds");
        assert!(testbed.opens(80));
        assert!(testbed.passes(&out(ACK), 179));
        assert!(!testbed.passes(&out(ACK), 300), "idle");
        assert!(testbed.passes(&out(SYN), 301) && testbed.passes(&back(RST), 302));
        assert!(testbed.passes(&out(SYN), 303), "the same ports, anew");
        testbed.function.tick(Time::from_secs(1_000));
    }

    #[test]
    fn time_outs_empty_the_table() {
        let mut testbed = TestBed::new(&["default=allow", "connections=64"]);
        assert!(testbed.opens(0));
        testbed.function.tick(Time::from_secs(299));
        assert_eq!(testbed.counter("connections"), 1);
        testbed.function.tick(Time::from_secs(300));
        assert_eq!(testbed.counter("connections"), 0);
    }

    #[test]
    fn a_connection_that_is_not_continued_is_forgotten_soon() {
        let mut testbed = TestBed::new(&["default=allow", "connections=8"]);
        for port in 0..8 {
            assert!(testbed.passes(&segment((CLIENT, 4000 + port), (SERVER, 80), SYN), 0));
            let answer = segment((SERVER, 80), (CLIENT, 4000 + port), SYN | ACK);
            assert!(testbed.passes(&answer, 0));
        }
        assert!(testbed.passes(&out(ACK), 1));
        assert!(!testbed.passes(&segment((CLIENT, 5000), (SERVER, 80), SYN), 29));
        assert!(testbed.passes(&segment((CLIENT, 5000), (SERVER, 80), SYN), 30));
        testbed.function.tick(Time::from_secs(30));
        assert_eq!(testbed.counter("connections"), 2);
        assert!(testbed.passes(&out(ACK), 31));
    }

    #[test]
    fn only_a_handshake_of_both_ends_gives_a_connection_the_whole_time_out() {
        let attempts: [&[Vec<u8>]; 4] = [
            &[out(SYN), out(ACK)],
            &[out(SYN), out(FIN), out(FIN | ACK)],
            &[out(SYN), back(ACK), back(FIN | ACK), out(ACK)],
            &[out(SYN), back(SYN | ACK), out(FIN), back(FIN | ACK)],
        ];
        for attempt in attempts {
            let mut testbed = TestBed::new(&["default=allow", "connections=8"]);
            assert!(attempt.iter().all(|segment| testbed.passes(segment, 0)));
            testbed.function.tick(Time::from_secs(30));
            assert_eq!(testbed.counter("connections"), 0);
        }
        let mut testbed = TestBed::new(&["default=allow", "connections=8"]);
        assert!(testbed.passes(&out(SYN), 0) && testbed.passes(&back(SYN | ACK), 0));
        assert!(
            testbed.passes(&out(FIN | ACK), 0),
            "the end of a request without data"
        );
        testbed.function.tick(Time::from_secs(299));
        assert_eq!(testbed.counter("connections"), 1);
    }

    #[test]
    fn a_full_table_refuses_new_connections_and_keeps_those_it_knows() {
        let mut testbed = TestBed::new(&["default=allow", "connections=8"]);
        for port in 0..8 {
            assert!(testbed.passes(&segment((CLIENT, 4000 + port), (SERVER, 80), SYN), 0));
        }
        assert!(!testbed.passes(&segment((CLIENT, 5000), (SERVER, 80), SYN), 1));
        assert_eq!(testbed.counter("table_full"), 1);
        assert!(testbed.passes(&out(ACK), 2));
        assert!(
            testbed.passes(&segment((CLIENT, 5000), (SERVER, 80), SYN), 301),
            "an idle one goes"
        );
    }

    #[test]
    fn an_icmp_error_passes_if_it_is_about_a_connection() {
        let mut testbed = TestBed::new(&["rule=allow udp", "idle_s=10"]);
        let datagram = ethernet()
            .ipv4(CLIENT, SERVER)
            .udp(5000, 53)
            .payload(b"q")
            .build();
        let error = |inner: &[u8]| {
            let mut payload = vec![3, 3, 0, 0, 0, 0, 0, 0];
            payload.extend_from_slice(&inner[14..14 + 28]);
            let sum = millrace_wire::checksum::internet(&payload);
            payload[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut frame = ethernet().ipv4(SERVER, CLIENT).payload(&payload).build();
            // The builder sets protocol 255 if nothing follows IP; this packet is ICMP.
            frame[23] = 1;
            frame[24..26].fill(0);
            let sum = millrace_wire::checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        assert!(!testbed.passes(&error(&datagram), 0));
        assert!(testbed.passes(&datagram, 1));
        assert!(testbed.passes(&error(&datagram), 10));
        assert!(
            !testbed.passes(&error(&datagram), 11),
            "an error does not keep a connection alive"
        );
    }

    #[test]
    fn six_is_as_four_and_neighbours_are_found() {
        let mut testbed = TestBed::new(&["rule=allow udp to 2001:db8::/32 port 53"]);
        let (a, b): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let ask = ethernet().ipv6(a, b).udp(5000, 53).build();
        let answer = ethernet().ipv6(b, a).udp(53, 5000).build();
        assert!(!testbed.passes(&answer, 0));
        assert!(testbed.passes(&ask, 0) && testbed.passes(&answer, 0));
        assert!(!testbed.passes(&ethernet().ipv6(a, b).udp(5000, 54).build(), 0));
        assert!(testbed.passes(&ethernet().ipv6(a, b).icmpv6(135, 0).payload(&[0; 20]).build(), 0));
        assert!(
            !testbed.passes(&ethernet().ipv6(a, b).icmpv6(128, 0).build(), 0),
            "echo needs a rule"
        );
    }

    #[test]
    fn a_first_fragment_that_ends_before_the_ports_is_dropped() {
        let mut testbed = TestBed::new(&["default=allow", "rule=deny tcp port 22", "fragments=allow"]);
        let fragment = |len: usize| {
            let mut frame = segment((CLIENT, 4000), (SERVER, 22), SYN);
            frame.truncate(14 + 20 + len);
            // The total length, and "more fragments".
            frame[16..18].copy_from_slice(&(20 + len as u16).to_be_bytes());
            frame[20] |= 0x20;
            frame[24..26].fill(0);
            let sum = millrace_wire::checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        assert!(!testbed.passes(&fragment(8), 0) && !testbed.passes(&fragment(16), 0));
        assert_eq!((testbed.counter("fragments"), testbed.counter("denied")), (2, 0));
        assert!(!testbed.passes(&fragment(20), 0), "the rule sees the ports");
        assert_eq!(testbed.counter("denied"), 1);
        let mut other = fragment(20);
        other[36..38].copy_from_slice(&80_u16.to_be_bytes());
        assert!(testbed.passes(&other, 0));
    }

    #[test]
    fn a_packet_whose_ports_no_rule_can_see_is_dropped() {
        let mut testbed = TestBed::new(&["default=allow", "rule=deny udp port 53", "rule=deny tcp port 22"]);
        let (a, b): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut datagram = ethernet().ipv6(a, b).udp(5000, 53).payload(b"query").build();
        assert!(!testbed.passes(&datagram, 0));
        assert_eq!(testbed.counter("denied"), 1);
        // Receivers take length 0 for the length of the packet (RFC 2675, section 4).
        datagram[58..60].fill(0);
        assert!(!testbed.passes(&datagram, 0));
        let mut syn = segment((CLIENT, 4000), (SERVER, 22), SYN);
        // The data offset of TCP.
        syn[46] = 0;
        assert!(!testbed.passes(&syn, 0));
        assert_eq!((testbed.counter("denied"), testbed.counter("invalid")), (1, 2));
    }

    #[test]
    fn what_is_not_ip_does_as_the_settings_say() {
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let mut other = arp.clone();
        other[12..14].copy_from_slice(&[0x88, 0xb5]);
        let mut testbed = TestBed::new(&[]);
        assert!(testbed.passes(&arp, 0) && !testbed.passes(&other, 0));
        assert!(TestBed::new(&["non_ip=allow"]).passes(&other, 0));
    }
}
