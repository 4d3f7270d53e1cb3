//! The control channel of transfers, and tickets: both come from peers or people that need not be trusted.

use millrace_courier::read_control_stream;
use millrace_courier::ticket::{PREFIX, Ticket};

/// Reads the bytes as a stream of control messages.
///
/// Properties: a message that was read is encoded to one that reads the same; a stream that ends early gives the same messages; the
/// text of an error has no control characters, since it reaches a terminal.
pub(crate) fn control(bytes: &[u8]) {
    match read_control_stream(bytes) {
        Ok((messages, rest)) => {
            let encoded: Vec<u8> = messages.concat();
            assert_eq!(read_control_stream(&encoded), Ok((messages.clone(), 0)));
            let whole = bytes.len() - rest;
            let early = read_control_stream(&bytes[..whole.saturating_sub(1)]).map(|(early, _)| early);
            assert_eq!(early.unwrap(), messages[..messages.len().saturating_sub(1)]);
        }
        Err(text) => assert!(!text.chars().any(char::is_control), "{text:?}"),
    }
}

/// Reads the bytes as a ticket.
///
/// Property: a ticket that was read is written as the same text.
pub(crate) fn ticket(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for text in [text.to_owned(), format!("{PREFIX}{text}")] {
        if let Ok(ticket) = text.parse::<Ticket>() {
            assert_eq!(ticket.to_string().parse::<Ticket>(), Ok(ticket.clone()));
            assert_eq!(ticket.to_string(), text.trim());
        }
    }
}
