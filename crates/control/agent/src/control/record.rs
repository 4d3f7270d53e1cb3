//! The steps of a list of all flow entries ([`Recording`]).

use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_pipeline::{Cursor, FlowFilter};

use super::BridgeControl;
use super::recording::{Recorded, Recording};

impl<B: Backend> BridgeControl<B> {
    /// Begins a list of all entries. A list that was begun before is dropped.
    pub(crate) fn begin_recording(&mut self) {
        self.recording = Some(Recording::begin());
    }

    /// Reads the next entries, at most `budget`. Returns true if it reached the end.
    pub(crate) fn record(&mut self, budget: usize) -> bool {
        let Some(mut recording) = self.recording.take() else {
            return true;
        };
        if let Some(at) = recording.next {
            recording.next = self.read_entries(at, budget, &mut recording.entries);
        }
        let is_done = recording.next.is_none();
        self.recording = Some(recording);
        is_done
    }

    /// Returns the list, complete as of now; `None` if entries are left to be read.
    pub(crate) fn end_recording(&mut self) -> Option<Vec<Recorded>> {
        // The changes that are not published yet are noted.
        self.publish();
        if self.recording.as_ref()?.next.is_some() {
            return None;
        }
        let mut recording = self.recording.take()?;
        for at in recording.changed {
            if let Some(entry) = recording.entries.get_mut(at) {
                *entry = None;
            }
            self.read_entries(Cursor::at(at), 1, &mut recording.entries);
        }
        Some(recording.entries)
    }

    fn read_entries(&self, at: Cursor, budget: usize, entries: &mut Vec<Recorded>) -> Option<Cursor> {
        let now = self.datapath.now();
        self.tables
            .flow_stats(&FlowFilter::all(), at, budget, now, |stat| {
                let index = stat.slot.index();
                if entries.len() <= index {
                    entries.resize(index + 1, None);
                }
                if let Some(entry) = entries.get_mut(index) {
                    *entry = Some((Arc::clone(stat.entry), stat.count));
                }
            })
    }
}
