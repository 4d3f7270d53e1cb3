//! One worker, one bridge, DPDK devices: how many packets a second? For profiling, and for comparing two builds;
//! `millrace bench` measures the whole daemon beside its peers.
//!
//! ```text
//! forward [FLOWS | drop [SECONDS [FILE]]]
//! ```
//! One flow is forwarded by one entry that matches the ingress port. More flows have an entry each, an exact
//! 5-tuple, which rewrites both MAC addresses; and `drop` is one flow that is dropped. Packets are replayed (`net_pcap`) from FILE, which is written
//! first, and which `dpdk-testpmd` can then replay, too; they go to a device that swallows (`net_null`).

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{DeviceOptions, DeviceSpec};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Workers};
use millrace_dpdk::{Eal, EalConfig};
use millrace_flow::compose::PacketText;
use millrace_flow::{Action, Field, Instructions, Match, SetField};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use pcap_file::pcap::{PcapPacket, PcapWriter};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "1".to_owned());
    let flows: u32 = if kind == "drop" { 1 } else { kind.parse()? };
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let file = arguments
        .next()
        .map_or_else(|| folder.path().join("flows.pcap"), Into::into);
    write_packets(&file, flows)?;

    let eal = Eal::init(&EalConfig {
        file_prefix: "forward".into(),
        ..EalConfig::default()
    })?;
    let backend = Arc::new(DpdkBackend::new(eal, (1 << 16) - 1)?);
    let datapath = Datapath::start(
        backend,
        &Workers {
            cores: vec![Some(1)],
            idle: Idle::Busy,
        },
    )?;
    let mut control = Control::new(ControlConfig {
        tables: 4,
        ..ControlConfig::default()
    });
    let counters = vec![control.counters(), control.counters()];
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters,
    };
    let mut bridge = datapath.bridge(setup)?;
    let mut ops = Vec::new();
    let (source, sink) = (PortNo::ordinary(1)?, PortNo::ordinary(2)?);
    let output = Action::output(sink);
    let actions = if kind == "drop" { &[][..] } else { &[output] };
    add_entries(&mut control, flows, actions, &mut ops)?;
    let replay = format!("net_pcap0,rx_pcap={},infinite_rx=1", file.display());
    for (port, device) in [(sink, "net_null1,no-rx=1".to_owned()), (source, replay)] {
        control.set_port(Port::new(port), &mut ops);
        bridge.publish(&mut ops);
        let options = DeviceOptions { queues: 1, mtu: 1500 };
        bridge.add_port(port, &DeviceSpec::Vdev(device), options)?;
    }
    std::thread::sleep(Duration::from_millis(500));
    let before = Sample::take(&bridge, source)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let after = Sample::take(&bridge, source)?;
    let packets = (after.packets - before.packets) as f64;
    println!(
        "{kind}: {:.2} Mpps per CPU second of the worker, {:.2} Mpps per second",
        packets / (after.busy - before.busy).as_secs_f64() / 1e6,
        packets / (after.time - before.time).as_secs_f64() / 1e6
    );
    drop(bridge);
    drop(datapath);
    eal.give_back();
    Ok(())
}

/// What there was at one moment.
struct Sample {
    packets: u64,
    /// What the worker's thread has had of its core: on a machine that others use, too, the rate by this time
    /// is steadier than that by the clock.
    busy: Duration,
    time: Instant,
}

impl Sample {
    fn take(bridge: &Bridge<DpdkBackend>, source: PortNo) -> Outcome<Sample> {
        Ok(Sample {
            packets: bridge.port_stats(source).map_or(0, |stats| stats.rx_packets),
            busy: worker_time()?,
            time: Instant::now(),
        })
    }
}

/// See proc(5), `/proc/pid/task/tid/schedstat`.
fn worker_time() -> Outcome<Duration> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.starts_with("worker-") {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let first = times.split(' ').next().unwrap_or_default();
            return Ok(Duration::from_nanos(first.parse()?));
        }
    }
    Err("there is no worker".into())
}

/// The fields of a flow that entries match.
fn five_tuple(flow: u32) -> [(Field, u128); 6] {
    [
        (Field::EthType, 0x0800),
        (Field::IpProto, 17),
        (Field::Ipv4Src, u128::from(0x0a00_0000 | flow)),
        (
            Field::Ipv4Dst,
            u128::from(0x0b00_0000 | flow.wrapping_mul(7919) & 0xff_ffff),
        ),
        (Field::UdpSrc, u128::from(1024 + flow % 50_000)),
        (Field::UdpDst, 4789),
    ]
}

fn add_entries(control: &mut Control, flows: u32, actions: &[Action], ops: &mut Vec<Op>) -> Outcome<()> {
    let mut add = |match_: Match, instructions| {
        let request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), match_);
        let request = FlowMod {
            instructions,
            ..request
        };
        control
            .flow_mod(request, Time::ZERO, ops)
            .map_err(|error| format!("{error:?}"))
    };
    if flows == 1 {
        add(
            Match::exact(&[(Field::InPort, 1)])?,
            Instructions::apply([output]),
        )?;
        return Ok(());
    }
    for flow in 0..flows {
        let address = |of: u32| u128::from(0x0200_0000_0000_u64 | u64::from(of));
        let set = |field, value| SetField::new(field, value).map(Action::SetField);
        let rewrite = [
            set(Field::EthSrc, address(1))?,
            set(Field::EthDst, address(flow))?,
        ];
        let actions = [&rewrite, actions].concat();
        add(Match::exact(&five_tuple(flow))?, Instructions::apply(actions))?;
    }
    Ok(())
}

/// One frame of each flow, 64 bytes on a wire, not in the order of the entries.
fn write_packets(file: &Path, flows: u32) -> Outcome<()> {
    let mut writer = PcapWriter::new(File::create(file)?)?;
    // Prime, and so it visits every flow, if their number is not a multiple of it.
    let step = 104_729_u64;
    for at in 0..u64::from(flows) {
        let flow = (at * step % u64::from(flows)) as u32;
        let packet = PacketText {
            fields: Match::exact(&five_tuple(flow))?,
            ..PacketText::default()
        };
        let frame = packet.frame()?;
        writer.write_packet(&PcapPacket::new(Duration::ZERO, frame.len() as u32, &frame))?;
    }
    Ok(())
}
