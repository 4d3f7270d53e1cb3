//! The Millrace daemon: reads the configuration, starts the workers, and serves controllers and people.
//!
//! Everything it does is elsewhere; here it is put together, and taken apart again in order.

#![forbid(unsafe_code)]

mod backend;
mod live;
mod log;
mod machine;
mod man;
mod rehearse;
mod run;
mod start;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use millrace_model::{Config, ConfigErrors};
use millrace_types::Causes;

use log::{Filter, Log};
use machine::Machine;
use start::{File, Start};

/// Gives memory back that flow entries leave behind; glibc's allocator keeps it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A software switch under OpenFlow control.
#[derive(Parser, Debug)]
#[command(name = "millraced", version, max_term_width = 100)]
struct Options {
    /// The configuration: a TOML file. It is taken over when it is new or has changed since it was last
    /// taken over; else, and without it, the switch starts with the newest revision of the store.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Start with this revision of the store, which becomes the newest: the way back where the newest does
    /// not start. The configuration file is not taken over then.
    #[arg(long, value_name = "NUMBER", conflicts_with = "check")]
    revision: Option<u64>,

    /// Where the store of configurations is; overrides `system.state_dir`.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Run without DPDK: no NICs, no DPDK devargs and no `virtio-user`. Needs no huge pages, and no root but for taps.
    #[arg(long)]
    no_dpdk: bool,

    /// Check the configuration file, print what is wrong with it, and exit. The check includes the cores and the
    /// memory of this machine, the directory of the store, the address of the REST API, and the files and socket
    /// directories of ports, functions, listeners and TLS; nothing is made, and no shared object is loaded. Run it as
    /// the user that the daemon runs as.
    #[arg(long)]
    check: bool,

    /// The levels of the log: off, error, warn, info, debug or trace, and after a comma each target with another one:
    /// `warn,millrace_agent=debug,dpdk=info`. `millrace log` shows the targets, and changes the levels at run time.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: Filter,

    /// Log JSON, one object a line.
    #[arg(long)]
    log_json: bool,

    /// Print the man page.
    #[arg(long, hide = true)]
    man: bool,

    #[command(flatten)]
    rehearsal: rehearse::Rehearsal,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // On standard error and not in the log: the one who started it looks here.
            eprintln!("millraced: {}", Causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> Result<()> {
    if options.rehearsal.run()? {
        return Ok(());
    }
    if options.man {
        return man::print();
    }
    let machine = Machine::look(options.no_dpdk);
    let file = options.config.as_deref().map(read).transpose()?;
    if options.check {
        let Some((file, text)) = &file else {
            bail!("--check needs --config FILE")
        };
        let name = file.path.display().to_string();
        if let Some(directory) = &options.state_dir {
            machine::check_state_dir(directory).map_err(|reason| anyhow::anyhow!("--state-dir: {reason}"))?;
        }
        machine
            .check(&file.config, options.state_dir.as_deref())
            .map_err(|errors| refused(&errors.placed(&name, text)))?;
        eprintln!("{name}: a legal configuration: {}", file.config.summary());
        return Ok(());
    }
    let log = Arc::new(Log::start(options.log.clone(), options.log_json)?);
    let file = file.map(|(file, _)| file);
    let start = Start::plan(options.state_dir.clone(), file, options.revision)?;
    let outcome = if options.no_dpdk {
        run::run(
            backend::without_dpdk(),
            &start,
            machine,
            log,
            backend::unused_dpdk(),
        )
    } else {
        backend::run_with_dpdk(&start, machine, log)
    };
    outcome.map_err(|error| start.explain(error))
}

/// The configuration file, and its text.
fn read(path: &Path) -> Result<(File, String)> {
    let bytes =
        std::fs::read(path).with_context(|| format!("--config {}: cannot be read", path.display()))?;
    let config =
        Config::from_toml_bytes(&path.display().to_string(), &bytes).map_err(|errors| refused(&errors))?;
    let (path, text) = (path.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
    Ok((File { path, config }, text))
}

fn refused(errors: &ConfigErrors) -> anyhow::Error {
    anyhow::anyhow!("the configuration is refused\n{errors}")
}
