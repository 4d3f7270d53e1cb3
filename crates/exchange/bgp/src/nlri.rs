//! Network layer reachability information (NLRI): the routes in an UPDATE.

use crate::family::{Afi, Family};
use crate::flowspec::FlowRule;
use crate::prefix::Prefix;
use crate::reader::Reader;

/// One route that an UPDATE announces or withdraws.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nlri {
    /// A prefix.
    Unicast {
        /// The path identifier of Add-Path (RFC 7911); 0 without Add-Path.
        path_id: u32,
        prefix: Prefix,
    },
    /// A flow specification.
    Flowspec {
        /// The path identifier of Add-Path (RFC 7911); 0 without Add-Path.
        path_id: u32,
        rule: FlowRule,
    },
    /// A malformed flow specification. Its length is known, so the routes after it can be read.
    MalformedFlowspec {
        afi: Afi,
        /// The bytes after the length.
        bytes: Box<[u8]>,
        /// The error message.
        error: String,
    },
}

/// Reads all routes of a field. Returns `None` if the syntax of the field is wrong, so that the start of a
/// route is unknown (RFC 7606, section 5.3).
pub(crate) fn read_all(bytes: &[u8], family: Family, has_path_ids: bool) -> Option<Vec<Nlri>> {
    let mut reader = Reader(bytes);
    let mut routes = Vec::new();
    while !reader.is_empty() {
        let path_id = if has_path_ids { reader.u32()? } else { 0 };
        routes.push(if family.is_flowspec() {
            let bytes = read_sized(&mut reader)?;
            match FlowRule::decode(family.afi(), bytes) {
                Ok(rule) => Nlri::Flowspec { path_id, rule },
                Err(error) => Nlri::MalformedFlowspec {
                    afi: family.afi(),
                    bytes: bytes.into(),
                    error: error.to_string(),
                },
            }
        } else {
            let prefix = Prefix::read(&mut reader, family.afi())?;
            Nlri::Unicast { path_id, prefix }
        });
    }
    Some(routes)
}

/// The bits that mark a length of two bytes, of which the other 12 bits are the length (RFC 8955, section 4.1). A length
/// of one byte is less.
const LONG_LENGTH: u8 = 0xf0;
/// The maximum size of a flow specification, in bytes.
const FLOWSPEC_SIZE_MAX: usize = 0xfff;

/// Reads a length, and returns the flow specification after it.
fn read_sized<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let first = reader.u8()?;
    let len = if first < LONG_LENGTH {
        usize::from(first)
    } else {
        usize::from(u16::from_be_bytes([first & !LONG_LENGTH, reader.u8()?]))
    };
    reader.take(len)
}

/// Appends the wire format.
pub(crate) fn write(nlri: &Nlri, has_path_ids: bool, bytes: &mut Vec<u8>) {
    let mut path_id = |id: u32| {
        if has_path_ids {
            bytes.extend(id.to_be_bytes());
        }
    };
    match nlri {
        Nlri::Unicast { path_id: id, prefix } => {
            path_id(*id);
            prefix.write(bytes);
        }
        Nlri::Flowspec { path_id: id, rule } => {
            path_id(*id);
            write_sized(rule.as_bytes(), bytes);
        }
        Nlri::MalformedFlowspec { bytes: rule, .. } => {
            path_id(0);
            write_sized(rule, bytes);
        }
    }
}

fn write_sized(rule: &[u8], bytes: &mut Vec<u8>) {
    let len = rule.len().min(FLOWSPEC_SIZE_MAX);
    if len < usize::from(LONG_LENGTH) {
        bytes.push(len as u8);
    } else {
        let [high, low] = (len as u16).to_be_bytes();
        bytes.extend([LONG_LENGTH | high, low]);
    }
    bytes.extend(rule.iter().take(len));
}
