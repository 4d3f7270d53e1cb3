//! A connection that a control connection announces: a data connection of FTP.

use super::AppProtocol;
use crate::app::heap::heap;
use crate::flow::{Direction, FlowKey};

/// A connection that is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The endpoints. The client is the end that opens the connection; its port is unknown, and 0 here.
    pub key: FlowKey,
    /// The protocol of the connection.
    pub protocol: AppProtocol,
    /// Name of the file that it carries; empty if the command has none.
    pub file_name: Vec<u8>,
    /// Direction of the file in the expected connection.
    pub direction: Direction,
    /// True if the FTP client receives the file (RETR), false if it sends it.
    pub is_download: bool,
}

heap!(Expectation { file_name });

/// Returns the port of "h1,h2,h3,h4,p1,p2" (RFC 959, section 4.1.2).
pub(super) fn port_argument(text: &[u8]) -> Option<u16> {
    let start = text.iter().position(u8::is_ascii_digit)?;
    let end = text[start..]
        .iter()
        .position(|byte| !byte.is_ascii_digit() && !b", ".contains(byte));
    let list = core::str::from_utf8(&text[start..end.map_or(text.len(), |end| start + end)]).ok()?;
    let numbers: Vec<u8> = list
        .split(',')
        .map(|number| number.trim().parse().ok())
        .collect::<Option<_>>()?;
    let [_, _, _, _, high, low] = numbers.try_into().ok()?;
    Some(u16::from_be_bytes([high, low]))
}

/// Returns the port of "|2|address|port|" (RFC 2428); the address may be absent.
pub(super) fn extended_argument(text: &[u8]) -> Option<u16> {
    let start = text.iter().position(|&byte| byte == b'|')?;
    let text = core::str::from_utf8(&text[start..]).ok()?;
    text.split('|').nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_port_and_passive_replies_are_read() {
        assert_eq!(port_argument(b"10,0,0,1,4,2"), Some(0x0402));
        assert_eq!(
            port_argument(b"Entering Passive Mode (10,0,0,1,4,2)."),
            Some(0x0402)
        );
        assert_eq!(port_argument(b"10,0,0,1,4"), None);
        assert_eq!(port_argument(b"10,0,0,1,400,2"), None);
        assert_eq!(extended_argument(b"|1|10.0.0.1|1026|"), Some(1026));
        assert_eq!(extended_argument(b"Extended (|||1026|)"), Some(1026));
    }
}
