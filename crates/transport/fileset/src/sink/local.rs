//! Local bytes that a sink may keep: files of an earlier run, and files under final names. Their bytes count after they were read, or
//! if the journal has the identity of the file that holds them.

use super::progress::Existing;
use super::{PERMISSIONS, Sink, SinkError, is_of_entry};
use crate::Value;
use crate::digest::extent_value;
use crate::entry::{FileEntry, Segment};
use crate::fs::{Access, FileSystem, FileType, optional};
use crate::journal;
use crate::path::RelativePath;
use std::io;
use std::sync::Arc;

/// The number of bytes between the segments of a file that are read at once.
const GAP_READ: u64 = 1 << 20;

impl<F: FileSystem> Sink<F> {
    /// Returns true if the journal records that an earlier run of this transfer wrote the file. After a crash, the
    /// journal may lack the record of a renamed file without data: such a file counts as written if there is a journal.
    pub(super) fn is_ours(&self, file: u32) -> bool {
        let mut extents = self.manifest.extents_of(file);
        if extents.is_empty() && self.journal_size > 0 {
            return true;
        }
        self.earlier.committed.contains_key(&file)
            || extents.any(|extent| self.earlier.extents.contains_key(&extent))
    }

    /// Returns the place of the local bytes of a file.
    pub(super) fn existing(&mut self, file: u32) -> Result<Existing, SinkError> {
        if let Some(existing) = self.existing[file as usize] {
            return Ok(existing);
        }
        let (path, temporary) = (self.path(file), self.temporary(file));
        let io = |error| SinkError::Io {
            path: path.clone(),
            error,
        };
        let is_file = |metadata: &crate::fs::Metadata| metadata.file_type == FileType::File;
        let found = |path: &RelativePath| match optional(self.fs.metadata(path)) {
            // The file fails when it is written.
            Err(error) if is_of_entry(&error) => Ok(None),
            found => found.map_err(io),
        };
        let at_end = found(&path)?.filter(is_file);
        let in_progress = found(&temporary)?;
        let is_like_source = match (self.manifest.file(file), &at_end) {
            (Some((entry, content)), Some(found)) => {
                found.size == content.size && found.modified == entry.attributes.modified
            }
            _ => false,
        };
        if let Some(found) = &at_end {
            self.replaced.insert(file, found.mode & PERMISSIONS);
        }
        let ours = self.is_ours(file);
        let committed = self.earlier.committed.get(&file).copied();
        // A file with several names is not the sink's alone: a new temporary file takes its place.
        let in_progress = in_progress.filter(|found| is_file(found) && found.links == 1);
        let existing = if committed.is_some() && committed == at_end.as_ref().map(journal::identity) {
            Existing::Committed
        } else if let Some(found) = in_progress {
            self.claim_temporary(file, &temporary)?;
            // The temporary file of a file that was committed is gone: another transfer made this one.
            let recorded = self.earlier.temporary.get(&file).filter(|_| committed.is_none());
            if recorded == Some(&journal::identity(&found)) {
                Existing::Temporary
            } else {
                Existing::OtherTemporary
            }
        } else if at_end.is_some() && (self.options.delta || ours || is_like_source) {
            Existing::Final
        } else {
            Existing::None
        };
        self.existing[file as usize] = Some(existing);
        Ok(existing)
    }

    /// Returns the value of an extent from the journal or from local bytes.
    pub(super) fn local_value(&mut self, extent: u64) -> Result<Option<Value>, SinkError> {
        let (start, end) = self.manifest.layout().bounds(extent);
        let mut in_journal = true;
        let manifest = Arc::clone(&self.manifest);
        for slice in manifest.slices(start..end) {
            match self.existing(slice.file)? {
                Existing::None => return Ok(None),
                Existing::Final | Existing::OtherTemporary => in_journal = false,
                Existing::Temporary | Existing::Committed => {}
            }
        }
        if in_journal && let Some(value) = self.earlier.extents.get(&extent) {
            return Ok(Some(*value));
        }
        Ok(self
            .read_local(extent)?
            .map(|bytes| extent_value(self.manifest.hash_offset(extent), &bytes)))
    }

    /// Returns the local bytes of an extent; `None` if a file is shorter.
    pub(super) fn read_local(&mut self, extent: u64) -> Result<Option<Vec<u8>>, SinkError> {
        let (start, end) = self.manifest.layout().bounds(extent);
        let mut bytes = vec![0; (end - start) as usize];
        let manifest = Arc::clone(&self.manifest);
        for slice in manifest.slices(start..end) {
            let path = match self.existing(slice.file)? {
                Existing::None => return Ok(None),
                Existing::Temporary | Existing::OtherTemporary => self.temporary(slice.file),
                Existing::Final | Existing::Committed => self.path(slice.file),
            };
            let io = |error| SinkError::Io {
                path: path.clone(),
                error,
            };
            let file = match self.fs.open(&path, Access::Read) {
                Err(error) if is_of_entry(&error) => return Ok(None),
                file => file.map_err(io)?,
            };
            let from = (slice.address - start) as usize;
            let target = &mut bytes[from..from + slice.len as usize];
            if self.fs.read_at(&file, slice.offset, target).map_err(io)? < target.len() {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    /// Sets the size of a temporary file, if the file has another one.
    pub(super) fn check_size(&mut self, file: u32) -> Result<(), SinkError> {
        let size = self.manifest.file(file).map_or(0, |(_, content)| content.size);
        let path = self.temporary(file);
        let io = |error| SinkError::Io {
            path: path.clone(),
            error,
        };
        if self.fs.metadata(&path).map_err(io)?.size != size {
            self.with_temporary(file, |fs, open| fs.set_size(open, size))?;
            self.dirty.insert(file);
        }
        Ok(())
    }

    /// Writes zeros over all bytes of a temporary file that are in no segment: no digest covers them.
    pub(super) fn clear_gaps(&mut self, file: u32) -> Result<(), SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let Some((_, content)) = manifest.file(file).filter(|(_, content)| !content.has_no_holes()) else {
            return Ok(());
        };
        let wrong = self.with_temporary(file, |fs, open| gap_bytes(fs, open, content))?;
        for Segment { offset, len } in wrong {
            let zeros = vec![0; len as usize];
            self.with_temporary(file, |fs, open| fs.write_at(open, offset, &zeros))?;
            self.dirty.insert(file);
        }
        Ok(())
    }

    /// Returns true if the file under the final name has the size of the manifest, and holes or zeros where the manifest has
    /// holes.
    pub(super) fn has_same_shape(&self, file: u32) -> Result<bool, SinkError> {
        let Some((entry, content)) = self.manifest.file(file) else {
            return Ok(false);
        };
        let io = |error| SinkError::Io {
            path: entry.path.clone(),
            error,
        };
        let open = self.fs.open(&entry.path, Access::Read).map_err(io)?;
        let size = self.fs.file_metadata(&open).map_err(io)?.size;
        if size != content.size || content.has_no_holes() {
            return Ok(size == content.size);
        }
        Ok(gap_bytes(&self.fs, &open, content).map_err(io)?.is_empty())
    }
}

/// Returns the runs of bytes that are not zero and are in no segment of a file, each within [`GAP_READ`] bytes.
fn gap_bytes<F: FileSystem>(fs: &F, open: &F::File, content: &FileEntry) -> io::Result<Vec<Segment>> {
    let mut wrong = Vec::new();
    let mut buffer = vec![0; GAP_READ as usize];
    let mut next = 0;
    for data in fs.segments(open, content.size)? {
        let (mut at, end) = (data.offset, data.offset + data.len);
        while at < end {
            let segments = &content.segments;
            while segments
                .get(next)
                .is_some_and(|segment| segment.offset + segment.len <= at)
            {
                next += 1;
            }
            let segment = segments.get(next).copied().unwrap_or(Segment {
                offset: u64::MAX,
                len: 0,
            });
            if segment.offset <= at {
                at = segment.offset + segment.len;
                continue;
            }
            let len = segment.offset.min(end).min(at + GAP_READ) - at;
            let found = fs.read_at(open, at, &mut buffer[..len as usize])?;
            if buffer[..found].iter().any(|byte| *byte != 0) {
                wrong.push(Segment { offset: at, len });
            }
            at += len;
        }
    }
    Ok(wrong)
}
