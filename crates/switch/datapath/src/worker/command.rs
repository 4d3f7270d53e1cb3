//! Commands: the changes that the control side makes to a worker's state, applied between two rounds.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

use millrace_pipeline::SlotChange;
use millrace_types::PortNo;

use super::context::{BridgeContext, Policing, RxPort};
use super::marks::PortMarks;
use crate::capture::Captures;
use crate::counters::WorkerCounters;
use crate::handoff::Inbox;
use crate::io::Diversion;
use crate::lag::{Distribution, LagRole};
use crate::sampling::WorkerSampling;
use crate::scheduled::SchedulerRole;
use crate::service::{Service, ServiceId};
use crate::tx_port::TxPort;

/// A command to a worker.
///
/// A command with a field `done` lets its sender wait: the worker sends the result, or drops the field, when it has
/// executed the command. A worker that has stopped drops its commands unexecuted.
pub(crate) enum Command<P> {
    /// Adds a bridge.
    Attach(Box<BridgeContext<P>>),
    /// Removes a bridge, and returns it.
    Detach {
        bridge: u32,
        done: SyncSender<Box<BridgeContext<P>>>,
    },
    /// Adds a receive queue of a port.
    AddRxPort { bridge: u32, port: Box<RxPort<P>> },
    /// Adds a port to send to.
    AddTxPort {
        bridge: u32,
        port: Box<TxPort<P>>,
        done: SyncSender<()>,
    },
    /// Removes the queues of a port, and returns them.
    RemovePort {
        bridge: u32,
        port: PortNo,
        done: SyncSender<RemovedPort<P>>,
    },
    /// Sets the role of this worker in the scheduling of a port.
    SetSchedulerRole {
        bridge: u32,
        port: PortNo,
        role: SchedulerRole<P>,
    },
    AddService {
        bridge: u32,
        id: ServiceId,
        service: Box<dyn Service<P>>,
    },
    /// Removes a service, and returns it.
    RemoveService {
        bridge: u32,
        id: ServiceId,
        done: SyncSender<Box<dyn Service<P>>>,
    },
    /// Switches backpressure of a port on or off: see [`RxPort::backpressure`].
    SetBackpressure {
        bridge: u32,
        port: PortNo,
        enabled: bool,
    },
    /// Replaces the captures of a bridge, and returns the old ones.
    SetCaptures {
        bridge: u32,
        captures: Captures,
        done: SyncSender<Captures>,
    },
    /// Replaces the sampler of a bridge, and returns the old one.
    SetSampling {
        bridge: u32,
        sampling: WorkerSampling,
        done: SyncSender<WorkerSampling>,
    },
    /// Sets or removes the diversion of a port, and returns the one that is not used any more.
    SetDiversion {
        bridge: u32,
        port: PortNo,
        diversion: Option<Box<dyn Diversion<P>>>,
        done: SyncSender<Option<Box<dyn Diversion<P>>>>,
    },
    /// Sets or removes the policer of a port.
    SetPolicing {
        bridge: u32,
        port: PortNo,
        policing: Option<Policing>,
    },
    /// Sets the slots of a port's marks, one set for each of its receive queues; none to end the use of marks.
    SetMarks {
        bridge: u32,
        port: PortNo,
        marks: Vec<PortMarks>,
    },
    /// Changes some slots of a port's marks.
    ChangeSlots {
        bridge: u32,
        port: PortNo,
        changes: Arc<[SlotChange]>,
    },
    /// Sends a frame of a link protocol ahead of all packets that wait for the port.
    SendFirst { bridge: u32, port: PortNo, packet: P },
    /// Sets what the members of a LAG do.
    SetLag {
        bridge: u32,
        port: PortNo,
        state: Arc<LagState>,
        done: SyncSender<()>,
    },
    /// Prepares all queues for GSO packets.
    ExpectGso { done: SyncSender<()> },
    /// Ends the worker.
    Stop,
}

/// The roles of the members of a LAG, and the flows of each.
pub(crate) struct LagState {
    pub(crate) members: Vec<LagRole>,
    pub(crate) distribution: Distribution,
}

/// The queues of a port, returned by a worker.
pub(crate) struct RemovedPort<P> {
    pub(crate) _rx: Vec<RxPort<P>>,
    pub(crate) _tx: Option<TxPort<P>>,
}

/// The control side's handle of a worker.
pub(crate) struct WorkerHandle<P> {
    pub(crate) commands: Sender<Command<P>>,
    /// Raised after a command was sent: the worker reads it before each round.
    pub(crate) has_commands: Arc<AtomicBool>,
    pub(crate) inbox: Inbox<P>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) core: Option<usize>,
}

impl<P> WorkerHandle<P> {
    /// Sends a command, which the worker executes before its next round. A worker that has stopped drops it.
    pub(crate) fn send(&self, command: Command<P>) {
        if self.commands.send(command).is_ok() {
            self.has_commands.store(true, Ordering::Release);
        }
    }
}
