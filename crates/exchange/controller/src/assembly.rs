//! Reassembly of multipart replies from their messages (OpenFlow 1.3.5, section 7.3.5).
//!
//! A reply is complete when a message without `OFPMPF_REPLY_MORE` arrives. A truncated reply is never treated
//! as a short one: its assembly stays incomplete, and the owner has a deadline. OpenFlow does not number the
//! messages of a reply, so a missing message in the middle cannot be detected.

use millrace_openflow::multipart::{MultipartReply, MultipartType, ReplyBody};
use millrace_types::Xid;
use thiserror::Error;

/// The reason why the messages of a reply do not belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AssemblyError {
    /// The multipart type of the reply differs from the type of the request.
    #[error("the switch answered a {expected} request with a {found} reply")]
    TypeChanged {
        /// The type of the request.
        expected: MultipartType,
        /// The type in the reply.
        found: MultipartType,
    },
    /// The xid of a reply belongs to no request.
    #[error("a {found} reply has xid {xid:#x}, which is the xid of no request")]
    UnexpectedXid {
        /// The xid of the reply.
        xid: u32,
        /// The type of the reply.
        found: MultipartType,
    },
    /// The reply is larger than the limit.
    #[error("a {type_} reply has more than {max} bytes")]
    TooLarge {
        /// The type of the reply.
        type_: MultipartType,
        /// The maximum size of all its messages, in bytes.
        max: usize,
    },
}

/// The items of a reply that have arrived.
#[derive(Debug)]
pub struct Assembly {
    xid: Xid,
    type_: MultipartType,
    size: usize,
    max_size: usize,
    body: Option<ReplyBody>,
}

impl Assembly {
    /// Returns an empty assembly for the reply to a request. The reply may have at most `max_size` bytes.
    pub fn new(xid: Xid, type_: MultipartType, max_size: usize) -> Assembly {
        Assembly {
            xid,
            type_,
            size: 0,
            max_size,
            body: None,
        }
    }

    /// Returns the xid of the request.
    pub fn xid(&self) -> Xid {
        self.xid
    }

    /// Adds a message of `size` bytes. Returns the items of all messages if this is the last one.
    ///
    /// # Errors
    /// [`AssemblyError`]; the assembly must not be used afterwards.
    pub fn add(
        &mut self,
        xid: Xid,
        reply: MultipartReply,
        size: usize,
    ) -> Result<Option<ReplyBody>, AssemblyError> {
        let found = reply.body.type_();
        if xid != self.xid {
            return Err(AssemblyError::UnexpectedXid { xid: xid.0, found });
        }
        if found != self.type_ {
            return Err(AssemblyError::TypeChanged {
                expected: self.type_,
                found,
            });
        }
        self.size += size;
        if self.size > self.max_size {
            self.body = None;
            return Err(AssemblyError::TooLarge {
                type_: self.type_,
                max: self.max_size,
            });
        }
        match &mut self.body {
            None => self.body = Some(reply.body),
            Some(body) => append(body, reply.body),
        }
        Ok(if reply.more { None } else { self.body.take() })
    }
}

/// Appends the items in a message to the items in earlier messages; both have the same type. For a type
/// without a list of items, the last message replaces the earlier ones.
fn append(body: &mut ReplyBody, next: ReplyBody) {
    match (body, next) {
        (ReplyBody::Flow(all), ReplyBody::Flow(mut more)) => all.append(&mut more),
        (ReplyBody::Table(all), ReplyBody::Table(mut more)) => all.append(&mut more),
        (ReplyBody::PortStats(all), ReplyBody::PortStats(mut more)) => all.append(&mut more),
        (ReplyBody::Queue(all), ReplyBody::Queue(mut more)) => all.append(&mut more),
        (ReplyBody::Group(all), ReplyBody::Group(mut more)) => all.append(&mut more),
        (ReplyBody::GroupDesc(all), ReplyBody::GroupDesc(mut more)) => all.append(&mut more),
        (ReplyBody::Meter(all), ReplyBody::Meter(mut more)) => all.append(&mut more),
        (ReplyBody::MeterConfig(all), ReplyBody::MeterConfig(mut more)) => all.append(&mut more),
        (ReplyBody::TableFeatures(all), ReplyBody::TableFeatures(mut more)) => all.append(&mut more),
        (ReplyBody::PortDesc(all), ReplyBody::PortDesc(mut more)) => all.append(&mut more),
        (body, next) => *body = next,
    }
}
