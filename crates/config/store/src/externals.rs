//! External numbers: how far the store follows each machine. They are kept although a revision is replaced or removed,
//! and although a change of a machine makes no revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::Write;
use crate::error::StorageError;
use crate::origin::Origin;
use crate::revision::{Note, Snapshot};
use crate::store::{Store, Writer};

impl Store {
    /// Returns the external numbers after a change with this note; `None` if it raises none.
    pub(crate) fn externals_after(&self, note: &Note) -> Option<Arc<BTreeMap<Origin, u64>>> {
        let (origin, number) = note.external_number()?;
        let head = self.head();
        if head.externals.get(origin).is_some_and(|known| *known >= number) {
            return None;
        }
        let mut externals = BTreeMap::clone(&head.externals);
        externals.insert(origin.clone(), number);
        Some(Arc::new(externals))
    }

    /// Records the external number of a change that makes no revision.
    pub(crate) fn note_external(&self, _: &Writer<'_>, note: &Note) -> Result<(), StorageError> {
        let Some(externals) = self.externals_after(note) else {
            return Ok(());
        };
        self.inner.disk.write(&Write {
            externals: Some(&externals),
            ..Write::default()
        })?;
        self.publish(Snapshot {
            externals,
            ..(*self.head()).clone()
        });
        Ok(())
    }
}
