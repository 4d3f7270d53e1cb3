//! The cost of a hop: one lane, called without a worker, with frames on the heap.
//!
//! ```text
//! cargo run --release -p millrace-chain --example lengths [isolated [PROGRAM] | FUNCTION]
//! ```
//! It prints a JSON line for each length and frame size: the nanoseconds of a packet from the entry of the chain to its end, and
//! the rate as a share of the rate with one hop. Every function exchanges MAC addresses. With `isolated`, functions run in
//! processes of `millrace-nf` or PROGRAM. FUNCTION names another function for the worker, such as `firewall` or `wasm:PATH`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Instant;

use millrace_builtin::CATALOGUE;
use millrace_chain::{Chain, ChainPlan, Class, Environment, HopPlan, nf_program};
use millrace_datapath::io::{Burst, TxQueue};
use millrace_datapath::service::{Service, ServiceOutput};
use millrace_loader::LOADERS;
use millrace_pipeline::DropReason;
use millrace_types::{PortNo, Time};
use millrace_wire::{Frame, FramePool};

/// Counts packets that leave the chain, and frees them.
#[derive(Default)]
struct Count {
    out: u64,
    dropped: u64,
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
        self.dropped += burst.len() as u64;
        burst.clear();
    }
}

struct TestBed {
    lane: Box<dyn Service<Frame>>,
    entrance: Box<dyn TxQueue<Frame>>,
    _chain: Chain<Frame>,
    pool: FramePool,
    bytes: Vec<u8>,
    epoch: Instant,
    count: Count,
}

impl TestBed {
    fn new(
        class: Class,
        function: &str,
        program: &str,
        length: u16,
        size: usize,
    ) -> Result<TestBed, Box<dyn Error>> {
        let (near, far) = (PortNo::ordinary(1)?, PortNo::ordinary(2)?);
        let mut plan = ChainPlan::new("lengths", near, far);
        plan.hops = (0..length)
            .map(|number| HopPlan {
                class,
                ..HopPlan::new(&format!("h{number}"), function)
            })
            .collect();
        let environment = Environment {
            catalogue: CATALOGUE.with_loaders(LOADERS),
            workers: 1,
            seed: 1,
            zero_unix_millis: 0,
            program: program.into(),
        };
        let (mut chain, mut lanes) = Chain::new(&plan, environment);
        let mut ports = chain.edit(&plan, Time::ZERO)?;
        let entrance = ports.opened.swap_remove(0).2.tx.pop();
        Ok(TestBed {
            lane: lanes.pop().ok_or("no lane")?,
            entrance: entrance.ok_or("no queue")?,
            _chain: chain,
            pool: FramePool::new(2048, 1600),
            bytes: vec![0; size],
            epoch: Instant::now(),
            count: Count::default(),
        })
    }

    /// Sends one burst, and polls the lane.
    fn round(&mut self) {
        let mut burst = Burst::new();
        while !burst.is_full()
            && let Some(frame) = self.pool.take(&self.bytes)
        {
            burst.push(frame);
        }
        self.entrance.tx_burst(&mut burst);
        drop(burst);
        let now = Time::from_nanos(self.epoch.elapsed().as_nanos() as u64);
        self.lane.poll(now, &mut self.count);
    }

    /// Returns the nanoseconds per packet, measured with `packets` packets.
    fn measure(&mut self, packets: u64) -> f64 {
        let (before, start) = (self.count.out, Instant::now());
        while self.count.out - before < packets {
            self.round();
        }
        start.elapsed().as_nanos() as f64 / (self.count.out - before) as f64
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (class, function) = match arguments.next() {
        Some(word) if word == "isolated" => (Class::Isolated, "macswap".to_owned()),
        Some(function) => (Class::Inline, function),
        None => (Class::Inline, "macswap".to_owned()),
    };
    let beside = nf_program();
    let program = arguments.next().unwrap_or_else(|| beside.display().to_string());
    let (lengths, packets): (&[u16], u64) = match class {
        Class::Inline => (&[1, 2, 4, 8, 16], 2_000_000),
        _ => (&[1, 2, 4, 8], 200_000),
    };
    for size in [60, 1514] {
        let mut one = None;
        for length in lengths {
            let mut testbed = TestBed::new(class, &function, &program, *length, size)?;
            testbed.measure(packets / 10);
            let mut runs: Vec<f64> = (0..5).map(|_| testbed.measure(packets / 5)).collect();
            runs.sort_by(f64::total_cmp);
            let nanos = runs[2];
            let ratio = *one.get_or_insert(nanos) / nanos;
            println!(
                "{{\"kind\":\"{}\",\"function\":\"{function}\",\"length\":{length},\"frame\":{},\"nanos\":{nanos:.1},\"ratio_one_hop\":{ratio:.3},\"dropped\":{}}}",
                class.as_str(),
                size + 4,
                testbed.count.dropped
            );
        }
    }
    Ok(())
}
