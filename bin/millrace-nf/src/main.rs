//! The process of one network function. Not to be started by hand: `millraced` does, and says what is to run.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use millrace_functions::CATALOGUE;
use millrace_nf::Settings;
use millrace_nf::shm::{FunctionEnd, PacketMemory};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, getppid, setgid, setgroups, setuid};

/// The process of a network function; started by millraced.
#[derive(Parser, Debug)]
#[command(name = "millrace-nf", version)]
struct Options {
    /// The memory that is shared with the switch
    #[arg(long, value_name = "FILE")]
    window: PathBuf,
    /// Memory in which packets lie, `ADDRESS:SIZE:OFFSET:FILE`; may be given several times
    #[arg(long, value_name = "PART")]
    memory: Vec<String>,
    /// The function
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
    /// A setting, `key=value`; may be given several times
    #[arg(long = "setting", value_name = "SETTING")]
    settings: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-nf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let parent = getppid();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&options.window)
        .with_context(|| format!("the window {}", options.window.display()))?;
    let mut end = FunctionEnd::open(&file)?.with_memory(memory(&options.memory)?);
    drop(file);
    close_all().context("files of the switch cannot be closed")?;
    give_up_rights(options.user).context("rights that are not needed cannot be given up")?;
    let kind = CATALOGUE.find(&options.function)?;
    let settings = Settings::parse(&options.settings)?;
    let setup = kind.setup(&settings, options.seed, options.zero_unix_millis);
    let mut function = kind.make_function(&setup)?;
    // Who has no switch any more has nothing to do.
    end.run(&mut *function, &setup.counters, || getppid() == parent);
    Ok(())
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

/// What a function needs is its memory and a core.
fn give_up_rights(user: Option<u32>) -> nix::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    if let Some(user) = user {
        setgroups(&[])?;
        setgid(Gid::from_raw(user))?;
        setuid(Uid::from_raw(user))?;
    }
    setrlimit(Resource::RLIMIT_NPROC, 0, 0)?;
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3)
}
