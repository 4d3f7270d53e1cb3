//! Drops by a device that classifies: a rule that was replaced drops nothing after the change is confirmed, and flow entries count
//! every packet that the device dropped for them.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_datapath::io::{Backend, DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::offload::{OffloadMode, OffloadSettings, OffloadStatus};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Instructions, Match};
use millrace_nic::connection::send_memory;
use millrace_nic::memory::{Layout, Memory};
use millrace_nic::{Capabilities, Counter};
use millrace_nic_model::SoftwareNic;
use millrace_pipeline::{
    Aggregate, Control, ControlConfig, Cursor, DropReason, FlowFilter, FlowFlags, FlowMod, FlowModCommand,
    Op, Port,
};
use millrace_types::{Mac, PortNo, Priority, TableId, split_mix};
use millrace_wire::Builder;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

const BOUND: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(10);
const SETTINGS: OffloadSettings = OffloadSettings {
    mode: OffloadMode::Trust,
    entries: None,
    operations_per_second: 10_000,
    drops: true,
};

/// Orders to the thread of the device, and its observations, by flow.
struct Wire {
    is_fed: AtomicBool,
    is_hung: AtomicBool,
    ends: AtomicBool,
    /// True while no frame of the flow may be dropped by an entry: the change that ended its rule is confirmed.
    must_pass: Vec<AtomicBool>,
    taken: Vec<AtomicU64>,
    dropped: Vec<AtomicU64>,
    /// Frames that an entry dropped and that had to pass.
    wrong: AtomicU64,
}

impl Wire {
    fn sum(counters: &[AtomicU64]) -> u64 {
        counters
            .iter()
            .map(|counter| counter.load(Ordering::SeqCst))
            .sum()
    }
}

fn frame(flow: usize) -> Vec<u8> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, (flow >> 8) as u8, flow as u8])
        .udp(1000, 2000)
        .payload(&vec![7; 20 + flow % 40])
        .build()
}

/// Serves one driver after the other, as `millrace-nic` does.
fn device(listener: &OwnedFd, wire: &Wire) {
    let frames: Vec<Vec<u8>> = (0..wire.must_pass.len()).map(frame).collect();
    let layout = Layout {
        capabilities: Capabilities {
            queues: 1,
            drops: 1024,
            ..Capabilities::TEN
        },
        ring_bits: 10,
        buffer_size: 256,
    };
    let (mut nic, mut socket, mut next) = (None::<SoftwareNic>, None, 0);
    while !wire.ends.load(Ordering::SeqCst) {
        if let Ok(new) = accept_with(listener, SocketFlags::CLOEXEC) {
            let (memory, file) = Memory::create(layout).unwrap();
            nic = Some(SoftwareNic::new(memory).unwrap());
            let _gone = send_memory(&new, &file);
            socket = Some(new);
        }
        let Some(nic) = nic.as_mut().filter(|_| !wire.is_hung.load(Ordering::SeqCst)) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        nic.poll();
        if !wire.is_fed.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        for _ in 0..32 {
            next = (next + 1) % frames.len();
            let must_pass = wire.must_pass[next].load(Ordering::SeqCst);
            let count = |nic: &SoftwareNic| nic.model().map_or(0, |model| model.count(Counter::Dropped, 0));
            let before = count(nic);
            if nic.receive(0, &frames[next], 0).is_some() {
                wire.taken[next].fetch_add(1, Ordering::Relaxed);
            } else if count(nic) != before {
                wire.dropped[next].fetch_add(1, Ordering::Relaxed);
                wire.wrong.fetch_add(u64::from(must_pass), Ordering::SeqCst);
            }
        }
    }
    drop(socket);
}

/// A bridge with a device at port 1 that drops, and one worker.
struct TestBed {
    bridge: Bridge<HeapBackend>,
    control: Control,
    ops: Vec<Op>,
    wire: Arc<Wire>,
    /// The packets and bytes of entries that were removed.
    removed: Vec<[u64; 2]>,
    is_forwarded: Vec<bool>,
    next_tick: Instant,
    thread: Option<JoinHandle<()>>,
    _datapath: Datapath<HeapBackend>,
    _folder: tempfile::TempDir,
}

impl Drop for TestBed {
    fn drop(&mut self) {
        self.wire.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

fn match_of(flow: usize) -> Match {
    format!("ip,nw_dst=10.0.{}.{}", flow >> 8, flow & 255)
        .parse()
        .unwrap()
}

impl TestBed {
    fn new(flows: usize) -> TestBed {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nic.sock");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 1).unwrap();
        let counters = || (0..flows).map(|_| AtomicU64::new(0)).collect();
        let wire = Arc::new(Wire {
            is_fed: AtomicBool::new(false),
            is_hung: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            must_pass: (0..flows).map(|_| AtomicBool::new(false)).collect(),
            taken: counters(),
            dropped: counters(),
            wrong: AtomicU64::new(0),
        });
        let thread = std::thread::spawn({
            let wire = Arc::clone(&wire);
            move || device(&listener, &wire)
        });
        let backend = Arc::new(HeapBackend::new());
        let workers = Workers {
            cores: vec![None],
            idle: Idle::Adaptive,
            spread: Spread::Off,
        };
        let datapath = Datapath::start(Arc::clone(&backend), &workers).unwrap();
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.own_counters()],
        };
        let mut ops = Vec::new();
        let mut bridge = datapath.bridge(setup).unwrap();
        for (raw, spec) in [
            (1, DeviceSpec::Nic(path)),
            (2, DeviceSpec::Memory("m2".to_owned())),
        ] {
            control.set_port(Port::new(port(raw)), &mut ops);
            bridge.publish(&mut ops);
            let opened = backend.open(&spec, DeviceOptions::PLAIN).unwrap();
            bridge.attach_port(port(raw), opened).unwrap();
        }
        let mut testbed = TestBed {
            bridge,
            control,
            ops,
            wire,
            removed: vec![[0; 2]; flows],
            is_forwarded: vec![false; flows],
            next_tick: Instant::now(),
            thread: Some(thread),
            _datapath: datapath,
            _folder: folder,
        };
        for flow in 0..flows {
            testbed.request(FlowModCommand::Add, flow, 1, &[]);
        }
        testbed.publish();
        assert!(testbed.bridge.set_offload(port(1), Some(SETTINGS)));
        testbed
    }

    fn request(&mut self, command: FlowModCommand, flow: usize, priority: u16, actions: &[Action]) {
        let mut request = FlowMod::new(command, TableId(0), Priority(priority), match_of(flow));
        if !actions.is_empty() {
            request.instructions = Instructions::apply(actions.to_vec());
        }
        request.flags = FlowFlags::SEND_FLOW_REM;
        let now = self.bridge.now();
        self.control.flow_mod(request, now, &mut self.ops).unwrap();
    }

    /// Publishes the changes, as before a barrier reply.
    fn publish(&mut self) {
        self.bridge.publish(&mut self.ops);
        let mut removed = Vec::new();
        self.control.published(&mut removed);
        for entry in removed {
            let flow = (0..self.removed.len()).find(|flow| *entry.entry.match_() == match_of(*flow));
            let sums = &mut self.removed[flow.unwrap()];
            sums[0] += entry.count.packets;
            sums[1] += entry.count.bytes;
        }
        self.bridge.catch_up();
    }

    /// Changes what happens to the packets of a flow, by the entry itself or by another one before it.
    fn change(&mut self, flow: usize) {
        let forwards = !self.is_forwarded[flow];
        self.is_forwarded[flow] = forwards;
        self.wire.must_pass[flow].store(false, Ordering::SeqCst);
        let output = [Action::output(port(2))];
        match (flow % 2, forwards) {
            (0, true) => self.request(FlowModCommand::ModifyStrict, flow, 1, &output),
            (0, false) => self.request(FlowModCommand::ModifyStrict, flow, 1, &[]),
            (_, true) => self.request(FlowModCommand::Add, flow, 2, &output),
            (_, false) => self.request(FlowModCommand::DeleteStrict, flow, 2, &[]),
        }
        self.publish();
        self.wire.must_pass[flow].store(forwards, Ordering::SeqCst);
    }

    fn tick(&mut self) {
        if Instant::now() >= self.next_tick {
            self.bridge.run_offload();
            self.next_tick = Instant::now() + TICK;
        }
    }

    fn status(&self) -> OffloadStatus {
        self.bridge.offload_status(port(1)).unwrap()
    }

    fn wait_for(&mut self, what: &str, met: impl Fn(&TestBed) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !met(self) {
            assert!(
                Instant::now() < deadline,
                "no sign of {what}: {:?}",
                self.status()
            );
            self.tick();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns packets and bytes that the entries of a flow have counted.
    fn counted(&self, flow: usize) -> [u64; 2] {
        let mut sum = Aggregate::default();
        let filter = FlowFilter {
            match_: match_of(flow),
            ..FlowFilter::all()
        };
        let rest = self
            .control
            .aggregate(&filter, Cursor::default(), usize::MAX, &mut sum);
        assert!(rest.is_none());
        let [packets, bytes] = self.removed[flow];
        [packets + sum.packets, bytes + sum.bytes]
    }

    /// Stops the frames, and asserts that the entries of each flow have counted all, and the port and the table, too.
    fn assert_exact(&mut self) {
        self.wire.is_fed.store(false, Ordering::SeqCst);
        let all = |testbed: &TestBed| Wire::sum(&testbed.wire.taken) + Wire::sum(&testbed.wire.dropped);
        let flows = self.removed.len();
        self.wait_for("all packets in the entries", |testbed| {
            (0..flows).map(|flow| testbed.counted(flow)[0]).sum::<u64>() == all(testbed)
        });
        for flow in 0..flows {
            let packets = [&self.wire.taken, &self.wire.dropped].map(|all| all[flow].load(Ordering::SeqCst));
            let packets: u64 = packets.iter().sum();
            let bytes = packets * frame(flow).len() as u64;
            assert_eq!(self.counted(flow), [packets, bytes], "flow {flow}");
        }
        let stats = self.bridge.port_stats(port(1)).unwrap();
        assert_eq!(stats.rx_packets, all(self));
        let drops = self.control.drops(DropReason::NoOutput);
        assert!(drops >= Wire::sum(&self.wire.dropped), "{drops}");
    }
}

/// 10,000,000 drops and a minute of changes at most with `MILLRACE_NIC_LONG`, which the gate N21 asks for.
#[test]
fn no_frame_is_dropped_after_the_change_that_ended_its_rule_and_entries_count_each_drop() {
    let is_long = std::env::var_os("MILLRACE_NIC_LONG").is_some();
    let (flows, drops, changes) = if is_long {
        (512, 10_000_000, 20_000)
    } else {
        (48, 20_000, 500)
    };
    let mut testbed = TestBed::new(flows);
    testbed.wire.is_fed.store(true, Ordering::SeqCst);
    testbed.wait_for("drops", |testbed| testbed.status().drops > flows / 2);
    let mut random = 21;
    let (started, mut done, mut ended) = (Instant::now(), 0_u64, 0_u64);
    let mut longest = Duration::ZERO;
    while done < changes || Wire::sum(&testbed.wire.dropped) < drops {
        assert!(started.elapsed() < 5 * BOUND, "{:?}", testbed.status());
        // A thousand changes a second, as far as the machine goes.
        while started.elapsed() < Duration::from_millis(done) {
            testbed.tick();
            std::thread::yield_now();
        }
        let before = testbed.status().drops;
        let begun = Instant::now();
        testbed.change(split_mix::next(&mut random) as usize % flows);
        longest = longest.max(begun.elapsed());
        ended += u64::from(testbed.status().drops < before);
        done += 1;
        testbed.tick();
    }
    let rate = done as f64 / started.elapsed().as_secs_f64();
    testbed.assert_exact();
    let wrong = testbed.wire.wrong.load(Ordering::SeqCst);
    let dropped = Wire::sum(&testbed.wire.dropped);
    println!(
        "N21: {done} changes, {rate:.0} a second, {ended} of them ended drops, the longest took {:.1} ms: {wrong} frames dropped after \
         the change; {dropped} drops, counted exactly",
        longest.as_secs_f64() * 1e3
    );
    assert_eq!(wrong, 0);
    assert!(ended > changes / 20, "{ended} changes ended drops");
    assert_eq!(testbed.status().dropped, dropped);
}

#[test]
fn a_device_that_hangs_while_it_drops_delays_a_change_by_half_a_second_and_comes_back_without_the_drop() {
    let mut testbed = TestBed::new(4);
    testbed.wire.is_fed.store(true, Ordering::SeqCst);
    testbed.wait_for("drops", |testbed| testbed.status().drops == 4);
    testbed.wire.is_hung.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    testbed.change(0);
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(500) && took < Duration::from_secs(30),
        "{took:?}"
    );
    // The next change waits for nobody: the connection is over.
    testbed.wait_for("the end of the connection", |testbed| {
        testbed.status().by == millrace_datapath::offload::OffloadBy::Device
    });
    testbed.wire.is_hung.store(false, Ordering::SeqCst);
    testbed.wait_for("drops of the others again", |testbed| testbed.status().drops == 3);
    assert_eq!(testbed.wire.wrong.load(Ordering::SeqCst), 0);
}

#[test]
fn settings_and_obstacles_end_drops_and_no_count_is_lost() {
    let mut testbed = TestBed::new(6);
    testbed.wire.is_fed.store(true, Ordering::SeqCst);
    testbed.wait_for("drops", |testbed| testbed.status().drops == 6);
    // A trace must see the packets.
    testbed
        .bridge
        .publish(&mut vec![Op::Fragments(millrace_pipeline::FragmentMode::Drop)]);
    assert_eq!(testbed.status().drops, 0, "before the change is confirmed");
    testbed
        .bridge
        .publish(&mut vec![Op::Fragments(millrace_pipeline::FragmentMode::Normal)]);
    testbed.wait_for("drops again", |testbed| testbed.status().drops == 6);
    // Another field is matched: entries compare too few bits.
    let mut other = FlowMod::new(
        FlowModCommand::Add,
        TableId(0),
        Priority(9),
        "udp,tp_src=7".parse::<Match>().unwrap(),
    );
    other.instructions = Instructions::apply([Action::output(port(2))]);
    let now = testbed.bridge.now();
    testbed.control.flow_mod(other, now, &mut testbed.ops).unwrap();
    testbed.publish();
    assert_eq!(testbed.status().drops, 0);
    testbed.wait_for("drops again", |testbed| testbed.status().drops == 6);
    for settings in [
        Some(OffloadSettings {
            drops: false,
            ..SETTINGS
        }),
        Some(SETTINGS),
        None,
    ] {
        assert!(testbed.bridge.set_offload(port(1), settings));
        if settings == Some(SETTINGS) {
            testbed.wait_for("drops again", |testbed| testbed.status().drops == 6);
        }
    }
    assert!(testbed.bridge.set_offload(port(1), Some(SETTINGS)));
    testbed.wait_for("drops again", |testbed| testbed.status().drops == 6);
    testbed.assert_exact();
}
