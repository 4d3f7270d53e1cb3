//! Measures one, two, four and eight workers, with packets from one queue and from one queue for each worker:
//! the speed-up by several workers, and the cost of a handoff.
//!
//! ```text
//! cargo run --release -p millrace-datapath --features dpdk --example scaling -- [ROUNDS [SECONDS [CASE]]]
//! ```
//! Cases are measured in turn, and medians over the rounds are printed, so that a noisy machine affects all
//! cases alike. Packets are replayed (`net_pcap`, 10,000 flows for each queue) and discarded (`net_null`) by
//! workers that never sleep. Each worker has its own core; cases that need more cores than the machine has
//! are left out. *1* is one worker. *auto* and *always* are several workers with the packets of one queue.
//! *queues* is several workers with one queue each, which is the best result that RSS can have.

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{DeviceOptions, DeviceSpec};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, WorkerStats, Workers};
use millrace_dpdk::{Eal, EalConfig};
use millrace_flow::compose::PacketText;
use millrace_flow::{Action, Field, Instructions, Match, SetField};
use millrace_pipeline::{Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use millrace_wire::EtherType;
use pcap_file::pcap::{PcapPacket, PcapWriter};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const FLOWS: u32 = 10_000;
const SOURCE: PortNo = PortNo::from_raw(1);
const SINK: PortNo = PortNo::from_raw(2);

/// The processing of each packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// One entry that matches the ingress port.
    Light,
    /// 10,000 exact 5-tuples.
    Medium,
    /// A table that sets a VLAN tag, then 10,000 exact 5-tuples which rewrite both MAC addresses.
    Heavy,
}

/// Numbers of workers.
const WORKERS: [usize; 4] = [1, 2, 4, 8];

/// Number of packet buffers for each queue: its replayed packets, and packets in flight.
const BUFFERS: u32 = 1 << 15;

/// The way in which packets reach the workers.
#[derive(Clone, Copy)]
enum Source {
    /// One queue; flows are handed off as the balancer decides.
    Auto,
    /// One queue; flows are handed off from the start.
    Always,
    /// A queue for each worker.
    Queues,
}

/// A case to measure.
#[derive(Clone, Copy)]
struct Case {
    work: Work,
    workers: usize,
    source: Source,
}

impl Case {
    /// Returns all cases for a number of cores.
    fn all(cores: usize) -> Vec<Case> {
        let mut cases = Vec::new();
        for work in [Work::Light, Work::Medium, Work::Heavy] {
            for workers in WORKERS.into_iter().filter(|workers| *workers <= cores) {
                let sources: &[Source] = match workers {
                    1 => &[Source::Queues],
                    _ => &[Source::Auto, Source::Always, Source::Queues],
                };
                cases.extend(sources.iter().map(|&source| Case {
                    work,
                    workers,
                    source,
                }));
            }
        }
        cases
    }

    fn name(self) -> String {
        let work = match self.work {
            Work::Light => "light",
            Work::Medium => "medium",
            Work::Heavy => "heavy",
        };
        match (self.workers, self.source) {
            (1, _) => format!("{work}-1"),
            (workers, Source::Auto) => format!("{work}-{workers}-auto"),
            (workers, Source::Always) => format!("{work}-{workers}-always"),
            (workers, Source::Queues) => format!("{work}-{workers}-queues"),
        }
    }

    fn queues(self) -> u16 {
        match self.source {
            Source::Auto | Source::Always => 1,
            Source::Queues => self.workers as u16,
        }
    }

    fn spread(self) -> Spread {
        match self.source {
            Source::Auto => Spread::Auto,
            Source::Always => Spread::Always,
            Source::Queues => Spread::Off,
        }
    }

    /// Returns the time until the balancer has settled. With `auto`, the balancer has judged its trial by
    /// then.
    fn settling(self) -> Duration {
        match self.source {
            Source::Auto => Duration::from_secs(3),
            Source::Always | Source::Queues => Duration::from_millis(700),
        }
    }

    /// Returns the cores of the workers. One worker runs on the core that the system uses least.
    fn cores(self, cores: usize) -> Vec<Option<usize>> {
        (1..=self.workers).map(|worker| Some(cores - worker)).collect()
    }
}

/// The results of a measurement.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Million packets per second that were sent, by the wall clock.
    mpps: f64,
    /// Share of the packets received that was handed off.
    handed_off: f64,
    /// Nanoseconds of hashing and handoff for each packet received.
    spread_nanos: f64,
    /// Share of packets that were dropped because the other worker's ring was full.
    dropped: f64,
    /// Share of the time in which the first and the last worker had packets.
    busy: [f64; 2],
    /// Nanoseconds of processing for each packet in the first and the last worker.
    processing_nanos: [f64; 2],
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let only = arguments.next().unwrap_or_default();
    let cores = std::thread::available_parallelism()?.get();
    let cases: Vec<_> = Case::all(cores)
        .into_iter()
        .filter(|case| case.name().contains(&only))
        .collect();
    let queues = cases.iter().map(|case| case.queues()).max().unwrap_or(1);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("flows.pcap");
    write_packets(&file, 0..FLOWS)?;
    let buffers = BUFFERS * u32::from(queues.max(2)) - 1;
    let eal = Eal::init(&EalConfig {
        file_prefix: "scaling".into(),
        // A buffer takes less than 3 KiB.
        memory_mib: 192 + buffers * 3 / 1024,
        ..EalConfig::default()
    })?;
    let backend = Arc::new(DpdkBackend::new(eal, buffers)?);
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (case, figures) in cases.iter().zip(&mut figures) {
            figures.push(measure(
                &backend,
                *case,
                cores,
                &file,
                Duration::from_secs_f64(seconds),
            )?);
        }
    }
    println!(
        "case               Mpps  (least..most)  handed off  spreading ns  dropped  busy       processing ns"
    );
    for (case, figures) in cases.iter().zip(figures) {
        let rates = sorted(&figures, |figures| figures.mpps);
        println!(
            "{:<16} {:>6.2}  ({:.2}..{:.2})     {:>4.0} %       {:>5.1}       {:.2} %  {:.2} {:.2}  {:.0} {:.0}",
            case.name(),
            rates[rates.len() / 2],
            rates[0],
            rates[rates.len() - 1],
            100.0 * median(&figures, |figures| figures.handed_off),
            median(&figures, |figures| figures.spread_nanos),
            100.0 * median(&figures, |figures| figures.dropped),
            median(&figures, |figures| figures.busy[0]),
            median(&figures, |figures| figures.busy[1]),
            median(&figures, |figures| figures.processing_nanos[0]),
            median(&figures, |figures| figures.processing_nanos[1]),
        );
    }
    eal.unmount_hugetlbfs();
    Ok(())
}

fn sorted(figures: &[Figures], of: impl Fn(&Figures) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = figures.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(figures: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    sorted(figures, of)[figures.len() / 2]
}

fn measure(
    backend: &Arc<DpdkBackend>,
    case: Case,
    cores: usize,
    file: &Path,
    time: Duration,
) -> Outcome<Figures> {
    let workers = Workers {
        cores: case.cores(cores),
        idle: Idle::Busy,
        spread: case.spread(),
    };
    let datapath = Datapath::start(Arc::clone(backend), &workers)?;
    let mut control = Control::new(ControlConfig {
        tables: 2,
        ..ControlConfig::default()
    });
    let counters = (0..=case.workers).map(|_| control.counters()).collect();
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters,
    };
    let mut bridge = datapath.bridge(setup)?;
    let mut ops = Vec::new();
    add_entries(&mut control, case.work, &mut ops)?;
    let replayed = vec![format!("rx_pcap={}", file.display()); case.queues().into()];
    let replay = format!("net_pcap0,{},infinite_rx=1", replayed.join(","));
    for (port, device) in [(SINK, "net_null1,no-rx=1".to_owned()), (SOURCE, replay)] {
        control.set_port(Port::new(port), &mut ops);
        bridge.publish(&mut ops);
        let options = DeviceOptions {
            queues: if port == SINK {
                case.workers as u16
            } else {
                case.queues()
            },
            ..DeviceOptions::PLAIN
        };
        bridge.add_port(port, &DeviceSpec::Vdev(device), options)?;
    }
    std::thread::sleep(case.settling());
    let sample = |bridge: &Bridge<DpdkBackend>| {
        let stats = |port| bridge.port_stats(port).unwrap_or_default();
        let dropped = control.drops(DropReason::WorkerFull);
        let workers = datapath.worker_stats();
        (
            stats(SOURCE).rx_packets,
            stats(SINK).tx_packets,
            dropped,
            workers,
            Instant::now(),
        )
    };
    let before = sample(&bridge);
    std::thread::sleep(time);
    let after = sample(&bridge);
    let difference = |of: fn(&WorkerStats) -> u64| {
        let sum = |stats: &[WorkerStats]| stats.iter().map(of).sum::<u64>();
        (sum(&after.3) - sum(&before.3)) as f64
    };
    let received = (after.0 - before.0) as f64;
    let nanos = (after.4 - before.4).as_nanos() as f64;
    let both = |of: fn(&WorkerStats) -> u64| {
        [0, case.workers - 1].map(|worker| (of(&after.3[worker]) - of(&before.3[worker])) as f64)
    };
    let busy = both(|stats| stats.busy_nanos);
    let processing = both(|stats| stats.busy_nanos - stats.spread_nanos);
    let processed = both(|stats| stats.packets);
    Ok(Figures {
        mpps: (after.1 - before.1) as f64 / (after.4 - before.4).as_secs_f64() / 1e6,
        handed_off: difference(|stats| stats.handed_off) / received,
        spread_nanos: difference(|stats| stats.spread_nanos) / received,
        dropped: (after.2 - before.2) as f64 / received,
        busy: busy.map(|busy| busy / nanos),
        processing_nanos: [0, 1].map(|at| processing[at] / processed[at].max(1.0)),
    })
}

/// Returns the fields of a flow that entries match.
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
        (Field::UdpDst, 53),
    ]
}

fn add_entries(control: &mut Control, work: Work, ops: &mut Vec<Op>) -> Outcome<()> {
    let mut add = |table, match_, instructions| {
        let request = FlowMod::new(FlowModCommand::Add, TableId(table), Priority(1), match_);
        let request = FlowMod {
            instructions,
            ..request
        };
        control
            .flow_mod(request, Time::ZERO, ops)
            .map_err(|error| format!("{error:?}"))
    };
    let in_port = Match::exact(&[(Field::InPort, u128::from(SOURCE.raw()))])?;
    let output = Action::output(SINK);
    if work == Work::Light {
        add(0, in_port, Instructions::apply([output]))?;
        return Ok(());
    }
    let set = |field, value| SetField::new(field, value).map(Action::SetField);
    let is_heavy = work == Work::Heavy;
    if is_heavy {
        let tagged = Instructions {
            goto_table: Some(TableId(1)),
            ..Instructions::apply([Action::PushVlan(EtherType::VLAN), set(Field::VlanVid, 0x1005)?])
        };
        add(0, in_port, tagged)?;
    }
    for flow in 0..FLOWS {
        let rewrite = [
            set(Field::EthSrc, 0x0200_0000_0001)?,
            set(Field::EthDst, 0x0200_0000_0000 | u128::from(flow))?,
            output,
        ];
        let actions: &[Action] = if is_heavy {
            &rewrite
        } else {
            core::slice::from_ref(&output)
        };
        let match_ = Match::exact(&five_tuple(flow))?;
        add(u8::from(is_heavy), match_, Instructions::apply(actions.to_vec()))?;
    }
    Ok(())
}

/// Writes one frame of each flow, 64 bytes on a wire, in an order that differs from the entries'.
fn write_packets(file: &Path, flows: std::ops::Range<u32>) -> Outcome<()> {
    let mut writer = PcapWriter::new(File::create(file)?)?;
    // A prime step visits every flow if the number of flows is not a multiple of it.
    let step = 104_729_u64;
    let len = u64::from(flows.end - flows.start);
    for at in 0..len {
        let flow = flows.start + (at * step % len) as u32;
        let packet = PacketText {
            fields: Match::exact(&five_tuple(flow))?,
            ..PacketText::default()
        };
        let frame = packet.frame()?;
        writer.write_packet(&PcapPacket::new(Duration::ZERO, frame.len() as u32, &frame))?;
    }
    Ok(())
}
