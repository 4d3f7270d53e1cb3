//! Reassembles requests of several messages (`OFPMPF_REQ_MORE`). Only TABLE_FEATURES is long enough to need it.

use std::collections::VecDeque;

use millrace_types::Xid;

use super::request_prefix::RequestPrefix;
use crate::header::HEADER_SIZE;
use crate::multipart::table_features::TableFeatures;
use crate::multipart::{MORE, MultipartRequest, RequestBody};

/// The offset of the multipart type in a request, in bytes.
const TYPE_OFFSET: usize = HEADER_SIZE;
/// The offset of the flags, in bytes.
const FLAGS_OFFSET: usize = HEADER_SIZE + 2;

/// The maximum size of a request in all its messages, in bytes; 255 tables of 4,000 bytes fit.
const MAX_SIZE: usize = 1 << 20;

/// The maximum number of refused requests whose further messages are recognised.
const REFUSED_LEN: usize = 16;

/// Holds at most one request that is being reassembled, and the refused requests that are not yet complete.
///
/// ```text
///            part with MORE              last part
///   none ─────────────────────▶ open ─────────────────▶ complete
///                                │
///      part with MORE that       │ part that cannot be decoded, or too long
///      cannot be decoded         ▼                last part
///   none ──────────────────▶ refused, answered ─────────────▶ none
///                            with one error
/// ```
#[derive(Debug, Default)]
pub(super) struct MultipartReassembly {
    open: Option<Open>,
    /// The refused requests whose last message has not arrived. Their messages are ignored.
    refused: VecDeque<RequestKey>,
}

#[derive(Debug)]
struct Open {
    key: RequestKey,
    head: RequestPrefix,
    size: usize,
    tables: Vec<TableFeatures>,
}

/// All messages of a request have the same xid and multipart type (OpenFlow 1.3.5, section 7.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RequestKey {
    xid: Xid,
    /// `None` if the message ends before its type.
    type_: Option<[u8; 2]>,
}

impl RequestKey {
    fn new(xid: Xid, head: &RequestPrefix) -> RequestKey {
        RequestKey {
            xid,
            type_: head
                .bytes()
                .get(TYPE_OFFSET..)
                .and_then(|rest| rest.first_chunk().copied()),
        }
    }
}

/// Returns true if the message has the MORE flag: more messages of its request follow.
fn has_more(head: &RequestPrefix) -> bool {
    let flags = head
        .bytes()
        .get(FLAGS_OFFSET..)
        .and_then(|rest| rest.first_chunk());
    flags.is_some_and(|flags| u16::from_be_bytes(*flags) & MORE != 0)
}

/// The outcome of adding a message.
pub(super) enum AddOutcome {
    /// The request is complete.
    Complete(MultipartRequest),
    /// More messages follow.
    Waiting,
    /// The request is too long, is not complete when another begins, or has a type that does not allow several
    /// messages. An error answers the message with this prefix: the first message of the request, except that for a
    /// type that does not allow several messages it is the message that was added.
    Refused(RequestPrefix),
}

impl MultipartReassembly {
    /// Returns true if a message belongs to a refused request and must be ignored.
    pub(super) fn ignores(&mut self, xid: Xid, head: &RequestPrefix) -> bool {
        let key = RequestKey::new(xid, head);
        let Some(at) = self.refused.iter().position(|refused| *refused == key) else {
            return false;
        };
        if !has_more(head) {
            self.refused.remove(at);
        }
        true
    }

    /// Refuses the request of a message that cannot be decoded.
    pub(super) fn refuse(&mut self, xid: Xid, head: &RequestPrefix) {
        let key = RequestKey::new(xid, head);
        let open = self.open.take_if(|open| open.key.xid == xid);
        // An open request of another type with the same xid is refused too, and its last message is still to
        // come.
        let other = open.map(|open| open.key).filter(|open| *open != key);
        let rest = has_more(head).then_some(key);
        other
            .into_iter()
            .chain(rest)
            .for_each(|key| self.ignore_rest(key));
    }

    fn ignore_rest(&mut self, key: RequestKey) {
        if self.refused.len() == REFUSED_LEN {
            self.refused.pop_front();
        }
        self.refused.push_back(key);
    }

    pub(super) fn add(
        &mut self,
        xid: Xid,
        head: RequestPrefix,
        request: MultipartRequest,
        length: u16,
    ) -> AddOutcome {
        let continues = self.open.as_ref().is_some_and(|open| open.key.xid == xid);
        if !request.more && !continues {
            return AddOutcome::Complete(request);
        }
        let RequestBody::TableFeatures(mut tables) = request.body else {
            self.refuse(xid, &head);
            return AddOutcome::Refused(head);
        };
        let mut open = match self.open.take() {
            Some(open) if continues => open,
            other => {
                self.open = Some(Open {
                    key: RequestKey::new(xid, &head),
                    head,
                    size: usize::from(length),
                    tables,
                });
                // Only one request can be open: the new request replaces the open one, which is refused.
                return other.map_or(AddOutcome::Waiting, |other| {
                    self.ignore_rest(other.key);
                    AddOutcome::Refused(other.head)
                });
            }
        };
        open.size += usize::from(length);
        if open.size > MAX_SIZE {
            if request.more {
                self.ignore_rest(open.key);
            }
            return AddOutcome::Refused(open.head);
        }
        open.tables.append(&mut tables);
        if request.more {
            self.open = Some(open);
            return AddOutcome::Waiting;
        }
        AddOutcome::Complete(MultipartRequest::new(RequestBody::TableFeatures(open.tables)))
    }
}
