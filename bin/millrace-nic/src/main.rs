//! A NIC in software that classifies and dispatches packets: `nic:PATH` of a switch is its driver.
//!
//! ```text
//!   wire (kernel:, tap:, pcap:, memif:) <--> classifier model <--> memory <--> millraced, port with device "nic:PATH"
//! ```
//! The classifier is the bit-exact model of the hardware (docs/nic-interface.md). With `--rtl`, the RTL runs beside it in its
//! simulator, and the program ends where they differ.

#![forbid(unsafe_code)]

mod host;
mod rtl;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, ValueEnum};
use millrace_nic::Capabilities;
use millrace_nic::memory::Layout;
use millrace_nic::record::COMPLETIONS;
use millrace_nic_model::Fault;
use millrace_program::{log_filter, print_man_page, start_log};
use millrace_types::ErrorChain;
use nix::sys::signal::{SigSet, Signal};

use self::host::Host;
use self::rtl::Simulator;
use self::wire::Wire;

/// Time without frames and commands after which the program sleeps between polls.
const BUSY_FOR: Duration = Duration::from_millis(1);
/// Duration of a sleep without work.
const SLEEP: Duration = Duration::from_micros(50);

/// The sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Sizes {
    /// 2,048 exact entries, 32 rules
    Ten,
    /// 65,536 exact entries, 64 rules
    Forty,
}

/// A NIC in software: classifies frames of an interface and dispatches them to the queues of a switch.
#[derive(Parser, Debug)]
#[command(name = "millrace-nic", version, max_term_width = 100)]
struct Options {
    /// The interface: kernel:INTERFACE, tap:NAME, pcap:rx=FILE,tx=FILE or memif:PATH
    #[arg(long, value_name = "DEVICE")]
    wire: String,
    /// The socket for the switch, whose port has the device nic:PATH; the file is created with mode 0600
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The number of receive queues, 1 to 32
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=32))]
    queues: u8,
    /// The sizes of the tables
    #[arg(long, value_enum, default_value = "ten")]
    model: Sizes,
    /// The longest frame in bytes, 64 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=9600))]
    frame_size: u32,
    /// A fault of the device, which the signal USR1 switches on and off, for tests of a switch; a name that is none, such as
    /// "list", is answered with the names
    #[arg(long, value_name = "NAME", value_parser = fault)]
    fault: Option<Fault>,
    /// The simulator of the RTL that gets each frame and command, too: the program ends at the first difference. It has 32
    /// queues and rings of 256 entries, and takes some thousand frames a second
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["fault", "queues"])]
    rtl: Option<PathBuf>,
    /// A file for the input of the simulator, with which it does the same again
    #[arg(long, value_name = "FILE", requires = "rtl")]
    records: Option<PathBuf>,
    /// The log on standard error: error, warn, info, debug, or a filter as in RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = log_filter)]
    log: String,
}

fn fault(name: &str) -> Result<Fault, String> {
    Fault::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Fault::ALL.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    // The option of packages needs none of the others.
    if std::env::args_os().skip(1).eq(["--man"]) {
        return match print_man_page(Options::command()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("millrace-nic: standard output cannot be written: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let options = Options::parse();
    start_log(&options.log);
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The most bursts of the driver that are sent after the signal to end.
const LAST_BURSTS: usize = 1024;

/// Flags that signals set.
#[derive(Clone, Default)]
struct Flags {
    /// Set by SIGINT and SIGTERM.
    stop: Arc<AtomicBool>,
    /// Inverted by SIGUSR1.
    is_faulty: Arc<AtomicBool>,
}

/// Starts the thread that waits for signals, and returns the flags that it sets.
fn flags() -> Result<Flags> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGUSR1);
    signals.thread_block().context("signals cannot be blocked")?;
    let flags = Flags::default();
    let set = flags.clone();
    let wait = move || {
        while let Ok(Signal::SIGUSR1) = signals.wait() {
            let is_faulty = !set.is_faulty.fetch_not(Ordering::AcqRel);
            tracing::info!(is_faulty, "signal USR1");
        }
        set.stop.store(true, Ordering::Release);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("a thread that waits for signals")?;
    Ok(flags)
}

/// Serves one driver after the other, until SIGINT or SIGTERM.
fn run(options: &Options) -> Result<()> {
    let sizes = match options.model {
        Sizes::Ten => Capabilities::TEN,
        Sizes::Forty => Capabilities::FORTY,
    };
    // The RTL has no drop counters; the model has one for each entry.
    let (queues, drops, ring_bits) = match options.rtl {
        None => (options.queues, sizes.rows() as u32, 9),
        Some(_) => (sizes.queues, 0, COMPLETIONS.ilog2() as u8),
    };
    let layout = Layout {
        capabilities: Capabilities {
            queues,
            ports: 1,
            drops,
            ..sizes
        },
        ring_bits,
        buffer_size: options.frame_size.next_multiple_of(64),
    };
    if let Some(program) = &options.rtl {
        // A wrong path is an error now, and not when the switch comes.
        Simulator::start(program, None)?;
    }
    let Flags { stop, is_faulty } = flags()?;
    let mut wire = Wire::open(&options.wire)?;
    let mut host = Host::listen(&options.socket, layout)?;
    if let Some(program) = &options.rtl {
        host.compare_with(program, options.records.as_deref());
    }
    tracing::info!(wire = %options.wire, socket = %options.socket.display(), queues, "ready");
    let epoch = Instant::now();
    let mut busy_until = epoch;
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        let time = now.duration_since(epoch).as_nanos() as u32;
        host.set_fault(options.fault.filter(|_| is_faulty.load(Ordering::Relaxed)));
        let mut found = host.poll()?;
        if host.is_ready() {
            found += wire.receive(|frame| host.receive(frame, time));
        }
        found += wire.send(|each| host.transmit(each));
        if found != 0 {
            busy_until = now + BUSY_FOR;
        } else if now >= busy_until {
            std::thread::sleep(SLEEP);
        }
    }
    // Frames that the switch has sent leave first; capture files are whole then.
    for _ in 0..LAST_BURSTS {
        if wire.send(|each| host.transmit(each)) == 0 {
            break;
        }
    }
    Ok(())
}
