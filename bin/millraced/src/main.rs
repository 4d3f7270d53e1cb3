//! The Millrace daemon: reads the configuration, starts the workers, and serves controllers and the REST API.
//!
//! The crates implement all functions; this program assembles them and shuts them down in reverse order.

#![forbid(unsafe_code)]

mod backend;
mod dpdk_log;
mod follower;
mod journal;
mod live;
mod log;
mod machine;
mod man;
mod man_config;
mod options;
mod run;
mod simulate;
mod start;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use millrace_model::{Config, ConfigErrors};
use millrace_types::ErrorChain;

use log::Log;
use machine::Machine;
use options::Options;
use start::{File, Start};

/// The allocator returns freed memory of flow entries to the system; the allocator of glibc keeps it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = Options::parse();
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The error goes to standard error and not to the log, for the caller that started the daemon.
            eprintln!("millraced: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> Result<()> {
    if options.simulation.run()? {
        return Ok(());
    }
    if options.man {
        return man::print();
    }
    if options.man_config {
        return man_config::print();
    }
    let machine = Machine::detect(options.no_dpdk);
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
            .map_err(|errors| refused(&errors.with_locations(&name, text)))?;
        eprintln!("{name}: a valid configuration: {}", file.config.summary());
        return Ok(());
    }
    let log = Arc::new(Log::start(
        options.log.clone(),
        options.log_json,
        &options.log_to,
    )?);
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

/// Reads the configuration file; returns it decoded and as text.
fn read(path: &Path) -> Result<(File, String)> {
    let bytes =
        std::fs::read(path).with_context(|| format!("--config {}: cannot be read", path.display()))?;
    let config =
        Config::from_toml_bytes(&path.display().to_string(), &bytes).map_err(|errors| refused(&errors))?;
    let (path, text) = (path.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
    Ok((File { path, config }, text))
}

fn refused(errors: &ConfigErrors) -> anyhow::Error {
    anyhow::anyhow!("the configuration is rejected\n{errors}")
}
