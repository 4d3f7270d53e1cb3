//! Packets per nanosecond of processor time of a worker behind an ideal device, with offload in the mode `auto` and without (gate N13):
//! `governor FLOWS PACKETS SECONDS`, with flow entries as ovs-ofctl writes them and a capture file. `millrace bench nic` runs it.
//!
//! Two switches in one process have a worker and a device each, which deliver the same frames again and again, in turn: a tenth
//! of a second each. Marks and hashes lie in arrays, so the device costs nothing beyond a copy of each frame, with and without
//! marks. Planner and governor run as in the switch. A packet's time is processor time of the worker's thread, so that a busy machine
//! does not count.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement that fails ends with a message"
)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{
    Backend as _, Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, HeapBackend, RxQueue,
    TxQueue,
};
use millrace_datapath::offload::{
    DeviceOperation, DeviceOutcome, EntryFields, Offload, OffloadCapabilities, OffloadMode, OffloadSettings,
};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_flow::text::FlowText;
use millrace_flow::{Field, FlowKey};
use millrace_offload::Outcome;
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, MarkColumn, MarkLevel, Port};
use millrace_types::PortNo;
use millrace_wire::flow_hash::FlowHash;
use millrace_wire::{Depth, Frame, FramePool, Packet as _};
use pcap_file::pcap::PcapReader;

/// The time that one of the two switches runs before the other one does.
const TURN: Duration = Duration::from_millis(100);
/// The interval at which planner and governor run.
const TICK: Duration = Duration::from_millis(10);
/// The entries of the device: those of the RTL's smaller configuration.
const ENTRIES: usize = 2048;

/// The frames, with what the device knows about each.
struct Frames {
    bytes: Vec<Vec<u8>>,
    keys: Vec<FlowKey>,
    hashes: Vec<u32>,
    marks: Vec<AtomicU32>,
    is_on: AtomicBool,
}

impl Frames {
    fn read(path: &Path) -> Frames {
        let mut reader = PcapReader::new(std::fs::File::open(path).expect("the capture file")).unwrap();
        let (mut bytes, mut keys, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        let hash = FlowHash::new(1);
        while let Some(packet) = reader.next_packet() {
            let frame = packet.expect("a packet").data.into_owned();
            let mut key = FlowKey::default();
            key.put(Field::InPort, 1);
            key.put(Field::InPhyPort, 1);
            key.read(&frame, frame.len(), Depth::All);
            hashes.push((hash.of(&frame) >> 32) as u32);
            keys.push(key);
            bytes.push(frame);
        }
        Frames {
            marks: bytes.iter().map(|_| AtomicU32::new(0)).collect(),
            bytes,
            keys,
            hashes,
            is_on: AtomicBool::new(false),
        }
    }
}

/// The receive queue of the device.
struct Replay {
    frames: Arc<Frames>,
    pool: FramePool,
    next: usize,
    column: Option<MarkColumn>,
}

impl RxQueue<Frame> for Replay {
    fn rx_burst(&mut self, burst: &mut Burst<Frame>) {
        if !self.frames.is_on.load(Ordering::Relaxed) {
            return;
        }
        if let Some(column) = &mut self.column {
            column.clear();
        }
        while !burst.is_full() {
            let Some(packet) = self.pool.take(&self.frames.bytes[self.next]) else {
                return;
            };
            if let Some(column) = &mut self.column {
                let mark = self.frames.marks[self.next].load(Ordering::Relaxed);
                column.set(burst.len(), mark, Some(self.frames.hashes[self.next]));
            }
            burst.push(packet);
            self.next += 1;
            if self.next == self.frames.bytes.len() {
                self.next = 0;
            }
        }
    }

    fn keep_marks(&mut self, is_kept: bool) {
        self.column = is_kept.then(MarkColumn::default);
    }

    fn marks(&self) -> Option<&MarkColumn> {
        self.column.as_ref()
    }
}

/// A transmit queue that takes all packets.
struct Sink;

impl TxQueue<Frame> for Sink {
    fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
        Frame::discard(burst);
    }
}

/// The device: frames of each masked key get the mark of their entry, at once.
struct Ideal {
    inner: Box<dyn Device>,
    frames: Arc<Frames>,
    by_key: BTreeMap<[u64; FlowKey::WORDS], Vec<usize>>,
    rows: BTreeMap<u32, FlowKey>,
    outcomes: VecDeque<DeviceOutcome>,
    reset: u64,
}

impl Ideal {
    fn set(&self, key: &FlowKey, mark: u32) {
        for frame in self.by_key.get(key.words()).into_iter().flatten() {
            self.frames.marks[*frame].store(mark, Ordering::Relaxed);
        }
    }
}

impl Device for Ideal {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }

    fn set_link(&mut self, up: bool) {
        self.inner.set_link(up);
    }

    fn offload(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }
}

impl Offload for Ideal {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        Some(OffloadCapabilities {
            session: 1,
            entries: ENTRIES,
            mark_bits: 32,
            fields: EntryFields::Masked,
            is_trusted: true,
        })
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        let (slot, outcome) = match operation {
            DeviceOperation::Reset { number, mask } => {
                self.by_key.clear();
                for (frame, key) in self.frames.keys.iter().enumerate() {
                    self.frames.marks[frame].store(0, Ordering::Relaxed);
                    let words = *key.masked(&mask).words();
                    self.by_key.entry(words).or_default().push(frame);
                }
                self.rows.clear();
                self.reset = number;
                self.outcomes = [DeviceOutcome::Reset { number }].into();
                return true;
            }
            DeviceOperation::Install { slot, mark, key } => {
                self.set(&key, mark);
                self.rows.insert(slot, key);
                (slot, Outcome::Installed)
            }
            DeviceOperation::Remove { slot } => {
                if let Some(key) = self.rows.remove(&slot) {
                    self.set(&key, 0);
                }
                (slot, Outcome::Removed)
            }
        };
        self.outcomes.push_back(DeviceOutcome::Slot {
            reset: self.reset,
            slot,
            outcome,
        });
        true
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.outcomes.pop_front()
    }
}

/// A switch with one worker.
struct Switch {
    bridge: Bridge<HeapBackend>,
    datapath: Datapath<HeapBackend>,
    frames: Arc<Frames>,
    /// The file with the processor time of the worker's thread.
    schedstat: PathBuf,
    /// Nanoseconds of a packet, by turn.
    nanos: Vec<f64>,
}

/// Returns the threads of this process.
fn threads() -> BTreeSet<PathBuf> {
    let all = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    all.map(|entry| entry.unwrap().path()).collect()
}

impl Switch {
    fn new(lines: &str, frames: &Path, offload: Option<OffloadSettings>) -> Switch {
        let backend = Arc::new(HeapBackend::new());
        let workers = Workers {
            cores: vec![None],
            idle: Idle::Adaptive,
            spread: Spread::Off,
        };
        let before = threads();
        let datapath = Datapath::start(Arc::clone(&backend), &workers).unwrap();
        let mut new = threads().into_iter().filter(|thread| !before.contains(thread));
        let schedstat = new.next().expect("the thread of the worker").join("schedstat");
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.own_counters()],
        };
        let (mut bridge, mut ops) = (datapath.bridge(setup).unwrap(), Vec::new());
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let text: FlowText = line.parse().expect("a flow entry");
            let mut request = FlowMod::new(FlowModCommand::Add, text.table, text.priority, text.matching);
            request.instructions = text.instructions.unwrap_or_default();
            control.flow_mod(request, bridge.now(), &mut ops).unwrap();
        }
        let frames = Arc::new(Frames::read(frames));
        for raw in 1..=4 {
            let number = PortNo::ordinary(raw).unwrap();
            control.set_port(Port::new(number), &mut ops);
            let spec = DeviceSpec::Memory(format!("m{raw}"));
            let mut opened = backend.open(&spec, DeviceOptions::PLAIN).unwrap();
            opened.tx = opened
                .tx
                .iter()
                .map(|_| Box::new(Sink) as Box<dyn TxQueue<Frame>>)
                .collect();
            if raw == 1 {
                opened.rx = vec![Box::new(Replay {
                    frames: Arc::clone(&frames),
                    pool: FramePool::new(4096, 2048),
                    next: 0,
                    column: None,
                })];
                opened.device = Box::new(Ideal {
                    inner: opened.device,
                    frames: Arc::clone(&frames),
                    by_key: BTreeMap::new(),
                    rows: BTreeMap::new(),
                    outcomes: VecDeque::new(),
                    reset: 0,
                });
            }
            bridge.attach_port(number, opened).unwrap();
        }
        bridge.publish(&mut ops);
        let mut removed = Vec::new();
        control.published(&mut removed);
        assert!(bridge.set_offload(PortNo::ordinary(1).unwrap(), offload));
        Switch {
            bridge,
            datapath,
            frames,
            schedstat,
            nanos: Vec::new(),
        }
    }

    /// Returns packets of the worker and nanoseconds of its thread so far.
    fn load(&self) -> (u64, u64) {
        let text = std::fs::read_to_string(&self.schedstat).expect("the processor time of the worker");
        let nanos = text
            .split_whitespace()
            .next()
            .and_then(|nanos| nanos.parse().ok());
        (
            self.datapath.worker_stats()[0].packets,
            nanos.expect("nanoseconds in schedstat"),
        )
    }

    fn turn(&mut self) {
        let before = self.load();
        let begin = Instant::now();
        self.frames.is_on.store(true, Ordering::Relaxed);
        while begin.elapsed() < TURN {
            self.bridge.run_offload();
            std::thread::sleep(TICK);
        }
        self.frames.is_on.store(false, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        let after = self.load();
        if after.0 > before.0 {
            self.nanos
                .push((after.1 - before.1) as f64 / (after.0 - before.0) as f64);
        }
    }

    /// Returns the mean of a packet over all turns but the slowest twentieth, in which the machine did something else.
    fn mean(&self) -> f64 {
        let mut sorted = self.nanos.clone();
        sorted.sort_by(f64::total_cmp);
        let kept = &sorted[..(sorted.len() * 19).div_ceil(20)];
        kept.iter().sum::<f64>() / kept.len() as f64
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given: Result<&[String; 3], _> = arguments[..].try_into();
    let [flows, packets, seconds] = given.expect("three arguments: FLOWS PACKETS SECONDS");
    let lines = std::fs::read_to_string(flows).expect("the flow entries");
    let seconds: u64 = seconds.parse().expect("a number of seconds");
    let auto = OffloadSettings {
        mode: OffloadMode::Auto,
        entries: None,
        operations_per_second: 2_000,
        drops: false,
    };
    let packets = Path::new(packets);
    let mut off = Switch::new(&lines, packets, None);
    let mut auto = Switch::new(&lines, packets, Some(auto));
    let begin = Instant::now();
    let (mut turns, mut turns_with_marks, mut operations_max) = (0, 0, 0);
    let mut is_filled = false;
    while begin.elapsed() < Duration::from_secs(seconds) {
        off.turn();
        auto.turn();
        let status = auto.bridge.offload_status(PortNo::ordinary(1).unwrap()).unwrap();
        turns += 1;
        turns_with_marks += u32::from(status.level != MarkLevel::Dispatch);
        // The first half fills the device, and has the trials that follow each other closely; it does not count.
        if begin.elapsed() > Duration::from_secs(seconds / 2) {
            if !core::mem::replace(&mut is_filled, true) {
                off.nanos.clear();
                auto.nanos.clear();
                (turns, turns_with_marks) = (0, 0);
                continue;
            }
            operations_max = operations_max.max(status.operations_per_second);
        }
    }
    let status = auto.bridge.offload_status(PortNo::ordinary(1).unwrap()).unwrap();
    let (with, without) = (auto.mean(), off.mean());
    println!("off: {without:.1} ns");
    println!("auto: {with:.1} ns");
    println!("auto / off: {:.4}", without / with);
    println!(
        "marks in use: {:.1} %",
        f64::from(turns_with_marks) * 100.0 / f64::from(turns)
    );
    println!("entries: {}", status.planner.installed);
    println!("operations: {operations_max} a second at most");
    println!("level: {:?} by {:?}", status.level, status.by);
}
