//! Transfers over any interface: the kernel's sockets, a memif port of the switch, or a DPDK device.
//!
//! `millrace send` and `millrace receive` do the same without DPDK; the commands are one crate, `millrace-transfer-commands`.

#![forbid(unsafe_code)]

#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(feature = "dpdk")]
mod idle;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use millrace_program::{log_filter, start_log};
use millrace_transfer_commands::{CommandError, Courier, OpenDpdk, Receive, Send, courier, receive, send};
use millrace_types::ErrorChain;

/// Send and receive files over sockets, memif ports and DPDK devices.
#[derive(Parser, Debug)]
#[command(
    name = "millrace-courier",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "`--via` takes memif:PATH as `millrace` does, and DPDK devargs: net_af_packet0,iface=eth1 or \
        net_af_xdp0,iface=eth1 (a kernel interface), net_virtio_user0,path=SOCKET (a vhost-user port of the switch), or a \
        PCI address. Options for the address follow, as in net_af_packet0,iface=eth1,address=192.0.2.1/24,gateway=192.0.2.254."
)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the man page.
    #[arg(long, hide = true, exclusive = true)]
    man: bool,
    /// Print events as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Memory of DPDK in MiB
    #[arg(long, global = true, value_name = "MIB", default_value_t = 160)]
    memory: u32,
    /// The log on standard error: error, warn, info, debug, or a filter as in RUST_LOG
    #[arg(long, global = true, value_name = "FILTER", default_value = "warn", value_parser = log_filter)]
    log: String,
}

#[derive(Subcommand, Debug)]
enum Command {
    Send(Send),
    Receive(Receive),
    #[command(flatten)]
    Daemon(Courier),
}

impl Options {
    /// Parses a command line. Only `--man` needs no command.
    fn of(line: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
        let options = Options::try_parse_from(line)?;
        if options.command.is_none() && !options.man {
            let text = "expected a command; `--help` lists them";
            return Err(Options::command().error(ErrorKind::MissingSubcommand, text));
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = Options::of(std::env::args_os()).unwrap_or_else(|error| error.exit());
    start_log(&options.log);
    match run(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("millrace-courier: {}", ErrorChain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    let json = options.json;
    match &options.command {
        Some(Command::Send(args)) => with_dpdk(options.memory, |open| send(json, args, open)),
        Some(Command::Receive(args)) => with_dpdk(options.memory, |open| receive(json, args, open)),
        Some(Command::Daemon(command)) => Ok(courier(json, command)?),
        // `--man` is the only option that needs no command.
        None => man().map(|()| ExitCode::SUCCESS),
    }
}

/// Runs a command that opens devices of DPDK, and then releases the resources that EAL holds on the machine.
#[cfg(feature = "dpdk")]
fn with_dpdk(
    memory: u32,
    command: impl FnOnce(OpenDpdk<'_>) -> Result<ExitCode, CommandError>,
) -> Result<ExitCode> {
    let environment = dpdk::Environment::new(memory);
    let outcome = command(Some(&|via, devargs, port| environment.open(via, devargs, port)));
    environment.release();
    Ok(outcome?)
}

#[cfg(not(feature = "dpdk"))]
fn with_dpdk(
    _: u32,
    command: impl FnOnce(OpenDpdk<'_>) -> Result<ExitCode, CommandError>,
) -> Result<ExitCode> {
    Ok(command(None)?)
}

/// Writes `millrace-courier(8)` to standard output: the program and its commands.
fn man() -> Result<()> {
    let mut command = Options::command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .section("8")
        .render(&mut page)?;
    for name in ["send", "receive", "serve", "status", "ls", "key"] {
        let part = command.find_subcommand(name).context("no such command")?;
        let named = clap_mangen::Man::new(part.clone().name(name));
        named.render_description_section(&mut page)?;
        named.render_options_section(&mut page)?;
        named.render_extra_section(&mut page)?;
    }
    std::io::stdout()
        .write_all(&page)
        .context("standard output cannot be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn only_the_man_page_needs_no_command() {
        let of = |words: &[&str]| {
            let line = ["millrace-courier"].iter().chain(words).map(OsString::from);
            Options::of(line).map_err(|error| error.kind())
        };
        assert_eq!(of(&["--json"]).err(), Some(ErrorKind::MissingSubcommand));
        assert!(of(&["--man"]).is_ok_and(|options| options.man));
    }
}
