//! The state of a burst's packets on their way through the tables, in memory that every burst of a worker uses again.

use millrace_flow::FlowKey;
use millrace_flow::classify::{BURST, HeaderColumns};
use millrace_types::{Cookie, QueueId, TableId};

use super::header::Headers;
use super::observed_packet::Observation;
use crate::action_set::{ActionRanks, ByRank, NO_ACTIONS};

/// The state of a packet on its way through the tables, besides its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketState {
    pub(crate) headers: Headers,
    pub(crate) queue: Option<QueueId>,
    /// Table and cookie of the entry that is executed.
    pub(crate) table: TableId,
    pub(crate) cookie: Cookie,
    pub(crate) in_table_miss: bool,
    /// True if some action has output the packet.
    pub(super) sent: bool,
    pub(super) set: ActionRanks,
}

impl PacketState {
    pub(super) const START: PacketState = PacketState {
        headers: Headers::UNKNOWN,
        queue: None,
        table: TableId(0),
        // The cookie in packet-ins of a packet-out, which has no entry.
        cookie: Cookie(u64::MAX),
        in_table_miss: false,
        sent: false,
        set: ActionRanks::NONE,
    };
}

/// Memory of a worker that is allocated once and used by every burst. Arrays of [`BURST`] elements have one
/// element for each packet of the burst.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) keys: [FlowKey; BURST],
    pub(crate) states: [PacketState; BURST],
    pub(super) sets: [ByRank; BURST],
    /// For each table, the packets that wait at it, one bit each.
    waiting: [u64; 256],
    /// The tables at which some packet waits, one bit each.
    tables_with_packets: [u64; 4],
    /// Packets in the state [`PacketState::START`], one bit each. The elements of these packets in `states`
    /// are ignored.
    pub(crate) initial_state: u64,
    /// Packets with an empty action set and without a queue that were not output yet, one bit each. Only
    /// their action summary remains to be executed.
    pub(super) summary_only: u64,
    /// The header columns of the burst, where packets are looked up by these; see `keys.rs`.
    pub(crate) columns: HeaderColumns,
    /// Packets whose keys are not read yet, one bit each.
    pub(crate) unread: u64,
    /// The number of next bursts with keys that are read before the lookup.
    pub(crate) pause: u8,
    /// The observed packet of the burst, if there is one.
    pub(crate) observation: Observation,
}

impl Scratch {
    pub(crate) fn new() -> Box<Scratch> {
        Box::new(Scratch {
            keys: [FlowKey::default(); BURST],
            states: [PacketState::START; BURST],
            sets: [NO_ACTIONS; BURST],
            waiting: [0; 256],
            tables_with_packets: [0; 4],
            initial_state: 0,
            summary_only: 0,
            columns: HeaderColumns::new(),
            unread: 0,
            pause: 0,
            observation: Observation::NONE,
        })
    }

    /// Makes packet `i` wait at a table.
    pub(super) fn wait(&mut self, i: usize, table: TableId) {
        let table = usize::from(table.0);
        self.waiting[table] |= 1 << i;
        self.tables_with_packets[table / 64] |= 1 << (table % 64);
    }

    /// Returns the lowest table at which packets wait, and these packets.
    pub(super) fn next_table(&mut self) -> Option<(TableId, u64)> {
        let word = self.tables_with_packets.iter().position(|word| *word != 0)?;
        let table = word * 64 + self.tables_with_packets[word].trailing_zeros() as usize;
        self.tables_with_packets[word] &= self.tables_with_packets[word] - 1;
        Some((TableId(table as u8), core::mem::take(&mut self.waiting[table])))
    }
}
