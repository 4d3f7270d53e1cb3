//! Commands: the changes that the control side makes to a worker's state, applied between two rounds.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

use millrace_types::PortNo;
use millrace_wire::Packet;

use super::Worker;
use super::context::{BridgeContext, Policing, RxPort};
use crate::capture::Captures;
use crate::counters::WorkerCounters;
use crate::egress::TxPort;
use crate::handoff::Inbox;
use crate::scheduled::SchedulerRole;
use crate::service::{Service, ServiceId};

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
    /// Adds a service.
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
    /// Sets or removes the policer of a port.
    SetPolicing {
        bridge: u32,
        port: PortNo,
        policing: Option<Policing>,
    },
    /// Prepares all queues for GSO packets.
    ExpectGso { done: SyncSender<()> },
    /// Ends the worker.
    Stop,
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

impl<P: Packet + 'static> Worker<P> {
    /// Executes all commands that were sent. Returns false if the worker is to stop.
    #[cold]
    pub(super) fn run_commands(&mut self) -> bool {
        // A store instead of the swap could become visible after the store of a sender that has raised the flag since.
        self.has_commands.swap(false, Ordering::AcqRel);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Attach(mut context) => {
                    context.pipeline.tx.expects_gso = self.expects_gso;
                    self.bridges.push(*context);
                }
                Command::Detach { bridge, done } => {
                    let at = self.bridges.iter().position(|context| context.bridge() == bridge);
                    debug_assert!(at.is_some(), "bridge {bridge} is not attached");
                    if let Some(at) = at {
                        let _waiter_ended = done.send(Box::new(self.bridges.swap_remove(at)));
                    }
                }
                Command::ExpectGso { done } => {
                    self.expect_gso();
                    drop(done);
                }
                Command::Stop => return false,
                Command::AddRxPort { bridge, .. }
                | Command::AddTxPort { bridge, .. }
                | Command::RemovePort { bridge, .. }
                | Command::SetSchedulerRole { bridge, .. }
                | Command::AddService { bridge, .. }
                | Command::RemoveService { bridge, .. }
                | Command::SetBackpressure { bridge, .. }
                | Command::SetCaptures { bridge, .. }
                | Command::SetPolicing { bridge, .. } => {
                    let now = self.now();
                    let context = self.bridges.iter_mut().find(|context| context.bridge() == bridge);
                    debug_assert!(context.is_some(), "bridge {bridge} is not attached");
                    if let Some(context) = context {
                        context.run(command, now);
                    }
                }
            }
        }
        self.counters
            .rx_queues
            .set(self.bridges.iter().map(|context| context.rx.len()).sum());
        true
    }

    /// Prepares every queue for GSO packets.
    fn expect_gso(&mut self) {
        if core::mem::replace(&mut self.expects_gso, true) {
            return;
        }
        for context in &mut self.bridges {
            context.pipeline.tx.expect_gso(&context.pipeline.counters);
            context.segment_policed();
        }
    }
}
