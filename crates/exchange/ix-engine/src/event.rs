//! Events of the engine, its actions, and its notices for people.

use std::collections::BTreeMap;

use millrace_types::{Duration, Time};

use crate::SwitchId;
use crate::change::{ChangeId, Order, Phase, Resume};
use crate::content::{Content, Delta, Entries, Modification};
use crate::drift::Drifted;
use crate::switch::{Session, SyncState};

/// An occurrence that the engine reacts to.
#[derive(Debug)]
pub enum Event<E: Entries> {
    /// A change was accepted; its journal record `accepted` and its objects are durable.
    Accepted(Order<E>, Resume),
    /// A switch of the plan has connected, and the engine is its master.
    Connected {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
    },
    /// The connection of a switch has ended.
    Disconnected {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
    },
    /// A dump is complete, or has failed. An incomplete dump counts as failed.
    Dumped {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
        /// All entries, or the reason why they are not known.
        content: Result<Content<E>, String>,
    },
    /// The switch has executed a commit: it has answered the barrier after the commit.
    Committed {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
        /// The number of the commit.
        commit: u64,
    },
    /// The switch has refused a commit.
    Refused {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
        /// The number of the commit.
        commit: u64,
        /// The switch's error in words.
        reason: String,
        /// True if a part of the commit may have been executed, at a switch without atomic bundles.
        partly: bool,
    },
    /// The verification that [`Action::Verify`] asked for has ended.
    Verified {
        change: ChangeId,
        /// `Ok` if the entries of the change may be used; otherwise the violated property in words.
        result: Result<(), String>,
    },
    /// A flow monitor has reported a change that the engine did not make.
    ForeignChange {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
    },
    /// OAM has measured the largest one-way delay from a switch to the others.
    Delay { switch: SwitchId, delay: Duration },
    /// A switch was added to the exchange.
    Added(SwitchId),
    /// A switch was taken out of service permanently, or was put back into service.
    Retired { switch: SwitchId, is_retired: bool },
    /// Entries of a switch are over, and are removed without a change, because none can be written now. Entries of changes in progress
    /// stay.
    Lapsed { switch: SwitchId, keys: Vec<E::Key> },
    /// An operator has decided what happens with content that is newer than the database.
    Resolved(Resolution),
    /// The time of [`Engine::deadline`] has come.
    Tick,
}

/// An operator's decision about content that is newer than the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Entries of the switches that the database does not know remain until a later [`Resolution::Enforce`]. All other
    /// entries follow the database.
    Adopt,
    /// The switches become equal to the database.
    Enforce,
}

/// The mode of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The switches follow the plan.
    Normal,
    /// The engine sends nothing, because a switch has content of a later revision than the database.
    ReadOnly {
        switch: SwitchId,
        /// The revision that the switch remembers.
        theirs: u64,
        /// The revision of the database.
        ours: u64,
    },
}

/// An action for the caller. Actions are executed in the order of the list.
#[derive(Debug)]
pub enum Action<E: Entries> {
    /// Write the phase of a change to the journal. It must be durable before later actions run.
    Journal {
        change: ChangeId,
        /// The phase that the change enters.
        phase: Phase,
    },
    /// Undo changes, newest first: restore their objects and write `rolled_back`, in one transaction, before later
    /// actions run.
    RollBack {
        changes: Vec<ChangeId>,
        /// The reason in words.
        reason: String,
    },
    /// Plan and order an accepted change again, because an earlier change of the same entries was undone.
    Replan(ChangeId),
    /// Verify the switches as they will be after the flip of a change, and after the removal of its old entries. All new
    /// entries are confirmed. The answer is [`Event::Verified`].
    Verify {
        change: ChangeId,
        /// The entries that the flip changes, by switch.
        flip: BTreeMap<SwitchId, Delta<E>>,
        /// The entries that are removed after the flip, by switch.
        clean: BTreeMap<SwitchId, Delta<E>>,
    },
    /// Read all entries of a switch.
    Dump {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
    },
    /// Send one atomic bundle and a barrier.
    Commit {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
        /// The number of the commit.
        commit: u64,
        /// The modifications, by key.
        modifications: Vec<Modification<E::Key, E::Value>>,
    },
    /// The switches have confirmed the removal of a finished change's entries. The numbers that the change
    /// freed are held from now on, and may then be used again.
    Release(ChangeId),
    /// All switches have been compared with the plan since the start, and have no entries of changes that
    /// were finished before the start. The numbers that those changes freed are held from now on, and may then
    /// be used again.
    Swept,
    /// Report a notice to people.
    Notify(Notice<E::Key>),
}

/// The largest number of entries that a notice names.
pub(crate) const EXAMPLES_MAX: usize = 20;

/// A notice for people and logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice<K> {
    /// A dump had entries that the exchange did not install.
    Foreign {
        switch: SwitchId,
        entries: Vec<K>,
        /// True if they are removed.
        removed: bool,
    },
    /// A reconciliation has found differences.
    Drift {
        switch: SwitchId,
        /// The number of entries that are repaired.
        entries: usize,
        /// Some of them, without those of changes in progress.
        examples: Vec<Drifted<K>>,
        /// True if the switch was compared before on this connection: somebody else has changed its entries.
        by_another: bool,
    },
    /// The switch equals the plan.
    InSync { switch: SwitchId },
    /// A dump has failed. The engine draws no conclusion from it.
    DumpFailed { switch: SwitchId, reason: String },
    /// A change waits for switches that do not answer.
    Waiting {
        change: ChangeId,
        switches: Vec<SwitchId>,
    },
    /// A switch refuses an entry of a repair, or a change that can no longer be rolled back. The engine tries again.
    Stuck {
        switch: SwitchId,
        /// The change; `None` for a repair.
        change: Option<ChangeId>,
        /// The switch's error.
        reason: String,
    },
    /// The mode is now [`Mode::ReadOnly`].
    ReadOnly {
        switch: SwitchId,
        /// The revision that the switch remembers.
        theirs: u64,
        /// The revision of the database.
        ours: u64,
    },
}

/// The status of a change in progress, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeStatus {
    /// The number.
    pub change: ChangeId,
    pub phase: Phase,
    /// The switches that the change waits for.
    pub switches: Vec<SwitchId>,
    /// The earlier changes that the change waits for.
    pub changes: Vec<ChangeId>,
}

/// The status of a switch, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchStatus {
    /// The engine's knowledge.
    pub state: SyncState,
    /// The number of entries that the switch should have.
    pub entries: usize,
    /// The number of foreign entries that the switch has: those of the last dump, without those that commits have
    /// changed since.
    pub foreign: usize,
    /// The time of the last complete dump.
    pub last_dump: Option<Time>,
}
