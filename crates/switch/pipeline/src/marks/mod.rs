//! Marks of a device: names of keys, by which a worker finds a cached traversal without a lookup (ADR 52, ADR 61).
//!
//! ```text
//!   device: key K --> mark = tag | index         (claim: all packets with this mark equal K in the bits that tables match)
//!                         |
//!   worker: Slots[index] = { mark, version of these bits, K, traversal }
//!             mark equal, version equal, epoch valid  --> traversal     (level trust: the frame is not read)
//!                                                         key compared  (level verify, and one marked packet in 1,024)
//!             otherwise                               --> tables
//! ```
//! A slot is filled by the control side with its key, and by each worker with the traversal of the first packet, whose key the
//! worker compares. A change of a table makes the traversal invalid, as it does in the cache, so the next packet is compared
//! again. Marks lie beside the packets of a burst ([`MarkColumn`]) and never in them: a packet that is handed off, parked,
//! copied, reassembled or rewritten has none.

mod column;
mod drops;
mod obstacle;
mod slots;
mod state;

pub use column::MarkColumn;
pub use drops::DropPath;
pub use obstacle::MarkObstacle;
pub use slots::{SlotChange, Slots};
pub use state::{MarkCounts, MarkLevel, MarkState};
