//! NETCONF, gNMI, AgentX and etcd for a switch: `millrace-mgmt serve` is the server, `millrace-mgmt netconf` the program of sshd's subsystem.

#![forbid(unsafe_code)]

mod access;
mod fleet;
mod gnmi;
mod netconf;
mod sandbox;
mod settings;
mod socket;
mod subagent;
mod subsystem;
mod switch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use millrace_notify::{State, notify};
use millrace_program::{log_filter, print_man_page};
use millrace_types::ErrorChain;

use crate::settings::Settings;

/// NETCONF, gNMI, SNMP and etcd for a Millrace switch.
#[derive(Parser, Debug)]
#[command(
    name = "millrace-mgmt",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the man page.
    #[arg(long, hide = true, exclusive = true)]
    man: bool,
    /// The log on standard error: error, warn, info, debug, or a filter as in RUST_LOG
    #[arg(long, global = true, value_name = "FILTER", default_value = "info", value_parser = log_filter)]
    log: String,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve NETCONF, gNMI and the SNMP agent, and follow etcd, until a signal ends the process
    Serve {
        /// The settings
        #[arg(long, value_name = "FILE", default_value = "/etc/millrace/millrace-mgmt.toml")]
        config: PathBuf,
        /// Check the settings and the files that they name, and exit
        #[arg(long)]
        check: bool,
    },
    /// Connect standard input and output to the NETCONF server, as `Subsystem netconf` of sshd
    Netconf {
        /// The socket of the server
        #[arg(long, value_name = "PATH", default_value = "/run/millrace-mgmt/netconf.sock")]
        socket: PathBuf,
    },
}

fn main() -> ExitCode {
    let options = Options::parse();
    millrace_program::start_log(&options.log);
    let outcome = match &options.command {
        Some(Command::Serve { config, check }) => serve(config, *check),
        Some(Command::Netconf { socket }) => subsystem::run(socket),
        None => print_man_page(Options::command()).context("standard output cannot be written"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-mgmt: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn serve(config: &Path, is_check: bool) -> Result<()> {
    let settings = Arc::new(Settings::read(config)?);
    let rest = switch::connect(&settings)?;
    let tls = gnmi::tls(&settings.gnmi)?;
    if is_check {
        return fleet::check(&settings.etcd).map(drop);
    }
    // Everything that needs rights comes before the sandbox: sockets, keys, tokens.
    let netconf = match settings.netconf.enabled {
        true => Some(socket::bind(&settings.netconf.socket)?),
        false => None,
    };
    let listeners = gnmi::bind(&settings.gnmi, tls)?;
    let agentx = subagent::settings(&settings.agentx)?;
    let fleet = fleet::prepare(&settings.etcd)?;
    sandbox::enter(fleet.as_ref().map(fleet::Prepared::folder))?;
    let fleet = match fleet {
        Some(prepared) => Some(fleet::start(prepared, &rest)?),
        None => None,
    };
    if let Some(agentx) = agentx {
        subagent::start(agentx, rest.clone())?;
    }
    if let Some(listener) = netconf {
        let (settings, rest) = (Arc::clone(&settings), rest.clone());
        std::thread::Builder::new()
            .name("netconf".to_owned())
            .spawn(move || netconf::serve(&listener, &settings, &rest))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("gnmi")
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        gnmi::serve(listeners, &settings, &rest)?;
        tracing::info!("ready");
        if let Err(error) = notify(State::Ready) {
            tracing::warn!(%error, "the service manager cannot be told");
        }
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        let _ = notify(State::Stopping);
        anyhow::Ok(())
    })?;
    if let Some(fleet) = fleet {
        fleet.stop();
    }
    // Sessions end with the process; what they have not confirmed, the switch takes back.
    runtime.shutdown_background();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }
}
