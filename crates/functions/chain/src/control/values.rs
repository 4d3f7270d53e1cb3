//! Shared values of hops: compiled, given to functions, and shown to exporters.

use std::sync::Arc;

use millrace_nf::{Kind, SharedKind, SourceFile};
use millrace_types::Time;
use millrace_wire::Packet;

use super::Chain;
use super::hop::HopControl;
use crate::exporter::Route;
use crate::lane::Change;
use crate::plan::{Class, HopPlan};
use crate::shared::{HopValue, SharedStatus};

impl HopControl {
    /// Returns the target of the messages of the hop's functions, if they export any.
    fn exports_to(&self) -> Option<&str> {
        let mut targets = self.plan.settings.all("export");
        targets
            .next()
            .filter(|_| self.kind.outbox.0 != 0)
            .map(AsRef::as_ref)
    }

    /// Returns whether the shared value of this hop suits functions of a kind.
    pub(super) fn has_value_for(&self, kind: &Kind) -> bool {
        let same = |own, other| core::ptr::eq::<SharedKind>(own, other);
        matches!((self.kind.shared, kind.shared), (Some(own), Some(other)) if same(own, other))
    }

    /// Returns the state of the shared value; `None` for kinds without one.
    pub(super) fn value_status(&self) -> Option<SharedStatus> {
        let value = self.value.as_ref()?;
        let working = self.instances.iter().flatten().map(|instance| &instance.counters);
        let working = working.filter(|counters| !counters.is_down());
        let processes: Vec<[u64; 2]> = working.map(|counters| counters.value()).collect();
        Some(value.status(&processes))
    }

    /// Takes over the shared value of the hop that this hop replaces.
    pub(super) fn take_value(&mut self, old: &mut HopControl) {
        if old.has_value_for(self.kind) {
            self.value = old.value.take();
        }
    }

    /// Begins to compile the shared value for the settings of the plan, unless they are unchanged.
    pub(super) fn set_value(&mut self) {
        let source = self.source.clone();
        match (&mut self.value, self.kind.shared) {
            (Some(value), _) => value.set(&self.plan.settings, source),
            (None, Some(kind)) => self.value = Some(HopValue::begin(kind, &self.plan.settings, source)),
            (None, None) => {}
        }
    }
}

/// Returns the file from which processes of a hop read the source of its value. A hop that replaces another uses the file of
/// the old hop. `None` for functions in the worker, and for kinds without a value.
pub(super) fn source_of(
    kind: &Kind,
    plan: &HopPlan,
    held: Option<&HopControl>,
) -> std::io::Result<Option<Arc<SourceFile>>> {
    if plan.class == Class::Inline || kind.shared.is_none() {
        return Ok(None);
    }
    let known = held.filter(|held| held.has_value_for(kind));
    match known.and_then(|held| held.source.clone()) {
        Some(source) => Ok(Some(source)),
        None => SourceFile::create().map(|file| Some(Arc::new(file))),
    }
}

impl<P: Packet + 'static> Chain<P> {
    /// Reads and compiles the shared value of a hop again. Returns whether there is such a hop with a shared value.
    pub fn reload(&mut self, hop: &str) -> bool {
        let record = self.records.iter_mut().find(|record| record.plan.name == hop);
        match record.and_then(|record| record.value.as_mut()) {
            None => false,
            Some(value) => {
                value.reload();
                true
            }
        }
    }

    /// Compiles a shared value again if one of its files has changed.
    pub fn reload_changed(&mut self) {
        let values = self.records.iter_mut().filter_map(|record| record.value.as_mut());
        values.for_each(HopValue::reload_changed);
    }

    /// Gives functions the shared values that exporters have. Returns whether other values were compiled since the last call:
    /// exporters get them first, so that they know what a message refers to.
    pub(super) fn share_values(&mut self, now: Time) -> bool {
        let mut has_compiled = false;
        for record in &mut self.records {
            let exports = record.exports_to().is_some();
            let Some(hop) = &mut record.value else { continue };
            if let Some(value) = hop.take_unshared(now, exports) {
                for (lane, instances) in self.lanes.iter_mut().zip(&mut record.instances) {
                    for instance in instances.iter_mut() {
                        instance.setup.shared = Some(value.clone());
                    }
                    lane.send(Change::Share {
                        hop: record.id,
                        value: value.clone(),
                        old: Vec::with_capacity(instances.len() + 1),
                    });
                }
            }
            has_compiled |= hop.poll(now);
        }
        has_compiled
    }

    /// Returns a route for each hop whose functions export messages.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let route = |record: &HopControl| {
            let instances = || record.instances.iter().flatten();
            let settings = &record.plan.settings;
            Some(Route {
                to: record.exports_to()?.to_owned(),
                outboxes: instances()
                    .map(|instance| instance.setup.outbox.clone())
                    .collect(),
                counters: instances()
                    .map(|instance| instance.setup.counters.clone())
                    .collect(),
                formatter: record
                    .kind
                    .formatter
                    .map(|make| make(settings, self.zero_unix_millis)),
                value: record.value.as_ref().and_then(HopValue::value).cloned(),
                has_value: record
                    .value
                    .as_ref()
                    .map(HopValue::with_exporter)
                    .unwrap_or_default(),
            })
        };
        self.records.iter().filter_map(route).collect()
    }
}
