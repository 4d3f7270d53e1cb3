//! A bridge whose port has a device with entries: from samples to entries, marks and slots, and back to a device without entries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{
    Backend, Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, HeapBackend, MemoryPeer,
    RxQueue,
};
use millrace_datapath::offload::{
    DeviceOperation, DeviceOutcome, EntryFields, Offload, OffloadBy, OffloadCapabilities, OffloadMode,
    OffloadSettings, OffloadStatus,
};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Stepper, Workers};
use millrace_flow::{Action, FlowKey, FlowMask, Instructions, Match};
use millrace_offload::Outcome;
use millrace_pipeline::{
    Aggregate, ColorAction, Control, ControlConfig, Cursor, FlowFilter, FlowMod, FlowModCommand,
    FragmentMode, MarkColumn, MarkLevel, Marks, Op, PolicerPlan, PolicerRates, Port,
};
use millrace_types::{BitRate, Mac, PortNo, Priority, TableId};
use millrace_wire::flow_hash::FlowHash;
use millrace_wire::{Builder, Depth, Frame};
use parking_lot::Mutex;

const BOUND: Duration = Duration::from_secs(60);
const FLOWS: u8 = 4;
const SETTINGS: OffloadSettings = OffloadSettings {
    mode: OffloadMode::Trust,
    entries: Some(16),
    operations_per_second: 10_000,
    drops: false,
};

/// The entries of a device.
#[derive(Default)]
struct Entries {
    mask: FlowMask,
    /// By slot, marks and keys.
    rows: BTreeMap<u32, (u32, FlowKey)>,
    outcomes: VecDeque<DeviceOutcome>,
    reset: u64,
}

impl Entries {
    /// Returns the mark of a frame; 0 for none.
    fn mark(&self, bytes: &[u8]) -> u32 {
        let mut key = FlowKey::default();
        key.read(bytes, bytes.len(), Depth::All);
        let key = key.masked(&self.mask);
        let row = self.rows.values().find(|(_, known)| *known == key);
        row.map_or(0, |(mark, _)| *mark)
    }
}

/// A memory device with entries, which it executes at once.
struct Nic {
    device: Box<dyn Device>,
    entries: Arc<Mutex<Entries>>,
}

impl Device for Nic {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn set_link(&mut self, up: bool) {
        self.device.set_link(up);
    }

    fn offload(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }
}

impl Offload for Nic {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        Some(OffloadCapabilities {
            session: 1,
            entries: 64,
            mark_bits: 32,
            fields: EntryFields::Masked,
            is_trusted: true,
        })
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        let mut entries = self.entries.lock();
        let (slot, outcome) = match operation {
            DeviceOperation::Reset { number, mask } => {
                let outcomes = [DeviceOutcome::Reset { number }].into();
                *entries = Entries {
                    mask,
                    rows: BTreeMap::new(),
                    outcomes,
                    reset: number,
                };
                return true;
            }
            DeviceOperation::Install { slot, mark, key } => {
                entries.rows.insert(slot, (mark, key));
                (slot, Outcome::Installed)
            }
            DeviceOperation::Remove { slot } => {
                entries.rows.remove(&slot);
                (slot, Outcome::Removed)
            }
        };
        let reset = entries.reset;
        entries
            .outcomes
            .push_back(DeviceOutcome::Slot { reset, slot, outcome });
        true
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.entries.lock().outcomes.pop_front()
    }
}

/// A receive queue whose device marks packets.
struct Marking {
    queue: Box<dyn RxQueue<Frame>>,
    entries: Arc<Mutex<Entries>>,
    hash: FlowHash,
    column: Option<MarkColumn>,
}

impl RxQueue<Frame> for Marking {
    fn rx_burst(&mut self, burst: &mut Burst<Frame>) {
        self.queue.rx_burst(burst);
        if let Some(column) = &mut self.column {
            column.clear();
            let entries = self.entries.lock();
            for (i, packet) in burst.iter().enumerate() {
                let hash = self.hash.of(packet.bytes());
                column.set(i, entries.mark(packet.bytes()), Some((hash >> 32) as u32));
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

/// A bridge with the device at port 1, and memory devices at ports 2 and 3.
struct TestBed {
    // Dropped first: a bridge that is dropped waits for its workers.
    stepper: Stepper<Frame>,
    bridge: Bridge<HeapBackend>,
    control: Control,
    ops: Vec<Op>,
    peers: [MemoryPeer<Frame>; 3],
    entries: Arc<Mutex<Entries>>,
    _datapath: Datapath<HeapBackend>,
    sent: u64,
}

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

fn frame(flow: u8) -> Vec<u8> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 1, flow])
        .udp(1000 + u16::from(flow), 2000)
        .payload(&[7; 40])
        .build()
}

impl TestBed {
    fn new() -> TestBed {
        let backend = Arc::new(HeapBackend::new());
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let (mut ops, entries) = (Vec::new(), Arc::new(Mutex::new(Entries::default())));
        let bridge = stepper.serve(|| {
            let mut bridge = datapath.bridge(setup).unwrap();
            for raw in 1..=3 {
                control.set_port(Port::new(port(raw)), &mut ops);
                bridge.publish(&mut ops);
                let spec = DeviceSpec::Memory(format!("m{raw}"));
                let mut opened = backend.open(&spec, DeviceOptions::PLAIN).unwrap();
                if raw == 1 {
                    opened.device = Box::new(Nic {
                        device: opened.device,
                        entries: Arc::clone(&entries),
                    });
                    let marking = |queue| Marking {
                        queue,
                        entries: Arc::clone(&entries),
                        hash: FlowHash::new(1),
                        column: None,
                    };
                    let queues = opened.rx.into_iter();
                    opened.rx = queues
                        .map(|queue| Box::new(marking(queue)) as Box<dyn RxQueue<Frame>>)
                        .collect();
                }
                bridge.attach_port(port(raw), opened).unwrap();
            }
            bridge
        });
        let mut testbed = TestBed {
            stepper,
            bridge,
            control,
            ops,
            peers: [1, 2, 3].map(|raw| backend.memory(&format!("m{raw}"))),
            entries,
            _datapath: datapath,
            sent: 0,
        };
        for flow in 0..FLOWS {
            let matching = format!("ip,nw_dst=10.0.1.{flow}").parse::<Match>().unwrap();
            let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), matching);
            let to = port(2 + u32::from(flow % 2));
            request.instructions = Instructions::apply([Action::output(to)]);
            let now = testbed.bridge.now();
            testbed.control.flow_mod(request, now, &mut testbed.ops).unwrap();
        }
        testbed.bridge.publish(&mut testbed.ops);
        testbed
    }

    /// Calls `work` with the bridge, and returns after the worker has executed the commands that it sent.
    fn serve<R>(&mut self, work: impl FnOnce(&mut Bridge<HeapBackend>) -> R) -> R {
        let TestBed { stepper, bridge, .. } = self;
        stepper.serve(|| {
            let result = work(bridge);
            // Commands are executed in order, and this one is waited for.
            bridge.set_sampling(None);
            result
        })
    }

    fn set(&mut self, settings: Option<OffloadSettings>) {
        assert!(self.serve(|bridge| bridge.set_offload(port(1), settings)));
    }

    fn status(&self) -> OffloadStatus {
        self.bridge.offload_status(port(1)).unwrap()
    }

    /// Sends some packets of all flows, and compares those that leave.
    fn send(&mut self, packets: u64) {
        for number in 0..packets {
            assert!(self.peers[0].send(&frame((number % u64::from(FLOWS)) as u8)));
        }
        let mut left = 0;
        while self.stepper.forward_round(self.bridge.now()) > 0 {
            for (peer, parity) in self.peers[1..].iter().zip(0..) {
                while let Some(packet) = peer.receive() {
                    assert_eq!(
                        packet.bytes()[33] % 2,
                        parity,
                        "it left by the port of another flow"
                    );
                    left += 1;
                }
            }
        }
        assert_eq!(left, packets);
        self.sent += packets;
    }

    /// Sends packets until the offload meets a condition.
    fn send_until(&mut self, what: &str, met: impl Fn(&OffloadStatus) -> bool) {
        let deadline = Instant::now() + BOUND;
        loop {
            self.send(256);
            self.serve(Bridge::run_offload);
            if met(&self.status()) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {:?}", self.status());
        }
    }

    /// Returns the number of packets that the entries of the tables counted.
    fn counted(&self) -> u64 {
        let mut sum = Aggregate::default();
        let rest = self
            .control
            .aggregate(&FlowFilter::all(), Cursor::default(), usize::MAX, &mut sum);
        assert!(rest.is_none());
        sum.packets
    }
}

#[test]
fn heavy_flows_get_entries_and_every_packet_is_counted_at_its_port_and_its_flow_entry() {
    let mut testbed = TestBed::new();
    testbed.set(Some(SETTINGS));
    testbed.serve(Bridge::run_offload);
    testbed.send_until("marks in use", |status| {
        status.used > 1000 && status.planner.installed == usize::from(FLOWS)
    });
    let status = testbed.status();
    assert_eq!((status.level, status.by), (MarkLevel::Trust, OffloadBy::Operator));
    assert_eq!(status.mismatches, 0);
    assert!(
        status.used <= status.marked && status.marked <= status.packets,
        "{status:?}"
    );
    let received = testbed.bridge.port_stats(port(1)).unwrap().rx_packets;
    assert_eq!((status.packets, testbed.counted()), (testbed.sent, testbed.sent));
    assert_eq!(received, testbed.sent);
    // With all flows marked and met once, all packets are found by their marks.
    testbed.send(64);
    let before = testbed.status();
    testbed.send(64);
    let after = testbed.status();
    assert_eq!(after.packets - before.packets, 64);
    assert_eq!((after.marked - before.marked, after.used - before.used), (64, 64));
}

#[test]
fn a_policer_or_a_setting_of_the_bridge_keeps_marks_from_being_used_and_the_status_names_it() {
    let mut testbed = TestBed::new();
    testbed.set(Some(SETTINGS));
    testbed.send_until("marks in use", |status| status.used > 100);
    let plan = PolicerPlan {
        rates: PolicerRates::SingleRate {
            cir: BitRate::from_bps(8_000_000_000),
            cbs: 1_000_000,
            ebs: 0,
        },
        color_aware: false,
        overhead: 0,
        color_actions: [ColorAction::Pass(Marks::default()); 3],
    };
    testbed.serve(|bridge| bridge.police(port(1), Some(&plan)));
    let before = testbed.status();
    assert_eq!(
        (before.level, before.by),
        (MarkLevel::Dispatch, OffloadBy::Obstacle("policer"))
    );
    testbed.send(64);
    let status = testbed.status();
    assert_eq!((status.used, status.packets), (before.used, before.packets + 64));
    testbed.serve(|bridge| bridge.police(port(1), None));
    assert_eq!(testbed.status().by, OffloadBy::Operator);
    testbed.send(64);
    assert!(testbed.status().used > status.used);
    testbed
        .control
        .set_fragments(FragmentMode::Drop, &mut testbed.ops);
    testbed.bridge.publish(&mut testbed.ops);
    assert_eq!(testbed.status().by, OffloadBy::Obstacle("fragments"));
    let used = testbed.status().used;
    testbed.send(64);
    assert_eq!(testbed.status().used, used);
}

#[test]
fn offload_that_ends_empties_the_device_and_begins_anew_when_it_is_set_again() {
    let mut testbed = TestBed::new();
    testbed.set(Some(SETTINGS));
    testbed.send_until("entries", |status| status.planner.installed == usize::from(FLOWS));
    assert_eq!(testbed.entries.lock().rows.len(), usize::from(FLOWS));
    testbed.set(None);
    assert!(testbed.entries.lock().rows.is_empty());
    assert_eq!(testbed.bridge.offload_status(port(1)), None);
    testbed.send(64);
    testbed.set(Some(OffloadSettings {
        mode: OffloadMode::Verify,
        ..SETTINGS
    }));
    testbed.send_until("marks in use again", |status| status.used > 100);
    let status = testbed.status();
    assert_eq!((status.level, status.mismatches), (MarkLevel::Verify, 0));
    assert!(status.packets < testbed.sent, "packets count anew");
    assert!(
        !testbed.serve(|bridge| bridge.set_offload(port(2), Some(SETTINGS))),
        "it has no entries"
    );
}

#[test]
fn packets_that_workers_hand_to_each_other_use_no_marks_and_the_status_says_so() {
    let backend = Arc::new(HeapBackend::new());
    let workers = Workers {
        cores: vec![None; 2],
        idle: Idle::Adaptive,
        spread: Spread::Always,
    };
    let datapath = Datapath::start(Arc::clone(&backend), &workers).unwrap();
    let mut control = Control::new(ControlConfig::default());
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters: (0..=datapath.workers_len()).map(|_| control.counters()).collect(),
    };
    let mut bridge = datapath.bridge(setup).unwrap();
    let spec = DeviceSpec::Memory("m1".to_owned());
    let mut opened = backend.open(&spec, DeviceOptions::PLAIN).unwrap();
    opened.device = Box::new(Nic {
        device: opened.device,
        entries: Arc::default(),
    });
    bridge.attach_port(port(1), opened).unwrap();
    assert!(bridge.set_offload(port(1), Some(SETTINGS)));
    bridge.run_offload();
    let status = bridge.offload_status(port(1)).unwrap();
    assert_eq!(
        (status.level, status.by),
        (MarkLevel::Dispatch, OffloadBy::Obstacle("spread"))
    );
}
