//! OpenFlow: every message, and a connection with any input.

use millrace_openflow::connection::{Connection, Event, Settings};
use millrace_openflow::flow_monitor::FlowMonitorRequest;
use millrace_openflow::{Header, decode, encode};
use millrace_types::{Time, Xid};

/// Decodes the bytes as one message.
///
/// Properties: every error has a code of the specification; a decoded message can be encoded, and is decoded the same
/// again.
pub(crate) fn message(bytes: &[u8]) {
    // The body of an experimenter's multipart request.
    if let Err(error) = FlowMonitorRequest::decode_all(bytes) {
        assert!(error.error_code().name().is_some());
    }
    let message = match decode(bytes) {
        Err(error) => {
            assert!(error.error_code().name().is_some());
            return;
        }
        Ok((_, message)) => message,
    };
    // The text form is also printed.
    let _ = message.to_string();
    let mut written = Vec::new();
    // Encoding adds omitted padding, so that the longest messages may become too long.
    if encode(&message, Xid(1), &mut written).is_ok() {
        let (header, again) = decode(&written).unwrap();
        assert_eq!(header.xid, Xid(1));
        assert_eq!(again, message);
    }
}

/// Feeds a connection, and one over datagrams: the first byte of each chunk is its size.
///
/// Properties: the output consists of complete messages; buffers stay within their limits; a closed connection has no
/// further output.
pub(crate) fn connection(bytes: &[u8]) {
    for is_datagram in [false, true] {
        feed(bytes, is_datagram);
    }
}

fn feed(bytes: &[u8], is_datagram: bool) {
    let settings = Settings {
        is_datagram,
        ..Settings::default()
    };
    let mut connection = Connection::new(settings, Time::ZERO);
    let mut rest = bytes;
    let (mut seconds, mut is_over) = (0, false);
    while let Some((size, tail)) = rest.split_first() {
        let (chunk, tail) = tail.split_at(usize::from(*size).min(tail.len()));
        rest = tail;
        seconds += u64::from(*size % 7 == 0);
        let now = Time::from_secs(seconds);
        connection.receive(chunk, now);
        connection.tick(now);
        while let Some(event) = connection.poll() {
            assert!(!is_over);
            is_over = matches!(event, Event::Closed(_));
        }
        assert!(!(is_over && connection.wants_input()));
        assert!(connection.output().len() <= (1 << 20) + (1 << 17));
        if *size % 3 == 0 {
            check_whole(connection.output());
            connection.wrote(connection.output().len(), now);
        }
    }
}

fn check_whole(mut said: &[u8]) {
    while !said.is_empty() {
        let size = usize::from(Header::parse(said).unwrap().length);
        decode(&said[..size]).unwrap();
        said = &said[size..];
    }
}
