//! The headers of a mail that records and rules need.

use super::headers::{header, headers};
use crate::app::heap::heap;

/// Largest number of headers Received that are kept.
const RECEIVED: usize = 32;

/// The headers of the message itself that records need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::app) struct Summary {
    pub(in crate::app) from: Option<Vec<u8>>,
    pub(in crate::app) to: Vec<Vec<u8>>,
    pub(in crate::app) subject: Option<Vec<u8>>,
    pub(in crate::app) message_id: Option<Vec<u8>>,
    pub(in crate::app) date: Option<Vec<u8>>,
    pub(in crate::app) cc: Option<Vec<u8>>,
    pub(in crate::app) x_mailer: Option<Vec<u8>>,
    pub(in crate::app) received: Vec<Vec<u8>>,
    pub(in crate::app) attachments: Vec<Vec<u8>>,
}

heap!(Summary {
    from,
    to,
    subject,
    message_id,
    date,
    cc,
    x_mailer,
    received,
    attachments
});

impl Summary {
    /// Reads the headers of the message itself.
    pub(super) fn read(&mut self, block: &[u8]) {
        self.from = header(block, b"from");
        self.subject = header(block, b"subject");
        self.message_id = header(block, b"message-id");
        self.date = header(block, b"date");
        self.cc = header(block, b"cc");
        self.x_mailer = header(block, b"x-mailer");
        self.received = headers(block, b"received", RECEIVED);
        self.to = addresses(&header(block, b"to").unwrap_or_default());
    }
}

/// Returns the addresses of a header.
pub(in crate::app) fn addresses(value: &[u8]) -> Vec<Vec<u8>> {
    value
        .split(|&byte| byte == b',')
        .map(|address| address.trim_ascii().to_vec())
        .filter(|address| !address.is_empty())
        .collect()
}
