//! The rate at which one worker routes packets of 64 bytes, beside the rates at which it bridges them by NORMAL to one host,
//! and to as many hosts as there are routes: the same bridge, the same ports, in turn, in processor time.
//!
//! ```text
//!  generator --> port 1 (VLAN 10) --> NORMAL --> port 2 (VLAN 10) --> freed
//!                                        `--> router, 10,000 routes --> NORMAL --> port 3 (VLAN 20) --> freed
//! ```
//! and it routes once more while another thread changes 100,000 routes a second.
//!
//! Usage: `cargo run --release -p millrace-router --example rates [ROUNDS [MODE]]`; `MODE` is 0 to 3, for a profiler. The last
//! lines are the ratio to bridging with as many destinations, whose aim is 0.8, and that of the rates with and without changes,
//! whose aim is 0.97. The lines are rows of `millrace bench route`.

#![allow(clippy::print_stdout, reason = "the figures are the purpose of the program")]

mod churn;
mod mbuf;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_datapath::io::{
    Burst, Device, DeviceInfo, DeviceStats, HeapBackend, Opened, PortModes, RxQueue,
};
use millrace_datapath::spread::ring::{Receiver, ring};
use millrace_datapath::{BridgeSetup, Datapath};
use millrace_fib::{NextHopKind, NextHopSpec, Prefix, Writer};
use millrace_pipeline::{Control, ControlConfig, FdbKey, Learn, Port, Standalone, VlanMode};
use millrace_router::{Address4, Change, EgressMode, Interface, RouterHandle};
use millrace_types::{Mac, PortNo, Time, Vid, split_mix};
use millrace_wire::Builder;

use self::churn::Churn;
use self::mbuf::{Mbuf, MbufBackend, Sink};

const ROUTES: u32 = 10_000;
const NEXT_HOPS: u8 = 16;
/// Buffers of the generator.
const BUFFERS: usize = 1024;
/// Bursts of one measurement.
const BURSTS: usize = 30_000;
const ROUTER: PortNo = PortNo::from_raw(100);
const ROUTER_MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 0x10]), Mac([2, 0, 0, 0, 0, 0x11])];
const SENDER: Mac = Mac([2, 0, 0, 0, 0, 0x20]);
const HOST: Mac = Mac([2, 0, 0, 0, 0, 0x30]);
const MODES: [&str; 4] = [
    "bridged to one host",
    "bridged to 10,000 hosts",
    "routed by 10,000 routes",
    "routed while routes change",
];
/// The mode in which routes change.
const CHANGING: usize = 3;

/// Returns the MAC address of one of as many hosts as there are routes.
fn host_mac(number: u32) -> Mac {
    let [_, a, b, c] = number.to_be_bytes();
    Mac([2, 0, 1, a, b, c])
}

/// Returns the processor time of this thread in nanoseconds: other programs on the machine count only by the cache lines
/// that they take.
fn processor_time() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn next_hop_mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, number])
}

/// The frames that the generator sends in turn, in buffers that were sent.
struct Generator {
    sent: Vec<Receiver<Mbuf>>,
    frames: Vec<Vec<u8>>,
    at: usize,
}

impl RxQueue<Mbuf> for Generator {
    fn rx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        for sent in &mut self.sent {
            while !burst.is_full()
                && let Some(mut packet) = sent.pop_if(|_| true)
            {
                packet.fill(&self.frames[self.at]);
                self.at = (self.at + 1) % self.frames.len();
                burst.push(packet);
            }
            sent.release();
        }
    }
}

struct Bench;

impl Device for Bench {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "bench".to_owned(),
            mac: SENDER,
            speed_mbps: None,
            modes: PortModes::default(),
            link_up: true,
            mtu: 1500,
            numa_node: None,
            rx_queues: 0,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn set_link(&mut self, _: bool) {}
}

/// Returns a reader of routes over the next hops, destinations in them in random order, and who changes the routes.
fn routes(
    mut writer: Writer,
) -> Result<(millrace_fib::Fib, Vec<Ipv4Addr>, Churn), Box<dyn std::error::Error>> {
    let (id, fib) = writer.add_fib();
    let mut groups = Vec::new();
    for number in 0..NEXT_HOPS {
        let hop = writer.add_next_hop(&NextHopSpec {
            kind: NextHopKind::Forward,
            interface: 1,
            gateway: Some(IpAddr::from([10, 0, 20, 2 + number])),
            destination: next_hop_mac(number),
            source: ROUTER_MACS[1],
            mtu: 1500,
        })?;
        groups.push(writer.add_group(&[(hop, 1)])?);
    }
    let (mut random, mut destinations, mut routes) = (1, Vec::new(), Vec::new());
    for number in 0..ROUTES {
        let address = Ipv4Addr::from_bits(0x1400_0000 | number << 8);
        let prefix = Prefix::new(IpAddr::V4(address), 24)?;
        let group = groups[split_mix::next(&mut random) as usize % groups.len()];
        writer.insert(id, &prefix, group)?;
        routes.push((address, group));
    }
    for _ in 0..4096 {
        let number = split_mix::next(&mut random) as u32;
        destinations.push(Ipv4Addr::from_bits(
            0x1400_0000 | (number % ROUTES) << 8 | number >> 24,
        ));
    }
    Ok((fib, destinations, Churn::new(writer, id, groups, routes)))
}

fn interface(index: u16, handle: &RouterHandle<Mbuf>, vid: Vid) -> Interface {
    Interface {
        index,
        name: format!("v{vid}").into(),
        vrf: 0,
        bridge: 0,
        vid,
        mac: ROUTER_MACS[usize::from(index)],
        other_macs: Vec::new(),
        mtu: 1500,
        is_up: true,
        ipv4: vec![Address4 {
            address: Ipv4Addr::new(10, 0, vid.raw() as u8, 1),
            prefix_len: 24,
        }],
        ipv6: Vec::new(),
        acl_in: None,
        acl_out: None,
        egress: EgressMode::Straight,
        counters: handle.new_counters(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(9), |rounds| rounds.parse())?;
    let writer = Writer::new();
    let mut handle: RouterHandle<Mbuf> = RouterHandle::new(1, 1, &writer.next_hops());
    let (fib, destinations, mut churn) = routes(writer)?;
    let vids = [Vid::new(10)?, Vid::new(20)?];
    let mut changes = vec![Change::Vrf(0, Some(fib))];
    for (index, vid) in (0..).zip(vids) {
        changes.push(Change::Interface(interface(index, &handle, vid).into()));
    }
    handle.change(&mut changes);
    let packet = |dst_mac: Mac, dst: Ipv4Addr| {
        let builder = Builder::ethernet(dst_mac, SENDER).ipv4([10, 0, 10, 2], dst);
        builder.udp(1, 2).payload(&[0; 18]).build()
    };
    let number = |dst: Ipv4Addr| (dst.to_bits() & 0xff_ffff) >> 8;
    let frames = |mode: usize| -> Vec<Vec<u8>> {
        let frame = |dst: &Ipv4Addr| match mode {
            0 => packet(HOST, *dst),
            1 => packet(host_mac(number(*dst)), *dst),
            _ => packet(ROUTER_MACS[0], *dst),
        };
        destinations.iter().map(frame).collect()
    };
    let only: Option<usize> = std::env::args().nth(2).map(|mode| mode.parse()).transpose()?;
    let (mut costs, mut changes) = ([const { Vec::new() }; MODES.len()], Vec::new());
    for round in 0..MODES.len() * rounds {
        let mode = round % MODES.len();
        if only.is_none_or(|only| only == mode) {
            let churn = (mode == CHANGING).then_some(&mut churn);
            let (cost, changes_per_second) = measure(&mut handle, frames(mode), vids, churn)?;
            costs[mode].push(cost);
            changes.extend(changes_per_second);
        }
    }
    // The two of a round were measured one after the other, when the machine was as busy.
    let pairs = costs[2].iter().zip(&costs[CHANGING]);
    let mut kept: Vec<f64> = pairs.map(|(still, changing)| still / changing).collect();
    let median = |costs: &mut Vec<f64>| {
        costs.sort_by(f64::total_cmp);
        costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let costs = costs.each_mut().map(median);
    for (mode, cost) in MODES.iter().zip(costs) {
        println!("{mode}: {cost:.1} ns a packet");
    }
    println!(
        "rate of routing / rate of NORMAL to one host: {:.2}",
        costs[0] / costs[2]
    );
    println!(
        "rate of routing / rate of NORMAL to 10,000 hosts: {:.2}",
        costs[1] / costs[2]
    );
    println!(
        "routes changed while packets are routed: {:.0} a second",
        median(&mut changes)
    );
    println!(
        "rate of routing while routes change / rate of routing: {:.3}",
        median(&mut kept)
    );
    Ok(())
}

/// Returns the time in nanoseconds that one worker needs for a packet, and the changes of routes in a second if `churn` makes
/// some meanwhile.
fn measure(
    handle: &mut RouterHandle<Mbuf>,
    frames: Vec<Vec<u8>>,
    vids: [Vid; 2],
    churn: Option<&mut Churn>,
) -> Result<(f64, Option<f64>), Box<dyn std::error::Error>> {
    let (datapath, mut stepper) = Datapath::stepped(Arc::new(MbufBackend(HeapBackend::with_pool(1, 64))));
    let mut control = Control::new(ControlConfig::default());
    let counters = control.counters();
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters: vec![Arc::clone(&counters), control.counters()],
    };
    let mut frames = Some(frames);
    let mut bridge = stepper.serve(|| -> Result<_, Box<dyn std::error::Error>> {
        let mut bridge = datapath.bridge(setup)?;
        let mut ops = Vec::new();
        control.set_standalone(Standalone::All, &mut ops);
        let (mut sinks, mut sent) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (mut sender, receiver) = ring(BUFFERS);
            if sent.is_empty() {
                (0..BUFFERS).for_each(|_| assert!(sender.push(Mbuf::new()).is_ok()));
                sender.publish();
            }
            sinks.push(sender);
            sent.push(receiver);
        }
        let mut sent = Some(sent);
        for (raw, vid) in [(1, vids[0]), (2, vids[0]), (3, vids[1])] {
            let number = PortNo::from_raw(raw);
            let vlan = VlanMode::Access(vid);
            control.set_port(
                Port {
                    vlan,
                    ..Port::new(number)
                },
                &mut ops,
            );
            bridge.publish(&mut ops);
            let mut opened: Opened<Mbuf> = Opened {
                rx: Vec::new(),
                tx: vec![Box::new(Sink(sinks.remove(0)))],
                device: Box::new(Bench),
            };
            if raw == 1
                && let (Some(frames), Some(sent)) = (frames.take(), sent.take())
            {
                opened.rx.push(Box::new(Generator { sent, frames, at: 0 }));
            }
            bridge.attach_port(number, opened)?;
        }
        let vlan = handle.vlan_mode(0);
        control.set_port(
            Port {
                vlan,
                ..Port::new(ROUTER)
            },
            &mut ops,
        );
        for (vid, mac) in vids.into_iter().zip(ROUTER_MACS) {
            control.set_static_fdb(FdbKey { vid, mac }, ROUTER, Time::ZERO, &mut ops);
        }
        let next_hops = (0..NEXT_HOPS).map(|number| (vids[1], next_hop_mac(number), 3));
        let hosts = (0..ROUTES).map(|number| (vids[0], host_mac(number), 2));
        for (vid, mac, port) in next_hops
            .chain(hosts)
            .chain([(vids[0], HOST, 2), (vids[0], SENDER, 1)])
        {
            let port = PortNo::from_raw(port);
            control.learn(Learn { vid, mac, port }, Time::ZERO, &mut ops);
        }
        bridge.publish(&mut ops);
        bridge.catch_up();
        handle.attach(0, &mut bridge, ROUTER)?;
        // The answer to this command comes after all commands before it.
        bridge.set_captures([]);
        Ok(bridge)
    })?;
    let mut time = Time::from_secs(1);
    let (rounds, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let mut run = |bursts: usize| {
        for _ in 0..bursts {
            time = time + core::time::Duration::from_micros(10);
            stepper.forward_round(time);
            rounds.fetch_add(1, Ordering::Release);
        }
    };
    let (nanos, changes) = std::thread::scope(|scope| -> Result<_, Box<dyn std::error::Error>> {
        let changing = churn.map(|churn| scope.spawn(move || churn.run(stop, rounds)));
        run(BURSTS / 10);
        let start = processor_time();
        run(BURSTS);
        let end = processor_time();
        stop.store(true, Ordering::Relaxed);
        let ended = changing.map(|thread| {
            thread
                .join()
                .map_err(|_| "the thread that changes routes panicked")
        });
        Ok((end? - start?, ended.transpose()?.transpose()?))
    })?;
    let sent: u64 = [2, 3]
        .into_iter()
        .filter_map(|port| bridge.port_stats(PortNo::from_raw(port)))
        .map(|stats| stats.tx_packets)
        .sum();
    let expected = (BURSTS + BURSTS / 10 - 2) as u64 * 64;
    if sent < expected {
        return Err(format!("{sent} packets were sent: expected {expected}").into());
    }
    stepper.serve(|| handle.detach(0, &mut bridge));
    drop(stepper);
    Ok((nanos / (BURSTS * 64) as f64, changes))
}
