//! The process of one network function. `millraced` starts those of its chains, and says what is to run; one that runs
//! behind a vhost-user port (`--vhost`), of any switch, is started by hand.

#![forbid(unsafe_code)]

mod behind;
mod rights;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use millrace_builtin::CATALOGUE;
use millrace_loader::{ANY_LIBRARY, ANY_LOADERS, WASM};
use millrace_nf::shm::{FunctionEnd, PacketMemory};
use millrace_nf::{Catalogue, Description, Function, Kind, Limits, Settings, Setup};
use millrace_types::Causes;
use nix::unistd::getppid;
use rights::{Giver, Needs};

/// The process of a network function: of a chain, started by millraced, or on its own behind a vhost-user port (--vhost).
#[derive(Parser, Debug)]
#[command(name = "millrace-nf", version)]
struct Options {
    /// The memory that is shared with the switch
    #[arg(long, value_name = "FILE", required_unless_present_any = ["describe", "vhost"])]
    window: Option<PathBuf>,
    /// Run behind the vhost-user port whose socket this is, of any switch that polls: wait for somebody to listen, send
    /// back what is not dropped, and end when the switch does
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["window", "wait", "describe", "memory"])]
    vhost: Option<PathBuf>,
    /// With --vhost: descriptors of each ring, a power of two
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(2..=32768), requires = "vhost")]
    descriptors: u16,
    /// With --vhost: the core to run on
    #[arg(long, value_name = "CORE", requires = "vhost")]
    core: Option<usize>,
    /// Begin when the standard input ends: by then the limits of this process are in force
    #[arg(long)]
    wait: bool,
    /// Only say what the function is
    #[arg(long)]
    describe: bool,
    /// Memory in which packets lie, `ADDRESS:SIZE:OFFSET:FILE`; may be given several times
    #[arg(long, value_name = "PART")]
    memory: Vec<String>,
    /// The function: a name, `wasm:PATH` or `library:PATH`
    #[arg(long)]
    function: String,
    /// Keys its hash tables
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The Unix time in milliseconds at which its clock is zero
    #[arg(long, default_value_t = 0)]
    zero_unix_millis: u64,
    /// Become this user, and the group of the same number
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// Bytes of memory that it may take
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<u64>,
    /// Instructions of a WebAssembly function over a burst
    #[arg(long)]
    fuel: Option<u64>,
    /// Its niceness
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    nice: i32,
    /// A setting, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    settings: Vec<String>,
}

impl Options {
    /// What the function is.
    fn needs(&self) -> Needs {
        match self.function.starts_with(WASM.prefix) {
            true => Needs::Code,
            false => Needs::Memory,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match without_environment().and_then(|()| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-nf: {}", Causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Functions that it can run. What is in a file is loaded by this process alone.
const FUNCTIONS: Catalogue = CATALOGUE.with_loaders(ANY_LOADERS);

/// How much later than asked for a sleep may end, in nanoseconds (prctl(2)).
const TIMER_SLACK_NANOS: u64 = 1000;

fn run(options: &Options) -> Result<()> {
    if options.wait {
        io::copy(&mut io::stdin(), &mut io::sink()).context("the end of the standard input")?;
    }
    if let Some(socket) = &options.vhost {
        close_all().context("files that were left open cannot be closed")?;
        return behind::run(options, socket);
    }
    let Some(window) = &options.window else {
        close_all().context("files of the switch cannot be closed")?;
        let (kind, _, _) = load(options, Giver::Nobody)?;
        return write!(io::stdout(), "{}", Description::from(kind)).context("nobody takes the description");
    };
    let parent = getppid();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(window)
        .with_context(|| format!("the window {}", window.display()))?;
    let mut end = FunctionEnd::open(&file)?.with_memory(memory(&options.memory)?);
    drop(file);
    close_all().context("files of the switch cannot be closed")?;
    be_prompt(options.nice);
    let (kind, mut function, setup) = load(options, Giver::Parent)?;
    end = end.with_writes(!kind.only_reads());
    let rights = rights::before_running(options.needs(), Giver::Parent);
    rights.context("rights that are not needed cannot be given up")?;
    // Who has no switch any more has nothing to do.
    end.run(&mut *function, &setup.counters, || getppid() == parent);
    Ok(())
}

/// Starts this program anew if it has environment variables: they may hold secrets of the one who started it, and the
/// function could read them.
fn without_environment() -> Result<()> {
    if std::env::vars_os().next().is_none() {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    again.env_clear();
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Returns only if it fails.
    let error = again.args(arguments).exec();
    Err(error).context("millrace-nf cannot be started with an empty environment")
}

/// Has the kernel give it the core as is asked for, and soon.
fn be_prompt(nice: i32) {
    if nice != 0 {
        // Not permitted without root if it is less than zero: then all are alike.
        let _as_before = rustix::process::nice(nice);
    }
    // A sleep of microseconds is to be one.
    let _usual_otherwise = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
}

/// Refuses what can be known to be wrong with function and settings before a line of a stranger's code runs.
fn check(options: &Options) -> Result<()> {
    let settings = Settings::parse(&options.settings)?;
    let function = || format!("function {}", options.function);
    match options.function.split_once(':') {
        Some((prefix, path)) if [WASM.prefix, ANY_LIBRARY.prefix].contains(&prefix) => {
            File::open(path).map(drop).with_context(function)
        }
        _ => FUNCTIONS
            .find(&options.function)?
            .check(&settings)
            .with_context(function),
    }
}

/// Gives up what is not needed to load the function, and makes it.
fn load(options: &Options, giver: Giver) -> Result<(&'static Kind, Box<dyn Function>, Setup)> {
    // A module's memory is bounded where it is run; to compile it takes more.
    let memory = options
        .memory_limit
        .filter(|_| !options.function.starts_with(WASM.prefix));
    let rights = rights::before_loading(options.user, memory, giver);
    rights.context("rights that are not needed cannot be given up")?;
    let kind = FUNCTIONS.find(&options.function)?;
    let settings = Settings::parse(&options.settings)?;
    let mut setup = kind.setup(&settings, options.seed, options.zero_unix_millis);
    setup.limits = Limits {
        memory: options.memory_limit,
        fuel: options.fuel,
    };
    let function = kind.make_function(&setup)?;
    Ok((kind, function, setup))
}

fn memory(parts: &[String]) -> Result<PacketMemory> {
    let mut memory = PacketMemory::default();
    for part in parts {
        let wrong = || format!("--memory {part}: expected ADDRESS:SIZE:OFFSET:FILE");
        let words: Vec<&str> = part.splitn(4, ':').collect();
        let [address, size, offset, path] = words[..] else {
            bail!(wrong())
        };
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("packet memory {path}"))?;
        let (address, size) = (
            address.parse().with_context(wrong)?,
            size.parse().with_context(wrong)?,
        );
        memory
            .map(&file, address, size, offset.parse().with_context(wrong)?)
            .with_context(|| format!("packet memory {part}"))?;
    }
    Ok(memory)
}

/// Whatever files the switch left open: not one of them is the function's.
fn close_all() -> Result<()> {
    let open = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // That of the directory itself is closed already.
        let _closed = nix::unistd::close(number);
    }
    Ok(())
}
