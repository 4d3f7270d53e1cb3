//! Outputs of an exchange: requests to switches and to the verifier, and events for subscribers.

use millrace_ix_engine::{Modification, Session};
use millrace_ix_model::SwitchId;
use millrace_types::PortNo;

use crate::event::ServiceEvent;
use crate::fabric::{Entry, FabricKey};
use crate::verify::VerifyRequest;

/// A request to a switch; its answer comes as an event.
#[derive(Debug)]
pub enum FabricRequest {
    /// Read all entries.
    Dump {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
    },
    /// Send one atomic bundle and a barrier.
    Commit {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
        /// The number of the commit.
        commit: u64,
        modifications: Vec<Modification<FabricKey, Entry>>,
    },
    /// Send a frame by a port.
    PacketOut {
        switch: SwitchId,
        /// The number of the connection.
        session: Session,
        port: PortNo,
        /// The frame, with its tags.
        frame: Vec<u8>,
    },
}

/// A request to a switch, or an event for subscribers.
#[derive(Debug)]
pub enum Output {
    Request(FabricRequest),
    /// A request to the verifier.
    Verify(VerifyRequest),
    Event(ServiceEvent),
}
