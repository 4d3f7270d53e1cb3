//! The bytes of a file in memory.

use std::collections::BTreeMap;

/// The bytes of a page, the unit in which content is stored.
pub(super) const PAGE_SIZE: u64 = 4_096;

/// The bytes of a file; missing pages are zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    pub(super) pages: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, part) in pages(offset, bytes.len()) {
            let page = self
                .pages
                .entry(at / PAGE_SIZE)
                .or_insert_with(|| vec![0; PAGE_SIZE as usize]);
            let from = (at % PAGE_SIZE) as usize;
            page[from..from + part.len()].copy_from_slice(&bytes[part]);
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for (at, part) in pages(offset, len) {
            let from = (at % PAGE_SIZE) as usize;
            match self.pages.get(&(at / PAGE_SIZE)) {
                Some(page) => buffer[part.clone()].copy_from_slice(&page[from..from + part.len()]),
                None => buffer[part].fill(0),
            }
        }
        len
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.pages.split_off(&size.div_ceil(PAGE_SIZE));
        if let Some(page) = self.pages.get_mut(&(size / PAGE_SIZE)) {
            page[(size % PAGE_SIZE) as usize..].fill(0);
        }
        self.size = size;
    }
}

/// Cuts a run of bytes at the borders of pages. Returns the address of each part, and its range in the run.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let part = done..len.min(done + (PAGE_SIZE - at % PAGE_SIZE) as usize);
        done = part.end;
        (!part.is_empty()).then_some((at, part))
    })
}
