//! Reassembles requests of several messages (`OFPMPF_REQ_MORE`). Only TABLE_FEATURES is long enough to need it.

use millrace_types::Xid;

use super::RequestHead;
use crate::multipart::table_features::TableFeatures;
use crate::multipart::{MultipartRequest, RequestBody};

/// The maximum size of a request in all its messages, in bytes; 255 tables of 4,000 bytes fit.
const MAX_SIZE: usize = 1 << 20;

/// The request that is being reassembled, of which there is at most one.
#[derive(Debug, Default)]
pub(super) struct MultipartReassembly {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    xid: Xid,
    head: RequestHead,
    size: usize,
    tables: Vec<TableFeatures>,
}

/// The outcome of a message.
pub(super) enum Assembled {
    /// The request is complete.
    Complete(MultipartRequest),
    /// More messages follow.
    Waiting,
    /// The request is too long, or its type does not allow several messages: it is answered with an error.
    Refused(Xid, RequestHead),
}

impl MultipartReassembly {
    pub(super) fn add(
        &mut self,
        xid: Xid,
        head: RequestHead,
        request: MultipartRequest,
        length: u16,
    ) -> Assembled {
        let continues = self.open.as_ref().is_some_and(|open| open.xid == xid);
        if !request.more && !continues {
            return Assembled::Complete(request);
        }
        let RequestBody::TableFeatures(mut tables) = request.body else {
            return Assembled::Refused(xid, head);
        };
        let mut open = match self.open.take() {
            Some(open) if continues => open,
            other => {
                self.open = Some(Open {
                    xid,
                    head,
                    size: usize::from(length),
                    tables,
                });
                // Only one request can be open, so that a new one ends the one before.
                return other.map_or(Assembled::Waiting, |other| {
                    Assembled::Refused(other.xid, other.head)
                });
            }
        };
        open.size += usize::from(length);
        if open.size > MAX_SIZE {
            return Assembled::Refused(xid, open.head);
        }
        open.tables.append(&mut tables);
        if request.more {
            self.open = Some(open);
            return Assembled::Waiting;
        }
        Assembled::Complete(MultipartRequest::new(RequestBody::TableFeatures(open.tables)))
    }
}
