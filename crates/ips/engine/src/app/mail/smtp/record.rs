//! The record of the transaction of a mail.

use crate::app::record::{Record, SmtpRecord};
use crate::app::transaction::Transaction;
use crate::flow::Direction;

pub(super) const CLIENT: Direction = Direction::ToServer;

/// Changes the record of a transaction.
pub(super) fn update(transaction: &mut Transaction, change: impl FnOnce(&mut SmtpRecord)) {
    if let Record::Smtp(record) = &mut transaction.record {
        change(record);
    }
}
