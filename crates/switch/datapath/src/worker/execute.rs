//! The execution of commands, between two rounds.

use core::sync::atomic::Ordering;

use millrace_types::Time;
use millrace_wire::Packet;

use super::Worker;
use super::command::{Command, RemovedPort};
use super::context::BridgeContext;

impl<P: Packet + 'static> Worker<P> {
    /// Executes all commands that were sent. Returns false if the worker is to stop.
    #[cold]
    pub(super) fn run_commands(&mut self) -> bool {
        // A plain store instead of the swap could become visible after, and overwrite, the store of a sender
        // that has raised the flag meanwhile.
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
                | Command::SetSampling { bridge, .. }
                | Command::SendFirst { bridge, .. }
                | Command::SetLag { bridge, .. }
                | Command::SetDiversion { bridge, .. }
                | Command::SetMarks { bridge, .. }
                | Command::ChangeSlots { bridge, .. }
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
        let mut queues = self.bridges.iter().flat_map(|context| &context.rx);
        self.has_fences = queues.any(|rx| rx.queue.has_fences());
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

impl<P: Packet + 'static> BridgeContext<P> {
    /// Executes a command for this bridge.
    fn run(&mut self, command: Command<P>, now: Time) {
        let tx = &mut self.pipeline.tx;
        match command {
            Command::AddRxPort { port, .. } => {
                let is_policed = port.policing.is_some();
                self.rx.push(*port);
                if is_policed && tx.expects_gso {
                    self.segment_policed();
                }
            }
            Command::AddTxPort { port, done, .. } => {
                tx.insert(match tx.expects_gso {
                    true => port.with_segmentation(&self.pipeline.counters),
                    false => *port,
                });
                drop(done);
            }
            Command::RemovePort { port, done, .. } => {
                let removed = RemovedPort {
                    _rx: self.rx.extract_if(.., |rx| rx.device() == port).collect(),
                    _tx: tx.remove(port),
                };
                let _waiter_ended = done.send(removed);
            }
            Command::SetSchedulerRole { port, role, bridge } => {
                tx.set_scheduler_role(bridge, port, role, now, &self.pipeline.counters);
            }
            Command::AddService { id, service, .. } => self.services.push((id, service)),
            Command::RemoveService { id, done, .. } => {
                let at = self.services.iter().position(|(known, _)| *known == id);
                debug_assert!(at.is_some(), "{id:?} is not here");
                if let Some(at) = at {
                    let _waiter_ended = done.send(self.services.remove(at).1);
                }
            }
            Command::SetBackpressure { port, enabled, .. } => {
                for rx in self.rx.iter_mut().filter(|rx| rx.port == port) {
                    (rx.backpressure, rx.waits_for) = (enabled, None);
                }
            }
            Command::SetCaptures { captures, done, .. } => {
                let _waiter_ended = done.send(core::mem::replace(&mut tx.captures, captures));
            }
            Command::SetDiversion {
                port,
                diversion,
                done,
                ..
            } => {
                let _waiter_ended = done.send(tx.set_diversion(port, diversion));
            }
            Command::SetSampling { sampling, done, .. } => {
                let _waiter_ended = done.send(core::mem::replace(&mut self.pipeline.sampling, sampling));
            }
            Command::SendFirst { port, packet, .. } => self.pipeline.send_first(port, packet, now),
            Command::SetLag {
                port, state, done, ..
            } => {
                for member in self.rx.iter_mut().filter_map(|rx| rx.member.as_mut()) {
                    if let Some(role) = state.members.iter().find(|role| role.number == member.number) {
                        member.set_role(role);
                    }
                }
                tx.distribute(port, &state.distribution, now);
                drop(done);
            }
            Command::SetMarks { port, mut marks, .. } => {
                for rx in self.rx.iter_mut().filter(|rx| rx.port == port) {
                    rx.set_marks(marks.pop().map(Box::new));
                }
            }
            Command::ChangeSlots { port, changes, .. } => {
                for rx in self.rx.iter_mut().filter(|rx| rx.port == port) {
                    rx.change_slots(&changes);
                }
            }
            Command::SetPolicing { port, policing, .. } => {
                for rx in self.rx.iter_mut().filter(|rx| rx.port == port) {
                    rx.policing.clone_from(&policing);
                }
                if self.pipeline.tx.expects_gso {
                    self.segment_policed();
                }
            }
            Command::Attach(_) | Command::Detach { .. } | Command::ExpectGso { .. } | Command::Stop => {
                debug_assert!(false, "commands to the worker do not come here");
            }
        }
    }
}
