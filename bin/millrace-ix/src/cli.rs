//! The command line of `millrace-ix`: commands and options (docs/exchange.md).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use millrace_ix_model::{
    AccountId, ConnectionId, Operation, ServiceId, ServiceKind, VlanConfig, VlanId, VlanRequest,
};
use millrace_ix_service::text::{DELETIONS_MAX, Document};
use millrace_program::{log_filter, start_log, write_man_pages};
use millrace_types::Dpid;

use crate::control::{Request, ask};
use crate::settings::Settings;
use crate::{audit, backup, clock, copy_database, pages, serve, show};

/// The database of the unit that `make install` installs.
const DATABASE: &str = "/var/lib/millrace-ix/exchange.db";

/// The controller of an exchange point: runs its switches and takes the orders of its members.
#[derive(Parser, Debug)]
#[command(name = "millrace-ix", version, max_term_width = 100)]
pub(crate) struct Options {
    /// The control socket of the running engine.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/millrace-ix/control.sock"
    )]
    socket: PathBuf,

    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the engine.
    Serve {
        /// The settings of the process: a TOML file.
        #[arg(long, short, value_name = "FILE")]
        config: PathBuf,
        /// The log levels: off, error, warn, info, debug or trace, followed by `,TARGET=LEVEL`.
        #[arg(long, value_name = "FILTER", default_value = "info", value_parser = log_filter)]
        log: String,
    },
    /// Print the mode of the engine, the state of the switches, and the changes under way.
    Status,
    /// Execute operations as one change, all or nothing.
    Order(OrderArgs),
    /// Order a virtual circuit between two connections.
    P2p(P2pArgs),
    /// Accept the invitation to a service.
    Accept {
        /// The service, such as sv-77.
        service: ServiceId,
    },
    /// Delete a service, an end, a connection, or another object.
    Delete {
        /// The object, such as sv-77.
        object: millrace_ix_model::ObjectId,
    },
    /// List the services with their states.
    Services,
    /// List objects as JSON.
    Objects {
        /// The prefix of the identifiers (cn, sv, nc…), or an identifier.
        prefix: Option<String>,
    },
    /// List the ends in quarantine, and what was found at each.
    Quarantine,
    /// Verify everything that the switches report: which frames leave where. Ends with status 1 if a property does not hold.
    Verify,
    /// List the BGP sessions with their routes, rules and last errors.
    Sessions,
    /// Say if an account may have a filter, with the evidence or the missing object.
    CheckFilter {
        /// The account: ac-3.
        account: AccountId,
        /// The packets as JSON: {"destination": "192.0.2.1/32", "protocol": 17}.
        #[arg(value_name = "MATCH")]
        matching: String,
    },
    /// Ask the routing registry again for an account, and check its filters again.
    Recheck {
        /// The account: ac-3.
        account: AccountId,
    },
    /// List the newest changes.
    Changes {
        /// The number of changes.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Print the journal of a change.
    Journal {
        /// The number of the change.
        change: u64,
    },
    /// Confirm a change that was ordered with --confirm-within, so that it stays.
    Confirm {
        /// The number of the change.
        change: u64,
    },
    /// Undo a change that waits for its confirmation.
    Revert {
        /// The number of the change.
        change: u64,
    },
    /// Print the 95th percentile of each connection for a month: of its averages over 5 minutes, with the share of the time
    /// that is known. The figures of a month that has ended are frozen, and the audit chain has them.
    Billing {
        /// The month, such as 2026-11; without it, the present one as far as it has gone.
        month: Option<String>,
        /// Print a CSV file (RFC 4180).
        #[arg(long)]
        csv: bool,
    },
    /// Print the exchange as TOML, with names instead of identifiers.
    Export,
    /// Print what `apply` would change.
    Plan {
        /// The exchange as TOML, or - for standard input.
        file: PathBuf,
    },
    /// Make the exchange equal to a file, in one change. A second application of the file changes nothing.
    Apply {
        /// The exchange as TOML, or - for standard input.
        file: PathBuf,
        /// Apply an exported file although the exchange has changed since its export. What was ordered since is undone.
        #[arg(long)]
        overwrite: bool,
        /// Permit the deletion of this many services, ends and connections.
        #[arg(long, value_name = "COUNT", default_value_t = DELETIONS_MAX)]
        deletions: usize,
    },
    /// After an old database was restored: keep the switch entries that the database does not contain, and
    /// write to the switches again.
    Adopt,
    /// After an old database was restored: make the switches equal to the database, and write to the switches
    /// again.
    Enforce,
    /// Forget the certificate of a switch's first connection, so that the switch can come with a new one.
    ForgetCertificate {
        /// The datapath id: 0000000000000001.
        dpid: Dpid,
    },
    /// Write a backup of the database to a new file; the engine may be running.
    Backup {
        /// The new file.
        file: PathBuf,
        /// The database of the engine.
        #[arg(long, value_name = "FILE", default_value = DATABASE)]
        database: PathBuf,
    },
    /// Put a backup in the place of the database, while the engine is stopped. The previous database is kept.
    Restore {
        /// The backup.
        file: PathBuf,
        /// The database of the engine.
        #[arg(long, value_name = "FILE", default_value = DATABASE)]
        database: PathBuf,
    },
    /// After the server's clock was far ahead, and the engine is stopped: begin with the system's time again.
    ResetClock {
        /// The database of the engine.
        #[arg(long, value_name = "FILE", default_value = DATABASE)]
        database: PathBuf,
    },
    /// Copy the SQLite file of an engine into the empty PostgreSQL database that engines share, while no engine runs.
    CopyDatabase {
        /// The SQLite file.
        file: PathBuf,
        /// The settings of an engine with the PostgreSQL database: a TOML file.
        #[arg(long, short, value_name = "FILE")]
        config: PathBuf,
    },
    /// Give users the means to sign in.
    #[command(subcommand)]
    User(UserCommand),
    /// Verify or export the audit chain.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write man pages into a directory.
    Man {
        /// The directory.
        dir: PathBuf,
    },
}

#[derive(Subcommand, Debug)]
enum UserCommand {
    /// Set the password of a user: one line from standard input, 12 to 256 characters. The user's sessions
    /// end.
    Password {
        /// The name of the user.
        name: String,
    },
    /// Give a user a new second factor (TOTP), and print its secret, which is not shown again.
    Totp {
        /// The name of the user.
        name: String,
    },
}

#[derive(Args, Debug)]
struct OrderArgs {
    /// An operation as JSON, such as '{"operation": "create_site", "name": "Otemachi"}'. In later operations, an
    /// identifier with the number 0 (sv-0) stands for the newest object of that type that this order creates. Without
    /// operations, one JSON object or list is read from standard input.
    operations: Vec<String>,
    /// Check and plan the order, and print what it would change.
    #[arg(long)]
    dry_run: bool,
    /// An idempotency key: an order that is sent again with the same key within 24 hours is executed once.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Undo the order after this time unless `millrace-ix confirm` follows. Only valid for drains, shut-downs
    /// and policies.
    #[arg(long, value_name = "SECONDS")]
    confirm_within: Option<u64>,
}

#[derive(Args, Debug)]
struct P2pArgs {
    /// The name of the service.
    name: String,
    /// The account that orders.
    #[arg(long)]
    account: AccountId,
    /// One end: CONNECTION, CONNECTION:VLAN, or CONNECTION:OUTER.INNER.
    #[arg(long, value_name = "END", value_parser = end)]
    a: End,
    /// The other end.
    #[arg(long, value_name = "END", value_parser = end)]
    b: End,
    /// The contracted rate in Mbit/s; without it, the speed of the connections.
    #[arg(long, value_name = "MBITS")]
    rate: Option<u32>,
    /// Check and plan the order, and print what it would change.
    #[arg(long)]
    dry_run: bool,
}

/// An end on the command line.
#[derive(Clone, Debug)]
struct End {
    connection: ConnectionId,
    vlan: VlanRequest,
}

fn end(text: &str) -> Result<End, String> {
    let (connection, tags) = text
        .split_once(':')
        .map_or((text, None), |(one, two)| (one, Some(two)));
    let connection = connection.parse().map_err(|error| format!("{error}"))?;
    let number = |text: &str| -> Result<VlanId, String> {
        let raw: u16 = text
            .parse()
            .map_err(|_| format!("{text:?} is no VLAN: expected 1 to 4094"))?;
        VlanId::new(raw).map_err(|error| error.to_string())
    };
    let ethertype = millrace_ix_model::TagType::default();
    let vlan = match tags.map(|tags| tags.split_once('.').ok_or(tags)) {
        None => VlanConfig::Port.into(),
        Some(Err(vlan)) => VlanRequest::Dot1q {
            vlan: Some(number(vlan)?),
            ethertype,
        },
        Some(Ok((outer, inner))) => VlanRequest::Qinq {
            outer: Some(number(outer)?),
            inner: Some(number(inner)?),
            ethertype: millrace_ix_model::TagType::STag,
        },
    };
    Ok(End { connection, vlan })
}

/// Runs a command.
pub(crate) fn run(options: Options) -> Result<()> {
    let ask = |request: &Request| ask(&options.socket, request);
    let print = |value: serde_json::Value, table: fn(&serde_json::Value) -> String| {
        let text = if options.json {
            format!("{value:#}\n")
        } else {
            table(&value)
        };
        show::print(&text)
    };
    match options.command {
        Command::Serve { config, log } => {
            start_log(&log);
            serve::run(&Settings::read(&config)?)
        }
        Command::Status => print(ask(&Request::Status)?, show::status),
        Command::Order(order) => {
            let operations = operations(&order.operations)?;
            print(
                ask(&Request::Order {
                    operations,
                    dry_run: order.dry_run,
                    key: order.key,
                    confirm_within: order.confirm_within,
                })?,
                show::ordered,
            )
        }
        Command::P2p(p2p) => {
            let (operations, dry_run) = (p2p_operations(&p2p), p2p.dry_run);
            print(
                ask(&Request::Order {
                    operations,
                    dry_run,
                    key: None,
                    confirm_within: None,
                })?,
                show::ordered,
            )
        }
        Command::Accept { service } => order(Operation::Accept { service }, ask, print),
        Command::Delete { object } => order(Operation::Delete { target: object }, ask, print),
        Command::Services => print(ask(&Request::Services)?, show::services),
        Command::Objects { prefix } => {
            let value = ask(&Request::Objects { prefix })?;
            show::print(&format!("{value:#}\n"))
        }
        Command::Sessions => print(ask(&Request::Sessions)?, show::sessions),
        Command::CheckFilter { account, matching } => {
            let matching = Box::new(serde_json::from_str(&matching).context("MATCH")?);
            print(ask(&Request::Check { account, matching })?, show::verdict)
        }
        Command::Recheck { account } => ask(&Request::Recheck { account }).map(drop),
        Command::Billing { month, csv: true } => {
            let text = ask(&Request::Billing { month, csv: true })?;
            show::print(text.as_str().unwrap_or_default())
        }
        Command::Billing { month, csv } => print(ask(&Request::Billing { month, csv })?, show::billing),
        Command::Quarantine => print(ask(&Request::Quarantine)?, show::quarantine),
        Command::Verify => {
            let found = ask(&Request::Verify)?;
            let is_right = found.as_array().is_some_and(Vec::is_empty);
            print(found, show::violations)?;
            if !is_right {
                anyhow::bail!("the switches do not treat all frames as they should");
            }
            Ok(())
        }
        Command::Changes { limit } => print(ask(&Request::Changes { limit })?, show::changes),
        Command::Journal { change } => print(ask(&Request::Journal { change })?, show::journal),
        Command::Confirm { change } => ask(&Request::Confirm { change }).map(drop),
        Command::Revert { change } => print(ask(&Request::Revert { change })?, show::ordered),
        Command::Export => {
            let document: Document = serde_json::from_value(ask(&Request::Export)?)?;
            show::print(&toml::to_string_pretty(&document)?)
        }
        Command::Plan { file } => {
            let document = Box::new(document(&file)?);
            print(
                ask(&Request::Apply {
                    document,
                    dry_run: true,
                    overwrite: false,
                    deletions_max: None,
                })?,
                show::ordered,
            )
        }
        Command::Apply {
            file,
            overwrite,
            deletions,
        } => {
            let document = Box::new(document(&file)?);
            print(
                ask(&Request::Apply {
                    document,
                    dry_run: false,
                    overwrite,
                    deletions_max: Some(deletions),
                })?,
                show::ordered,
            )
        }
        Command::Adopt => ask(&Request::Resolve { adopt: true }).map(drop),
        Command::Enforce => ask(&Request::Resolve { adopt: false }).map(drop),
        Command::ForgetCertificate { dpid } => ask(&Request::ForgetCertificate {
            dpid: dpid.to_string(),
        })
        .map(drop),
        Command::Backup { file, database } => show::print(&backup::back_up(&database, &file)?),
        Command::Restore { file, database } => {
            show::print(&backup::restore(&database, &options.socket, &file)?)
        }
        Command::CopyDatabase { file, config } => {
            let settings = Settings::read(&config)?;
            show::print(&copy_database::copy(&settings, &file)?)
        }
        Command::ResetClock { database } => show::print(&clock::reset(&database, &options.socket)?),
        Command::User(UserCommand::Password { name: user }) => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            let password = line.trim_end_matches(['\r', '\n']).to_owned();
            ask(&Request::SetPassword { user, password }).map(drop)
        }
        Command::User(UserCommand::Totp { name: user }) => {
            print(ask(&Request::SetTotp { user })?, show::totp)
        }
        Command::Audit(command) => audit::run(&command, &options.socket),
        Command::Completions { shell } => pages::completions(shell, Options::command()),
        Command::Man { dir } => Ok(write_man_pages(Options::command(), &dir)?),
    }
}

/// Reads an exchange as TOML.
fn document(file: &Path) -> Result<Document> {
    let name = file.display().to_string();
    let text = if name == "-" {
        std::io::read_to_string(std::io::stdin())?
    } else {
        std::fs::read_to_string(file).with_context(|| name.clone())?
    };
    toml::from_str(&text).with_context(|| name)
}

/// Orders one operation.
fn order(
    operation: Operation,
    ask: impl Fn(&Request) -> Result<serde_json::Value>,
    print: impl Fn(serde_json::Value, fn(&serde_json::Value) -> String) -> Result<()>,
) -> Result<()> {
    let request = Request::Order {
        operations: vec![operation],
        dry_run: false,
        key: None,
        confirm_within: None,
    };
    print(ask(&request)?, show::ordered)
}

/// Reads operations from arguments, or from standard input.
fn operations(arguments: &[String]) -> Result<Vec<Operation>> {
    if arguments.is_empty() {
        let text = std::io::read_to_string(std::io::stdin())?;
        let value: serde_json::Value = serde_json::from_str(&text).context("standard input")?;
        let list = if value.is_array() {
            value
        } else {
            serde_json::Value::Array(vec![value])
        };
        return serde_json::from_value(list).context("standard input");
    }
    let parse = |text: &String| serde_json::from_str(text).with_context(|| format!("operation {text}"));
    arguments.iter().map(parse).collect()
}

fn p2p_operations(p2p: &P2pArgs) -> Vec<Operation> {
    let create = Operation::CreateService {
        account: Some(p2p.account),
        kind: ServiceKind::P2pVc,
        name: p2p.name.clone(),
        peer: None,
        policy: None,
        networks: Vec::new(),
        external_ref: None,
    };
    let configure = |end: &End| Operation::ConfigureEnd {
        service: ServiceId(0),
        connection: end.connection,
        vlan: end.vlan,
        capacity_mbps: p2p.rate,
        role: millrace_ix_model::EndRole::default(),
        asns: std::collections::BTreeSet::new(),
        external_ref: None,
    };
    vec![create, configure(&p2p.a), configure(&p2p.b)]
}
