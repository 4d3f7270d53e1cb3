//! Encoding and queueing of asynchronous messages.

use core::sync::atomic::Ordering;

use millrace_openflow::{Message, encode};
use millrace_types::Xid;

use crate::controllers::{ControllerSession, Controllers, outbox_limit};

/// The xid of asynchronous messages.
pub(crate) const ASYNCHRONOUS: Xid = Xid(0);

/// Returns an encoded message; `None` if it would exceed the 65,535 bytes of a message.
pub(super) fn encoded(message: &Message) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(message, ASYNCHRONOUS, &mut bytes).ok().map(|()| bytes)
}

/// Sends a message to the controllers that want it.
pub(super) fn report(
    controllers: &Controllers,
    message: &Message,
    is_wanted: impl Fn(&ControllerSession) -> bool,
) {
    let mut bytes = None;
    for connected in controllers.iter().filter(|connected| is_wanted(connected)) {
        let Some(bytes) = bytes.get_or_insert_with(|| encoded(message)) else {
            return;
        };
        if !connected.outbox.offer(bytes.clone(), outbox_limit::REPORT) {
            connected.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
