//! Messages that a switch sends without a request, and the bounded queue in which they wait.

use std::collections::VecDeque;

use millrace_openflow::flow_monitor::FlowUpdate;
use millrace_openflow::{ErrorMessage, FlowRemoved, PacketIn, Port, PortStatus};
use millrace_types::Xid;

/// Events that did not fit the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LostEvents {
    /// packet_in messages.
    pub packet_in: u64,
    /// port_status, flow_removed and flow updates: the receiver has to list ports and entries again.
    pub state: u64,
}

/// A message that the switch sent without a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A port was added, removed or modified.
    PortStatus(PortStatus),
    /// All ports, from a listing. It comes in order with [`Event::PortStatus`]; the result of the listing follows later, and
    /// its ports may be out of date.
    PortsListed(Vec<Port>),
    /// A flow entry was removed.
    FlowRemoved(FlowRemoved),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// Changes of flow entries that a flow monitor reports: the initial entries, and later changes.
    FlowUpdates(Vec<FlowUpdate>),
    /// True: flow updates pause, because this controller reads too slowly; false: they continue, and entries that changed
    /// meanwhile have been reported.
    MonitorPaused(bool),
    /// An error whose xid is that of a message sent without an expected reply (a packet_out), or of none.
    Error {
        /// The xid in the error.
        xid: Xid,
        error: ErrorMessage,
    },
    /// Events were dropped because they were not received in time.
    Lost(LostEvents),
}

impl Event {
    /// Returns the approximate size in memory, in bytes; 0 for a listing of ports, of which the queue has one at most.
    fn size(&self) -> usize {
        let content = match self {
            Event::PortsListed(_) => return 0,
            Event::PacketIn(packet) => packet.data.len(),
            Event::FlowUpdates(updates) => updates.len() * size_of::<FlowUpdate>(),
            Event::Error { error, .. } => error.data.len(),
            _ => 0,
        };
        size_of::<Event>() + content
    }
}

/// The queue of a connection.
#[derive(Debug)]
pub(crate) struct EventQueue {
    events: VecDeque<Event>,
    size: usize,
    max_size: usize,
    lost: LostEvents,
}

impl EventQueue {
    pub(crate) fn new(max_size: usize) -> EventQueue {
        EventQueue {
            events: VecDeque::new(),
            size: 0,
            max_size,
            lost: LostEvents::default(),
        }
    }

    /// Appends an event; without room it is dropped and counted. Half of the queue is closed to packet_in, so that a flood
    /// of packets does not displace changes of ports and entries. A listing of ports always has room, and replaces an older
    /// one.
    pub(crate) fn push(&mut self, event: Event) {
        if matches!(event, Event::PortsListed(_)) {
            self.events
                .retain(|other| !matches!(other, Event::PortsListed(_)));
            return self.events.push_back(event);
        }
        let size = event.size();
        let is_packet = matches!(event, Event::PacketIn(_));
        let max = if is_packet {
            self.max_size / 2
        } else {
            self.max_size
        };
        if self.size + size > max {
            let lost = if is_packet {
                &mut self.lost.packet_in
            } else {
                &mut self.lost.state
            };
            *lost += 1;
            return;
        }
        self.size += size;
        self.events.push_back(event);
    }

    /// Counts an event that cannot be represented, so that the receiver lists again.
    pub(crate) fn push_lost_state(&mut self) {
        self.lost.state += 1;
    }

    /// Returns the next event. The loss of events is reported after those that precede it.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        match self.events.pop_front() {
            Some(event) => {
                self.size -= event.size();
                Some(event)
            }
            None if self.lost != LostEvents::default() => Some(Event::Lost(core::mem::take(&mut self.lost))),
            None => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.lost == LostEvents::default()
    }
}
