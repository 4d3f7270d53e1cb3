//! What a packet costs at a vhost-user port: ours beside DPDK's `net_vhost`, whose peer is a `net_virtio_user` of the same
//! process.
//!
//! ```text
//! cargo run --release -p millrace-datapath --features dpdk --example vhost -- [ROUNDS]
//! ```
//! One thread does everything: the peer sends a burst, the port receives it, and sends it back, and only the port's calls
//! are timed. So nothing is waited for, and what differs is the work of the two drivers. They take turns, [`TURNS`]
//! times; the median is printed, in nanoseconds for receiving and sending a packet.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{
    Backend, Burst, DeviceOptions, DeviceSpec, Opened, SocketAccess, VnicKind, VnicSpec,
};
use millrace_dpdk::{Eal, EalConfig, Mbuf};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Turns of each driver.
const TURNS: usize = 7;
/// Packets of a burst.
const BURST: usize = 32;

fn main() -> Outcome<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let eal = Eal::init(&EalConfig {
        file_prefix: "vhost".into(),
        memory_mib: 256,
        ..EalConfig::default()
    })?;
    let backend = DpdkBackend::new(eal, 16_383)?;
    let folder = tempfile::tempdir()?;
    println!("rings   bytes   ours    net_vhost   (ns for a packet in and out)");
    for is_packed in [false, true] {
        let mut pairs = Vec::new();
        for is_ours in [true, false] {
            let path = folder.path().join(format!("{is_packed}-{is_ours}"));
            pairs.push(pair(&backend, &path, is_packed, is_ours)?);
        }
        for size in [60, 508, 1514] {
            let mut costs = [Vec::new(), Vec::new()];
            for _ in 0..TURNS {
                for (pair, costs) in pairs.iter_mut().zip(&mut costs) {
                    let cost = turn(&backend, pair, size, rounds)?;
                    costs.push(cost.as_secs_f64() * 1e9 / (rounds * BURST) as f64);
                }
            }
            let [ours, theirs] = costs.map(|mut costs| {
                costs.sort_by(f64::total_cmp);
                costs[TURNS / 2]
            });
            let rings = if is_packed { "packed" } else { "split " };
            println!(
                "{rings}  {size:5}   {ours:6.1}  {theirs:6.1}      {:.2}",
                ours / theirs
            );
        }
    }
    Ok(())
}

/// A port and its peer.
struct Pair {
    port: Opened<Mbuf>,
    peer: Opened<Mbuf>,
}

fn pair(backend: &DpdkBackend, path: &Path, is_packed: bool, is_ours: bool) -> Outcome<Pair> {
    let number = 2 * usize::from(is_packed) + usize::from(is_ours);
    let socket = path.display();
    let port = if is_ours {
        DeviceSpec::Vnic(VnicSpec {
            kind: VnicKind::Vhost { tso: false },
            path: path.to_owned(),
            access: Some(SocketAccess {
                owner: None,
                group: None,
                mode: 0o600,
            }),
        })
    } else {
        DeviceSpec::Vdev(format!(
            "net_vhost{number},iface={socket},queues=1,legacy-ol-flags=0"
        ))
    };
    let peer = DeviceSpec::Vdev(format!(
        "net_virtio_user{number},path={socket},queues=1,queue_size=1024,mrg_rxbuf=1,in_order=1,packed_vq={}",
        u8::from(is_packed)
    ));
    let open = |spec: &DeviceSpec| backend.open(spec, DeviceOptions::PLAIN);
    let port = open(&port)?;
    let peer = open(&peer)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !(port.device.info().link_up && peer.device.info().link_up) {
        if Instant::now() > deadline {
            return Err("the two do not meet".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Pair { port, peer })
}

/// The time that the port took for so many bursts.
fn turn(backend: &DpdkBackend, pair: &mut Pair, size: usize, rounds: usize) -> Outcome<Duration> {
    let Pair { port, peer } = pair;
    let mut spent = Duration::ZERO;
    let mut burst = Burst::new();
    for _ in 0..rounds {
        while burst.len() < BURST {
            burst.push(backend.packet(&[2; 1514][..size]).ok_or("no packet")?);
        }
        peer.tx[0].tx_burst(&mut burst);
        let begin = Instant::now();
        port.rx[0].rx_burst(&mut burst);
        let came = burst.len();
        port.tx[0].tx_burst(&mut burst);
        spent += begin.elapsed();
        if came != BURST {
            return Err(format!("{came} packets came").into());
        }
        burst.clear();
        peer.rx[0].rx_burst(&mut burst);
    }
    Ok(spent)
}
