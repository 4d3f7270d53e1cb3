//! Flows: the state of a conversation between its packets.

mod direction;
mod key;
mod state;
mod table;
mod timeouts;
mod tuple;

use millrace_types::Time;

use crate::app::AppState;
use crate::detect;
use crate::policy::Cause;
use crate::tcp;

pub use direction::Direction;
pub use key::FlowKey;
pub use state::{DirectionCounters, FlowState, FlowVerdict};
pub(crate) use table::FlowTable;
pub use table::{FLOW_SIZE, FlowCounters, FlowIndex};
pub use timeouts::{Timeouts, TimeoutsOfProtocol};
pub(crate) use tuple::Tuple;

/// The state of a flow.
#[derive(Debug)]
pub struct Flow {
    /// The endpoints.
    pub key: FlowKey,
    /// Number of the flow, from 1.
    pub id: u64,
    /// Time of the first packet.
    pub start: Time,
    /// Time of the last packet.
    pub last: Time,
    pub state: FlowState,
    /// True once the state was `Established`.
    pub was_established: bool,
    /// Packets and bytes, by [`Direction::index`].
    pub counters: [DirectionCounters; 2],
    /// All control bits of TCP that were seen, without NS, by [`Direction::index`].
    pub tcp_flags: [u8; 2],
    /// Type and code of the first message of ICMP, by [`Direction::index`].
    pub icmp: [Option<(u8, u8)>; 2],
    /// True if an end of the flow sent a packet, by [`Direction::index`]. An ICMP error about the flow does
    /// not count.
    pub was_heard: [bool; 2],
    /// The decision about the flow.
    pub verdict: FlowVerdict,
    /// True if a rule raised an alert.
    pub is_alerted: bool,
    /// True if a rule ends the inspection of the flow (`bypass`).
    pub is_bypassed: bool,
    /// True while the flow is shunned, so that the engine does not see its packets.
    pub is_shunned: bool,
    /// The causes that policies decided about, one bit each, in the order of [`Cause::ALL`](crate::Cause::ALL).
    pub exceptions: u16,
    /// Application protocol, parser and transactions.
    pub app: AppState,
    /// State of detection: flowbits, counters, alerts that are raised once.
    pub detect: detect::FlowState,
    /// Memory of `app` and `detect` that was charged to the pool of parsers, in bytes.
    pub(crate) charged: usize,
    /// State of the TCP connection; `None` for other protocols, and for a connection that is not followed.
    pub tcp: Option<Box<tcp::Session>>,
    /// The state of the connection for the events of the TCP engine, if rules ask for them.
    pub(crate) observer: Option<Box<tcp::observer::Observer>>,
    /// Memory of an earlier connection, for the next one.
    spare: Option<Box<tcp::Session>>,
}

impl Flow {
    /// Returns a flow without packets.
    pub(crate) fn new(key: FlowKey, id: u64, start: Time) -> Flow {
        Flow {
            key,
            id,
            start,
            last: start,
            state: FlowState::New,
            was_established: false,
            counters: Default::default(),
            tcp_flags: [0; 2],
            icmp: [None; 2],
            was_heard: [false; 2],
            verdict: FlowVerdict::None,
            is_alerted: false,
            is_bypassed: false,
            is_shunned: false,
            exceptions: 0,
            app: AppState::default(),
            detect: detect::FlowState::default(),
            charged: 0,
            tcp: None,
            observer: None,
            spare: None,
        }
    }

    /// Resets the flow to one without packets, and keeps the allocated memory. [`Flow::begin`] gives it its identity.
    pub(crate) fn reset(&mut self) {
        // Field by field: a new flow and its copies would be several kilobytes.
        let Flow {
            app,
            detect,
            tcp,
            spare,
            observer,
            counters,
            tcp_flags,
            icmp,
            was_heard,
            key: _,
            id: _,
            start: _,
            last: _,
            state,
            was_established,
            verdict,
            is_alerted,
            is_bypassed,
            is_shunned,
            exceptions,
            charged,
        } = self;
        app.reset();
        detect.reset();
        if let Some(ended) = tcp.take() {
            *spare = Some(ended);
        }
        (*counters, *tcp_flags, *icmp, *was_heard) = Default::default();
        (*state, *was_established, *verdict) = (FlowState::New, false, FlowVerdict::None);
        (*is_alerted, *is_bypassed, *is_shunned) = (false, false, false);
        (*observer, *exceptions, *charged) = (None, 0, 0);
    }

    /// Begins a flow in the memory of one that was reset.
    pub(crate) fn begin(&mut self, key: FlowKey, id: u64, start: Time) {
        (self.key, self.id, self.start, self.last) = (key, id, start, start);
    }

    /// Returns the memory of the parser and detection in bytes.
    pub(crate) fn parser_memory(&mut self) -> usize {
        self.app.memory() + self.detect.heap()
    }

    /// Frees the memory of the parser and detection. Later data of the flow are not parsed.
    pub(crate) fn give_up_parser(&mut self) {
        self.app.give_up_memory();
        self.detect.give_up_memory();
    }

    /// Frees the parser and detection memory that an ended flow keeps for the next one.
    fn free_spare(&mut self) {
        self.app = AppState::default();
        self.detect = detect::FlowState::default();
    }

    /// Begins a TCP connection, in the memory of an earlier connection if possible.
    pub(crate) fn begin_tcp(&mut self, session: tcp::Session) {
        self.tcp = Some(match self.spare.take() {
            Some(mut spare) => {
                *spare = session;
                spare
            }
            None => Box::new(session),
        });
    }

    /// Returns true if a policy decided about a packet of the flow for this cause.
    pub(crate) fn has_exception(&self, cause: Cause) -> bool {
        self.exceptions >> cause as u16 & 1 != 0
    }

    /// Exchanges client and server.
    pub(crate) fn swap_endpoints(&mut self) {
        let key = &mut self.key;
        core::mem::swap(&mut key.client, &mut key.server);
        core::mem::swap(&mut key.client_port, &mut key.server_port);
        self.counters.swap(0, 1);
        self.tcp_flags.swap(0, 1);
        self.icmp.swap(0, 1);
        self.was_heard.swap(0, 1);
        self.detect.turn();
    }

    /// Returns true if the flow matches `flow:established`: it is or was established.
    pub fn is_established(&self) -> bool {
        self.was_established
    }

    /// Returns true before the first packet of the flow was counted.
    pub(crate) fn is_new(&self) -> bool {
        self.counters.iter().all(|counters| counters.packets == 0)
    }

    /// Returns true if both directions were seen.
    pub fn is_two_way(&self) -> bool {
        self.was_heard == [true; 2]
    }
}
