//! port_status (OpenFlow 1.3.5, section 7.4.3).

use millrace_openflow::{Message, PortReason, PortStatus as PortStatusMessage};

use super::send::report;
use crate::controllers::Controllers;
use crate::port::PortStatus;

/// The reason of a port_status message (OpenFlow 1.3.5, section 7.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortChange {
    /// The port is new.
    Add,
    /// The port is removed.
    Delete,
    /// The configuration or the link of the port changed.
    Modify,
}

/// Reports the change of a port to the controllers that want port_status messages.
pub(crate) fn port_status(controllers: &Controllers, change: PortChange, status: &PortStatus) {
    let reason = match change {
        PortChange::Add => PortReason::Add,
        PortChange::Delete => PortReason::Delete,
        PortChange::Modify => PortReason::Modify,
    };
    let message = Message::PortStatus(PortStatusMessage {
        reason,
        port: status.describe(),
    });
    report(controllers, &message, |connected| {
        connected.peer.wants_port_status(reason)
    });
}
