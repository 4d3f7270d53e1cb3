//! Assembly of groups of 16 KiB from the pieces of packets. The borders of pieces and groups do not coincide.

use millrace_transport::extent::{GROUP_SIZE, Layout};
use std::collections::HashMap;

/// The maximum number of spare buffers.
const SPARE_MAX: usize = 256;

/// A complete group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The address of its first byte.
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    missing: u64,
}

/// The incomplete groups. `millrace_transport`'s receiver ensures that each byte arrives only once, and limits
/// the number of incomplete groups.
#[derive(Debug)]
pub(crate) struct Assembly {
    layout: Layout,
    /// The group of the last piece, with its address: most pieces belong to the same group as the piece
    /// before.
    current: Option<(u64, Partial)>,
    /// The other groups by address.
    partial: HashMap<u64, Partial>,
    spare: Vec<Vec<u8>>,
}

impl Assembly {
    pub(crate) fn new(layout: Layout) -> Assembly {
        Assembly {
            layout,
            current: None,
            partial: HashMap::new(),
            spare: Vec::new(),
        }
    }

    /// Adds new bytes. Passes each group that is complete now to `done`.
    pub(crate) fn insert(&mut self, mut address: u64, mut bytes: &[u8], mut done: impl FnMut(Group)) {
        while !bytes.is_empty() {
            let start = address / GROUP_SIZE * GROUP_SIZE;
            let end = (start + GROUP_SIZE).min(self.layout.bytes());
            let len = usize::try_from(end.saturating_sub(address))
                .unwrap_or(0)
                .min(bytes.len());
            if len == 0 {
                return;
            }
            let (part, rest) = bytes.split_at(len);
            let size = usize::try_from(end - start).unwrap_or(0);
            let mut group = self.take(start, size);
            let from = usize::try_from(address - start).unwrap_or(0);
            group.bytes[from..from + len].copy_from_slice(part);
            group.missing = group.missing.saturating_sub(len as u64);
            if group.missing == 0 {
                let (address, bytes) = (start, group.bytes);
                done(Group { address, bytes });
            } else {
                self.current = Some((start, group));
            }
            address += len as u64;
            bytes = rest;
        }
    }

    /// Removes and returns the group at an address, or begins it. The current group is put back among the others.
    fn take(&mut self, start: u64, size: usize) -> Partial {
        match self.current.take() {
            Some((address, group)) if address == start => return group,
            Some((address, group)) => {
                self.partial.insert(address, group);
            }
            None => {}
        }
        self.partial.remove(&start).unwrap_or_else(|| {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize(size, 0);
            Partial {
                bytes,
                missing: size as u64,
            }
        })
    }

    /// Discards the bytes of an extent, which are sent again.
    pub(crate) fn forget(&mut self, extent: u64) {
        let (start, end) = self.layout.bounds(extent);
        self.partial.retain(|address, _| !(start..end).contains(address));
        self.current
            .take_if(|(address, _)| (start..end).contains(address));
    }

    /// Takes buffers back for reuse.
    pub(crate) fn recycle(&mut self, buffers: Vec<Vec<u8>>) {
        let room = SPARE_MAX.saturating_sub(self.spare.len());
        self.spare.extend(buffers.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_transport::extent::ExtentSize;

    #[test]
    fn groups_come_out_whole_in_any_order_of_their_pieces() {
        let size = (2 << 20) + 5_000_u64;
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let layout = Layout::new(size, ExtentSize::Small).unwrap();
        let mut assembly = Assembly::new(layout);
        let mut pieces: Vec<(u64, &[u8])> = bytes
            .chunks(1_424)
            .enumerate()
            .map(|(index, piece)| (index as u64 * 1_424, piece))
            .collect();
        // A step that is coprime to the number of pieces visits each once.
        let len = pieces.len();
        pieces = (0..len).map(|index| pieces[index * 37 % len]).collect();
        let mut seen = vec![0; bytes.len()];
        for (address, piece) in pieces {
            let mut buffers = Vec::new();
            assembly.insert(address, piece, |group| {
                let from = group.address as usize;
                assert!(group.bytes.len() == 16 << 10 || from + group.bytes.len() == bytes.len());
                seen[from..from + group.bytes.len()].copy_from_slice(&group.bytes);
                buffers.push(group.bytes);
            });
            assembly.recycle(buffers);
        }
        assert!(seen == bytes && assembly.partial.is_empty() && assembly.current.is_none());
    }
}
