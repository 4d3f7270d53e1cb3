//! `millrace lab`: the lab crate on the command line.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use millrace_lab::{DownReport, Lab, Progress, Status, Topology, UpOptions};

use crate::cli;
use crate::output::{Session, say};
use crate::table::Table;

pub(crate) fn run(session: &Session, args: &cli::Lab) -> Result<ExitCode> {
    match args {
        cli::Lab::Up {
            file,
            millraced,
            keep_on_failure,
        } => {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let topology = Topology::parse(&file.display().to_string(), &text)?;
            let options = UpOptions {
                millraced: millraced.clone(),
                keep_on_failure: *keep_on_failure,
                ..UpOptions::default()
            };
            // Progress goes to standard error; standard output has only the result.
            let mut tell = |step: Progress<'_>| {
                let _ = writeln!(std::io::stderr(), "{step}");
            };
            let lab = Lab::up(&topology, &options, &mut tell)?;
            session.print(&lab.status(), |status| {
                format!(
                    "lab {0} is up: `millrace lab status {0}` shows it, `millrace lab down {0}` removes it\n",
                    status.name
                )
            })?;
        }
        cli::Lab::Run { lab, host, command } => {
            // `exec` does not return: the command replaces this process.
            match Lab::open(lab.as_deref())?.exec(host, command)? {}
        }
        cli::Lab::Status { name } => {
            let labs = match name {
                Some(name) => vec![Lab::open(Some(name))?.status()],
                None => {
                    let names = Lab::names()?;
                    // A lab that is incomplete, or was removed meanwhile, is left out.
                    names
                        .iter()
                        .filter_map(|name| Some(Lab::open(Some(name)).ok()?.status()))
                        .collect()
                }
            };
            session.print(&labs, |labs| match labs.as_slice() {
                [] => "no lab is up\n".to_owned(),
                labs => labs.iter().map(status).collect::<Vec<_>>().join("\n"),
            })?;
        }
        cli::Lab::Down { name, all } => return down(name.as_deref(), *all),
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes one lab, or all of them. Fails if the lab does not exist; `--all` succeeds without labs.
fn down(name: Option<&str>, all: bool) -> Result<ExitCode> {
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None if all => Lab::names()?,
        None => match Lab::names()?.as_slice() {
            [only] => vec![only.clone()],
            [] => bail!("no lab is up: `millrace lab up FILE` builds one"),
            several => bail!(
                "several labs are up ({}): name one, or remove them all with --all",
                several.join(", ")
            ),
        },
    };
    if names.is_empty() {
        say("no lab is up\n")?;
    }
    each(&names, |name| {
        let report = Lab::down(name)?;
        // Another process may have removed the lab first.
        if !report.existed && !all {
            bail!("{}", missing(name, &Lab::names()?));
        }
        say(&removed(&report))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Removes each lab by `down`. A failure does not keep the others; the error has all failures.
fn each(names: &[String], mut down: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let failure = |name: &String| Some(format!("{:#}", down(name).err()?));
    let mut failures: Vec<String> = names.iter().filter_map(failure).collect();
    // Without root, each lab has the same error.
    failures.dedup();
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("{}", failures.join("\n")),
    }
}

fn missing(name: &str, others: &[String]) -> String {
    match others {
        [] => format!("there is no lab {name}: no lab is up"),
        others => format!("there is no lab {name}: expected one of {}", others.join(", ")),
    }
}

fn removed(report: &DownReport) -> String {
    if !report.existed {
        return String::new();
    }
    let mut text = format!("lab {} is removed\n", report.name);
    for foreign_process in &report.foreign_processes {
        text += &format!(
            "  process {} ({}) still runs in the former {}; the lab did not start it\n",
            foreign_process.id.pid, foreign_process.command, foreign_process.node
        );
    }
    text
}

fn status(status: &Status) -> String {
    let mut nodes = Table::new(&["NODE", "TYPE", "NAMESPACE", "INTERFACES"], "no host");
    for node in &status.nodes {
        nodes.row([
            node.name.clone(),
            node.kind.clone(),
            node.namespace.clone(),
            node.interfaces.join(", "),
        ]);
    }
    let mut daemons = Table::new(&["SWITCH", "DAEMON", "STATE", "LOG"], "no daemon");
    for daemon in &status.daemons {
        let state = match (daemon.alive, daemon.process) {
            (true, Some(process)) => format!("runs as {}", process.pid),
            (true, None) => "runs".to_owned(),
            (false, _) => "dead".to_owned(),
        };
        daemons.row([
            daemon.switch.clone(),
            daemon.role.clone(),
            state,
            daemon.log.clone(),
        ]);
    }
    format!(
        "lab {}\n{nodes}{}",
        status.name,
        if status.daemons.is_empty() {
            String::new()
        } else {
            format!("\n{daemons}")
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_that_cannot_be_removed_does_not_keep_the_others() {
        let mut seen = Vec::new();
        let names = ["one", "two", "three", "four"].map(str::to_owned);
        let error = each(&names, |name| {
            seen.push(name.to_owned());
            match name {
                "two" | "three" => bail!("lab {name} is busy"),
                _ => Ok(()),
            }
        });
        assert_eq!(seen, ["one", "two", "three", "four"]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "lab two is busy\nlab three is busy"
        );
    }
}
