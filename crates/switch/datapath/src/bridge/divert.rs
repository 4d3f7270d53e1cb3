//! Diversions of the packets that a port sends.

use std::sync::mpsc;

use millrace_types::PortNo;

use super::Bridge;
use crate::io::{Backend, Diversion};
use crate::worker::Command;

impl<B: Backend> Bridge<B> {
    /// Lets a diversion see what a port with one transmit queue sends, before its device; it takes the place of the diversion
    /// that was there. `None` ends this. It ends, too, when the port is removed. Returns false if there is no such port.
    pub fn divert(&mut self, port: PortNo, diversion: Option<Box<dyn Diversion<B::Packet>>>) -> bool {
        let Some(owner) = self.first_tx_worker(port) else {
            return false;
        };
        let (done, back) = mpsc::sync_channel(1);
        self.workers[owner].send(Command::SetDiversion {
            bridge: self.number,
            port,
            diversion,
            done,
        });
        // The old one is dropped here, not by the worker, which frees no memory.
        drop(back.recv());
        true
    }
}
