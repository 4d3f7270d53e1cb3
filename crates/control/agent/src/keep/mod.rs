//! Flow entries, groups and meters that a restart of the switch keeps (`system.keep_flows`).
//!
//! ```text
//!  clean stop, `millrace flow save`         STATE_DIR/flows/BRIDGE.flows               start
//!  bridge ── capture ──▶ Captured ── encode ──▶ bytes ──▶ decode ── Kept ── restore ──▶ bridge, before it has ports
//!            (steps of its control thread)                          (all or nothing)
//! ```
//!
//! | state | after a restart |
//! | --- | --- |
//! | entries, groups, meters | as before, with cookies, flags, counters and durations |
//! | hard timeout | the time without the switch counts; an entry whose timeout has passed is not restored, and no controller gets its flow_removed |
//! | idle timeout | continues with the idle time at the save; the time without the switch does not count |
//! | table features and table names that a controller set | as before |
//! | token buckets of meters | full |
//! | ports' settings by port_mod, MAC addresses, open bundles, buffered packets, connections | lost: they belong to the configuration, to packets, or to a connection |
//!
//! `kept` has the types, `file` the format; `state` takes the state of a bridge and restores it; `directory` holds the files.

mod directory;
mod file;
mod kept;
mod state;

pub use directory::{Keeper, Saved};
pub use file::{FileError, ItemCounts, count_items};
