//! One cycle: the bridges of the database become a commit, and the state of the switch is read once the switch has applied
//! it. Blocks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millrace_model::{Config, ConfigErrors, ObjectName};
use millrace_ovs::{State, Translation, settle};
use millrace_store::{CommitError, Note, Origin, Owned, Proposal, Snapshot, Store, UnixTime};

use crate::switch::Switch;

/// The longest time in which the switch applies a revision before its state is written as it is.
const APPLY_TIME: Duration = Duration::from_secs(10);

/// The number of attempts to commit while others commit, too.
const ATTEMPTS: usize = 20;

/// The result of a cycle.
pub(crate) struct Cycle {
    /// The rows without those that were taken out.
    pub(crate) translation: Arc<Translation>,
    pub(crate) state: State,
    /// The outcome of the commit of the desired state.
    pub(crate) commit: Commit,
}

/// The outcome of the commit of a desired state.
pub(crate) enum Commit {
    Done,
    /// The store takes no change of a machine now: it is locked, or a revision waits for its confirmation.
    Waits(String),
    /// The store refused it as a whole. It is not tried again until a row changes.
    Refused(String),
}

/// Commits the desired state and reads the state of the switch.
pub(crate) fn run(
    store: &Store,
    switch: &Arc<dyn Switch>,
    wanted: &Translation,
    runtime: &tokio::runtime::Handle,
) -> Cycle {
    let mut wanted = wanted.clone();
    wanted.keep_addresses(&store.head().config);
    let mut cycle = attempt(store, switch, &wanted, runtime);
    // The addresses of ports that run now are known.
    if matches!(cycle.commit, Commit::Done) && wanted.choose_addresses(&cycle.state) {
        cycle = attempt(store, switch, &wanted, runtime);
    }
    cycle
}

fn attempt(
    store: &Store,
    switch: &Arc<dyn Switch>,
    wanted: &Translation,
    runtime: &tokio::runtime::Handle,
) -> Cycle {
    let (translation, commit) = commit(store, wanted);
    if matches!(commit, Commit::Done) {
        let number = store.head().revision.number.0;
        let mut applied = switch.applied();
        let reached = applied.wait_for(|applied| applied.is_some_and(|applied| applied >= number));
        if runtime
            .block_on(async { tokio::time::timeout(APPLY_TIME, reached).await })
            .is_err()
        {
            tracing::warn!(
                revision = number,
                "the switch is slow to apply the revision; its state is written as it is"
            );
        }
    }
    Cycle {
        translation: Arc::new(translation),
        state: switch.state(),
        commit,
    }
}

fn commit(store: &Store, wanted: &Translation) -> (Translation, Commit) {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let head = store.head();
        let mut translation = wanted.clone();
        let config = match beside_others(&head, &mut translation) {
            Ok(config) => config,
            Err(errors) => return (translation, Commit::Refused(errors.to_string())),
        };
        let number = u64::try_from(translation.next_cfg).unwrap_or(0);
        let proposal = Proposal {
            expected: Some(head.revision.number),
            config,
            note: Note::new("ovsdb", "").of(Origin::OVSDB).external(number),
        };
        match store.commit(proposal, UnixTime::from(SystemTime::now())) {
            Ok(_) => return (translation, Commit::Done),
            Err(error @ CommitError::Conflict { .. }) => last = error.to_string(),
            Err(error @ (CommitError::Unconfirmed { .. } | CommitError::Locked { .. })) => {
                return (translation, Commit::Waits(error.to_string()));
            }
            Err(error) => return (translation, Commit::Refused(error.to_string())),
        }
    }
    (wanted.clone(), Commit::Waits(last))
}

/// Returns the head with the bridges of the database in place of those that the database had before.
fn beside_others(head: &Snapshot, translation: &mut Translation) -> Result<Config, ConfigErrors> {
    let owner = |name: &str| head.owners.owner(&ObjectName::bridge(name)).clone();
    let taken = |name: &str| {
        let owned = Owned {
            object: ObjectName::bridge(name),
            owner: owner(name),
        };
        owned.refusal(&Origin::OVSDB)
    };
    let mut others = Config::clone(&head.config);
    others
        .bridges
        .retain(|bridge| owner(bridge.name.as_str()) != Origin::OVSDB);
    let before = translation.clone();
    let refused = match settle(&others, translation, taken) {
        Ok(config) => return Ok(config),
        Err(refused) => refused,
    };
    // Something of another origin may need a bridge that the database removed, such as an interface of the router. Such a
    // bridge stays.
    let names: Vec<&str> = before.rows.iter().map(|row| row.name.as_str()).collect();
    let kept = |bridge: &&millrace_model::Bridge| {
        let name = bridge.name.as_str();
        owner(name) == Origin::OVSDB && !names.contains(&name)
    };
    let kept: Vec<_> = head.config.bridges.iter().filter(kept).cloned().collect();
    if kept.is_empty() {
        return Err(refused);
    }
    others.bridges.extend(kept);
    *translation = before.clone();
    let config = settle(&others, translation, taken)?;
    tracing::warn!(reason = %refused, "bridges that the database no longer has stay, because others need them");
    Ok(config)
}
