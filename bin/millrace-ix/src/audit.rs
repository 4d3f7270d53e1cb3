//! The audit chain on the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use millrace_ix_store::{AuditRecord, SignedHead, Sqlite, Store as _, verify};
use serde_json::{Value, json};

use crate::control::{Request, ask};
use crate::{serve, show};

/// Entries in one request.
const PAGE_LEN: usize = 10_000;

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Check each entry and each signature of the chain in a database file. The engine may be running.
    Verify {
        /// The SQLite file.
        #[arg(long, value_name = "FILE")]
        database: PathBuf,
        /// The public key, 64 hexadecimal digits; without it, each signature is checked with the key that it names.
        #[arg(long, value_name = "HEX")]
        public_key: Option<String>,
        /// A file with heads that were kept elsewhere, or - for standard input: lines of the engine's log, of
        /// [audit] or of an export. Without it, a chain that was cut back to an earlier signature is valid.
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
    },
    /// Print the chain and its signatures, one JSON object per line (docs/audit-chain.md).
    Export,
    /// Print the public key that signs the chain.
    Key {
        /// The file of the private key.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

pub(crate) fn run(command: &Command, socket: &Path) -> Result<()> {
    match command {
        Command::Verify {
            database,
            public_key,
            head,
        } => {
            let kept = head.as_deref().map(kept_heads).transpose()?.unwrap_or_default();
            let store = Sqlite::open_read_only(database)?;
            // Signatures are read before entries. Entries that are written meanwhile come after the newest
            // signature.
            let mut heads = store.signed_heads()?;
            let kept_len = kept.len();
            heads.extend(kept);
            heads.sort_by_key(|head| head.serial);
            let mut records: Vec<AuditRecord> = Vec::new();
            loop {
                let after = records.last().map_or(0, |record| record.serial);
                let page = store.audit(after, PAGE_LEN)?;
                if page.is_empty() {
                    break;
                }
                records.extend(page);
            }
            let summary = verify(&records, &heads, public_key.as_deref())
                .with_context(|| format!("{}: the audit chain is not valid", database.display()))?;
            let kept = match kept_len {
                0 => "; no head from elsewhere: entries may have been removed at the end".to_owned(),
                len => format!("; {len} heads from elsewhere are part of it"),
            };
            show::print(&format!(
                "valid: {} entries, signed up to entry {}, head {}{kept}\n",
                summary.len, summary.signed_up_to, summary.head
            ))
        }
        Command::Export => {
            let mut after = 0;
            loop {
                let page = ask(
                    socket,
                    &Request::Audit {
                        after,
                        limit: PAGE_LEN,
                    },
                )?;
                let Some(last) = page.as_array().and_then(|page| page.last()) else {
                    break;
                };
                let Some(serial) = last["entry"]["serial"].as_u64() else {
                    bail!("the engine's answer has an entry without a number");
                };
                after = serial;
                print_lines(&page)?;
            }
            // Signatures of entries that were written meanwhile are left out.
            let heads = ask(socket, &Request::Heads)?;
            let is_known = |head: &&Value| head["serial"].as_u64().is_some_and(|serial| serial <= after);
            print_lines(
                &heads
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(is_known)
                    .cloned()
                    .collect(),
            )
        }
        Command::Key { file } => {
            if !file.exists() {
                bail!(
                    "{}: there is no key; the engine creates it at its first start",
                    file.display()
                );
            }
            show::print(&format!("{}\n", serve::audit_key(file)?.public_key()))
        }
    }
}

/// Reads heads from a file, each in one line. In a line of the log, other text stands before the head.
fn kept_heads(path: &Path) -> Result<Vec<SignedHead>> {
    let name = path.display();
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("--head {name}"))?;
    let mut heads = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // The export and the log have other lines, too.
        let Some((_, head)) = line.find('{').map(|at| line.split_at(at)) else {
            continue;
        };
        if head.contains("\"signature\"") {
            let head = head.trim_end().parse();
            heads.push(head.with_context(|| format!("--head {name}, line {number}"))?);
        }
    }
    if heads.is_empty() {
        bail!("--head {name}: expected at least one line with a head of the audit chain");
    }
    Ok(heads)
}

fn print_lines(values: &Value) -> Result<()> {
    for value in values.as_array().into_iter().flatten() {
        show::print(&format!("{}\n", json!(value)))?;
    }
    Ok(())
}
