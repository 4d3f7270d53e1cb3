//! Messages that a switch sends without a request, and the bounded queue for them.

use std::collections::VecDeque;

use millrace_openflow::flow_monitor::FlowUpdate;
use millrace_openflow::{ErrorMessage, FlowRemoved, PacketIn, Port, PortStatus};
use millrace_types::Xid;

/// The number of events that were dropped because the queue was full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LostEvents {
    /// packet_in messages.
    pub packet_in: u64,
    /// port_status, flow_removed and flow updates. After such a loss, the receiver must list ports and
    /// entries again.
    pub state: u64,
}

/// A message that the switch sent without a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A port was added, removed or modified.
    PortStatus(PortStatus),
    /// All ports, from a listing, in order with [`Event::PortStatus`]. The result of the listing arrives later, and
    /// the ports in it may be outdated by then.
    PortsListed(Vec<Port>),
    /// A flow entry was removed.
    FlowRemoved(FlowRemoved),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// Changes of flow entries from a flow monitor: first the initial entries, then later changes.
    FlowUpdates(Vec<FlowUpdate>),
    /// True if flow updates pause because this controller reads too slowly. False if they continue; the
    /// switch has then reported all entries that changed during the pause.
    MonitorPaused(bool),
    /// An error whose xid belongs to a message without an expected reply, such as a packet_out, or to no
    /// known message.
    Error {
        /// The xid in the error.
        xid: Xid,
        error: ErrorMessage,
    },
    /// Events were dropped because they were not received in time.
    Lost(LostEvents),
}

impl Event {
    /// Returns the approximate size in memory, in bytes. The size of a listing of ports counts as 0, because
    /// the queue holds at most one.
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

/// The event queue of a connection.
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

    /// Appends an event. If the queue has no room for it, the event is dropped and counted. packet_in
    /// messages may use only half of the queue, so that a flood of packets does not displace changes of ports
    /// and entries. A listing of ports always has room, and replaces an older one.
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

    /// Counts an event that could not be decoded, so that the receiver lists the switch again.
    pub(crate) fn push_lost_state(&mut self) {
        self.lost.state += 1;
    }

    /// Returns the next event. Lost events are reported after the events in the queue.
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
