//! A controller that asks and does not read the replies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::ErrorKind;

use crate::harness::{TestSwitch, config, wait_for};
use millrace_openflow::multipart::{MultipartRequest, RequestBody};
use millrace_openflow::{Message, encode};
use millrace_types::Xid;

#[test]
fn a_controller_that_asks_and_does_not_read_the_replies_is_closed_like_a_silent_one() {
    let text = config(1, "").replace("\"ptcp:0\"", "{ target = \"ptcp:0\", echo_interval_s = 1 }");
    let switch = TestSwitch::start(&text);
    let mut deaf = switch.controller_with_small_buffer();
    let mut request = Vec::new();
    let asked = Message::MultipartRequest(MultipartRequest::new(RequestBody::TableFeatures(Vec::new())));
    encode(&asked, Xid(7), &mut request).unwrap();
    let requests = request.repeat(1000);
    let mut at = 0;
    // The switch stops reading, and then closes the connection.
    wait_for("the end of the connection", || {
        match deaf.write_some(&requests[at..]) {
            Ok(written) => {
                at = (at + written) % requests.len();
                None
            }
            Err(error) => (error.kind() != ErrorKind::WouldBlock).then_some(()),
        }
    });
}
