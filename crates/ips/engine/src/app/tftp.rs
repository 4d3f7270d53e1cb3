//! TFTP (RFC 1350): requests to read and to write a file.

use super::AppProtocol;
use super::framed::{self, fields};
use super::parser::{Outcome, Parser};
use super::transaction::Transactions;
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct Tftp;

heap!(Tftp {});

/// Returns the kind, the file and the mode of a request (section 5).
fn request(bytes: &[u8]) -> Option<(&'static str, &[u8], &[u8])> {
    let (kind, rest) = match bytes {
        [0, 1, rest @ ..] => ("read", rest),
        [0, 2, rest @ ..] => ("write", rest),
        _ => return None,
    };
    let mut parts = rest.split(|byte| *byte == 0);
    let (file, mode) = (parts.next()?, parts.next()?);
    // Each text ends with a zero.
    parts.next()?;
    (!file.is_empty()).then_some((kind, file, mode))
}

impl Parser for Tftp {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        if let Some((kind, file, mode)) = request(chunk.bytes) {
            let transaction = framed::message(AppProtocol::Tftp, chunk.direction, out);
            fields(transaction, |out| {
                out.text("packet", kind.as_bytes())
                    .text("file", file)
                    .text("mode", mode);
            });
        }
        Outcome::Continue
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_file_and_a_mode() {
        assert_eq!(
            request(b"\0\x01boot.img\0octet\0"),
            Some(("read", &b"boot.img"[..], &b"octet"[..]))
        );
        assert_eq!(
            request(b"\0\x02a\0netascii\0tsize\x000\0").map(|found| found.0),
            Some("write")
        );
        for bytes in [
            &b"\0\x03\0\x01data"[..],
            b"\0\x01a\0octet",
            b"\0\x01\0octet\0",
            b"\0",
        ] {
            assert_eq!(request(bytes), None);
        }
    }
}
