//! The cost of a shunned packet, and the rate of an attached function and of the same one in class `isolated`: one lane, called
//! without a worker, with frames on the heap.
//!
//! ```text
//! cargo run --release -p millrace-daq --example cost
//! ```
//! It prints a JSON line for each case: the nanoseconds of a packet from the entry of the chain to its end, and the gate, where
//! there is one. A figure is the median of seven runs, which alternate with those of the compared cases. Processes run this
//! program, without the filter of system calls that `millrace-nf` has.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use millrace_chain::{Chain, ChainPlan, Class, Environment, HopPlan, HopState};
use millrace_datapath::io::{Burst, TxQueue};
use millrace_datapath::service::{Service, ServiceOutput};
use millrace_nf::attach::Attachment;
use millrace_nf::shm::FunctionEnd;
use millrace_nf::{
    Access, Buffer, Catalogue, Context, Effects, Function, Kind, Settings, ShunAction, Verdict,
};
use millrace_pipeline::DropReason;
use millrace_types::{Mac, PortNo, Time};
use millrace_wire::{Builder, Frame, FramePool};

/// Flows of the traffic.
const FLOWS: u16 = 256;
/// Packets of a run.
const PACKETS: u64 = 400_000;
/// Runs of a case.
const RUNS: usize = 7;
/// The limit of the additional nanoseconds of a shunned packet, compared with a packet in a chain without
/// hops.
const GATE: f64 = 30.0;

/// Exchanges MAC addresses, and shuns all flows if told to.
struct Swap {
    shuns: bool,
}

impl Function for Swap {
    fn process(&mut self, _: &Context, burst: &mut [&mut dyn Buffer], _: &mut [Verdict]) {
        for packet in burst {
            let (to, from) = packet.head_mut().split_at_mut(6);
            to.swap_with_slice(&mut from[..6]);
        }
    }

    fn process_with_effects(
        &mut self,
        context: &Context,
        burst: &mut [&mut dyn Buffer],
        verdicts: &mut [Verdict],
        effects: &mut Effects,
    ) {
        self.process(context, burst, verdicts);
        for index in 0..if self.shuns { burst.len() } else { 0 } {
            effects.shun(index, ShunAction::Pass, Duration::from_secs(3600));
        }
    }
}

static KINDS: [Kind; 2] = [
    Kind {
        name: "swap",
        reads: Access::ALL,
        writes: Access::ALL,
        make: &|_| Ok(Box::new(Swap { shuns: false })),
        ..Kind::DEFAULT
    },
    Kind {
        name: "shun",
        reads: Access::ALL,
        writes: Access::ALL,
        shuns: 65_536,
        make: &|_| Ok(Box::new(Swap { shuns: true })),
        ..Kind::DEFAULT
    },
];
const CATALOGUE: Catalogue = Catalogue::new(&KINDS);

/// Counts packets that leave the chain, and frees them.
#[derive(Default)]
struct Count {
    out: u64,
}

impl ServiceOutput<Frame> for Count {
    fn receive(&mut self, _: PortNo, burst: &mut Burst<Frame>) {
        self.out += burst.len() as u64;
        burst.clear();
    }

    fn forward(&mut self, _: PortNo, burst: &mut Burst<Frame>) {
        burst.clear();
    }

    fn transmit(&mut self, _: PortNo, _: Frame) {}

    fn count_drops(&mut self, _: DropReason, _: u64) {}

    fn discard(&mut self, _: DropReason, burst: &mut Burst<Frame>) {
        burst.clear();
    }
}

struct Bed {
    lane: Box<dyn Service<Frame>>,
    entrance: Box<dyn TxQueue<Frame>>,
    chain: Chain<Frame>,
    pool: FramePool,
    frames: Vec<Vec<u8>>,
    next: usize,
    epoch: Instant,
    count: Count,
}

impl Bed {
    fn new(hops: Vec<HopPlan>) -> Result<Bed, Box<dyn Error>> {
        let mut plan = ChainPlan::new("cost", PortNo::ordinary(1)?, PortNo::ordinary(2)?);
        plan.hops = hops;
        let environment = Environment {
            catalogue: CATALOGUE,
            workers: 1,
            seed: 1,
            zero_unix_millis: 0,
            program: std::env::current_exe()?,
        };
        let (mut chain, mut lanes) = Chain::new(&plan, environment);
        let mut ports = chain.edit(&plan, Time::ZERO)?;
        let entrance = ports.opened.swap_remove(0).2.tx.pop();
        let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        let frame = |flow: u16| {
            let ip = ethernet.clone().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
            ip.udp(1000 + flow, 2000).payload(&[0; 18]).build()
        };
        Ok(Bed {
            lane: lanes.pop().ok_or("no lane")?,
            entrance: entrance.ok_or("no queue")?,
            chain,
            pool: FramePool::new(2048, 1600),
            frames: (0..FLOWS).map(frame).collect(),
            next: 0,
            epoch: Instant::now(),
            count: Count::default(),
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Sends one burst, and polls the lane.
    fn round(&mut self) {
        let mut burst = Burst::new();
        while !burst.is_full()
            && let Some(frame) = self.pool.take(&self.frames[self.next])
        {
            burst.push(frame);
            self.next = (self.next + 1) % self.frames.len();
        }
        self.entrance.tx_burst(&mut burst);
        drop(burst);
        self.lane.poll(self.now(), &mut self.count);
    }

    /// Runs the control side until the hop is up and, with `shuns`, until all flows are shunned.
    fn prepare(&mut self, shuns: bool) {
        loop {
            for _ in 0..100 {
                self.round();
            }
            self.chain.tick(self.now());
            let stats = self.chain.stats();
            let Some(hop) = stats.hops.first() else { return };
            let is_shunned = !shuns || hop.shunned_flows == u64::from(FLOWS);
            if hop.state == HopState::Up && is_shunned {
                return;
            }
        }
    }

    /// Returns the nanoseconds per packet.
    fn measure(&mut self) -> f64 {
        let (before, start) = (self.count.out, Instant::now());
        while self.count.out - before < PACKETS {
            self.round();
        }
        start.elapsed().as_nanos() as f64 / (self.count.out - before) as f64
    }
}

/// Measures cases in turn. Returns the median of each.
fn medians(beds: &mut [Bed]) -> Vec<f64> {
    let mut runs = vec![Vec::new(); beds.len()];
    for _ in 0..RUNS {
        for (bed, runs) in beds.iter_mut().zip(&mut runs) {
            runs.push(bed.measure());
        }
    }
    runs.into_iter()
        .map(|mut runs| {
            runs.sort_by(f64::total_cmp);
            runs[RUNS / 2]
        })
        .collect()
}

fn hop(class: Class, function: &str) -> HopPlan {
    HopPlan {
        class,
        ..HopPlan::new("hop", function)
    }
}

/// Runs a function for a window of the switch (`--window`), or attached (`--attach`).
fn host(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let value = |key: &str| {
        let at = arguments.iter().position(|argument| argument == key)?;
        arguments.get(at + 1).cloned()
    };
    let kind = CATALOGUE.find(&value("--function").ok_or("no function")?)?;
    let setup = kind.setup(&Settings::default(), 1, 0);
    let mut function = kind.make_function(&setup)?;
    if let Some(socket) = value("--attach") {
        let mut attachment = Attachment::new(Path::new(&socket), None, &[], Duration::from_secs(20))?;
        attachment.run(&mut *function, &setup, || true);
        return Ok(());
    }
    let window = value("--window").ok_or("no window")?;
    let file = File::options().read(true).write(true).open(window)?;
    let parent = std::os::unix::process::parent_id();
    let goes_on = || std::os::unix::process::parent_id() == parent;
    FunctionEnd::open(&file)?.run(&mut *function, &setup, goes_on);
    Ok(())
}

fn attach(socket: &Path, function: &str) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--attach").arg(socket).args(["--function", function]);
    command.spawn()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--function") {
        return host(&arguments);
    }
    let dir = tempfile::tempdir()?;
    let dir = dir.path();
    let sockets = ["shun", "swap"].map(|name| dir.join(name));
    let attached = |socket: &Path| hop(Class::Isolated, &format!("attached:{}", socket.display()));
    let mut beds = vec![
        Bed::new(Vec::new())?,
        Bed::new(vec![hop(Class::Inline, "shun")])?,
        Bed::new(vec![attached(&sockets[0])])?,
    ];
    let mut shun = attach(&sockets[0], "shun")?;
    beds.iter_mut().for_each(|bed| bed.prepare(true));
    let nanos = medians(&mut beds);
    drop(beds);
    shun.wait()?;
    println!("{{\"case\":\"chain without hops\",\"nanos\":{:.1}}}", nanos[0]);
    for (case, found) in [("inline", nanos[1]), ("attached", nanos[2])] {
        let more = found - nanos[0];
        println!(
            "{{\"case\":\"shunned packet, function {case}\",\"nanos\":{found:.1},\"gate\":{GATE},\"reached\":{more:.1},\"met\":{}}}",
            more <= GATE
        );
    }
    let mut beds = vec![
        Bed::new(vec![hop(Class::Isolated, "swap")])?,
        Bed::new(vec![attached(&sockets[1])])?,
    ];
    let mut swap = attach(&sockets[1], "swap")?;
    beds.iter_mut().for_each(|bed| bed.prepare(false));
    let nanos = medians(&mut beds);
    drop(beds);
    swap.wait()?;
    println!(
        "{{\"case\":\"isolated\",\"nanos\":{:.1},\"mpps\":{:.2}}}",
        nanos[0],
        1e3 / nanos[0]
    );
    println!(
        "{{\"case\":\"attached\",\"nanos\":{:.1},\"mpps\":{:.2},\"of_isolated\":{:.2}}}",
        nanos[1],
        1e3 / nanos[1],
        nanos[0] / nanos[1]
    );
    Ok(())
}
