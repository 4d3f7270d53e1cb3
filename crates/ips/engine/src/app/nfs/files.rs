//! Bytes of files in calls and replies.

use super::Nfs;
use super::bytes::Bytes;
use super::handles::{Handle, Name};
use super::records::{numbers, record};
use super::xdr::Data;
use crate::app::record::{Fields, Record};
use crate::app::transaction::Transactions;
use crate::flow::Direction;

impl Nfs {
    /// Passes bytes of a file on. Returns those that follow.
    pub(super) fn bytes(
        &mut self,
        (handle, offset): (Handle, u64),
        name: &Name,
        data: &Data<'_>,
        (procedure, rpc): ((u64, u64), &Fields),
        direction: Direction,
        out: &mut Transactions,
    ) -> Option<Bytes> {
        let mut bytes = Bytes {
            handle,
            name: name.clone(),
            offset,
            left: data.bytes.len() + data.missing,
            padding: data.padding,
            size: None,
            procedure,
            rpc: Fields::default(),
        };
        if data.missing + data.padding > 0 {
            bytes.rpc = rpc.clone();
        }
        self.transfer(&mut bytes, data.bytes, rpc, direction, out);
        (data.missing + data.padding > 0).then_some(bytes)
    }

    /// Passes the next bytes of a message on. Returns true behind the last.
    pub(super) fn pass(
        &mut self,
        bytes: &mut Bytes,
        next: &[u8],
        direction: Direction,
        out: &mut Transactions,
    ) -> bool {
        let rpc = core::mem::take(&mut bytes.rpc);
        self.transfer(bytes, next, &rpc, direction, out);
        bytes.rpc = rpc;
        if bytes.left == 0
            && let Some(size) = bytes.size.take()
        {
            self.open.ends_at(bytes.handle.key, size, direction, out);
        }
        bytes.left == 0 && bytes.padding == 0
    }

    fn transfer(
        &mut self,
        bytes: &mut Bytes,
        next: &[u8],
        rpc: &Fields,
        direction: Direction,
        out: &mut Transactions,
    ) {
        let name = bytes.name.bytes();
        let name = || (!name.is_empty()).then(|| name.to_vec());
        let at = (bytes.handle.key, bytes.offset);
        self.open.transfer(at, next, direction, name, out);
        bytes.skip(next.len());
        if !next.is_empty() {
            self.file_record(bytes.handle, bytes.procedure, rpc, direction, out);
        }
    }

    /// Writes record and numbers of the transaction of a file, unless it has them.
    fn file_record(
        &self,
        handle: Handle,
        (version, procedure): (u64, u64),
        rpc: &Fields,
        direction: Direction,
        out: &mut Transactions,
    ) {
        let Some((id, name)) = self.open.transaction(handle.key, direction) else {
            return;
        };
        let Some(transaction) = out.by_id(id) else { return };
        numbers(transaction, (version, procedure), direction);
        if matches!(transaction.record, Record::Fields(_)) {
            return;
        }
        let names: &[&[u8]] = if name.is_empty() { &[] } else { &[name] };
        let procedure = super::procedures::name(version, procedure).unwrap_or_default();
        let mut fields = record((version, procedure), names, handle.text().as_deref(), true, rpc);
        if direction == Direction::ToClient {
            fields.text("type", b"response").text("status", b"OK");
        }
        transaction.record = Record::Fields(Box::new(fields));
    }
}
