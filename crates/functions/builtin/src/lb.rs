//! `lb`: a load balancer with Maglev hashing (Eisenbud et al., NSDI 2016): a lookup table in which each server has nearly the
//! same number of entries, and loses few of them when another server is added or removed.
//!
//! All servers have the same IP address. The function sends frames of a connection to the MAC address of its server. Replies
//! do not traverse the function (direct server return), and pass if they do. ICMP errors about packets of a connection go to its
//! server (RFC 7690). Fragments are spread by addresses alone, since only the first one of a datagram has ports. Functions with
//! another list of servers begin without connections, and place about one in N of the open ones on another server.

use core::net::IpAddr;

use millrace_nf::{Access, Buffer, Context, Counters, Function, Kind, SettingError, Setup, Verdict};
use millrace_types::{Duration, Mac, Time};
use millrace_wire::{Fragment, rewrite};

use millrace_nf::flow::{Endpoint, FlowId, FlowPacket};
use millrace_nf::table::{KeyedHash, Table};

pub(crate) const KIND: Kind = Kind {
    name: "lb",
    about: "spreads connections to an address over servers (Maglev), by destination MAC address",
    settings: &[
        ("address", "the IP address of the servers"),
        (
            "server",
            "the MAC address of a server; one setting for each server",
        ),
        (
            "connections",
            "size of the connection table, 8 to 16777216 (65536)",
        ),
        ("idle_s", "idle time-out of a connection in seconds (300)"),
    ],
    counters: &["balanced", "remembered", "other", "connections"],
    reads: Access::LINK.or(Access::ADDRESSES).or(Access::PORTS),
    writes: Access::LINK,
    keeps_flows: true,
    outbox: (0, 0),
    report: 0,
    make: &|setup| Balancer::new(setup).map(|balancer| Box::new(balancer) as Box<dyn Function>),
    ..Kind::DEFAULT
};

/// Entries of the lookup table: a prime, and a hundred times the limit of servers.
const LOOKUP_LEN: usize = 65_537;
/// Limit of servers.
const SERVERS_MAX: usize = 655;
/// Sets of the connection table that one tick scans.
const SWEEP: usize = 1024;

/// Returns the Maglev lookup table: the index of a server for each entry.
fn maglev(servers: &[Mac]) -> Box<[u16]> {
    // The key is not secret, so that all switches with the same servers have the same table.
    let preference = |mac: &Mac| {
        let offset = KeyedHash::new(0x6d61_676c).of(&mac.0) as usize % LOOKUP_LEN;
        let skip = KeyedHash::new(0x6576_7631).of(&mac.0) as usize % (LOOKUP_LEN - 1) + 1;
        (offset, skip)
    };
    let preferences: Vec<(usize, usize)> = servers.iter().map(preference).collect();
    let mut next = vec![0_usize; servers.len()];
    let mut lookup = vec![u16::MAX; LOOKUP_LEN].into_boxed_slice();
    let mut filled = 0;
    while filled < LOOKUP_LEN && !servers.is_empty() {
        for (server, (offset, skip)) in preferences.iter().enumerate() {
            let free = loop {
                let entry = (offset + skip * next[server]) % LOOKUP_LEN;
                next[server] += 1;
                if lookup[entry] == u16::MAX {
                    break entry;
                }
            };
            lookup[free] = server as u16;
            filled += 1;
            if filled == LOOKUP_LEN {
                break;
            }
        }
    }
    lookup
}

struct Balancer {
    address: [u8; 16],
    servers: Box<[Mac]>,
    lookup: Box<[u16]>,
    hash: KeyedHash,
    connections: Table<FlowId, u16>,
    idle: Duration,
    counters: Counters,
}

impl Balancer {
    fn new(setup: &Setup) -> Result<Balancer, SettingError> {
        let settings = &setup.settings;
        let missing = |key, expected: &str| SettingError::Missing {
            key,
            expected: expected.to_owned(),
        };
        let text = settings
            .one("address")?
            .ok_or_else(|| missing("address", "the IP address of the servers"))?;
        let address: IpAddr = text
            .parse()
            .map_err(|_| SettingError::value("address", text, "expected an IPv4 or IPv6 address"))?;
        let server = |text: &str| {
            text.parse::<Mac>()
                .map_err(|error| SettingError::value("server", text, error))
        };
        let servers: Box<[Mac]> = settings.all("server").map(server).collect::<Result<_, _>>()?;
        if servers.is_empty() || servers.len() > SERVERS_MAX {
            return Err(missing(
                "server",
                &format!("the MAC addresses of 1 to {SERVERS_MAX} servers"),
            ));
        }
        Ok(Balancer {
            address: match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            },
            lookup: maglev(&servers),
            servers,
            hash: KeyedHash::new(0x6861_7368),
            connections: Table::new(
                setup.table_len(settings.within("connections", 65_536, 8..=16_777_216)?),
                setup.seed,
            ),
            idle: Duration::from_secs(settings.within("idle_s", 300, 1..=86_400)?),
            counters: setup.counters.clone(),
        })
    }

    /// Returns the flow id, towards the servers, of the connection that a packet belongs to.
    fn connection_of(&self, seen: &FlowPacket, packet: &dyn Buffer) -> FlowId {
        let cause = seen.cause(packet).map(|cause| cause.reversed());
        let id = cause
            .filter(|cause| cause.destination.address == self.address)
            .unwrap_or(seen.id);
        if seen.layers.fragment() == Fragment::Whole {
            return id;
        }
        let address_of = |end: Endpoint| Endpoint { port: 0, ..end };
        FlowId {
            source: address_of(id.source),
            destination: address_of(id.destination),
            proto: 0,
        }
    }

    /// Returns the server for a packet, and whether its connection was known; `None` if the packet is not for the servers.
    fn choose(&mut self, packet: &dyn Buffer, now: Time) -> Option<(Mac, bool)> {
        let seen = FlowPacket::of(packet)?;
        if seen.id.destination.address != self.address {
            return None;
        }
        let id = self.connection_of(&seen, packet);
        if let Some(server) = self.connections.get(&id, now) {
            return Some((self.servers[usize::from(*server)], true));
        }
        let entry = self.hash.of(&id) as usize % LOOKUP_LEN;
        let server = self.lookup[entry];
        // Without an entry in the connection table, the lookup table selects the same server again.
        let _full = self.connections.insert(id, server, now, |_, _| true);
        Some((self.servers[usize::from(server)], false))
    }
}

impl Function for Balancer {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], _: &mut [Verdict]) {
        let mut counts = [0; 3];
        for packet in burst {
            match self.choose(&**packet, context.now) {
                Some((server, remembered)) => {
                    rewrite::eth_dst(packet.head_mut(), server);
                    counts[usize::from(remembered)] += 1;
                }
                None => counts[2] += 1,
            }
        }
        for (index, amount) in counts.into_iter().enumerate() {
            self.counters.add(index, amount);
        }
    }

    fn tick(&mut self, now: Time) {
        let idle = self.idle;
        self.connections
            .sweep(SWEEP, |_, used| now.since(used) >= idle, |_, _| {});
        self.counters.set(3, self.connections.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Settings;
    use millrace_wire::{Builder, Frame};

    use super::*;

    fn servers(len: u8) -> Vec<Mac> {
        (0..len).map(|number| Mac([2, 0, 0, 0, 1, number])).collect()
    }

    #[test]
    fn servers_have_nearly_equal_shares_and_few_entries_move_when_one_is_removed() {
        let all = servers(10);
        let before = maglev(&all);
        let share = |server: u16| before.iter().filter(|entry| **entry == server).count();
        for server in 0..10 {
            assert!((6_500..6_610).contains(&share(server)), "{}", share(server));
        }
        let after = maglev(&all[..9]);
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(old, new)| **old != 9 && old != new)
            .count();
        assert!(moved < LOOKUP_LEN / 20, "{moved} entries of servers that stay");
    }

    #[test]
    fn packets_of_a_connection_go_to_one_server() {
        let settings = Settings::parse([
            "address=10.0.1.1",
            "server=02:00:00:00:01:00",
            "server=02:00:00:00:01:01",
        ]);
        let setup = KIND.setup(&settings.unwrap(), 1, 0);
        let mut function = KIND.make_function(&setup).unwrap();
        let mut used = std::collections::BTreeSet::new();
        for port in 0..50 {
            let send = |function: &mut dyn Function| {
                let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
                let mut frame =
                    Frame::new(&ethernet.ipv4([10, 0, 0, 1], [10, 0, 1, 1]).udp(port, 80).build());
                function.process(&Context::default(), &mut [&mut frame], &mut [Verdict::Next]);
                frame.bytes()[5]
            };
            let server = send(&mut *function);
            assert_eq!(server, send(&mut *function));
            used.insert(server);
        }
        assert_eq!(used.into_iter().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(setup.counters.value("remembered"), Some(50));
    }

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const ADDRESS: [u8; 4] = [10, 0, 1, 1];

    fn ethernet() -> Builder<'static> {
        Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
    }

    /// Returns a function with 16 servers.
    fn balancer() -> Box<dyn Function> {
        let servers = (0..16).map(|number| format!("server=02:00:00:00:01:{number:02x}"));
        let settings: Vec<String> = ["address=10.0.1.1".to_owned()]
            .into_iter()
            .chain(servers)
            .collect();
        let settings = Settings::parse(&settings).unwrap();
        KIND.make_function(&KIND.setup(&settings, 1, 0)).unwrap()
    }

    /// Returns the number of the server for a packet.
    fn server(function: &mut dyn Function, bytes: &[u8]) -> u8 {
        let mut frame = Frame::new(bytes);
        function.process(&Context::default(), &mut [&mut frame], &mut [Verdict::Next]);
        frame.bytes()[5]
    }

    #[test]
    fn all_fragments_of_a_datagram_go_to_one_server() {
        let mut function = balancer();
        for port in 0..50 {
            let whole = ethernet()
                .ipv4(CLIENT, ADDRESS)
                .udp(port, 80)
                .payload(&[7; 16])
                .build();
            let (mut first, mut later) = (whole.clone(), whole);
            first[20] = 0x20;
            // The offset in units of 8 bytes.
            later[21] = 3;
            let later = server(&mut *function, &later);
            assert_eq!(server(&mut *function, &first), later, "port {port}");
        }
    }

    #[test]
    fn an_error_about_a_packet_of_a_server_goes_to_that_server() {
        let mut function = balancer();
        for port in 0..50 {
            let request = ethernet().ipv4(CLIENT, ADDRESS).udp(port, 80).build();
            let reply = ethernet().ipv4(ADDRESS, CLIENT).udp(80, port).build();
            // Fragmentation needed, from a router.
            let message = [&[3, 4, 0, 0, 0, 0, 5, 0], &reply[14..42]].concat();
            let mut error = ethernet().ipv4([192, 0, 2, 1], ADDRESS).payload(&message).build();
            error[23] = 1;
            let expected = server(&mut *function, &request);
            assert_eq!(server(&mut *function, &error), expected, "port {port}");
        }
    }

    #[test]
    fn what_is_for_others_passes_as_it_is() {
        let settings = Settings::parse(["address=10.0.1.1", "server=02:00:00:00:01:00"]).unwrap();
        let setup = KIND.setup(&settings, 1, 0);
        let mut function = KIND.make_function(&setup).unwrap();
        let bytes = [7; 60];
        let mut frame = Frame::new(&bytes);
        function.process(&Context::default(), &mut [&mut frame], &mut [Verdict::Next]);
        assert_eq!(frame.bytes(), bytes);
        assert_eq!(setup.counters.value("other"), Some(1));
    }
}
