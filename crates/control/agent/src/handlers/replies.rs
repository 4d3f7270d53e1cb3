//! Replies to the requests of a connection.

use millrace_openflow::connection::Request;
use millrace_openflow::multipart::{ReplyPart, SegmentWriter, encode_segments};
use millrace_openflow::{ErrorCode, Message, encode};
use millrace_types::Xid;

use crate::controllers::Outbox;

/// Replies of one connection, in order.
pub(super) struct Replies {
    outbox: Outbox,
    pub(super) bytes: Vec<u8>,
}

impl Replies {
    pub(super) fn new(outbox: Outbox) -> Replies {
        Replies {
            outbox,
            bytes: Vec::new(),
        }
    }

    /// Replies with a message.
    pub(super) fn send(&mut self, xid: Xid, message: &Message) {
        if let Err(error) = encode(message, xid, &mut self.bytes) {
            // Only a reply that contains data from the controller's request can exceed 65,535 bytes, the
            // maximum of a message.
            tracing::error!(xid = xid.0, %error, "reply left out");
        }
    }

    /// Replies with an error.
    pub(super) fn error(&mut self, request: &Request, code: ErrorCode) {
        tracing::debug!(xid = request.xid.0, %code, request = %request.message, "refused");
        self.send(request.xid, &request.error(code));
    }

    /// Replies with a list, in as many multipart segments as it needs.
    pub(super) fn list<I>(&mut self, xid: Xid, items: I)
    where
        I: IntoIterator,
        I::Item: ReplyPart,
    {
        encode_segments(xid, items, &mut self.bytes);
    }

    /// Moves the replies so far to the connection's outbox.
    pub(super) fn flush(&mut self) {
        self.outbox.reply(core::mem::take(&mut self.bytes));
    }
}

/// Returns the OpenFlow error code of a pipeline error.
pub(super) const fn error_code(error: millrace_pipeline::ErrorCode) -> ErrorCode {
    ErrorCode {
        type_: error.type_,
        code: error.code,
    }
}

/// Returns a writer for a multipart reply that the caller writes in steps.
pub(super) fn segments<P: ReplyPart>(xid: Xid) -> SegmentWriter {
    SegmentWriter::new(xid, P::TYPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_pipeline_have_the_numbers_of_the_codec() {
        for (name, error) in millrace_pipeline::ErrorCode::ALL {
            assert_eq!(error_code(*error).name(), Some(*name));
        }
    }
}
