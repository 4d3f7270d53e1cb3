//! The control socket: one request and one answer, a line of JSON each, for the command line on the same machine.
//!
//! The socket has mode 0600, and the engine answers only root and its own user, who have the rights of the
//! exchange's staff. The REST API serves everybody else, with users and permissions.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_controller::driver::bind_private;
use millrace_ix_api::App;
use millrace_ix_engine::Resolution;
use millrace_ix_filter::{SessionKind, Shared as Filters};
use millrace_ix_model::{AccountId, Actor, FilterMatch, ObjectId, Operation, Refusal};
use millrace_ix_service::text::{DELETIONS_MAX, Document};
use millrace_ix_service::{ApplyOptions, Handle, OrderError, OrderOptions};
use millrace_ix_store::{AuditEntry, IdempotencyKey};
use millrace_listener::{Admission, Connection, Limits, Source};
use millrace_types::{Dpid, ErrorChain};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::{admission, series, standing, web};

mod answers;

/// The longest request, in bytes.
const REQUEST_SIZE_MAX: u64 = 64 << 20;

/// The time within which a client must send its next request, and take its answer.
const SILENCE: Duration = Duration::from_secs(60);

/// A request of the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Executes operations as one change.
    Order {
        operations: Vec<Operation>,
        #[serde(default)]
        dry_run: bool,
        #[serde(default)]
        key: Option<String>,
        #[serde(default)]
        confirm_within: Option<u64>,
    },
    /// Confirms a change, which would otherwise be undone.
    Confirm { change: u64 },
    /// Undoes a change that waits for its confirmation.
    Revert { change: u64 },
    /// Changes the exchange to the content of a document.
    Apply {
        document: Box<Document>,
        #[serde(default)]
        dry_run: bool,
        /// True to apply a document although the exchange has changed since its export.
        #[serde(default)]
        overwrite: bool,
        /// The largest number of services, ends and connections that the document may delete.
        #[serde(default)]
        deletions_max: Option<usize>,
    },
    /// Returns the exchange as a document.
    Export,
    /// Returns the mode, the revision, the switches, the trunks, and the changes in progress.
    Status,
    /// Returns the services with their shown states.
    Services,
    /// Returns the objects whose identifiers have this prefix, or all.
    Objects {
        #[serde(default)]
        prefix: Option<String>,
    },
    /// Returns the ends in quarantine, each with its findings.
    Quarantine,
    /// Verifies everything that the switches report, and returns the violations.
    Verify,
    /// Returns the 95th percentiles of all connections for a month, or for the present one.
    Billing {
        #[serde(default)]
        month: Option<String>,
        /// True for the text of a CSV file.
        #[serde(default)]
        csv: bool,
    },
    /// Returns the BGP sessions.
    Sessions,
    /// Returns true if an account may filter packets, with the evidence or the missing object.
    Check {
        account: AccountId,
        matching: Box<FilterMatch>,
    },
    /// Asks the routing registry again for an account, and checks its filters again.
    Recheck { account: AccountId },
    /// Returns the newest changes.
    Changes { limit: usize },
    /// Returns the journal of a change.
    Journal { change: u64 },
    /// Adopts or overwrites content of switches that is newer than the database.
    Resolve { adopt: bool },
    /// Returns the entries of the audit chain that follow a serial number.
    Audit { after: u64, limit: usize },
    /// Returns the signatures of the audit chain.
    Heads,
    /// Forgets the pinned certificate of a switch.
    ForgetCertificate { dpid: String },
    /// Sets the password of a user.
    SetPassword { user: String, password: String },
    /// Gives a user a new second factor.
    SetTotp { user: String },
}

/// Fails if an engine serves the socket.
pub(crate) fn check_free(path: &Path) -> Result<()> {
    if BlockingStream::connect(path).is_ok() {
        bail!(
            "control.socket {}: another millrace-ix serves it; end that process, or set another path",
            path.display()
        );
    }
    Ok(())
}

/// The file of the bound socket, which is removed when this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// Serves the socket until the process ends. The file is removed only if this process has bound it: if the path in
/// the settings names another file, the bind fails and the file stays.
pub(crate) fn serve(path: &Path, handle: &Handle, app: &App, filters: Option<&Filters>) -> Result<Bound> {
    let name = path.display().to_string();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("control.socket {name}"))?;
    }
    let listener = bind_private(path).with_context(|| {
        format!("control.socket {name}: expected no file, or a socket that no process serves")
    })?;
    let bound = Bound(path.to_owned());
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let own = std::fs::symlink_metadata(path)
        .with_context(|| format!("control.socket {name}"))?
        .uid();
    let (handle, app, filters) = (handle.clone(), app.clone(), filters.cloned());
    let admission = Admission::new(Limits::LOCAL, format!("control.socket {name}"));
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let peer = stream.peer_cred().map(|peer| peer.uid());
                    if !peer.as_ref().is_ok_and(|uid| *uid == own || *uid == 0) {
                        tracing::warn!(?peer, "control socket: expected root or the user of the engine");
                        continue;
                    }
                    let (handle, app, filters) = (handle.clone(), app.clone(), filters.clone());
                    admission.ready().await;
                    let (connection, eviction) = admission.begin_task(Source::Local);
                    tokio::spawn(async move {
                        let serving = converse(stream, &connection, &handle, &app, filters.as_ref());
                        if let Some(Err(error)) = eviction.bound(serving).await {
                            tracing::warn!(%error, "control socket: a connection failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "control socket: a connection cannot be accepted; it is tried again");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(bound)
}

/// Returns the authority over filters.
fn configured(filters: Option<&Filters>) -> Result<&Filters> {
    filters.context("no [bgp], [rpki] or [irr] is configured; add one of these tables to the settings")
}

/// Returns the BGP sessions as JSON.
fn sessions(filters: &Filters) -> Value {
    let session = |session: millrace_ix_filter::SessionStatus| {
        json!({
            "peer": session.peer,
            "asn": session.asn,
            "kind": match session.kind {
                SessionKind::Member => "member",
                SessionKind::RouteServer => "route_server",
            },
            "account": session.account,
            "state": session.state,
            "since": session.since,
            "families": session.families.iter().map(|family| family.to_string()).collect::<Vec<_>>(),
            "prefixes": session.routes,
            "rules": session.flowspec,
            "last_error": session.last_error,
            "problems": session.problems,
        })
    };
    filters.sessions().into_iter().map(session).collect()
}

/// Returns the verdict about a filter as JSON.
fn check(filters: &Filters, handle: &Handle, account: AccountId, matching: &FilterMatch) -> Value {
    // The command names no peers: the filter is for frames of all members.
    let peers = BTreeSet::new();
    let exchange = &handle.snapshot().exchange;
    let verdict = filters.check(exchange, account, matching, &peers, handle.now());
    json!({
        "allowed": verdict.allowed,
        "reason": verdict.reason.map(|reason| reason.text),
        "missing": verdict.missing.map(|missing| missing.text),
        "evidence": verdict.evidence,
    })
}

/// Answers the requests of one connection, which newer connections do not close once it has sent one, unless too many
/// have. It ends after [`SILENCE`].
async fn converse(
    stream: UnixStream,
    connection: &Connection,
    handle: &Handle,
    app: &App,
    filters: Option<&Filters>,
) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let limited = tokio::io::AsyncReadExt::take(reader, REQUEST_SIZE_MAX);
    let mut lines = tokio::io::BufReader::new(limited).lines();
    loop {
        let Ok(line) = tokio::time::timeout(SILENCE, lines.next_line()).await else {
            return Ok(());
        };
        let Some(line) = line? else { return Ok(()) };
        if let Err(error) = connection.establish() {
            tracing::debug!(%error, "control socket: a connection stays pending");
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => {
                let _busy = connection.busy();
                answer(request, handle, app, filters).await
            }
            Err(error) => Err(error.into()),
        };
        let answer = match answer {
            Ok(value) => json!({"ok": value}),
            Err(error) => json!({"error": ErrorChain(error.as_ref()).to_string()}),
        };
        let text = format!("{answer}\n");
        let written = tokio::time::timeout(SILENCE, writer.write_all(text.as_bytes())).await;
        written.context("the client did not read its answer")??;
    }
}

async fn answer(request: Request, handle: &Handle, app: &App, filters: Option<&Filters>) -> Result<Value> {
    let actor = Actor::system();
    Ok(match request {
        Request::Order {
            operations,
            dry_run,
            key,
            confirm_within,
        } => {
            let idempotency = match key {
                Some(key) => {
                    let text = serde_json::to_string(&operations)?;
                    let scope = "control".to_owned();
                    let hash = millrace_ix_store::sha256_hex(text.as_bytes());
                    Some((IdempotencyKey { scope, key }, hash))
                }
                None => None,
            };
            let options = OrderOptions {
                if_match: None,
                idempotency,
                dry_run,
                confirm_within: confirm_within.map(Duration::from_secs),
                granted: Vec::new(),
            };
            let count = operations.len();
            let ordered = handle.order(operations, actor, options).await;
            answers::order(&ordered.map_err(|error| refused(error, count))?)
        }
        Request::Apply {
            document,
            dry_run,
            overwrite,
            deletions_max,
        } => {
            if *document == Document::default() && handle.snapshot().exchange.ids().next().is_some() {
                bail!(
                    "the file has no objects, so it would delete the whole exchange: expected an exchange as \
                     `millrace-ix export` prints it"
                );
            }
            let how = ApplyOptions {
                overwrite,
                deletions_max: deletions_max.unwrap_or(DELETIONS_MAX),
            };
            let options = OrderOptions {
                dry_run,
                ..OrderOptions::default()
            };
            app.check_kept(&document, overwrite).map_err(anyhow::Error::msg)?;
            let ordered = handle
                .apply(Document::clone(&document), how, actor, options)
                .await?;
            let mut answer = answers::order(&ordered);
            // A dry run of a text that is refused still counts.
            let kept = app.apply_kept(&document, dry_run).await;
            let kept = kept.map_err(anyhow::Error::msg)?;
            answer["kept"] = json!({"added": kept.added, "removed": kept.removed});
            answer
        }
        Request::Confirm { change } => {
            handle.confirm(change, actor).await?;
            Value::Null
        }
        Request::Revert { change } => answers::order(&handle.revert(change, actor).await?),
        Request::Status => {
            let snapshot = handle.snapshot();
            let mut value = answers::status(&snapshot);
            value["engine"] = standing::describe(handle, &snapshot);
            value["clock"] = answers::clock(&handle.clock());
            value
        }
        Request::Services => {
            let snapshot = handle.snapshot();
            snapshot
                .exchange
                .services
                .keys()
                .filter_map(|id| answers::service(&snapshot, *id))
                .collect()
        }
        Request::Objects { prefix } => answers::objects(&handle.snapshot(), prefix.as_deref())?,
        Request::Quarantine => answers::quarantine(&handle.snapshot()),
        Request::Verify => {
            let found = handle.verify().await;
            let found = found.context("changes are not verified: set engine.verification_secs above 0")?;
            found.iter().map(ToString::to_string).collect()
        }
        Request::Billing { month, csv } => series::figures(app, month.as_deref(), csv).await?,
        Request::Sessions => sessions(configured(filters)?),
        Request::Check { account, matching } => {
            existing(handle, account)?;
            check(configured(filters)?, handle, account, &matching)
        }
        Request::Recheck { account } => {
            existing(handle, account)?;
            configured(filters)?.recheck(account);
            Value::Null
        }
        Request::Changes { limit } => {
            let mut changes = handle.changes(u64::MAX, limit).await?;
            // The objects before and after a change are left out: only the engine reads them.
            for change in &mut changes {
                if let Some(detail) = change.detail.as_object_mut() {
                    detail.remove("stored");
                }
            }
            serde_json::to_value(changes)?
        }
        Request::Journal { change } => {
            let mut records = handle.journal(change).await?;
            if records.is_empty() {
                bail!("there is no change {change}: `millrace-ix changes` lists them");
            }
            for record in &mut records {
                if let Some(detail) = record.detail.as_object_mut() {
                    detail.remove("stored");
                }
            }
            serde_json::to_value(records)?
        }
        Request::Resolve { adopt } => {
            let resolution = if adopt {
                Resolution::Adopt
            } else {
                Resolution::Enforce
            };
            handle.resolve(resolution, actor).await?;
            Value::Null
        }
        Request::Audit { after, limit } => {
            let records = handle.audit(after, limit).await?;
            records
                .into_iter()
                .map(|record| json!({"entry": record.body, "hash": record.hash}))
                .collect()
        }
        Request::Heads => {
            let heads = handle.signed_heads().await?;
            heads.iter().map(millrace_ix_store::SignedHead::to_json).collect()
        }
        Request::ForgetCertificate { dpid } => {
            let dpid: Dpid = dpid.parse()?;
            if !admission::forget(handle, dpid).await? {
                bail!("no certificate of {dpid} is pinned");
            }
            json!({})
        }
        Request::SetPassword { user, password } => web::set_password(app, handle, &user, password).await?,
        Request::SetTotp { user } => web::set_totp(app, handle, &user).await?,
        Request::Export => {
            let entry = AuditEntry {
                actor: "system".to_owned(),
                action: "export".to_owned(),
                object: String::new(),
                detail: json!({}),
            };
            handle.record(entry).await?;
            let snapshot = handle.snapshot();
            let text = Document::exported(&snapshot.exchange, snapshot.revision);
            serde_json::to_value(text.with_kept(app.kept()))?
        }
    })
}

/// Returns the error of an order of `count` operations. If there are several, it names the refused one.
fn refused(error: OrderError, count: usize) -> anyhow::Error {
    match &error {
        OrderError::Refused(Refusal { step: Some(step), .. }) if count > 1 => {
            anyhow::anyhow!("operation {step} of {count}: {error}")
        }
        _ => error.into(),
    }
}

/// Fails if the exchange does not have an object.
fn existing(handle: &Handle, object: impl Into<ObjectId>) -> Result<()> {
    let object = object.into();
    if handle.snapshot().exchange.object(object).is_none() {
        bail!("there is no {object}: `millrace-ix objects` lists all objects");
    }
    Ok(())
}

/// Sends a request to a running engine and returns its answer.
pub(crate) fn ask(path: &Path, request: &Request) -> Result<Value> {
    let name = path.display();
    let mut stream = BlockingStream::connect(path).with_context(|| {
        format!("{name}: no engine answers; start it with `millrace-ix serve --config FILE`")
    })?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut answer: Value = serde_json::from_str(&line).context("the engine ended before it answered")?;
    match answer.get("error").and_then(Value::as_str) {
        Some(reason) => bail!("{reason}"),
        None => Ok(answer["ok"].take()),
    }
}
