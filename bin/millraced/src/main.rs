//! The Millrace daemon: reads the configuration, starts the workers, and serves controllers and people.
//!
//! Everything it does is elsewhere; here it is put together, and taken apart again in order.

#![forbid(unsafe_code)]

mod backend;
mod live;
mod run;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use millrace_model::Config;
use tracing_subscriber::EnvFilter;

/// Gives memory back that flow entries leave behind; glibc's allocator keeps it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A software switch under OpenFlow control.
#[derive(Parser, Debug)]
#[command(name = "millraced", version, max_term_width = 100)]
struct Options {
    /// The configuration: a TOML file. Without it, the newest revision of the store.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where the store of configurations is; overrides `system.state_dir`.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Run without DPDK: memory, link and pcap devices only. Needs no root and no huge pages.
    #[arg(long)]
    no_dpdk: bool,

    /// Check the configuration, print what is wrong with it, and exit.
    #[arg(long)]
    check: bool,

    /// What to log: error, warn, info, debug, trace, or a filter as in RUST_LOG.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,

    /// Log JSON, one object a line.
    #[arg(long)]
    log_json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // On standard error and not in the log: the one who started it looks here.
            eprintln!("millraced: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> Result<()> {
    let config = options.config.as_deref().map(read).transpose()?;
    if options.check {
        let Some(path) = &options.config else {
            bail!("--check needs --config FILE")
        };
        eprintln!("{}: a legal configuration", path.display());
        return Ok(());
    }
    log(options)?;
    let store = run::open_store(options.state_dir.as_deref(), config.as_ref())?;
    let settings = store.head().config.system.clone();
    if options.no_dpdk {
        return run::run(backend::without_dpdk(), &settings, store, None);
    }
    backend::run_with_dpdk(&settings, store)
}

fn read(path: &std::path::Path) -> Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "{}: cannot be read; name a TOML file with --config",
            path.display()
        )
    })?;
    Config::from_toml(&path.display().to_string(), &text)
        .map_err(|errors| anyhow::anyhow!("the configuration is refused\n{errors}"))
}

fn log(options: &Options) -> Result<()> {
    let filter = EnvFilter::try_new(&options.log).with_context(|| {
        format!(
            "--log {}: expected error, warn, info, debug, trace, or a filter as in RUST_LOG",
            options.log
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let outcome = if options.log_json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
    outcome.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))
}
