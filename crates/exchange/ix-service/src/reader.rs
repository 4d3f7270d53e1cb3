//! The contents of the database in memory: at the start, and again for an engine that follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_ix_engine::{Engine, Mode, Resume, Settings};
use millrace_ix_model::Exchange;
use millrace_ix_store::{ChangeState, Leader, Revision, Store, UnixMillis};

use crate::core::{ADOPTED, Core};
use crate::decision::{self, Unconfirmed};
use crate::error::StartError;
use crate::event::EventKind;
use crate::fabric::Fabric;
use crate::now::Now;
use crate::open::OpenChange;
use crate::phases::Planner;
use crate::revisions::Revisions;
use crate::rows;

/// The contents of the database, with an engine that has been told nothing yet.
pub(crate) struct Loaded {
    pub(crate) exchange: Exchange,
    pub(crate) revision: Revision,
    pub(crate) revisions: Revisions,
    pub(crate) open: BTreeMap<u64, OpenChange>,
    pub(crate) unconfirmed: BTreeMap<u64, Unconfirmed>,
    pub(crate) next_change: u64,
    pub(crate) engine: Engine<Fabric>,
}

impl Loaded {
    /// Reads the database. An engine that follows has no plan, because it sends nothing.
    pub(crate) fn read(
        store: &dyn Store,
        settings: Settings,
        extensions: bool,
        now: Now,
        follows: bool,
    ) -> Result<Loaded, StartError> {
        let contents = store.load()?;
        let (exchange, revisions) = rows::exchange(contents.objects, now.timestamp())?;
        let mut open = BTreeMap::new();
        for record in &contents.open_changes {
            open.insert(record.id, OpenChange::read(record)?);
        }
        let adopted = store.setting(ADOPTED)?.is_some();
        let plan = if follows {
            BTreeMap::new()
        } else {
            let mut base = exchange.clone();
            for change in open.values().rev() {
                base.commit(change.undo.clone());
            }
            Planner { extensions }.plan(&base, now.timestamp())
        };
        Ok(Loaded {
            exchange,
            revision: contents.revision,
            revisions,
            open,
            unconfirmed: decision::load(store, contents.next_change, now)?,
            next_change: contents.next_change,
            engine: Engine::new(settings, plan, contents.revision.0, adopted),
        })
    }
}

impl Core {
    /// Reads the database. `extensions` is true if every switch has the match extensions of Open vSwitch. A
    /// change that was under way starts again if its flip had not begun; otherwise it continues forward from
    /// the phase in the journal.
    ///
    /// # Errors
    /// [`StartError`] if the database cannot be read.
    pub fn start(
        store: Box<dyn Store>,
        settings: Settings,
        extensions: bool,
        now: Now,
    ) -> Result<Core, StartError> {
        let mut core = Core::empty(store, settings, extensions, now);
        let loaded = Loaded::read(&*core.store, settings, extensions, now, false)?;
        core.exchange = Arc::new(loaded.exchange);
        core.before = Arc::clone(&core.exchange);
        core.revision = loaded.revision;
        core.revisions = loaded.revisions;
        core.engine = loaded.engine;
        core.open = loaded.open;
        core.unconfirmed = Arc::new(loaded.unconfirmed);
        core.next_change = loaded.next_change;
        core.resume_changes(now);
        core.drain(now);
        Ok(core)
    }

    /// Reads the database for an engine that follows: it shows the exchange, sends nothing, and accepts nothing.
    ///
    /// # Errors
    /// [`StartError`] if the database cannot be read.
    pub fn follow(
        store: Box<dyn Store>,
        settings: Settings,
        extensions: bool,
        leader: Leader,
        now: Now,
    ) -> Result<Core, StartError> {
        let mut core = Core::empty(store, settings, extensions, now);
        core.follows = Some(leader);
        core.read_again(now)?;
        core.outputs.clear();
        Ok(core)
    }

    /// Reads the database again, and tells subscribers what has changed. Only an engine that follows does this: one that leads has
    /// written everything itself.
    ///
    /// # Errors
    /// [`StartError`] if the database cannot be read; everything is as before then.
    pub(crate) fn read_again(&mut self, now: Now) -> Result<(), StartError> {
        let settings = *self.engine.settings();
        let loaded = Loaded::read(&*self.store, settings, self.planner.extensions, now, true)?;
        self.before = std::mem::replace(&mut self.exchange, Arc::new(loaded.exchange));
        self.revision = loaded.revision;
        self.engine = loaded.engine;
        self.open = loaded.open;
        self.next_change = loaded.next_change;
        self.unconfirmed = Arc::new(loaded.unconfirmed);
        let before = std::mem::replace(&mut self.revisions, loaded.revisions);
        self.add_switches(now);
        self.queue.clear();
        self.changed = true;
        for (id, written) in self.revisions.differing(&before) {
            let (revision, deleted) = (written.unwrap_or(loaded.revision), written.is_none());
            self.tell(
                EventKind::Object {
                    id,
                    revision,
                    deleted,
                },
                now,
            );
        }
        Ok(())
    }

    /// Ends the leadership of this engine: it sends nothing and accepts nothing from now on.
    pub(crate) fn step_down(&mut self, leader: Leader) {
        self.follows = Some(leader);
        self.queue.clear();
        self.outputs.clear();
        self.changed = true;
    }

    /// Notes the time since which the database has not answered, and tells subscribers when it begins and ends.
    pub(crate) fn note_silence(&mut self, since: Option<UnixMillis>, now: Now) {
        if since.is_some() != self.silent_since.is_some() {
            self.silent_since = since;
            let is_waiting = self.unwritable.is_some() || self.engine.mode() != Mode::Normal;
            let read_only = since.is_some() || is_waiting;
            self.tell(EventKind::Mode { read_only }, now);
        }
    }

    /// Submits the changes that were in progress to the engine.
    pub(crate) fn resume_changes(&mut self, now: Now) {
        self.add_switches(now);
        let ids: Vec<u64> = self.open.keys().copied().collect();
        for id in ids {
            let resume = match self.open.get(&id).map(|change| change.state) {
                Some(ChangeState::Staged) => Resume::Flip,
                Some(ChangeState::Flipped) => Resume::Drain,
                Some(ChangeState::Drained) => Resume::Clean,
                _ => Resume::Start,
            };
            self.submit(id, resume, now);
        }
        // Open changes may name a switch that one of them adds and a later one deletes.
        self.add_switches(now);
    }
}
