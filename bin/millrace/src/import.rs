//! `millrace import`: the configuration of another switch as TOML.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use millrace_import::{Finding, Imported, Weight, lagopus, linux, ovs};
use serde_json::json;

use crate::cli::Import;
use crate::output::{Session, say};

/// The largest file, in bytes.
const SIZE_MAX: u64 = 256 << 20;

/// The exit status if the switch would not do all that the other did.
const DIFFERS: u8 = 4;

/// The commands that print bridges of Linux.
const COMMANDS: [&[&str]; 4] = [
    &["ip", "-d", "-j", "link"],
    &["ip", "-j", "address"],
    &["bridge", "-j", "vlan"],
    &["bridge", "-j", "fdb"],
];

pub(crate) fn run(session: &Session, args: &Import) -> Result<ExitCode> {
    let (source, imported) = match args {
        Import::Ovs { file } => from_file(file, ovs::read)?,
        Import::Lagopus { file } => from_file(file, lagopus::read)?,
        Import::Linux { files } => bridges(files)?,
    };
    if session.json() {
        let finding = |finding: &Finding| {
            let weight = match finding.weight {
                Weight::Note => "note",
                Weight::Difference => "difference",
            };
            json!({"weight": weight, "place": finding.place, "text": finding.text})
        };
        let findings: Vec<_> = imported.findings.iter().map(finding).collect();
        session.print(
            &json!({"config": imported.config.to_json(), "findings": findings}),
            |_| String::new(),
        )?;
    } else {
        say(&imported.to_toml(&source))?;
        for finding in &imported.findings {
            eprintln!("{finding}");
        }
    }
    Ok(match imported.differs() {
        true => ExitCode::from(DIFFERS),
        false => ExitCode::SUCCESS,
    })
}

fn from_file(
    file: &Path,
    read: impl Fn(&str, &[u8]) -> Result<Imported, millrace_import::ImportError>,
) -> Result<(String, Imported)> {
    let name = file.display().to_string();
    let imported = read(&name, &content(file)?)?;
    Ok((name, imported))
}

fn content(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(SIZE_MAX + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", file.display()))?;
    if bytes.len() as u64 > SIZE_MAX {
        bail!(
            "{}: more than {} MiB; expected a configuration",
            file.display(),
            SIZE_MAX >> 20
        );
    }
    Ok(bytes)
}

fn bridges(files: &[impl AsRef<Path>]) -> Result<(String, Imported)> {
    let texts: Vec<(String, Vec<u8>)> = if files.is_empty() {
        COMMANDS
            .iter()
            .map(|command| output(command))
            .collect::<Result<_>>()?
    } else {
        files
            .iter()
            .map(|file| Ok((file.as_ref().display().to_string(), content(file.as_ref())?)))
            .collect::<Result<_>>()?
    };
    let texts: Vec<(&str, &[u8])> = texts
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let source = match files {
        [] => "the bridges of this machine".to_owned(),
        _ => texts.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
    };
    Ok((source, linux::read(&texts)?))
}

/// Runs a command of iproute2, and returns it with its output.
fn output(command: &[&str]) -> Result<(String, Vec<u8>)> {
    let name = format!("`{}`", command.join(" "));
    let (program, arguments) = command.split_first().context("no command")?;
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{name} cannot be run; to install it: apt install iproute2"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok((name, output.stdout))
}
