//! The process of one network function. `millraced` starts it for a hop of a chain. An operator starts it with `--attach` for a
//! hop with an attached function, or with `--vhost` to run a function behind a vhost-user port of any switch.

#![forbid(unsafe_code)]

mod attach;
mod compile;
mod function;
mod options;
mod sandbox;
mod vhost;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{CommandFactory as _, Parser as _};
use compile::Compiler;
use function::{load, set_scheduling};
use millrace_nf::shm::{FunctionEnd, PacketMemory};
use millrace_nf::{Description, Values};
use millrace_program::print_man_page;
use millrace_types::ErrorChain;
use nix::unistd::getppid;
use options::Options;
use sandbox::PacketSource;

fn main() -> ExitCode {
    // The option of packages needs none of the others.
    let outcome = if std::env::args_os().skip(1).eq(["--man"]) {
        print_man_page(Options::command()).context("standard output cannot be written")
    } else {
        let options = Options::parse();
        without_environment().and_then(|()| run(options))
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-nf: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(mut options: Options) -> Result<()> {
    if options.wait {
        let input = io::read_to_string(io::stdin()).context("standard input")?;
        options.seed = options.seed.or(seed(&input)?);
    }
    let options = &options;
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
    // The process ends when the switch ends, which is noticed by the change of the parent process.
    let values = compiler.as_mut().map(|compiler| compiler as &mut dyn Values);
    end.run_with(&mut *function, &setup, values, || getppid() == parent);
    Ok(())
}

/// Returns the key of the function's hash tables that the switch has written to the standard input; `None` if it is empty.
fn seed(input: &str) -> Result<Option<u64>> {
    match input.trim() {
        "" => Ok(None),
        text => {
            let seed = text.parse();
            let wrong = "standard input: expected the key of the function's hash tables, a number";
            seed.map(Some).context(wrong)
        }
    }
}

/// Executes this program again without environment variables, if there are any. The function could read
/// secrets in them.
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
