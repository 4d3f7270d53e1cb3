//! The process of one network function. `millraced` starts it for a hop of a chain. An operator starts it with `--attach` for a
//! hop with an attached function, or with `--vhost` to run a function behind a vhost-user port of any switch.

#![forbid(unsafe_code)]

mod attach;
mod compile;
mod sandbox;
mod vhost;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use compile::Compiler;
use millrace_builtin::CATALOGUE;
use millrace_loader::{ANY_LIBRARY, ANY_LOADERS, WASM};
use millrace_nf::shm::{FunctionEnd, PacketMemory};
use millrace_nf::{Catalogue, Description, Function, Kind, Limits, Settings, Setup, Values};
use millrace_types::ErrorChain;
use nix::unistd::getppid;
use sandbox::{CodeGeneration, PacketSource};

/// Run a network function: as a hop of a chain, started by millraced or by an operator (--attach), or behind a vhost-user port of
/// any switch (--vhost)
#[derive(Parser, Debug)]
#[command(name = "millrace-nf", version)]
struct Options {
    /// The memory shared with the switch
    #[arg(long, value_name = "FILE", required_unless_present_any = ["attach", "describe", "vhost"])]
    window: Option<PathBuf>,
    /// Attach to the hop with `function = "attached:SOCKET"`: wait until the switch listens, and end with it
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["window", "wait", "describe", "memory", "vhost"])]
    attach: Option<PathBuf>,
    /// With --attach: the number of the instance, over all lanes; any that is free if not given
    #[arg(long, value_name = "N", requires = "attach")]
    instance: Option<u32>,
    /// Run behind the vhost-user port at this socket, of any switch that polls: wait until the switch listens, send back
    /// packets that are not dropped, and end with the switch
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["window", "wait", "describe", "memory"])]
    vhost: Option<PathBuf>,
    /// With --vhost: descriptors of each ring, a power of two
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(2..=32768), requires = "vhost")]
    descriptors: u16,
    /// With --vhost: the CPU core to run on
    #[arg(long, value_name = "CORE", requires = "vhost")]
    core: Option<usize>,
    /// Wait for the end of the standard input, which the switch closes once the limits of this process are in force
    #[arg(long)]
    wait: bool,
    /// Print the description of the function, and exit
    #[arg(long)]
    describe: bool,
    /// Packet memory, `ADDRESS:SIZE:OFFSET:FILE`; may be given several times
    #[arg(long, value_name = "PART")]
    memory: Vec<String>,
    /// The function: a name, `wasm:PATH` or `library:PATH`
    #[arg(long)]
    function: String,
    /// The key of the function's hash tables
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The memory in which the switch writes the source of the function's shared value
    #[arg(long, value_name = "FILE", requires = "window")]
    source: Option<PathBuf>,
    /// Change to this user id, and to the group id of the same number
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// The limit of the function's memory, in bytes
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<u64>,
    /// The limit of instructions of a WebAssembly function for one burst
    #[arg(long)]
    fuel: Option<u64>,
    /// The niceness of the process
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    nice: i32,
    /// A setting of the function, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    settings: Vec<String>,
}

impl Options {
    /// Returns whether the function's code is generated at run time, as that of modules is.
    fn code_generation(&self) -> CodeGeneration {
        match self.function.starts_with(WASM.prefix) {
            true => CodeGeneration::Compiles,
            false => CodeGeneration::None,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match without_environment().and_then(|()| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-nf: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The functions that this program runs.
const FUNCTIONS: Catalogue = CATALOGUE.with_loaders(ANY_LOADERS);

/// The timer slack of sleeps, in nanoseconds (prctl(2), `PR_SET_TIMERSLACK`).
const TIMER_SLACK_NANOS: u64 = 1000;

fn run(options: &Options) -> Result<()> {
    if options.wait {
        io::copy(&mut io::stdin(), &mut io::sink()).context("standard input")?;
    }
    if let Some(socket) = &options.attach {
        close_all().context("inherited file descriptors cannot be closed")?;
        return attach::run(options, socket);
    }
    if let Some(socket) = &options.vhost {
        close_all().context("inherited file descriptors cannot be closed")?;
        return vhost::run(options, socket);
    }
    let Some(window) = &options.window else {
        close_all().context("inherited file descriptors cannot be closed")?;
        let (kind, _, _) = load(options, PacketSource::None)?;
        return write!(io::stdout(), "{}", Description::from(kind))
            .context("the description cannot be written to standard output");
    };
    let parent = getppid();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(window)
        .with_context(|| format!("the window {}", window.display()))?;
    let mut end = FunctionEnd::open(&file)?.with_memory(memory(&options.memory)?);
    drop(file);
    close_all().context("inherited file descriptors cannot be closed")?;
    set_scheduling(options.nice);
    let mut compiler = options.source.as_deref().map(Compiler::new).transpose()?;
    let (kind, mut function, setup) = load(options, PacketSource::Window)?;
    if let (Some(compiler), Some(shared)) = (&compiler, kind.shared) {
        compiler.start(shared)?;
    }
    end = end.with_writes(!kind.only_reads());
    let sandbox = sandbox::before_running(options.code_generation(), PacketSource::Window);
    sandbox.context("the rights of this process cannot be dropped")?;
    // The process ends with its switch, whose end makes another process its parent.
    let values = compiler.as_mut().map(|compiler| compiler as &mut dyn Values);
    end.run_with(&mut *function, &setup, values, || getppid() == parent);
    Ok(())
}

/// Executes this program again without environment variables, if it has any: the function could read the secrets in them.
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
    // `exec` returns only if it fails.
    let error = again.args(arguments).exec();
    Err(error).context("millrace-nf cannot be started with an empty environment")
}

/// Sets niceness and timer slack of this process.
fn set_scheduling(nice: i32) {
    if nice != 0 {
        // Without root a negative niceness fails, and the process keeps the ordinary one.
        let _unchanged = rustix::process::nice(nice);
    }
    // The default slack of 50 µs would double the shortest sleep. If this fails, sleeps are longer.
    let _default = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
}

/// Checks function and settings, as far as that is possible without running code of a file.
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

/// Drops the rights that loading the function does not need, and creates the function.
fn load(options: &Options, source: PacketSource) -> Result<(&'static Kind, Box<dyn Function>, Setup)> {
    // The engine limits the memory of a module. Its compilation takes more.
    let memory = options
        .memory_limit
        .filter(|_| !options.function.starts_with(WASM.prefix));
    let sandbox = sandbox::before_loading(options.user, memory, source);
    sandbox.context("the rights of this process cannot be dropped")?;
    let kind = FUNCTIONS.find(&options.function)?;
    let settings = Settings::parse(&options.settings)?;
    // The clock of the function begins with its poll loop.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut setup = kind.setup(&settings, options.seed, now.as_millis() as u64);
    setup.limits = Limits {
        memory: options.memory_limit,
        fuel: options.fuel,
    };
    if let (Some(shared), PacketSource::Socket { .. }) = (kind.shared, source) {
        // A process that an operator starts reads the files itself, while it may.
        let value = || (shared.compile)(&(shared.read)(&settings)?.bytes, None);
        let compiled = value().map_err(|reason| anyhow!("function {}: {reason}", options.function))?;
        eprintln!("millrace-nf: {}", compiled.summary);
        setup.shared = Some(compiled.value);
    }
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

/// Closes all file descriptors but the standard ones.
fn close_all() -> Result<()> {
    let open = std::fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The descriptor of the directory itself is closed already.
        let _closed = nix::unistd::close(number);
    }
    Ok(())
}
