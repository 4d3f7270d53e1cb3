//! `millrace fleet`: documents of many switches in etcd.

mod master;
mod member;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millrace_api::view::format_utc;
use millrace_etcd::{Client, Settings};
use millrace_fleet::{Keyspace, Overview, Rollout, State, check_name, metrics, row, waves};
use millrace_model::Config;
use serde::Deserialize;
use serde_json::json;

use crate::change::read;
use crate::cli::{Fleet, FleetCommand, PushArgs};
use crate::output::{Session, author, say};
use crate::table::{Table, one_line};

use master::Master;
use store::{LOOK, Store, now};

/// The exit status of a roll-out that failed.
const FAILED: u8 = 1;
/// The time in which etcd must answer a command that waits.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(session: &Session, args: &Fleet) -> Result<ExitCode> {
    let (settings, mut store) = open(&args.settings)?;
    match &args.command {
        FleetCommand::Status => status(session, &mut store)?,
        FleetCommand::Metrics => say(&exposition(&mut store)?)?,
        FleetCommand::Attach { take_document, why } => {
            member::attach(session, &mut store, &settings, *take_document, &why.comment)?;
        }
        FleetCommand::Detach { why } => member::detach(session, &why.comment)?,
        FleetCommand::Diff { node, file } => member::diff(session, &mut store, node, file.as_deref())?,
        FleetCommand::Push { node, file, push } => {
            let documents = BTreeMap::from([(node.clone(), read(file)?)]);
            return submit(
                session,
                &mut store,
                &documents,
                WaveSizes { first: 1, others: 1 },
                false,
                push,
                None,
            );
        }
        FleetCommand::Rollout {
            folder,
            first,
            wave,
            hold,
            push,
        } => {
            let documents = folder_of(folder)?;
            let sizes = WaveSizes {
                first: usize::from(*first),
                others: usize::from(*wave),
            };
            return submit(session, &mut store, &documents, sizes, *hold, push, None);
        }
        FleetCommand::History => history(session, &mut store)?,
        FleetCommand::Pause { id } => {
            store.change(id, |rollout| match rollout.state {
                State::Running | State::Holding => Ok(Rollout {
                    state: State::Paused,
                    reason: Some(format!("paused by {}", author())),
                    ..rollout
                }),
                state => bail!("roll-out {id} is {}: expected a running one", state.name()),
            })?;
            say(&format!(
                "roll-out {id} is paused: `millrace fleet confirm {id}` goes on\n"
            ))?;
        }
        FleetCommand::Confirm { id } => {
            store.change(id, |rollout| match rollout.state {
                State::Paused | State::Holding => Ok(Rollout {
                    state: State::Running,
                    reason: None,
                    ..rollout
                }),
                state => bail!("roll-out {id} is {}: expected one that waits", state.name()),
            })?;
            return wait(session, store, id);
        }
        FleetCommand::Rollback { id, push } => return rollback(session, store, id, push),
        FleetCommand::Adopt { nodes } => {
            let mut master = Master::new(store.again(), author());
            master.adopt(nodes)?;
            say(&format!(
                "the documents of {} count from now on\n",
                nodes.join(", ")
            ))?;
        }
        FleetCommand::Master => Master::new(store, author()).serve()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the settings in a file, and the store that they name.
fn open(path: &Path) -> Result<(Settings, Store)> {
    #[derive(Deserialize)]
    struct File {
        etcd: Settings,
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
    let file: File =
        toml::from_str(&text).with_context(|| format!("{name}: expected a section [etcd] with endpoints"))?;
    let etcd = Client::new(&file.etcd).with_context(|| name.clone())?;
    let keys = Keyspace::new(&file.etcd.prefix);
    Ok((file.etcd, Store::new(etcd, keys)))
}

/// Returns the configurations in a folder, by the names of their files.
fn folder_of(folder: &Path) -> Result<BTreeMap<String, Config>> {
    let name = folder.display();
    let mut documents = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| name.to_string())? {
        let path = entry?.path();
        let is_config = path
            .extension()
            .is_some_and(|extension| extension == "toml" || extension == "json");
        let Some(node) = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .filter(|_| is_config)
        else {
            continue;
        };
        check_name(node).with_context(|| path.display().to_string())?;
        if documents.insert(node.to_owned(), read(&path)?).is_some() {
            bail!("{name}: two files for {node}");
        }
    }
    match documents.is_empty() {
        true => bail!("{name}: expected a file for each switch, as sw1.toml"),
        false => Ok(documents),
    }
}

/// The numbers of switches in the waves of a roll-out.
struct WaveSizes {
    first: usize,
    others: usize,
}

/// Records a roll-out, and waits for its end.
fn submit(
    session: &Session,
    store: &mut Store,
    documents: &BTreeMap<String, Config>,
    sizes: WaveSizes,
    hold: bool,
    push: &PushArgs,
    undoes: Option<String>,
) -> Result<ExitCode> {
    let nodes: Vec<String> = documents.keys().cloned().collect();
    let created = now();
    let rollout = Rollout {
        schema: millrace_fleet::SCHEMA,
        id: store::new_id(created)?,
        author: author(),
        comment: push.why.comment.clone(),
        created,
        confirm_within: push.confirm_within,
        document_schema: millrace_fleet::SCHEMA,
        hold,
        state: State::Running,
        wave: 0,
        waves: waves(&nodes, sizes.first, sizes.others),
        reason: None,
        undoes,
    };
    store.submit(&rollout, documents)?;
    if push.no_wait {
        session.print(&json!({ "rollout": rollout.id }), |_| {
            format!("roll-out {}\n", rollout.id)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    wait(session, store.again(), &rollout.id)
}

/// Waits for the end of a roll-out, and carries it out if no other master does.
fn wait(session: &Session, mut store: Store, id: &str) -> Result<ExitCode> {
    let mut master = Master::new(store.again(), author());
    let mut shown = String::new();
    let mut answered = Instant::now();
    let rollout = loop {
        // Members come and go: another one answers soon.
        let (rollout, revision) = match master.turn().and_then(|()| store.rollout(id)) {
            Ok(found) => found,
            Err(error) if answered.elapsed() > PATIENCE => {
                return Err(error.context(format!("roll-out {id} goes on without this command")));
            }
            Err(_) => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        answered = Instant::now();
        let line = format!("{}\n", progress(&rollout));
        if line != shown && !session.json() {
            say(&line)?;
        }
        shown = line;
        if rollout.state.is_over() || matches!(rollout.state, State::Holding | State::Paused) {
            break rollout;
        }
        store.wait(revision, LOOK);
    };
    master.resign();
    if session.json() {
        session.print(&rollout, |_| String::new())?;
    }
    if let (Some(reason), false) = (&rollout.reason, session.json()) {
        eprintln!("millrace: roll-out {id}: {reason}");
    }
    Ok(match rollout.state {
        State::Failed => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    })
}

/// Returns the state of a roll-out in one line.
fn progress(rollout: &Rollout) -> String {
    use millrace_fleet::Step;
    let count = |wanted: fn(&Step) -> bool| rollout.places().filter(|place| wanted(&place.step)).count();
    let applied = count(|step| matches!(step, Step::Applied));
    let back = count(|step| matches!(step, Step::Back));
    let lost = count(|step| matches!(step, Step::NotBack));
    let mut line = format!(
        "roll-out {}: {}, {applied} of {} switches run it",
        rollout.id,
        rollout.state.name(),
        rollout.places().count()
    );
    if back > 0 {
        line += &format!(", {back} are back");
    }
    if lost > 0 {
        line += &format!(", {lost} are not back: see `millrace fleet status`");
    }
    line
}

fn rollback(session: &Session, mut store: Store, id: &str, push: &PushArgs) -> Result<ExitCode> {
    let (rollout, _) = store.rollout(id)?;
    match rollout.state {
        State::Failed => bail!(
            "roll-out {id} is rolled back already: {}",
            rollout.reason.unwrap_or_default()
        ),
        State::Done => {
            let documents = store.documents_before(&rollout)?;
            let count = documents.len();
            submit(
                session,
                &mut store,
                &documents,
                WaveSizes {
                    first: count,
                    others: count,
                },
                false,
                push,
                Some(id.to_owned()),
            )
        }
        _ => {
            store.change(id, |rollout| {
                Ok(rollout.returning(format!("rolled back by {}", author())))
            })?;
            wait(session, store, id)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn status(session: &Session, store: &mut Store) -> Result<()> {
    let fleet = store.fleet()?;
    let alarms = store.alarms();
    let rows: Vec<_> = fleet
        .nodes
        .iter()
        .map(|(name, node)| (row(name, node.document, &node.view), node))
        .collect();
    let value = json!({
        "master": fleet.master, "alarms": alarms,
        "nodes": rows.iter().map(|(row, node)| json!({
            "node": row.node, "document": row.relation.name(), "health": row.health, "note": row.note,
            "mod_revision": node.document, "ack": node.view.ack, "status": node.view.status,
        })).collect::<Vec<_>>(),
    });
    session.print(&value, |_| {
        let mut table = Table::new(
            &["SWITCH", "DOCUMENT", "HEALTH", ">REVISION", "NOTE"],
            "no switch",
        );
        for (row, node) in &rows {
            let revision = node
                .view
                .status
                .as_ref()
                .map_or_else(|| "-".to_owned(), |status| status.revision.to_string());
            table.row([
                row.node.clone(),
                row.relation.name().to_owned(),
                row.health.to_owned(),
                revision,
                one_line(&row.note),
            ]);
        }
        let alarms: String = alarms
            .iter()
            .map(|alarm| format!("etcd: alarm {alarm}: writes fail until it is over\n"))
            .collect();
        format!("{table}{alarms}")
    })
}

/// Returns the state of the fleet as metrics of Prometheus.
fn exposition(store: &mut Store) -> Result<String> {
    let fleet = store.fleet()?;
    let nodes = fleet
        .nodes
        .iter()
        .map(|(name, node)| (name.as_str(), (node.document, &node.view)));
    Ok(metrics(&Overview {
        has_master: fleet.master.is_some(),
        alarms: store.alarms().len(),
        nodes: &nodes.collect(),
        rollouts: &store.rollouts()?,
    }))
}

fn history(session: &Session, store: &mut Store) -> Result<()> {
    let rollouts = store.rollouts()?;
    session.print(&rollouts, |rollouts| {
        let mut table = Table::new(
            &["ROLL-OUT", "TIME", "AUTHOR", "STATE", ">SWITCHES", "COMMENT"],
            "no roll-out",
        );
        for rollout in rollouts {
            let comment = match (&rollout.undoes, &rollout.reason) {
                (Some(undone), _) => format!("takes {undone} back"),
                (None, Some(reason)) => reason.clone(),
                (None, None) => rollout.comment.clone(),
            };
            table.row([
                rollout.id.clone(),
                format_utc(rollout.created),
                rollout.author.clone(),
                rollout.state.name().to_owned(),
                rollout.places().count().to_string(),
                one_line(&comment),
            ]);
        }
        table.to_string()
    })
}
