//! Heartbeats (RFC 6520): one that asks for more bytes than it has is the attack of CVE-2014-0160.

use super::{Tls, Transaction};
use crate::app::transaction::Transactions;
use crate::flow::Direction;

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
/// Size of the type and the length before the payload, in bytes.
const HEADER: usize = 3;

impl Tls {
    /// Handles a record with a heartbeat.
    pub(super) fn heartbeat(&mut self, direction: Direction, record: &[u8], out: &mut Transactions) {
        let is_encrypted = self.sides[direction.index()].is_encrypted;
        let asked = match is_encrypted {
            false => None,
            true => self
                .heartbeat
                .replace((direction, record.len()))
                .filter(|(asking, _)| *asking != direction),
        };
        if asked.is_some() {
            self.heartbeat = None;
        }
        let Some(transaction) = self.transaction(out) else {
            return;
        };
        transaction.raise("tls.heartbeat_message");
        match is_encrypted {
            false => plain(transaction, record),
            // The answer has the payload of the request, so its record has the same size, or another padding.
            true if asked.is_some_and(|(_, size)| record.len() > size) => {
                transaction.raise("tls.dataleak_heartbeat_mismatch");
            }
            true => {}
        }
    }
}

/// Compares the sizes of a heartbeat that is not encrypted.
fn plain(transaction: &mut Transaction, record: &[u8]) {
    match *record {
        [REQUEST | RESPONSE, high, low, ..] => {
            let size = usize::from(u16::from_be_bytes([high, low]));
            if HEADER + size > record.len() {
                transaction.raise("tls.overflow_heartbeat_message");
            }
        }
        _ => transaction.raise("tls.invalid_heartbeat_message"),
    }
}
