//! Forwards packets from one device to another on one core, prints the rate, and then compares it with the
//! rate of `dpdk-testpmd`. The difference is the cost of these wrappers. Neither program uses huge pages.
//!
//! `cargo run --release -p millrace-dpdk --example forward -- [SECONDS [FROM [TO]]]`
//!
//! Without devargs it replays one 64-byte frame (`net_pcap`) into a device that discards packets (`net_null`).

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_dpdk::eal::HugePages;
use millrace_dpdk::{
    CoreId, Eal, EalConfig, Mempool, MempoolConfig, Port, PortConfig, Queues, RxQueue, TxQueue, free_burst,
    thread,
};

const BURST: usize = 32;
const BUFFERS: u32 = 16_383;

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("frame.pcap");
    std::fs::write(&file, one_frame())?;
    let replay = format!("net_pcap0,rx_pcap={},infinite_rx=1", file.display());
    let from = arguments.next().unwrap_or(replay);
    let to = arguments.next().unwrap_or_else(|| "net_null1,no-rx=1".to_owned());

    let cores = thread::allowed_cores();
    let worker_core = *cores.last().ok_or("no core")?;
    let main_core = *cores.first().ok_or("no core")?;
    let ours = forward(seconds, &from, &to, worker_core)?;
    println!("{:28} {ours:8.2} Mpps", "millrace-dpdk");
    match testpmd(seconds, &from, &to, main_core, worker_core) {
        Ok(theirs) => println!(
            "{:28} {theirs:8.2} Mpps\n{:28} {:8.2}",
            "dpdk-testpmd io",
            "ratio",
            ours / theirs
        ),
        Err(error) => println!("{:28} {error}", "dpdk-testpmd io"),
    }
    Ok(())
}

/// Returns the rate in millions of packets a second.
fn forward(seconds: u64, from: &str, to: &str, core: CoreId) -> Result<f64, Box<dyn Error>> {
    let worker_cores = vec![core];
    let huge_pages = HugePages::Off;
    let eal = Eal::init(&EalConfig {
        worker_cores,
        huge_pages,
        ..EalConfig::default()
    })?;
    let pool = Mempool::new(eal, &MempoolConfig::new("forward", BUFFERS))?;
    let mut source = Port::attach(eal, &from.parse()?)?;
    let mut sink = Port::attach(eal, &to.parse()?)?;
    let Queues { rx, tx: _source_tx } = source.start(&PortConfig::default(), pool)?;
    let Queues { rx: _sink_rx, tx } = sink.start(&PortConfig::default(), pool)?;

    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let worker = thread::spawn(eal, "forward", core, move || poll(rx, tx, &stopped))?;
    // The caches are cold at first.
    std::thread::sleep(Duration::from_millis(500));
    let (before, start) = (sink.stats()?.tx_packets, Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (sink.stats()?.tx_packets, start.elapsed());
    stop.store(true, Ordering::Relaxed);
    let dropped = worker.join().map_err(|_| "the worker panicked")?;
    println!("{:28} {dropped}", "dropped as not taken");
    Ok((after - before) as f64 / took.as_secs_f64() / 1e6)
}

/// Runs a worker's poll loop that only receives and sends. Returns the number of packets that were not sent.
fn poll(mut rx: Vec<RxQueue>, mut tx: Vec<TxQueue>, stop: &AtomicBool) -> u64 {
    let mut burst = ArrayVec::<_, BURST>::new();
    let mut dropped = 0;
    while !stop.load(Ordering::Relaxed) {
        for (rx, tx) in rx.iter_mut().zip(&mut tx) {
            if rx.rx_burst(&mut burst) > 0 {
                tx.tx_burst(&mut burst);
                dropped += burst.len() as u64;
                free_burst(&mut burst);
            }
        }
    }
    dropped
}

/// Runs DPDK's own test program with the same devices and core, and returns its rate.
fn testpmd(seconds: u64, from: &str, to: &str, main: CoreId, worker: CoreId) -> Result<f64, Box<dyn Error>> {
    // The shell ends when its input ends, and prints the rates since the start of the current period.
    let script = format!(
        "(sleep 1.5; echo show port stats 1; sleep {seconds}; echo show port stats 1; echo quit) | \
         dpdk-testpmd --no-pci --no-huge -m 512 --no-shconf --no-telemetry --file-prefix=testpmd -l {main},{worker} \
         --vdev='{from}' --vdev='{to}' -- -i --auto-start --forward-mode=io --burst={BURST} \
         --total-num-mbufs={BUFFERS}"
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .stderr(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = |line: &str| {
        line.trim()
            .strip_prefix("Tx-pps:")?
            .split_whitespace()
            .next()?
            .parse::<f64>()
            .ok()
    };
    text.lines()
        .filter_map(rate)
        .next_back()
        .map(|rate| rate / 1e6)
        .ok_or_else(|| "did not run (apt-get install dpdk)".into())
}

/// Returns a pcap file with one UDP packet of 60 bytes, 64 on a wire.
fn one_frame() -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, 1_u32, 0, 0, 60, 60]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let mut frame = [0_u8; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame[34..42].copy_from_slice(&[0x10, 0, 0x20, 0, 0, 26, 0, 0]);
    file.extend(frame);
    file
}
