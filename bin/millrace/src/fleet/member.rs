//! This switch as a member of the fleet: it joins, leaves, and is compared with its document.

use std::path::Path;

use anyhow::{Result, bail};
use millrace_api::client::{ChangeOptions, Client};
use millrace_api::view::OwnRequest;
use millrace_etcd::{Compare, Keys, Op, Settings, Txn};
use millrace_fleet::{Ack, Document, SCHEMA, check_name, to_bytes};
use millrace_model::Config;
use millrace_program::host_name;

use super::store::{Store, object, parsed};
use crate::change::read;
use crate::output::{Session, author, say};

const ETCD: &str = "etcd";
const LOCAL: &str = "local";
/// The seconds for the confirmation of a first document. It is what runs.
const CONFIRM_S: u64 = 60;

/// Returns the objects of an owner.
fn objects_of(client: &Client, owner: &str) -> Result<Vec<String>> {
    let owned = client
        .owners()?
        .objects
        .into_iter()
        .filter(|owned| owned.owner == owner);
    Ok(owned.map(|owned| owned.object).collect())
}

fn give(client: &Client, objects: Vec<String>, owner: &str, comment: &str) -> Result<()> {
    if objects.is_empty() {
        return Ok(());
    }
    let options = ChangeOptions {
        author: author(),
        comment: comment.to_owned(),
        ..ChangeOptions::default()
    };
    let owner = owner.to_owned();
    client.own(&OwnRequest { objects, owner }, &options)?;
    Ok(())
}

/// Returns what the switch runs of the objects of these owners.
fn running(client: &Client, owners: &[&str]) -> Result<Config> {
    let (json, _) = client.config()?;
    let config =
        Config::from_json(&json).or_else(|errors| bail!("the configuration of the switch:\n{errors}"))?;
    let owned = client.owners()?.objects;
    let is_wanted = |path: String| {
        owned
            .iter()
            .any(|one| one.object == path && owners.contains(&one.owner.as_str()))
    };
    Config::default()
        .with_objects_of(&config, |name| is_wanted(name.path()))
        .or_else(|errors| bail!("the configuration of the switch:\n{errors}"))
}

pub(super) fn attach(
    session: &Session,
    store: &mut Store,
    settings: &Settings,
    take_document: bool,
    comment: &str,
) -> Result<()> {
    let node = match &settings.node {
        Some(node) => node.clone(),
        None => host_name()?,
    };
    check_name(&node)?;
    let client = session.client()?;
    let config = running(client, &[ETCD, LOCAL])?;
    match store.document(&node)? {
        Some((document, _)) if document != config && !take_document => bail!(
            "etcd has another document for {node}: `millrace fleet diff {node}` shows the difference, and --take-document lets \
             it count"
        ),
        Some(_) => {
            give(client, objects_of(client, LOCAL)?, ETCD, comment)?;
            return say(&format!("{node} follows its document in etcd\n"));
        }
        None => {}
    }
    let (key, ack) = (store.keys.config(&node), store.keys.ack(&node));
    let known = store.etcd.read(&[Keys::One(ack.clone())])?;
    let document = Document {
        schema: SCHEMA,
        // Not a master's write: it is of the epoch that this switch knows already, and there must be no document.
        epoch: parsed::<Ack>(known.get(&ack)).map_or(0, |ack| ack.seen_epoch),
        tag: None,
        confirm_within: CONFIRM_S,
        supersedes: None,
        author: author(),
        comment: comment.to_owned(),
        config: object(&config)?,
    };
    let txn = Txn {
        compare: vec![Compare::Created(key.clone(), 0)],
        ops: vec![Op::Put(key, to_bytes(&document), None)],
    };
    if !store.etcd.txn(&txn)?.succeeded {
        bail!("somebody wrote a document for {node} meanwhile: `millrace fleet diff {node}`");
    }
    // The document first: without the permission to write it, nothing changes. The switch takes it once it owns the objects.
    give(client, objects_of(client, LOCAL)?, ETCD, comment)?;
    say(&format!(
        "{node} is in the fleet: what it runs is its document ({})\n",
        config.summary()
    ))
}

pub(super) fn detach(session: &Session, comment: &str) -> Result<()> {
    let client = session.client()?;
    let objects = objects_of(client, ETCD)?;
    let count = objects.len();
    let comment = match comment.is_empty() {
        true => "detached from the fleet",
        false => comment,
    };
    give(client, objects, LOCAL, comment)?;
    say(&match count {
        0 => "nothing belongs to etcd: this switch is not in a fleet\n".to_owned(),
        _ => format!(
            "{count} objects belong to people again; documents of etcd are refused until `millrace fleet attach`\n"
        ),
    })
}

pub(super) fn diff(session: &Session, store: &mut Store, node: &str, file: Option<&Path>) -> Result<()> {
    let Some((document, _)) = store.document(node)? else {
        bail!("{node} has no document in etcd: `millrace fleet attach` on it makes its first one");
    };
    let other = match file {
        Some(file) => read(file)?,
        None => running(session.client()?, &[ETCD, LOCAL])?,
    };
    let changes = millrace_model::diff(&document, &other);
    let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
    session.print(&texts, |texts| match texts.is_empty() {
        true => "no difference\n".to_owned(),
        false => texts.iter().map(|text| format!("{text}\n")).collect(),
    })
}
