//! Measures packets per second of one worker with one bridge and DPDK devices, for profiling, and for comparing two
//! builds; `millrace bench` measures the whole daemon against its peers.
//!
//! ```text
//! cargo run --release -p millrace-bench --example workload -- exact-10k FOLDER
//! cargo run --release -p millrace-datapath --features dpdk --example switch -- FOLDER [SECONDS [off|auto|always]]
//! ```
//! FOLDER holds `flows.txt`, entries in the syntax of `ovs-ofctl`, and `packets.pcap`, which is replayed (`net_pcap`)
//! into port 1, and which `dpdk-testpmd` can replay, too. Ports 2 and 3 discard packets (`net_null`). With `drop`
//! in place of FOLDER the tables are empty and the capture has one packet. The last argument is the policy of the
//! flow cache. The program prints the rate, the share of packets that left by each port, and the structure of each
//! table.

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{DeviceOptions, DeviceSpec};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_dpdk::{Eal, EalConfig};
use millrace_flow::compose::PacketText;
use millrace_flow::text::FlowText;
use millrace_pipeline::{Control, ControlConfig, FlowCachePolicy, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, TableId, Time};
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Number of buffers for packets in flight and for those that drivers keep.
const SPARE: u32 = 16 << 10;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "drop".to_owned());
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let flow_cache = match arguments.next().as_deref() {
        None | Some("auto") => FlowCachePolicy::Auto,
        Some("off") => FlowCachePolicy::Off,
        Some("always") => FlowCachePolicy::Always,
        Some(other) => return Err(format!("{other}: expected off, auto or always").into()),
    };
    let own = tempfile::tempdir()?;
    let folder = if what == "drop" {
        write_one_packet(own.path())?;
        own.path().to_owned()
    } else {
        PathBuf::from(&what)
    };
    let packets = folder.join("packets.pcap");
    let buffers = packets_len(&packets)? + SPARE;
    let eal = Eal::init(&EalConfig {
        file_prefix: "switch".into(),
        memory_mib: buffers / 400 + 64,
        ..EalConfig::default()
    })?;
    let backend = Arc::new(DpdkBackend::new(eal, buffers)?);
    let datapath = Datapath::start(
        backend,
        &Workers {
            cores: vec![Some(1)],
            idle: Idle::Busy,
            spread: Spread::Auto,
        },
    )?;
    let mut control = Control::new(ControlConfig {
        flow_cache,
        ..ControlConfig::default()
    });
    let counters = vec![control.counters(), control.counters()];
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters,
    };
    let mut bridge = datapath.bridge(setup)?;
    let mut ops = Vec::new();
    let tables = add_entries(&mut control, &folder.join("flows.txt"), &mut ops)?;
    let replay = format!("net_pcap0,rx_pcap={},infinite_rx=1", packets.display());
    let swallow = |number| format!("net_null{number},no-rx=1");
    for (number, device) in [(2, swallow(2)), (3, swallow(3)), (1, replay)] {
        let port = PortNo::ordinary(number)?;
        control.set_port(Port::new(port), &mut ops);
        bridge.publish(&mut ops);
        let options = DeviceOptions::PLAIN;
        bridge.add_port(port, &DeviceSpec::Vdev(device), options)?;
    }
    std::thread::sleep(Duration::from_millis(500));
    let before = Sample::take(&bridge)?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let after = Sample::take(&bridge)?;
    let packets = (after.packets[0] - before.packets[0]) as f64;
    let share = |port: usize| 100.0 * (after.packets[port] - before.packets[port]) as f64 / packets;
    println!(
        "{what}: {:.2} Mpps per CPU second of the worker, {:.2} Mpps per second; {:.1} % to port 2, {:.1} % to port 3",
        packets / (after.busy - before.busy).as_secs_f64() / 1e6,
        packets / (after.time - before.time).as_secs_f64() / 1e6,
        share(1),
        share(2),
    );
    for table in tables {
        if let Some(held) = bridge.forwarding().table(table) {
            println!("  table {}: {}", table.0, held.kind());
        }
    }
    drop(bridge);
    drop(datapath);
    eal.unmount_hugetlbfs();
    Ok(())
}

/// The counters at one moment.
struct Sample {
    /// Packets received at port 1, and sent to ports 2 and 3.
    packets: [u64; 3],
    /// The CPU time of the worker's thread: on a machine with other users, the rate by this time is steadier than the
    /// rate by the clock.
    busy: Duration,
    time: Instant,
}

impl Sample {
    fn take(bridge: &Bridge<DpdkBackend>) -> Outcome<Sample> {
        let stats = |port| bridge.port_stats(PortNo::from_raw(port)).unwrap_or_default();
        Ok(Sample {
            packets: [stats(1).rx_packets, stats(2).tx_packets, stats(3).tx_packets],
            busy: worker_time()?,
            time: Instant::now(),
        })
    }
}

/// Returns the CPU time of the worker's thread: see proc(5), `/proc/pid/task/tid/schedstat`.
fn worker_time() -> Outcome<Duration> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.starts_with("worker-") {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let first = times.split(' ').next().unwrap_or_default();
            return Ok(Duration::from_nanos(first.parse()?));
        }
    }
    Err("no thread of this process has a name that begins with `worker-`".into())
}

/// Adds an entry for each line of a file, and returns the tables that have entries.
fn add_entries(control: &mut Control, file: &Path, ops: &mut Vec<Op>) -> Outcome<Vec<TableId>> {
    let mut tables = Vec::new();
    for line in BufReader::new(File::open(file)?).lines() {
        let line = line?;
        let text: FlowText = line.parse().map_err(|error| format!("{line}: {error}"))?;
        let request = FlowMod::new(FlowModCommand::Add, text.table, text.priority, text.matching);
        let request = FlowMod {
            instructions: text.instructions.unwrap_or_default(),
            ..request
        };
        control
            .flow_mod(request, Time::ZERO, ops)
            .map_err(|error| format!("{line}: {error:?}"))?;
        if !tables.contains(&text.table) {
            tables.push(text.table);
        }
    }
    ops.extend(tables.iter().map(|table| Op::Optimize(*table)));
    Ok(tables)
}

fn packets_len(file: &Path) -> Outcome<u32> {
    let mut reader = PcapReader::new(BufReader::new(File::open(file)?))?;
    let mut len = 0;
    while let Some(packet) = reader.next_raw_packet() {
        packet?;
        len += 1;
    }
    Ok(len)
}

fn write_one_packet(folder: &Path) -> Outcome<()> {
    File::create(folder.join("flows.txt"))?;
    let mut writer = PcapWriter::new(File::create(folder.join("packets.pcap"))?)?;
    let packet: PacketText = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2".parse()?;
    let frame = packet.frame()?;
    writer.write_packet(&PcapPacket::new(Duration::ZERO, frame.len() as u32, &frame))?;
    Ok(())
}
