//! Messages of a vhost-user driver, and replies of a device to our driver.

use std::collections::BTreeMap;

use millrace_vhost::memory::MemoryRegion;
use millrace_vhost::message::{HEADER_SIZE, Header, Message, PAYLOAD_MAX, Reply, TABLE_MAX};
use millrace_vhost::session::{Device, RingConfig, Session};
use millrace_vhost::{Features, MessageError};

/// Records the rings that run.
#[derive(Default)]
struct Account {
    regions: usize,
    running: BTreeMap<u16, u32>,
}

impl Device for Account {
    type Fd = ();

    fn share(&mut self, memory: Vec<(MemoryRegion, ())>) -> Result<(), MessageError> {
        assert!(self.running.is_empty(), "memory goes under a ring that runs");
        assert!((1..=TABLE_MAX).contains(&memory.len()));
        self.regions = memory.len();
        // Some resources are unavailable.
        match memory.iter().any(|(region, ())| region.size == 0) {
            true => Err(MessageError::Short),
            false => Ok(()),
        }
    }

    fn start(&mut self, ring: u16, config: &RingConfig) -> Result<(), MessageError> {
        assert!(ring < 4 && self.regions > 0);
        assert!(Features::offered(true).contains(config.features));
        let was = self.running.insert(ring, config.base);
        assert!(was.is_none(), "it ran already");
        match config.size {
            0 => {
                self.running.remove(&ring);
                Err(MessageError::Short)
            }
            _ => Ok(()),
        }
    }

    fn stop(&mut self, ring: u16) -> Option<u32> {
        let base = self.running.remove(&ring);
        assert!(base.is_some(), "it did not run");
        base.map(|base| base.wrapping_add(1))
    }

    fn call(&mut self, ring: u16, _: Option<()>) {
        assert!(ring < 4);
    }
}

/// Handles messages one after the other, whose headers contain their sizes.
///
/// Properties: a decoded message encodes to the same message; a ring runs only with memory, once, and not while the
/// memory changes; replies are short. A reply that our driver accepts is one that our device sends.
pub(crate) fn messages(mut bytes: &[u8]) {
    answer(bytes);
    let mut session = Session::new(2, Features::offered(true));
    let mut account = Account::default();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_SIZE>() {
        let Ok(header) = Header::decode(*header) else {
            break;
        };
        assert!(header.size <= PAYLOAD_MAX);
        let Some((payload, rest)) = rest.split_at_checked(header.size) else {
            break;
        };
        bytes = rest;
        let Ok(message) = Message::decode(header.request, payload) else {
            break;
        };
        let encoded = message.encode(header.needs_reply);
        let (head, payload) = encoded.split_first_chunk().unwrap();
        let again = Header::decode(*head).unwrap();
        assert_eq!(
            (again.request, again.needs_reply),
            (header.request, header.needs_reply)
        );
        assert_eq!(Message::decode(again.request, payload), Ok(message.clone()));
        let fds = vec![(); message.fds()];
        match session.receive(message, header.needs_reply, fds, &mut account) {
            Ok(reply) => assert!(reply.is_none_or(|reply| reply.encode().len() == HEADER_SIZE + 8)),
            Err(_) => break,
        }
        assert!((0..5).all(|ring| session.is_running(ring) == account.running.contains_key(&ring)));
    }
    session.end(&mut account);
    assert!(account.running.is_empty());
}

/// Parses the same bytes as a reply, to the request in them and to another one.
fn answer(bytes: &[u8]) {
    let Some((answer, _)) = bytes.split_first_chunk::<{ Reply::SIZE }>() else {
        return;
    };
    let request = u32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]);
    if let Ok(number) = Reply::decode(request, *answer) {
        let again = Reply::number(request, number).encode();
        assert_eq!(Reply::decode(request, again.try_into().unwrap()), Ok(number));
    }
    assert!(Reply::decode(request.wrapping_add(1), *answer).is_err());
}
