//! A request with one reply. If OpenFlow defines no reply, a barrier follows the request, and its reply
//! completes the request.

use millrace_openflow::multipart::{MultipartReply, MultipartType};
use millrace_openflow::{Message, MessageType};
use millrace_types::Xid;

use super::{Received, RequestError};
use crate::assembly::Assembly;
use crate::outgoing::Outgoing;

/// A single message that waits for its reply, or for the reply to the barrier after it.
#[derive(Debug)]
pub(crate) struct Request {
    /// The message; `None` after it was sent.
    message: Option<Box<Message>>,
    type_: MessageType,
    multipart: Option<MultipartType>,
    max_size: usize,
    xid: Option<Xid>,
    barrier: Option<Xid>,
    assembly: Option<Assembly>,
    error: Option<RequestError>,
}

type Reply = Result<Box<Message>, RequestError>;

impl Request {
    /// Returns a request that has not been sent. A multipart reply may have at most `max_size` bytes.
    pub(crate) fn new(message: Message, max_size: usize) -> Request {
        let multipart = match &message {
            Message::MultipartRequest(request) => Some(request.body.type_()),
            _ => None,
        };
        Request {
            type_: message.type_(),
            message: Some(Box::new(message)),
            multipart,
            max_size,
            xid: None,
            barrier: None,
            assembly: None,
            error: None,
        }
    }

    pub(crate) fn pump(&mut self, out: &mut Outgoing) -> Option<Reply> {
        if !out.has_room() {
            return None;
        }
        let message = self.message.take()?;
        let xid = out.xid();
        if out.put(&message, xid).is_err() {
            return Some(Err(RequestError::TooLong { request: self.type_ }));
        }
        self.xid = Some(xid);
        self.assembly = self
            .multipart
            .map(|type_| Assembly::new(xid, type_, self.max_size));
        if reply_type(self.type_).is_none() {
            let barrier = out.xid();
            let _fits = out.put(&Message::BarrierRequest, barrier);
            self.barrier = Some(barrier);
        }
        None
    }

    pub(crate) fn xid(&self) -> Option<Xid> {
        self.xid
    }

    pub(crate) fn is_multipart(&self) -> bool {
        self.multipart.is_some()
    }

    pub(crate) fn owns(&self, xid: Xid) -> bool {
        self.xid == Some(xid) || self.barrier == Some(xid)
    }

    pub(crate) fn receive(&mut self, xid: Xid, received: Received) -> Option<Reply> {
        let request = self.type_;
        let message = match received {
            Received::Message(Message::MultipartReply(reply), size) if self.assembly.is_some() => {
                return self.assemble(xid, reply, size);
            }
            Received::Message(message, _) => message,
            Received::Error(error) => {
                let code = error.code;
                let error = RequestError::Refused { request, code };
                if self.barrier.is_none() {
                    return Some(Err(error));
                }
                self.error.get_or_insert(error);
                return None;
            }
            Received::Malformed(error) => return Some(Err(RequestError::Malformed { request, error })),
        };
        let expected = reply_type(request).unwrap_or(MessageType::BarrierReply);
        let found = message.type_();
        if found != expected {
            return Some(Err(RequestError::UnexpectedReply { request, found }));
        }
        Some(match self.error.take() {
            Some(error) => Err(error),
            None => Ok(Box::new(message)),
        })
    }

    fn assemble(&mut self, xid: Xid, reply: MultipartReply, size: usize) -> Option<Reply> {
        match self.assembly.as_mut()?.add(xid, reply, size) {
            Ok(body) => {
                let reply = MultipartReply::new(body?);
                Some(Ok(Box::new(Message::MultipartReply(reply))))
            }
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// Returns the type of the reply to a request; `None` if OpenFlow defines only an error as its reply.
fn reply_type(request: MessageType) -> Option<MessageType> {
    Some(match request {
        MessageType::EchoRequest => MessageType::EchoReply,
        MessageType::FeaturesRequest => MessageType::FeaturesReply,
        MessageType::GetConfigRequest => MessageType::GetConfigReply,
        MessageType::MultipartRequest => MessageType::MultipartReply,
        MessageType::BarrierRequest => MessageType::BarrierReply,
        MessageType::QueueGetConfigRequest => MessageType::QueueGetConfigReply,
        MessageType::RoleRequest => MessageType::RoleReply,
        MessageType::GetAsyncRequest => MessageType::GetAsyncReply,
        _ => return None,
    })
}
