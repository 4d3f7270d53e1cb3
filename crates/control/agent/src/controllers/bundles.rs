//! The bundles of one connection (ONF extension 230; OpenFlow 1.4.0, section 7.3.9): messages that wait for a commit.

use std::collections::BTreeMap;

use millrace_openflow::{BundleFlags, ErrorCode, PortMod};
use millrace_pipeline as pipeline;
use millrace_types::{BufferId, Xid};

/// The maximum number of bundles of a connection.
const BUNDLES_LEN: usize = 64;
/// The maximum number of messages in all bundles of a connection.
const MESSAGES_LEN: usize = 2 * 1024 * 1024;
/// Maximum size of the messages in all bundles of a connection, in bytes as received. Decoded messages take
/// two to four times as much.
const SIZE_MAX: usize = 256 << 20;
/// Maximum size of the messages in all bundles of all connections of a bridge, in bytes as received.
const TOTAL_SIZE_MAX: usize = 512 << 20;
/// The number of messages in one part of a bundle's queue.
const PART_LEN: usize = 4096;

/// A message that waits for the commit.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) xid: Xid,
    /// The buffered packet that a flow_mod names.
    pub(crate) buffer: Option<BufferId>,
    pub(crate) change: Change,
}

/// A validated change.
#[derive(Debug)]
pub(crate) enum Change {
    Flow(pipeline::Prepared),
    Port(Box<PortMod>),
    Group(Box<pipeline::GroupMod>),
    Meter(Box<pipeline::MeterMod>),
}

/// The messages of a bundle, in order. The messages are split into parts. A commit frees the parts one by
/// one, so that the tables can reuse the memory.
#[derive(Debug, Default)]
pub(crate) struct StagedQueue {
    parts: Vec<Vec<Staged>>,
    len: usize,
}

impl StagedQueue {
    fn push(&mut self, staged: Staged) {
        self.len += 1;
        match self.parts.last_mut().filter(|part| part.len() < PART_LEN) {
            Some(part) => part.push(staged),
            None => self.parts.push(vec![staged]),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Staged> {
        self.parts.iter().flatten()
    }

    /// Returns the messages in order, and frees each part after its last message.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Staged> {
        self.parts.into_iter().flatten()
    }
}

/// A bundle that a controller has opened: the messages that wait for its commit (ONF extension 230).
#[derive(Debug)]
pub(crate) struct Bundle {
    flags: BundleFlags,
    is_closed: bool,
    pub(crate) staged: StagedQueue,
    size: usize,
}

impl Bundle {
    /// Closes the bundle for further messages.
    ///
    /// # Errors
    /// `OFPBFC_BUNDLE_CLOSED` if it is closed.
    pub(crate) fn close(&mut self) -> Result<(), ErrorCode> {
        match core::mem::replace(&mut self.is_closed, true) {
            true => Err(ErrorCode::OFPBFC_BUNDLE_CLOSED),
            false => Ok(()),
        }
    }
}

/// The bundles of one connection.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    bundles: BTreeMap<u32, Bundle>,
    messages: usize,
    /// Size of the messages in bytes.
    size: usize,
}

impl Bundles {
    pub(crate) fn contains(&self, bundle: u32) -> bool {
        self.bundles.contains_key(&bundle)
    }

    /// Opens a bundle.
    ///
    /// # Errors
    /// `OFPBFC_OUT_OF_BUNDLES`.
    pub(crate) fn open(&mut self, bundle: u32, flags: BundleFlags) -> Result<&mut Bundle, ErrorCode> {
        if self.bundles.len() >= BUNDLES_LEN {
            return Err(ErrorCode::OFPBFC_OUT_OF_BUNDLES);
        }
        Ok(self.bundles.entry(bundle).or_insert(Bundle {
            flags,
            is_closed: false,
            staged: StagedQueue::default(),
            size: 0,
        }))
    }

    /// Returns a bundle, which must have these flags.
    ///
    /// # Errors
    /// `OFPBFC_BAD_ID` or `OFPBFC_BAD_FLAGS`.
    pub(crate) fn find(&mut self, bundle: u32, flags: BundleFlags) -> Result<&mut Bundle, ErrorCode> {
        match self.bundles.get_mut(&bundle) {
            Some(bundle) if bundle.flags == flags => Ok(bundle),
            Some(_) => Err(ErrorCode::OFPBFC_BAD_FLAGS),
            None => Err(ErrorCode::OFPBFC_BAD_ID),
        }
    }

    /// Removes a bundle and returns it.
    pub(crate) fn take(&mut self, bundle: u32) -> Option<Bundle> {
        let bundle = self.bundles.remove(&bundle)?;
        self.messages -= bundle.staged.len;
        self.size -= bundle.size;
        Some(bundle)
    }

    /// Returns the size of the messages that wait, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns true if one more message of `size` bytes may be added while all connections hold `total` bytes.
    pub(crate) fn admits(&self, size: usize, total: usize) -> bool {
        self.messages < MESSAGES_LEN && self.size + size <= SIZE_MAX && total + size <= TOTAL_SIZE_MAX
    }

    /// Adds a message of `size` bytes to a bundle, and opens the bundle if it does not exist.
    ///
    /// # Errors
    /// The code of the bundle error (`OFPBFC_*`).
    pub(crate) fn stage(
        &mut self,
        number: u32,
        flags: BundleFlags,
        staged: Staged,
        size: usize,
    ) -> Result<(), ErrorCode> {
        let bundle = match self.find(number, flags) {
            Err(ErrorCode::OFPBFC_BAD_ID) => self.open(number, flags)?,
            found => found?,
        };
        if bundle.is_closed {
            return Err(ErrorCode::OFPBFC_BUNDLE_CLOSED);
        }
        bundle.staged.push(staged);
        bundle.size += size;
        self.messages += 1;
        self.size += size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::PortNo;

    const FLAGS: BundleFlags = BundleFlags::ATOMIC;

    fn staged() -> Staged {
        Staged {
            xid: Xid(1),
            buffer: None,
            change: Change::Port(Box::new(PortMod {
                number: PortNo::from_raw(1),
                mac: millrace_types::Mac::ZERO,
                config: millrace_openflow::PortConfig::NONE,
                mask: millrace_openflow::PortConfig::NONE,
                advertise: millrace_openflow::PortFeatures::NONE,
            })),
        }
    }

    #[test]
    fn bundles_are_bounded_by_bytes_of_a_connection_and_of_all() {
        let mut bundles = Bundles::default();
        const MESSAGE: usize = 64 << 20;
        for bundle in 0..4 {
            assert!(bundles.admits(MESSAGE, bundles.size()));
            bundles.stage(bundle, FLAGS, staged(), MESSAGE).unwrap();
        }
        assert!(!bundles.admits(1, bundles.size()), "of the connection");
        bundles.take(2).unwrap();
        assert!(bundles.admits(MESSAGE, bundles.size()));
        assert!(!bundles.admits(MESSAGE, TOTAL_SIZE_MAX - MESSAGE + 1), "of all");
        for bundle in [0, 1, 3] {
            bundles.take(bundle).unwrap();
        }
        assert_eq!((bundles.size, bundles.messages), (0, 0));
    }

    #[test]
    fn bundles_are_bounded_by_messages() {
        let mut bundles = Bundles {
            messages: MESSAGES_LEN - 1,
            ..Bundles::default()
        };
        assert!(bundles.admits(1, 0));
        bundles.stage(1, FLAGS, staged(), 1).unwrap();
        assert!(!bundles.admits(1, 0));
    }
}
