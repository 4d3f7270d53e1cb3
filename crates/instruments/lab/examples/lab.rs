//! The lab without the `millrace` command: `cargo run -p millrace-lab --example lab -- up FILE`.

#![allow(clippy::print_stdout, reason = "it is a command")]

use std::error::Error;
use std::process::ExitCode;

use millrace_lab::{Lab, Topology, UpOptions};

const USAGE: &str = "usage: lab up FILE | lab run NODE COMMAND... | lab status | lab down [NAME]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["up", file] => up(file),
        ["run", node, command @ ..] => run(node, command),
        ["status"] => status(),
        ["down", name] => down(name),
        ["down"] => Lab::names()
            .map_err(Into::into)
            .and_then(|names| names.iter().try_for_each(|name| down(name))),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn up(file: &str) -> Result<(), Box<dyn Error>> {
    let topology = Topology::parse(file, &std::fs::read_to_string(file)?)?;
    Lab::up(&topology, &UpOptions::default(), &mut |step| println!("{step}"))?;
    Ok(())
}

fn run(node: &str, command: &[&str]) -> Result<(), Box<dyn Error>> {
    match Lab::open(None)?.exec(node, command)? {}
}

fn status() -> Result<(), Box<dyn Error>> {
    let status = Lab::open(None)?.status();
    println!("lab {}", status.name);
    for node in status.nodes {
        println!(
            "{:12} {:12} {:24} {}",
            node.name,
            node.kind,
            node.namespace,
            node.interfaces.join(", ")
        );
    }
    for daemon in status.daemons {
        println!(
            "{:12} {:12} {}",
            daemon.switch,
            daemon.role,
            if daemon.alive { "running" } else { "ended" }
        );
    }
    Ok(())
}

fn down(name: &str) -> Result<(), Box<dyn Error>> {
    let report = Lab::down(name)?;
    println!("lab {}: removed, {} process(es) ended", report.name, report.ended);
    for foreign_process in report.foreign_processes {
        println!(
            "  {} ({}) still runs in the former {}",
            foreign_process.command, foreign_process.id.pid, foreign_process.node
        );
    }
    Ok(())
}
