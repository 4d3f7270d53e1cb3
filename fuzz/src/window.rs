//! The window of a network function in another process, and the messages by which it attaches.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use millrace_nf::Direction;
use millrace_nf::attach::{ATTACHED_COUNTERS_MAX, AttachMessage, MESSAGE_SIZE_MAX};
use millrace_nf::shm::{MESSAGE_MAX, RecordKind, SwitchEnd};

/// Bytes after the slots: the ring of records and that of notices.
const RINGS: u64 = 256 * 1024 + 1024 * 64;

/// Lets a hostile function write to its window, between the steps of the switch. Each step is a byte and what belongs to it:
/// 0 gives a packet, 1 writes a number to the head of the window, 2 writes bytes to the ring of records, 3 writes bytes
/// anywhere, others take back what is done.
///
/// Properties: the switch never panics; it never takes back more packets than it gave; records are within their limits, and
/// not more than the ring holds.
pub(crate) fn window(bytes: &[u8]) {
    let (mut switch, file) = SwitchEnd::create("fuzz", 8, 200).unwrap();
    let file = File::from(file);
    let size = file.metadata().unwrap().len();
    let mut rest = bytes;
    // The kernel's file takes no part of the property: a write past the end is ignored.
    let write = |at: u64, bytes: &[u8]| {
        let fits = size.saturating_sub(at).min(bytes.len() as u64) as usize;
        file.write_all_at(&bytes[..fits], at).unwrap();
    };
    while let Some((step, behind)) = rest.split_first() {
        rest = behind;
        let mut take = |len: usize| {
            let (taken, behind) = rest.split_at(len.min(rest.len()));
            rest = behind;
            taken
        };
        match step {
            0 => {
                let _is_given = switch.give(&[7; 100], 100, Direction::Forward);
                switch.publish();
            }
            1 => {
                let at = take(1).first().map_or(0, |at| u64::from(*at) * 8);
                let mut number = [0; 8];
                let given = take(8);
                number[..given.len()].copy_from_slice(given);
                write(at, &number);
            }
            2 => {
                let at = take(1).first().map_or(0, |at| u64::from(*at) * 16);
                write(size - RINGS + at, take(32));
            }
            3 => {
                let at = take(3).iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                write(at, take(16));
            }
            _ => {
                if poll(&mut switch).is_none() {
                    return;
                }
            }
        }
    }
    let _end = poll(&mut switch);
}

/// Takes back what the function reports done, with its records. Returns `None` for a violation of the protocol.
fn poll(switch: &mut SwitchEnd) -> Option<()> {
    let (taken, in_flight) = (switch.taken(), switch.in_flight());
    let done = switch.done().ok()?;
    assert!(done <= in_flight);
    let (mut records, mut bytes) = (0, 0);
    while let Some(record) = switch.record().ok()? {
        let limit = match record.kind {
            RecordKind::Send(_) => 1514,
            RecordKind::Shun(..) => 8,
            RecordKind::Export | RecordKind::Report => MESSAGE_MAX,
        };
        assert!(record.size <= limit);
        assert!(record.after <= taken + in_flight as u64);
        let mut payload = vec![0; record.size];
        switch.copy_record(&record, &mut payload);
        switch.free_record(&record);
        records += 1;
        bytes += 16 + record.size;
        assert!(records <= 16 * 1024 && bytes <= 256 * 1024);
    }
    for behind in 0..done {
        let answer = switch.answer(behind, 100).ok()?;
        let mut copy = vec![0; answer.size];
        switch.copy(&answer, &mut copy);
    }
    switch.take(done);
    assert_eq!(switch.in_flight(), in_flight - done);
    Some(())
}

/// Decodes the messages of a process that attaches.
///
/// Properties: a decoded message is within its limits, and encodes to a message that decodes to the same.
pub(crate) fn attach(bytes: &[u8]) {
    let Ok(message) = AttachMessage::decode(bytes) else {
        return;
    };
    if let AttachMessage::Hello { counters, .. } = &message {
        assert!(counters.len() <= ATTACHED_COUNTERS_MAX);
    }
    let again = message.encode();
    assert!(again.len() <= MESSAGE_SIZE_MAX);
    if bytes.len() <= MESSAGE_SIZE_MAX {
        assert_eq!(AttachMessage::decode(&again), Ok(message));
    }
}
