//! The meters of a readers' copy, found by number.

use std::sync::Arc;

use hashbrown::HashTable;
use millrace_types::MeterId;

use super::CompiledMeter;

/// The meters of a readers' copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeterMap {
    meters: HashTable<Arc<CompiledMeter>>,
    /// The meter of packet-ins (`OFPM_CONTROLLER`). The table of all meters has it, too.
    controller: Option<Arc<CompiledMeter>>,
}

impl MeterMap {
    /// Returns the hash of a meter number. The hash uses no secret key: controllers choose the numbers, and
    /// would slow down only themselves by collisions.
    #[inline]
    fn hash(id: MeterId) -> u64 {
        let product = u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    }

    #[inline]
    pub(crate) fn meter(&self, id: MeterId) -> Option<&CompiledMeter> {
        self.meters
            .find(Self::hash(id), |held| held.meter().id == id)
            .map(|held| &**held)
    }

    /// Returns the meter that packet-ins pass (`OFPM_CONTROLLER`).
    #[inline]
    pub(crate) fn controller(&self) -> Option<&CompiledMeter> {
        self.controller.as_deref()
    }

    /// Adds or replaces a meter.
    pub(crate) fn insert(&mut self, compiled: &Arc<CompiledMeter>) {
        let id = compiled.meter().id;
        self.remove(id);
        let hash = |held: &Arc<CompiledMeter>| Self::hash(held.meter().id);
        self.meters
            .insert_unique(Self::hash(id), Arc::clone(compiled), hash);
        if id == MeterId::CONTROLLER {
            self.controller = Some(Arc::clone(compiled));
        }
    }

    pub(crate) fn remove(&mut self, id: MeterId) {
        if let Ok(found) = self
            .meters
            .find_entry(Self::hash(id), |held| held.meter().id == id)
        {
            found.remove();
        }
        if id == MeterId::CONTROLLER {
            self.controller = None;
        }
    }
}
