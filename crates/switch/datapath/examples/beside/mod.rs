//! Compares a driver of Millrace with the DPDK driver for the same interface. The peer of each is a DPDK port in
//! the same process.
//!
//! One thread does everything: the peer sends a burst, the port receives it and sends it back, and only the port's
//! calls are timed. The thread waits for nothing, so the difference is the work of the two drivers. They are
//! measured in turn, in [`ROUNDS`] rounds; the program prints the median, in nanoseconds for receiving and sending
//! a packet.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{Backend, Burst, DeviceOptions, DeviceSpec, Opened, SocketAccess};
use millrace_dpdk::{Eal, EalConfig, Mbuf};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Number of measurements of each driver.
const ROUNDS: usize = 7;
/// Number of packets of a burst.
const BURST: usize = 32;

/// The two drivers to compare.
pub(crate) struct Comparison {
    /// The prefix of EAL's files.
    pub(crate) name: &'static str,
    /// The name of the other driver.
    pub(crate) theirs: &'static str,
    /// The name of the option that varies, and its two values.
    pub(crate) varies: &'static str,
    pub(crate) kinds: [(&'static str, bool); 2],
    /// Returns the devices of a port and its peer. The arguments are the path of the socket, the value of the
    /// option, and true for the driver of Millrace.
    pub(crate) specs: fn(&Path, bool, bool) -> Specs,
}

/// The devices of a port and its peer. The device that creates the socket is opened first.
pub(crate) struct Specs {
    pub(crate) port: DeviceSpec,
    pub(crate) peer: DeviceSpec,
    pub(crate) is_port_first: bool,
}

/// Returns access rights for this process's user only.
pub(crate) fn access() -> SocketAccess {
    SocketAccess {
        owner: None,
        group: None,
        mode: 0o600,
    }
}

/// Compares the drivers over as many bursts as the first argument says.
pub(crate) fn compare(comparison: &Comparison) -> Outcome<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let eal = Eal::init(&EalConfig {
        file_prefix: comparison.name.into(),
        memory_mib: 256,
        ..EalConfig::default()
    })?;
    let backend = DpdkBackend::new(eal, 16_383)?;
    let folder = tempfile::tempdir()?;
    let Comparison { theirs, varies, .. } = comparison;
    println!("{varies:6}  bytes   ours    {theirs:9}   (ns for a packet in and out)");
    for (name, kind) in comparison.kinds {
        let mut pairs = Vec::new();
        for is_ours in [true, false] {
            let path: PathBuf = folder.path().join(format!("{kind}-{is_ours}"));
            pairs.push(open_pair(&backend, &(comparison.specs)(&path, kind, is_ours))?);
        }
        for size in [60, 508, 1514] {
            let mut costs = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (pair, costs) in pairs.iter_mut().zip(&mut costs) {
                    let cost = measure(&backend, pair, size, rounds)?;
                    costs.push(cost.as_secs_f64() * 1e9 / (rounds * BURST) as f64);
                }
            }
            let [ours, theirs] = costs.map(|mut costs| {
                costs.sort_by(f64::total_cmp);
                costs[ROUNDS / 2]
            });
            println!(
                "{name:6}  {size:5}   {ours:6.1}  {theirs:6.1}      {:.2}",
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

/// Opens the port and its peer, and waits until the links of both are up.
fn open_pair(backend: &DpdkBackend, specs: &Specs) -> Outcome<Pair> {
    let open = |spec: &DeviceSpec| backend.open(spec, DeviceOptions::PLAIN);
    let (port, peer) = if specs.is_port_first {
        let port = open(&specs.port)?;
        (port, open(&specs.peer)?)
    } else {
        let peer = open(&specs.peer)?;
        (open(&specs.port)?, peer)
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !(port.device.info().link_up && peer.device.info().link_up) {
        if Instant::now() > deadline {
            return Err("no link between port and peer within 20 s".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Pair { port, peer })
}

/// Returns the time that the port took for this many bursts.
fn measure(backend: &DpdkBackend, pair: &mut Pair, size: usize, rounds: usize) -> Outcome<Duration> {
    let Pair { port, peer } = pair;
    let mut spent = Duration::ZERO;
    let mut burst = Burst::new();
    for _ in 0..rounds {
        while burst.len() < BURST {
            burst.push(
                backend
                    .packet(&[2; 1514][..size])
                    .ok_or("the mempool has no free buffer")?,
            );
        }
        peer.tx[0].tx_burst(&mut burst);
        let begin = Instant::now();
        port.rx[0].rx_burst(&mut burst);
        let came = burst.len();
        port.tx[0].tx_burst(&mut burst);
        spent += begin.elapsed();
        if came != BURST {
            return Err(format!("{came} packets arrived: expected {BURST}").into());
        }
        burst.clear();
        peer.rx[0].rx_burst(&mut burst);
    }
    Ok(spent)
}
