//! meter_mod (OpenFlow 1.3.5, section 7.3.4.4) and the statistics of meters.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_types::{Duration, MeterId, Time};

use super::error::{FlowModError, MeterModError};
use super::journal::Undo;
use super::meters::MeterRecord;
use super::request::RemovedReason;
use super::writer::Control;
use crate::counters::EntryCount;
use crate::meter::{CompiledMeter, Meter, MeterFlags};
use crate::{FlowEntry, Op};

/// A meter_mod (`ofp_meter_mod_command`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeterMod {
    /// `OFPMC_ADD`: adds a meter.
    Add(Meter),
    /// `OFPMC_MODIFY`: replaces the flags and bands of a meter. The counters of the new bands start at zero.
    Modify(Meter),
    /// `OFPMC_DELETE`: deletes a meter and the flow entries that use it; all meters for [`MeterId::ALL`].
    Delete(MeterId),
}

/// A meter and its counters (OpenFlow 1.3.5, section 7.3.5.12).
#[derive(Clone, Debug)]
pub struct MeterStat<'a> {
    pub meter: &'a Meter,
    /// Number of flow entries that use the meter.
    pub flows: u32,
    /// Packets and bytes that the meter processed.
    pub count: EntryCount,
    /// Time since the meter was added.
    pub duration: Duration,
    /// Packets and bytes to which each band was applied.
    pub bands: Vec<EntryCount>,
}

impl Control {
    /// Maximum number of meters.
    pub const METERS_MAX: u32 = 262_144;
    /// Maximum number of bands of a meter.
    pub const BANDS_MAX: u8 = 16;

    /// Executes a meter_mod and appends its changes for the readers to `ops`. Returns the number of flow entries that
    /// were deleted because they used a deleted meter.
    ///
    /// # Errors
    /// [`MeterModError`]; nothing has changed.
    pub fn meter_mod(
        &mut self,
        request: &MeterMod,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<usize, MeterModError> {
        match request {
            MeterMod::Add(meter) => {
                if self.meters.contains_key(&meter.id) {
                    return Err(MeterModError::Exists { meter: meter.id });
                }
                if self.meters.len() >= Self::METERS_MAX as usize {
                    return Err(MeterModError::TooMany {
                        max: Self::METERS_MAX,
                    });
                }
                self.set_meter(meter, now, ops)?;
                Ok(0)
            }
            MeterMod::Modify(meter) => {
                if !self.meters.contains_key(&meter.id) {
                    return Err(MeterModError::Unknown { meter: meter.id });
                }
                self.set_meter(meter, now, ops)?;
                Ok(0)
            }
            MeterMod::Delete(id) => {
                let is_selected = |one: MeterId| *id == MeterId::ALL || one == *id;
                let deleted: Vec<MeterId> = self
                    .meters
                    .keys()
                    .copied()
                    .filter(|one| is_selected(*one))
                    .collect();
                for id in &deleted {
                    self.remove_meter(*id, ops);
                }
                if deleted.is_empty() {
                    return Ok(0);
                }
                let uses_it = |entry: &FlowEntry| entry.meter().is_some_and(is_selected);
                Ok(self.remove_users(uses_it, RemovedReason::Delete, now, ops))
            }
        }
    }

    /// Adds or replaces a meter, if it is valid.
    pub(super) fn set_meter(
        &mut self,
        meter: &Meter,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<(), MeterModError> {
        check_meter(meter)?;
        let held = self.meters.get(&meter.id).cloned();
        let needed = meter.bands.len() + usize::from(held.is_none());
        if needed > self.free_slots() {
            return Err(MeterModError::TooMany {
                max: Self::METERS_MAX,
            });
        }
        // A modified meter keeps its counters; its bands start with zero.
        let (slot, created) = match &held {
            Some(held) => (held.compiled.slot(), held.created),
            None => (self.allocate_counters(), now),
        };
        let bands: Vec<Slot> = meter.bands.iter().map(|_| self.allocate_counters()).collect();
        let compiled = Arc::new(CompiledMeter::new(meter.clone(), slot, bands, now));
        self.removed_counters
            .extend(held.iter().flat_map(|held| band_slots(&held.compiled)));
        ops.push(Op::Meter(Arc::clone(&compiled)));
        self.meters.insert(meter.id, MeterRecord { compiled, created });
        self.record_undo(|| Undo::Meter(meter.id, held.map(Box::new)));
        Ok(())
    }

    fn remove_meter(&mut self, id: MeterId, ops: &mut Vec<Op>) {
        if let Some(held) = self.meters.remove(&id) {
            self.removed_counters.extend(band_slots(&held.compiled));
            self.removed_counters.push(held.compiled.slot());
            ops.push(Op::RemoveMeter(id));
            self.record_undo(|| Undo::Meter(id, Some(Box::new(held))));
        }
    }

    /// Restores the state of a meter before its latest change.
    pub(super) fn undo_meter(&mut self, id: MeterId, before: Option<MeterRecord>) {
        let kept = before.as_ref().map(|held| held.compiled.slot());
        let held = match before {
            Some(before) => self.meters.insert(id, before),
            None => self.meters.remove(&id),
        };
        if let Some(held) = held {
            self.free.extend(band_slots(&held.compiled));
            self.free
                .extend(Some(held.compiled.slot()).filter(|slot| Some(*slot) != kept));
        }
    }

    /// Refuses a meter instruction whose meter does not exist.
    pub(super) fn check_meter_exists(&self, meter: Option<MeterId>) -> Result<(), FlowModError> {
        match meter {
            Some(meter) if meter > MeterId::MAX || !self.meters.contains_key(&meter) => {
                Err(FlowModError::NoSuchMeter { meter })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of meters.
    pub fn meter_len(&self) -> usize {
        self.meters.len()
    }

    /// Returns a meter.
    pub fn meter(&self, id: MeterId) -> Option<&Meter> {
        self.meters.get(&id).map(|held| held.compiled.meter())
    }

    /// Returns all meters, ordered by number.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.meters.values().map(|held| held.compiled.meter())
    }

    /// Calls `visit` for a meter and its counters, or for all meters for [`MeterId::ALL`].
    pub fn meter_stats(&self, id: MeterId, now: Time, mut visit: impl FnMut(MeterStat<'_>)) {
        let mut users: HashMap<MeterId, u32> = HashMap::new();
        for meter in self.referrers().filter_map(|(_, entry)| entry.meter()) {
            *users.entry(meter).or_default() += 1;
        }
        let is_selected = |one: MeterId| id == MeterId::ALL || one == id;
        for (id, held) in self.meters.iter().filter(|(one, _)| is_selected(**one)) {
            visit(MeterStat {
                meter: held.compiled.meter(),
                flows: users.get(id).copied().unwrap_or_default(),
                count: self.banks.entry(held.compiled.slot()),
                duration: now.since(held.created),
                bands: band_slots(&held.compiled)
                    .map(|slot| self.banks.entry(slot))
                    .collect(),
            });
        }
    }
}

fn check_meter(meter: &Meter) -> Result<(), MeterModError> {
    let id = meter.id;
    let is_virtual = id == MeterId::CONTROLLER || id == MeterId::SLOWPATH;
    if id == MeterId(0) || (id > MeterId::MAX && !is_virtual) {
        return Err(MeterModError::BadNumber { meter: id });
    }
    let both = MeterFlags(MeterFlags::KBPS.0 | MeterFlags::PKTPS.0);
    if !MeterFlags::ALL.contains(meter.flags) || meter.flags.contains(both) {
        return Err(MeterModError::BadFlags { flags: meter.flags.0 });
    }
    if meter.bands.len() > usize::from(Control::BANDS_MAX) {
        return Err(MeterModError::TooManyBands {
            bands: meter.bands.len(),
            max: Control::BANDS_MAX,
        });
    }
    if meter.bands.iter().any(|band| band.rate == 0) {
        return Err(MeterModError::NoRate);
    }
    Ok(())
}

fn band_slots(compiled: &CompiledMeter) -> impl Iterator<Item = Slot> + '_ {
    compiled.bands().iter().map(|band| band.slot)
}
