//! The reception of data: collects bytes into groups, hashes and writes the groups, and verifies extents.

use super::progress::{ExtentProgress, FileState, PartialGroup};
use super::{Sink, SinkError, SinkEvent};
use crate::digest::{ExtentValue, GROUP_SIZE, Value, group_value, merge};
use crate::fs::{FileSystem, optional};
use millrace_transport::ranges::RangeSet;
use std::ops::Range;
use std::sync::Arc;

impl<F: FileSystem> Sink<F> {
    /// Takes received bytes. A group is hashed and written once all its bytes have arrived.
    ///
    /// # Errors
    /// If the bytes cross an extent or cannot be written.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let len = bytes.len() as u64;
        let layout = self.manifest.layout();
        if layout.check(address, len).is_err() || !self.started {
            return Err(SinkError::OutOfBounds { address, len });
        }
        let extent = layout.extent_of(address);
        if self.verified.contains(extent) {
            self.written += len;
            return Ok(());
        }
        let mut rest = bytes;
        let mut at = address;
        while !rest.is_empty() {
            let group = at / GROUP_SIZE;
            let end = self.manifest.group_bounds(group).end;
            let (part, after) = rest.split_at(rest.len().min((end - at) as usize));
            self.write_part(extent, group, at, part)?;
            at += part.len() as u64;
            rest = after;
        }
        Ok(())
    }

    /// Returns the number of bytes that left memory since the last call, because they were written or not
    /// needed.
    pub fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }

    /// Takes the value of an extent. A later value of the same extent replaces it until the extent is
    /// verified.
    ///
    /// # Errors
    /// If the set does not have the extent.
    pub fn on_value(&mut self, message: ExtentValue) -> Result<(), SinkError> {
        self.check_extent(message.extent)?;
        if self.verified.contains(message.extent) {
            return Ok(());
        }
        if self.values.insert(message.extent, message.value) != Some(message.value) {
            if let Some(progress) = self.extents.get_mut(&message.extent) {
                progress.requested = false;
            }
            self.verify(message.extent);
        }
        Ok(())
    }

    /// Takes the values of the groups of an extent. Groups that have another value are requested again.
    ///
    /// # Errors
    /// If the values do not merge to the extent's value.
    pub fn on_group_values(&mut self, extent: u64, values: &[Value]) -> Result<(), SinkError> {
        self.check_extent(extent)?;
        let (start, end) = self.manifest.layout().bounds(extent);
        let known = self.value(extent);
        let Some(progress) = self.extents.get_mut(&extent) else {
            return Ok(());
        };
        let merged = (values.len() == progress.groups.len()).then(|| merge(values, end - start, GROUP_SIZE));
        if merged != known || merged.is_none() {
            return Err(SinkError::GroupValues(extent));
        }
        let mut wrong: Vec<Range<u64>> = Vec::new();
        for (index, (known, right)) in progress.groups.iter_mut().zip(values).enumerate() {
            if known.is_some_and(|known| known != *right) {
                *known = None;
                progress.missing += 1;
                self.progress.rejected_groups += 1;
                wrong.push(self.manifest.group_bounds(start / GROUP_SIZE + index as u64));
            }
        }
        progress.requested = false;
        if !wrong.is_empty() {
            self.events.push_back(SinkEvent::Rejected { extent, wrong });
        }
        self.verify(extent);
        Ok(())
    }

    /// Drops a file that the sender withdrew. Extents without bytes of any other file count as verified.
    ///
    /// # Errors
    /// If the set does not have the file, or the temporary file cannot be removed.
    pub fn on_withdrawn(&mut self, file: u32) -> Result<(), SinkError> {
        match self.files.get(file as usize).map(|progress| progress.state) {
            None => {
                return Err(SinkError::Unknown {
                    name: "file",
                    number: file.into(),
                });
            }
            Some(FileState::Pending) => {}
            // All bytes of a file with its final name were verified.
            Some(FileState::Done | FileState::Withdrawn | FileState::Failed) => return Ok(()),
        }
        self.open.retain(|(open, _)| *open != file);
        self.dirty.remove(&file);
        self.ready.retain(|ready| *ready != file);
        let temporary = self.temporary(file);
        if self.files[file as usize].temporary {
            optional(self.fs.remove(&temporary)).map_err(|error| SinkError::Io {
                path: temporary,
                error,
            })?;
            self.files[file as usize].temporary = false;
        }
        self.finish_file(file, FileState::Withdrawn);
        self.events.push_back(SinkEvent::Withdrawn(file));
        let manifest = Arc::clone(&self.manifest);
        for extent in manifest.extents_of(file) {
            let (start, end) = manifest.layout().bounds(extent);
            let mut slices = manifest.slices(start..end);
            let is_dropped = |file: u32| {
                let state = self.files[file as usize].state;
                matches!(state, FileState::Withdrawn | FileState::Failed)
            };
            if !self.verified.contains(extent) && slices.all(|slice| is_dropped(slice.file)) {
                self.values.insert(extent, [0; 32]);
                self.verified.insert(extent..extent + 1);
                self.events.push_back(SinkEvent::Verified(extent));
                self.forget(extent);
            }
        }
        Ok(())
    }

    /// Takes bytes within one group.
    fn write_part(&mut self, extent: u64, group: u64, at: u64, part: &[u8]) -> Result<(), SinkError> {
        let bounds = self.manifest.group_bounds(group);
        let (start, end) = self.manifest.layout().bounds(extent);
        let index = (group - start / GROUP_SIZE) as usize;
        let progress = self.extents.entry(extent).or_insert_with(|| {
            let len = (end - start).div_ceil(GROUP_SIZE) as usize;
            ExtentProgress {
                groups: vec![None; len],
                missing: len,
                requested: false,
            }
        });
        if progress.groups.get(index).is_none_or(Option::is_some) {
            self.written += part.len() as u64;
            return Ok(());
        }
        let size = bounds.end - bounds.start;
        if part.len() as u64 == size && !self.groups.contains_key(&group) {
            self.written += size;
            return self.finish_group(extent, index, bounds.start, part);
        }
        let partial = self.groups.entry(group).or_insert_with(|| PartialGroup {
            bytes: vec![0; (bounds.end - bounds.start) as usize],
            filled: RangeSet::new(),
        });
        let from = (at - bounds.start) as usize;
        partial.bytes[from..from + part.len()].copy_from_slice(part);
        let new = partial.filled.insert(at..at + part.len() as u64);
        self.written += part.len() as u64 - new;
        if partial.filled.count() < bounds.end - bounds.start {
            return Ok(());
        }
        let Some(whole) = self.groups.remove(&group) else {
            return Ok(());
        };
        self.written += whole.bytes.len() as u64;
        self.finish_group(extent, index, bounds.start, &whole.bytes)
    }

    /// Writes and hashes a whole group.
    fn finish_group(&mut self, extent: u64, index: usize, start: u64, bytes: &[u8]) -> Result<(), SinkError> {
        self.write_group(start, bytes)?;
        // A group's hash offset is the hash offset of its extent plus its offset in the extent.
        let first = self.manifest.layout().bounds(extent).0;
        let offset = self.manifest.hash_offset(extent) + (start - first);
        if let Some(progress) = self.extents.get_mut(&extent) {
            progress.groups[index] = Some(group_value(offset, bytes));
            progress.missing -= 1;
        }
        self.verify(extent);
        Ok(())
    }

    /// Writes a group into the temporary files of its slices.
    fn write_group(&mut self, start: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let manifest = Arc::clone(&self.manifest);
        for slice in manifest.slices(start..start + bytes.len() as u64) {
            if self.files[slice.file as usize].state != FileState::Pending {
                continue;
            }
            let from = (slice.address - start) as usize;
            let part = &bytes[from..from + slice.len as usize];
            let written = self.with_temporary(slice.file, |fs, file| fs.write_at(file, slice.offset, part));
            if self.drop_failed(slice.file, written)?.is_some() {
                self.dirty.insert(slice.file);
            }
        }
        Ok(())
    }

    /// Compares the digest of an extent with its value, if all its groups and the value have arrived.
    fn verify(&mut self, extent: u64) {
        let (start, end) = self.manifest.layout().bounds(extent);
        let (Some(value), Some(progress)) = (self.value(extent), self.extents.get_mut(&extent)) else {
            return;
        };
        if progress.missing > 0 {
            return;
        }
        let groups: Vec<Value> = progress.groups.iter().flatten().copied().collect();
        if merge(&groups, end - start, GROUP_SIZE) != value {
            if !progress.requested {
                progress.requested = true;
                self.events.push_back(SinkEvent::NeedGroupValues(extent));
            }
            return;
        }
        self.forget(extent);
        self.verified.insert(extent..extent + 1);
        self.unsaved.push(extent);
        self.events.push_back(SinkEvent::Verified(extent));
        let manifest = Arc::clone(&self.manifest);
        let mut last = None;
        for slice in manifest.slices(start..end) {
            if last == Some(slice.file) {
                continue;
            }
            last = Some(slice.file);
            let progress = &mut self.files[slice.file as usize];
            progress.missing = progress.missing.saturating_sub(1);
            if progress.missing == 0 && progress.state == FileState::Pending {
                self.ready.push(slice.file);
            }
        }
    }

    /// Frees the memory of an extent.
    fn forget(&mut self, extent: u64) {
        let (start, end) = self.manifest.layout().bounds(extent);
        if self.extents.remove(&extent).is_some() {
            for group in start / GROUP_SIZE..end.div_ceil(GROUP_SIZE) {
                if let Some(partial) = self.groups.remove(&group) {
                    self.written += partial.filled.count();
                }
            }
        }
    }

    /// Moves a pending file to its final state.
    pub(super) fn finish_file(&mut self, file: u32, state: FileState) {
        let progress = &mut self.files[file as usize];
        if progress.state == FileState::Pending {
            progress.state = state;
            self.claims.release(file);
            self.pending -= 1;
            if state == FileState::Done {
                self.progress.files += 1;
            }
        }
    }
}
