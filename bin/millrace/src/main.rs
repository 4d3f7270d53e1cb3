//! The command line of the switch. Every command sends REST requests to the daemon, or examines this machine. It does
//! not link DPDK.

#![forbid(unsafe_code)]

mod bridges;
mod capture;
mod chain_edit;
mod change;
mod cli;
mod doctor;
mod flow;
mod human;
mod lab;
mod log;
mod nf;
mod nf_run;
mod output;
mod pages;
mod show;
mod table;
mod token;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use output::{Failure, Session};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => Failure::of(&error).report(),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let session = Session::new(cli.global);
    match cli.command {
        Command::Show(what) => show::run(&session, &what)?,
        Command::Apply(what) => return change::apply(&session, &what),
        Command::Confirm(what) => change::confirm(&session, &what)?,
        Command::Diff(what) => change::diff(&session, &what)?,
        Command::Rollback(what) => return change::rollback(&session, &what),
        Command::Trace(what) => trace::run(&session, &what)?,
        Command::Flow(what) => flow::run(&session, &what)?,
        Command::Port(what) => flow::port(&session, &what)?,
        Command::Watch(what) => watch::run(&session, &what)?,
        Command::Capture(what) => capture::run(&session, &what)?,
        Command::Bench(what) => what.run()?,
        Command::Report(what) => what.run(session.json())?,
        Command::Profile(what) => what.run(session.api(), session.json())?,
        Command::Log { filter } => log::run(&session, filter.as_deref())?,
        Command::Doctor => return doctor::run(&session),
        Command::Nf(what) => nf::run(&session, &what)?,
        Command::Chain(what) => nf::chain(&session, &what)?,
        Command::Lab(what) => return lab::run(&session, &what),
        Command::Completions { shell } => pages::completions(shell)?,
        Command::Man { dir } => pages::man(&dir)?,
    }
    Ok(ExitCode::SUCCESS)
}
