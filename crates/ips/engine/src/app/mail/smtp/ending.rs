//! The headers of a mail, and what rules ask of its body, published when the mail ends.

use millrace_ips_rules::buffers::Buffer;

use super::record::{CLIENT, update};
use crate::app::mail::mime::{Mime, addresses};
use crate::app::transaction::Transaction;

/// Ends a mail, and publishes its headers.
pub(super) fn publish(mime: &mut Mime, transaction: &mut Transaction, is_complete: bool) {
    let status = mime.status(is_complete);
    mime.end(transaction, is_complete);
    let summary = core::mem::take(&mut mime.summary);
    let single = [
        (Buffer::EmailFrom, &summary.from),
        (Buffer::EmailSubject, &summary.subject),
        (Buffer::EmailMessageId, &summary.message_id),
        (Buffer::EmailDate, &summary.date),
        (Buffer::EmailCc, &summary.cc),
        (Buffer::EmailXMailer, &summary.x_mailer),
    ];
    for (buffer, value) in single {
        if let Some(value) = value {
            transaction.publish(buffer, CLIENT, value.as_slice());
        }
    }
    if !summary.to.is_empty() {
        transaction.publish(Buffer::EmailTo, CLIENT, summary.to.join(&b", "[..]));
    }
    for received in &summary.received {
        transaction.publish(Buffer::EmailReceived, CLIENT, received.as_slice());
    }
    let body = mime.body.take();
    let body_md5 = body.as_ref().and_then(|body| body.md5());
    let urls = body.map(|body| body.urls).unwrap_or_default();
    for url in &urls {
        transaction.publish(Buffer::EmailUrl, CLIENT, url.as_slice());
    }
    if let Some(digest) = &body_md5 {
        transaction.publish(Buffer::EmailBodyMd5, CLIENT, digest.as_slice());
    }
    update(transaction, |record| {
        record.from = summary.from;
        record.to = summary.to;
        record.cc = addresses(&summary.cc.unwrap_or_default());
        record.subject = summary.subject;
        record.message_id = summary.message_id;
        record.date = summary.date;
        record.x_mailer = summary.x_mailer;
        record.received = summary.received;
        record.attachments = summary.attachments;
        (record.urls, record.body_md5) = (urls, body_md5);
        record.status = Some(status);
    });
}
