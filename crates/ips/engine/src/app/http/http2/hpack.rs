//! Header blocks (RFC 7541), decoded by the crate `loona-hpack` within bounds.

use loona_hpack::Decoder;

use super::limits::TABLE_SIZE;
use crate::app::heap::Heap;

/// Size of the table of headers before any settings (RFC 9113, section 6.5.2).
const DEFAULT_SIZE: usize = 4096;
/// Largest number of fields of a block that are kept.
const FIELDS: usize = 1024;

/// The decoder of a direction.
pub(super) struct HeaderDecoder {
    decoder: Decoder<'static>,
    /// Largest size of the table.
    allowed: usize,
}

impl core::fmt::Debug for HeaderDecoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HeaderDecoder")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl Default for HeaderDecoder {
    fn default() -> HeaderDecoder {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(DEFAULT_SIZE);
        HeaderDecoder {
            decoder,
            allowed: DEFAULT_SIZE,
        }
    }
}

/// The table counts with its largest size, which it need not have.
impl Heap for HeaderDecoder {
    fn heap(&self) -> usize {
        self.allowed
    }
}

/// The fields of a block.
#[derive(Debug, Default)]
pub(super) struct HeaderFields {
    /// Names and values.
    pub(super) list: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if the block has more fields or bytes than are kept.
    pub(super) is_cut: bool,
}

impl HeaderDecoder {
    /// Allows a table of this size from now on. A smaller one than before does not take effect: the encoder may not know of it yet.
    pub(super) fn allow(&mut self, size: usize) {
        self.allowed = self.allowed.max(size).min(TABLE_SIZE);
        self.decoder.set_max_allowed_table_size(self.allowed);
    }

    /// Decodes a block, and keeps at most `limit` bytes of its fields. Returns `None` if it is no header block; the blocks after
    /// it cannot be decoded.
    pub(super) fn decode(&mut self, block: &[u8], limit: usize) -> Option<HeaderFields> {
        let mut fields = HeaderFields::default();
        let mut size = 0;
        let decoded = self.decoder.decode_with_cb(block, |name, value| {
            size += name.len() + value.len();
            match size <= limit && fields.list.len() < FIELDS {
                true => fields.list.push((name.into_owned(), value.into_owned())),
                false => fields.is_cut = true,
            }
        });
        decoded.ok().map(|()| fields)
    }
}
