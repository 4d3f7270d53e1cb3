//! Owners of objects in the store: objects that change hands, and whole configurations that leave alone what belongs to
//! others.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_model::{Change, Config, ConfigErrors, ObjectName, diff};

use crate::error::CommitError;
use crate::origin::{Origin, Owned, Owners};
use crate::revision::{Note, Operation, Revision, RevisionNo, Snapshot};
use crate::store::Store;
use crate::time::UnixTime;

impl Snapshot {
    /// Returns `config` for a commit of `origin`, in which the objects of other origins that `config` lacks are as in
    /// this snapshot; and these objects.
    ///
    /// # Errors
    /// [`ConfigErrors`] if the result cannot be decoded. Its consistency is not checked.
    pub fn with_others(
        &self,
        config: &Config,
        origin: &Origin,
    ) -> Result<(Config, Vec<Owned>), ConfigErrors> {
        let given = config.objects();
        self.keeping(config, |object, owner| owner != origin && !given.contains(object))
    }

    /// Returns `config`, an earlier configuration whose owners were `then`, in which the objects that belong to other
    /// origins than `origin`, and those that did then and were removed since, are as in this snapshot; and those of them
    /// that differ.
    pub(crate) fn keeping_others(
        &self,
        config: &Config,
        then: &Owners,
        origin: &Origin,
    ) -> Result<(Config, Vec<Owned>), ConfigErrors> {
        let present = self.config.objects();
        self.keeping(config, |object, owner| match present.contains(object) {
            true => owner != origin,
            false => then.owner(object) != origin,
        })
        .map(|(config, mut kept)| {
            for owned in kept.iter_mut().filter(|owned| !present.contains(&owned.object)) {
                owned.owner = then.owner(&owned.object).clone();
            }
            (config, kept)
        })
    }

    fn keeping(
        &self,
        config: &Config,
        keeps: impl Fn(&ObjectName, &Origin) -> bool,
    ) -> Result<(Config, Vec<Owned>), ConfigErrors> {
        let keeps = |object: &ObjectName| keeps(object, self.owners.owner(object));
        let changed: BTreeSet<ObjectName> = diff(&self.config, config)
            .iter()
            .map(Change::object)
            .filter(|object| keeps(object))
            .collect();
        if changed.is_empty() {
            return Ok((config.clone(), Vec::new()));
        }
        let kept = config.with_objects_of(&self.config, |object| changed.contains(object))?;
        let owned = |object: ObjectName| Owned {
            owner: self.owners.owner(&object).clone(),
            object,
        };
        Ok((kept, changed.into_iter().map(owned).collect()))
    }
}

impl Store {
    /// Returns the configuration that a rollback to revision `to` by `origin` makes of the head, and the objects of
    /// other origins that it leaves as they are although they differ. An object that belonged to another origin then,
    /// and was removed since, does not come back.
    ///
    /// # Errors
    /// [`CommitError::Read`], [`CommitError::Invalid`].
    pub fn restored(&self, to: RevisionNo, origin: &Origin) -> Result<(Config, Vec<Owned>), CommitError> {
        let (_, target) = self.at(to)?;
        let then = self.owners_at(to)?;
        let head = self.head();
        Ok(head.keeping_others(&target, &then, origin)?)
    }

    /// Gives objects of the head to `owner`, as a new revision with the same content. An object is named as
    /// [`Config::object`] says. If all belong to `owner` already, the head stays.
    ///
    /// # Errors
    /// [`CommitError`]; the store is unchanged then.
    pub fn own(
        &self,
        objects: &[String],
        owner: &Origin,
        note: Note,
        now: UnixTime,
    ) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.refuse_if_locked(&note)?;
        self.refuse_if_pending()?;
        let head = self.head();
        let mut owners = Owners::clone(&head.owners);
        for object in objects {
            owners.set(head.config.object(object)?, owner);
        }
        if owners == *head.owners {
            return Ok(head.revision.clone());
        }
        let externals = self.externals_after(&note);
        let revision = self.next(note, Operation::Own, now);
        let snapshot = Snapshot {
            revision,
            config: Arc::clone(&head.config),
            pending: None,
            owners: Arc::new(owners),
            externals: externals.unwrap_or_else(|| Arc::clone(&head.externals)),
        };
        Ok(self.write(&writer, snapshot, None)?)
    }
}
