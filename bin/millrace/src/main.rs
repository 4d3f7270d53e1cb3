//! The command line of the switch. Every command sends REST requests to the daemon, or examines this machine. It does
//! not link DPDK.

#![forbid(unsafe_code)]

mod bridges;
mod capture;
mod chain_edit;
mod change;
mod cli;
mod doctor;
mod edit;
mod experiment;
mod fdb;
mod fleet;
mod flow;
mod human;
mod import;
mod ips;
mod lab;
mod lock;
mod log;
mod nf;
mod nf_rate;
mod nf_run;
mod nic;
mod output;
mod own;
mod pages;
mod settings;
mod show;
mod table;
mod token;
mod trace;
mod wan;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

use cli::{Cli, Command};
use output::{Failure, Session};

/// The allocator of the daemon. With it, `millrace nf rate` and `millrace ips rate` measure functions as they
/// run in the daemon.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => Failure::from_error(&error).report(),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let session = Session::new(cli.global);
    match cli.command {
        Command::Show(args) => show::run(&session, &args)?,
        Command::Apply(args) => return change::apply(&session, &args),
        Command::Confirm(args) => change::confirm(&session, &args)?,
        Command::Diff(args) => change::diff(&session, &args)?,
        Command::Rollback(args) => return change::rollback(&session, &args),
        Command::Own(args) => own::run(&session, &args)?,
        Command::Lock(args) => return lock::run(&session, &args),
        Command::Fleet(args) => return fleet::run(&session, &args),
        Command::Trace(args) => trace::run(&session, &args)?,
        Command::Bridge(args) => return edit::bridge(&session, &args),
        Command::Port(args) => return edit::port(&session, &args),
        Command::Controller(args) => return edit::controller(&session, &args),
        Command::Flow(args) => flow::run(&session, &args)?,
        Command::Fdb(args) => fdb::run(&session, &args)?,
        Command::Nic(args) => nic::run(&session, &args)?,
        Command::Watch(args) => watch::run(&session, &args)?,
        Command::Capture(args) => capture::run(&session, &args)?,
        Command::Bench(args) => experiment::run(&session, "bench", &args)?,
        Command::Report(args) => experiment::run(&session, "report", &args)?,
        Command::Profile(args) => experiment::run(&session, "profile", &args)?,
        Command::Log { filter } => log::run(&session, filter.as_deref())?,
        Command::Doctor => return doctor::run(&session),
        Command::Nf(args) => nf::run(&session, &args)?,
        Command::Chain(args) => nf::chain(&session, &args)?,
        Command::Send(args) => return Ok(millrace_transfer_commands::send(session.json(), &args, None)?),
        Command::Receive(args) => {
            return Ok(millrace_transfer_commands::receive(session.json(), &args, None)?);
        }
        Command::Courier(args) => return Ok(millrace_transfer_commands::courier(session.json(), &args)?),
        Command::Wan(args) => return wan::run(&session, &args),
        Command::Ips(args) => return ips::run(&session, &args),
        Command::Import(args) => return import::run(&session, &args),
        Command::Lab(args) => return lab::run(&session, &args),
        Command::Completions { shell } => pages::completions(shell)?,
        Command::Man { dir } => millrace_program::write_man_pages(Cli::command(), &dir)?,
    }
    Ok(ExitCode::SUCCESS)
}
