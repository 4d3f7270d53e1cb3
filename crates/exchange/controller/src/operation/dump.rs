//! A listing of the complete switch, in this order: ports, meters, groups, flow entries.

use millrace_openflow::multipart::meter::MeterRequest;
use millrace_openflow::multipart::{MultipartRequest, MultipartType, ReplyBody, RequestBody};
use millrace_openflow::{ErrorCode, Message, Port};
use millrace_types::{MeterId, Xid};

use super::{DumpError, Received};
use crate::assembly::Assembly;
use crate::dump::{Dump, DumpFilter};
use crate::outgoing::Outgoing;

/// The parts of a listing, in the order of their requests.
const PARTS: [MultipartType; 4] = [
    MultipartType::PortDesc,
    MultipartType::MeterConfig,
    MultipartType::GroupDesc,
    MultipartType::Flow,
];

/// A listing.
#[derive(Debug)]
pub(crate) struct DumpOperation {
    filter: DumpFilter,
    max_size: usize,
    /// The index in [`PARTS`] of the current or next part.
    part: usize,
    open: Option<Assembly>,
    dump: Box<Dump>,
    /// The ports; `None` before they are listed, and after [`DumpOperation::take_ports`].
    ports: Option<Vec<Port>>,
}

type DumpOutcome = Result<Box<Dump>, DumpError>;

impl DumpOperation {
    /// Returns a listing that has not started. Each part may have at most `max_size` bytes.
    pub(crate) fn new(filter: DumpFilter, max_size: usize) -> DumpOperation {
        DumpOperation {
            filter,
            max_size,
            part: 0,
            open: None,
            dump: Box::default(),
            ports: None,
        }
    }

    /// Returns and removes the listed ports.
    pub(crate) fn take_ports(&mut self) -> Option<Vec<Port>> {
        self.ports.take()
    }

    pub(crate) fn pump(&mut self, out: &mut Outgoing) -> Option<DumpOutcome> {
        if self.open.is_some() || !out.has_room() {
            return None;
        }
        let Some(&part) = PARTS.get(self.part) else {
            return Some(Ok(core::mem::take(&mut self.dump)));
        };
        let body = match part {
            MultipartType::PortDesc => RequestBody::PortDesc,
            MultipartType::MeterConfig => RequestBody::MeterConfig(MeterRequest { meter: MeterId::ALL }),
            MultipartType::GroupDesc => RequestBody::GroupDesc,
            _ => RequestBody::Flow(self.filter.request()),
        };
        let xid = out.xid();
        // These requests have a fixed, small size and always fit.
        let _fits = out.put(&Message::MultipartRequest(MultipartRequest::new(body)), xid);
        self.open = Some(Assembly::new(xid, part, self.max_size));
        None
    }

    pub(crate) fn owns(&self, xid: Xid) -> bool {
        self.open.as_ref().is_some_and(|open| open.xid() == xid)
    }

    pub(crate) fn open_multipart(&self) -> Option<Xid> {
        self.open.as_ref().map(Assembly::xid)
    }

    pub(crate) fn receive(&mut self, xid: Xid, received: Received) -> Option<DumpOutcome> {
        let part = *PARTS.get(self.part)?;
        let open = self.open.as_mut()?;
        let complete = match received {
            Received::Message(Message::MultipartReply(reply), size) => open.add(xid, reply, size),
            // A switch without meters does not support this request.
            Received::Error(error) if part == MultipartType::MeterConfig && is_unsupported(error.code) => {
                Ok(Some(ReplyBody::MeterConfig(Vec::new())))
            }
            Received::Error(error) => {
                self.open = None;
                return Some(Err(DumpError::Refused {
                    part,
                    code: error.code,
                }));
            }
            Received::Malformed(error) => return Some(Err(DumpError::Malformed { part, error })),
            // Only a multipart reply answers a multipart request. Other messages are ignored.
            Received::Message(..) => Ok(None),
        };
        let body = match complete {
            Ok(body) => body?,
            Err(error) => return Some(Err(error.into())),
        };
        match body {
            ReplyBody::PortDesc(ports) => {
                self.ports = Some(ports.clone());
                self.dump.ports = ports;
            }
            ReplyBody::MeterConfig(meters) => self.dump.meters = meters,
            ReplyBody::GroupDesc(groups) => self.dump.groups = groups,
            ReplyBody::Flow(flows) => self.dump.flows = flows,
            _ => {}
        }
        self.open = None;
        self.part += 1;
        (self.part == PARTS.len()).then(|| Ok(core::mem::take(&mut self.dump)))
    }
}

fn is_unsupported(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::OFPBRC_BAD_MULTIPART | ErrorCode::OFPBRC_BAD_TYPE)
}
