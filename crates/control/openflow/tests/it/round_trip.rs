//! Two properties of the codec: encoded messages decode to the same values, and no input makes it panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use millrace_openflow::connection::{Connection, Event, Settings};
use millrace_openflow::{DecodeError, Header, Message, decode, encode};
use millrace_types::{Time, Xid};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_is_read_back_the_same(message in crate::arbitrary::message(), xid: u32) {
        let mut bytes = Vec::new();
        encode(&message, Xid(xid), &mut bytes).unwrap();
        prop_assert_eq!(bytes.len() % 8 == 0 || !is_padded(&message), true);
        let (header, read) = decode(&bytes).unwrap();
        prop_assert_eq!(header.xid, Xid(xid));
        prop_assert_eq!(read, message);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(error) = decode(&bytes) {
            prop_assert!(error.error_code().name().is_some());
        }
    }

    #[test]
    fn a_damaged_message_is_a_message_or_an_error(
        message in crate::arbitrary::message(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        encode(&message, Xid(1), &mut bytes).unwrap();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = decode(&bytes);
        // The bytes are truncated and their length field corrected, so that the inner checks are reached.
        let size = 8 + cut.index(bytes.len() - 7);
        bytes.truncate(size);
        bytes[..4].copy_from_slice(&[4, message.type_().raw(), (size >> 8) as u8, size as u8]);
        match decode(&bytes) {
            Ok((_, read)) => {
                let mut again = Vec::new();
                encode(&read, Xid(1), &mut again).unwrap();
                let (_, twice) = decode(&again).unwrap();
                prop_assert_eq!(twice, read);
            }
            Err(error) => prop_assert!(error.error_code().name().is_some()),
        }
    }

    #[test]
    fn a_cut_message_of_fixed_size_has_a_bad_length(message in crate::arbitrary::message(), keep in 8usize..40) {
        let mut bytes = Vec::new();
        encode(&message, Xid(1), &mut bytes).unwrap();
        prop_assume!(keep < bytes.len());
        bytes.truncate(keep);
        prop_assert_eq!(decode(&bytes).unwrap_err(), DecodeError::Length);
    }

    #[test]
    fn a_connection_survives_any_bytes(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..20),
    ) {
        let mut connection = Connection::new(Settings::default(), Time::ZERO);
        connection.receive(&[4, 0, 0, 8, 0, 0, 0, 1], Time::ZERO);
        for chunk in chunks {
            connection.receive(&chunk, Time::ZERO);
            while let Some(event) = connection.poll() {
                if let Event::Closed(_) = event {
                    prop_assert!(!connection.wants_input());
                }
            }
            // The output consists of complete messages.
            let mut rest = connection.output();
            while !rest.is_empty() {
                let size = usize::from(Header::parse(rest).unwrap().length);
                prop_assert!(decode(&rest[..size]).is_ok());
                rest = &rest[size..];
            }
        }
    }
}

/// Returns true for messages whose parts are all padded to 8 bytes.
fn is_padded(message: &Message) -> bool {
    matches!(
        message,
        Message::FlowMod(_) | Message::FlowRemoved(_) | Message::GroupMod(_) | Message::MeterMod(_)
    )
}
