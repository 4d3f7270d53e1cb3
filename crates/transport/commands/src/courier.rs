//! `millrace courier`: the daemon, its status, and the commands for its users.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use millrace_courier::list;
use millrace_courier::target::{TargetError, Url, known_receivers, remember};
use millrace_courier_daemon::{Config, Serving, read_status, serve};
use millrace_fileset::entry::Timestamp;
use millrace_fileset::fs::{FileSystem, Root};
use millrace_program::{log_filter, start_log};

use crate::display::{Result, identity, say, size};
use crate::error::CommandError;

const STATUS: &str = "Exit status: 0 done; 1 failed, or refused.";

/// Run a daemon that serves files to many peers, with grants and quotas, or query such a daemon
#[derive(Debug, Subcommand)]
pub enum Courier {
    Serve(Serve),
    Status(Status),
    Ls(Ls),
    Key(Key),
    Clean(Clean),
}

/// Run the daemon: receive from, and send to, peers that have a grant
#[derive(Debug, Args)]
#[command(
    after_help = "SIGHUP loads the configuration again, and ends no transfer. SIGTERM lets running transfers end, for the \
    time that `drain` says; again, it ends at once. docs/transfer.md has a configuration and a systemd unit."
)]
pub struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/millrace/courier.toml")]
    pub config: PathBuf,
    /// Check the configuration, and end
    #[arg(long)]
    pub check: bool,
    /// The log on standard error: error, warn, info, debug, or a filter as in RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = log_filter)]
    pub log_filter: String,
}

/// Show grants, usage and transfers of the daemon on this machine
#[derive(Debug, Args)]
pub struct Status {
    /// The configuration of the daemon; it names the state directory, which contains the socket
    #[arg(long, value_name = "FILE", default_value = "/etc/millrace/courier.toml")]
    pub config: PathBuf,
    /// The socket, if there is no configuration to read
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// List a directory of a daemon, or this user's grants there
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub struct Ls {
    /// millrace://[KEY@]HOST[:PORT]/GRANT/PATH; without a path, the grants
    pub url: String,
    /// File of this user's key [default: ~/.config/millrace/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}

/// Print this user's key, for the grants of a daemon; it is created if it does not exist
#[derive(Debug, Args)]
pub struct Key {
    /// File of the key [default: ~/.config/millrace/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
}

/// Remove the files of transfers that did not go on: temporary files and journals below a directory
#[derive(Debug, Args)]
#[command(
    after_help = "A transfer whose files are removed starts over. A file that a transfer uses is younger than the age: a transfer writes \
    its journal about once a second, and a lost peer has the time of --patience to come back."
)]
pub struct Clean {
    /// The directory into which files were received
    pub directory: PathBuf,
    /// The least time since a file was written
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = crate::args::time)]
    pub age: Duration,
    /// Name the files, and remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

fn clean_directory(json: bool, args: &Clean) -> Result<()> {
    let failed = |error| CommandError::Clean {
        path: args.directory.clone(),
        error,
    };
    let root = Root::open(&args.directory).map_err(failed)?;
    let before = SystemTime::now().checked_sub(args.age).unwrap_or(UNIX_EPOCH);
    let before = before.duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = Timestamp {
        seconds: i64::try_from(before.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: before.subsec_nanos(),
    };
    let (mut lines, mut files, mut bytes) = (String::new(), 0_u64, 0);
    let mut found = Vec::new();
    millrace_fileset::clean::partial_files(&root, before, &mut |path, metadata| {
        found.push(path.clone());
        (files, bytes) = (files + 1, bytes + metadata.size);
        if !json {
            lines += &format!("{path}\n");
        }
    })
    .map_err(failed)?;
    if !args.dry_run {
        for path in &found {
            root.remove(path).map_err(|error| CommandError::Clean {
                path: args.directory.join(path.to_string()),
                error,
            })?;
        }
    }
    let did = if args.dry_run { "found" } else { "removed" };
    lines += &if json {
        format!(
            "{}\n",
            serde_json::json!({ "files": files, "bytes": bytes, "removed": !args.dry_run })
        )
    } else {
        format!("{did} {files} files, {}\n", size(bytes))
    };
    say(&lines)
}

/// Runs a command of the daemon; returns the exit status. `json`: the result is printed as JSON.
///
/// # Errors
/// If it fails; the error names the next step.
pub fn courier(json: bool, command: &Courier) -> Result<ExitCode> {
    match command {
        Courier::Serve(args) => run_daemon(json, args)?,
        Courier::Status(args) => show_status(json, args)?,
        Courier::Ls(args) => show_entries(json, args)?,
        Courier::Clean(args) => clean_directory(json, args)?,
        Courier::Key(args) => {
            let key = identity(args.identity.as_deref())?.public_key().to_string();
            say(&if json {
                format!("{}\n", serde_json::json!({ "key": key }))
            } else {
                key + "\n"
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_daemon(json: bool, args: &Serve) -> Result<()> {
    if args.check {
        let config = Config::load(&args.config).map_err(millrace_courier_daemon::ServeError::from)?;
        return say(&format!(
            "{} grants; the configuration is valid\n",
            config.grants.len()
        ));
    }
    start_log(&args.log_filter);
    let mut said = Ok(());
    serve(&args.config, |serving: &Serving| {
        let Serving {
            address,
            key,
            socket,
            metrics,
        } = serving;
        said = say(&if json {
            let metrics = metrics.map(|address| address.to_string());
            let event = serde_json::json!({
                "event": "listening", "address": address, "key": key, "socket": socket, "metrics": metrics,
            });
            format!("{event}\n")
        } else {
            format!(
                "listening at {address} as {key}; status and metrics at {}\n",
                socket.display()
            )
        });
    })?;
    said
}

fn mbps(bps: u64) -> String {
    format!("{:.1} Mbit/s", bps as f64 / 1e6)
}

fn show_status(json: bool, args: &Status) -> Result<()> {
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => {
            let config = Config::load(&args.config).map_err(millrace_courier_daemon::ServeError::from)?;
            config.state.join("courier.sock")
        }
    };
    let status = read_status(&socket)?;
    if json {
        return say(&format!("{status}\n"));
    }
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!(
        "{} as {}{}",
        text(&status["address"]),
        text(&status["key"]),
        if status["draining"] == true {
            ", draining"
        } else {
            ""
        }
    )];
    for grant in status["grants"].as_array().into_iter().flatten() {
        let words = |value: &serde_json::Value| {
            let words: Vec<String> = value.as_array().into_iter().flatten().map(text).collect();
            words.join(",")
        };
        let of = |used: &str, quota: &str, show: fn(u64) -> String| {
            let used = show(grant[used].as_u64().unwrap_or(0));
            match grant[quota].as_u64() {
                Some(quota) => format!("{used} of {}", show(quota)),
                None => used,
            }
        };
        lines.push(format!(
            "grant {}: {}, {}, {}, {} files, {}",
            text(&grant["name"]),
            text(&grant["directory"]),
            words(&grant["verbs"]),
            of("used_bytes", "quota_bytes", size),
            of("used_files", "quota_files", |files| files.to_string()),
            of("rate_bps", "rate_limit_bps", mbps),
        ));
    }
    for transfer in status["transfers"].as_array().into_iter().flatten() {
        let number = |name: &str| transfer[name].as_u64().unwrap_or(0);
        lines.push(format!(
            "{} {}/{} {}: {} of {}, {}, {:.0} s",
            text(&transfer["verb"]),
            text(&transfer["grant"]),
            text(&transfer["path"]),
            text(&transfer["key"]),
            size(number("verified_bytes")),
            size(number("bytes")),
            mbps(number("rate_bps")),
            transfer["seconds"].as_f64().unwrap_or(0.0),
        ));
    }
    say(&(lines.join("\n") + "\n"))
}

fn show_entries(json: bool, args: &Ls) -> Result<()> {
    let url = Url::parse(&args.url).ok_or_else(|| TargetError::Url {
        word: args.url.clone(),
    })??;
    let known = known_receivers();
    let target = url.target(known.as_deref().map(Path::new))?;
    let entries = list(&identity(args.identity.as_deref())?, &target, url.path.as_bytes())?;
    if let Some(known) = &known {
        // Errors are ignored: the entries have arrived even if the key cannot be stored.
        let _ = remember(known, &target);
    }
    let mut lines = String::new();
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name);
        let kind = entry.entry_type.name();
        lines += &if json {
            let value = serde_json::json!({
                "name": name, "type": kind, "size": entry.size, "modified": entry.modified,
            });
            format!("{value}\n")
        } else {
            let name: String = name.chars().filter(|char| !char.is_control()).collect();
            format!("{:>10} {kind:<9} {name}\n", size(entry.size))
        };
    }
    say(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_filter_of_the_log_is_refused_where_it_is_given() {
        use clap::Parser as _;
        #[derive(clap::Parser, Debug)]
        struct Options {
            #[command(subcommand)]
            command: Courier,
        }
        let parse = |filter: &str| Options::try_parse_from(["x", "serve", "--log-filter", filter]);
        assert!(parse("warn,quinn=debug").is_ok());
        let refused = parse("quinn=loud").unwrap_err().to_string();
        assert!(refused.contains("--log-filter"), "{refused}");
    }
}
