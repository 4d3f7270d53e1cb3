//! A router with two interfaces that reads frames and prints what becomes of each: the side of the router in a comparison
//! with the kernel's forwarding (`tests/interop/test_router_kernel.py`).
//!
//! ```text
//!  host a 10.0.0.2, 2001:db8::2 --- in: 10.0.0.1/24, 2001:db8::1/64, MTU 1500
//!                                   out: 10.0.1.1/24, 2001:db8:1::1/64, MTU 1400 --- host b 10.0.1.2, 2001:db8:1::2
//! ```
//! Each line of the input is a frame in hexadecimal that arrives at `in`. Its output lines are `a FRAME` or `b FRAME` for a
//! frame that leaves to the host, `kernel CLASS`, `waits`, or `dropped REASON`, and then `.`.

use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use millrace_datapath::publish::Replica;
use millrace_fib::{NextHopKind, NextHopSpec, Prefix, Writer};
use millrace_pipeline::DropReason;
use millrace_router::{
    Address4, Address6, Arrival, Change, EgressMode, Glean, Interface, InterfaceCounters, PuntClass,
    RouteOutput, Router, RouterState, UnderlayPort, Waiting,
};
use millrace_types::{Duration, Mac, Time, Vid};
use millrace_wire::Frame;

/// The MTU of each interface in bytes.
const MTU: [u16; 2] = [1500, 1400];
/// The names of the hosts, by interface.
const HOSTS: [&str; 2] = ["a", "b"];
/// The time between two packets: no rate limit is reached.
const INTERVAL: Duration = Duration::from_secs(1);

struct Printer(Vec<String>);

impl RouteOutput<Frame> for Printer {
    fn send(&mut self, interface: &Interface, frame: Frame) {
        let hex: String = frame.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.0
            .push(format!("{} {hex}", HOSTS[usize::from(interface.index)]));
    }

    fn punt(&mut self, _: &Interface, class: PuntClass, _: Frame) {
        self.0.push(format!("kernel {}", class.name()));
    }

    fn wait(&mut self, _: Waiting, _: Frame) -> Result<(), Frame> {
        self.0.push("waits".to_owned());
        Ok(())
    }

    fn decapsulate(&mut self, to: UnderlayPort, _: Frame) {
        self.0.push(format!("tunnel {}", to.port));
    }

    fn probe(&mut self, _: Glean) {}

    fn dropped(&mut self, reason: DropReason, _: Option<Frame>) {
        self.0.push(format!("dropped {reason}"));
    }
}

fn router_mac(index: u16) -> Mac {
    Mac([2, 0, 0, 0, 0, 0x10 + index as u8])
}

fn host_mac(index: u16) -> Mac {
    Mac([2, 0, 0, 0, 0, 0x20 + index as u8])
}

fn addresses(index: u16, host: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 0, index as u8, host).into(),
        Ipv6Addr::new(0x2001, 0xdb8, index, 0, 0, 0, 0, u16::from(host)).into(),
    ]
}

/// Returns the router's state, and the writer of its FIB.
fn topology() -> Result<(RouterState, Writer), Box<dyn std::error::Error>> {
    let mut writer = Writer::new();
    let (id, fib) = writer.add_fib();
    let mut state = RouterState::new(writer.next_hops());
    state.apply(&Change::Vrf(0, Some(fib)));
    let mut routes: Vec<(Prefix, NextHopSpec)> = Vec::new();
    for index in 0..2 {
        let forward = NextHopSpec {
            kind: NextHopKind::Forward,
            interface: index,
            gateway: None,
            destination: host_mac(index),
            source: router_mac(index),
            mtu: MTU[usize::from(index)],
        };
        for (address, len) in addresses(index, 1).into_iter().zip([24, 64]) {
            let local = NextHopSpec::without_interface(NextHopKind::Local);
            routes.push((Prefix::host(address), local));
            // All hosts have one MAC address.
            routes.push((Prefix::new(address, len)?, forward));
        }
        let [IpAddr::V4(ipv4), IpAddr::V6(ipv6)] = addresses(index, 1) else {
            continue;
        };
        let interface = Interface {
            index,
            name: HOSTS[usize::from(index)].into(),
            vrf: 0,
            bridge: index,
            vid: Vid::default(),
            mac: router_mac(index),
            other_macs: Vec::new(),
            mtu: MTU[usize::from(index)],
            is_up: true,
            ipv4: vec![Address4 {
                address: ipv4,
                prefix_len: 24,
            }],
            ipv6: vec![Address6 {
                address: ipv6,
                prefix_len: 64,
            }],
            acl_in: None,
            acl_out: None,
            egress: EgressMode::Straight,
            counters: InterfaceCounters::for_workers(1),
        };
        state.apply(&Change::Interface(interface.into()));
    }
    for (prefixes, kind) in [
        (["198.51.100.0/24", "2001:db8:a::/48"], NextHopKind::Unreachable),
        (["198.51.101.0/24", "2001:db8:b::/48"], NextHopKind::Prohibit),
        (["198.51.102.0/24", "2001:db8:c::/48"], NextHopKind::Blackhole),
    ] {
        for prefix in prefixes {
            routes.push((prefix.parse()?, NextHopSpec::without_interface(kind)));
        }
    }
    for (prefix, spec) in routes {
        let next_hop = writer.add_next_hop(&spec)?;
        let group = writer.add_group(&[(next_hop, 1)])?;
        writer.insert(id, &prefix, group)?;
    }
    Ok((state, writer))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (state, _writer) = topology()?;
    let mut router = Router::new(0, 1);
    let mut now = Time::from_secs(1);
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let line = line?;
        let bytes: Result<Vec<u8>, _> = (0..line.len() / 2)
            .map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16))
            .collect();
        let mut burst: ArrayVec<Frame, 64> = [Frame::new(&bytes?)].into_iter().collect();
        let mut printer = Printer(Vec::new());
        now = now + INTERVAL;
        router.forward(&state, Arrival::of_bridge(0), &mut burst, now, &mut printer);
        for event in printer.0 {
            writeln!(output, "{event}")?;
        }
        writeln!(output, ".")?;
        output.flush()?;
    }
    Ok(())
}
