//! The bytes on which a rule matched, for alerts whose frame does not have them.

use crate::detect::Ruleset;
use crate::detect::program::{Rule, RuleType};
use crate::event::{Alert, EVIDENCE_SIZE, Event};
use crate::flow::{Direction, Flow};
use crate::tcp::StreamWindow;

/// Adds the packet that was put together from fragments to the alerts about it, and about packets inside it. `link` is the link
/// header of the frame; it is empty for a packet of a tunnel.
#[cold]
pub(super) fn add_packet(events: &mut [Event], number: u64, link: &[u8], packet: &[u8]) {
    for event in events {
        let Event::Alert(alert) = event else { continue };
        if alert.subject.packet != number {
            continue;
        }
        let evidence = alert.evidence.get_or_insert_default();
        // A packet that was put together from packets that were put together, too, is the innermost one.
        if evidence.packet.is_none() {
            evidence.packet = Some([link, packet].concat());
            evidence.has_link = !link.is_empty();
        }
    }
}

/// Adds data of the stream to the alerts of rules over the stream or its transactions. `held` are the data of `direction` that the
/// engine holds, `is_due` is true if they were inspected as a stream.
#[cold]
pub(super) fn add_stream(
    events: &mut [Event],
    rules: &Ruleset,
    flow: &Flow,
    direction: Direction,
    (held, is_due): (StreamWindow<'_>, bool),
) {
    for event in events {
        let Event::Alert(alert) = event else { continue };
        let is_missing = alert
            .evidence
            .as_ref()
            .is_none_or(|evidence| evidence.stream.is_none());
        let Some(rule) = rules.rules.get(alert.rule as usize).filter(|_| is_missing) else {
            continue;
        };
        if !is_over_stream(rule, is_due) {
            continue;
        }
        let bytes = around(held, begin(alert, flow, direction));
        if !bytes.is_empty() {
            alert.evidence.get_or_insert_default().stream = Some(bytes.to_vec());
        }
    }
}

/// Returns true if a rule that matched did so on data of the stream, and not on a single packet.
fn is_over_stream(rule: &Rule, is_due: bool) -> bool {
    match rule.kind {
        RuleType::Transaction => true,
        RuleType::Stream | RuleType::PacketStream => is_due,
        RuleType::IpOnly | RuleType::DecoderEvent | RuleType::Packet | RuleType::AppLayer => false,
    }
}

/// Returns the offset in the stream of the frame or the transaction of an alert.
fn begin(alert: &Alert, flow: &Flow, direction: Direction) -> Option<u64> {
    if let Some(frame) = &alert.frame {
        return frame.begin;
    }
    let id = alert.transaction?;
    let transactions = &flow.app.transactions.list;
    let transaction = transactions.iter().find(|transaction| transaction.id == id)?;
    transaction.begin[direction.index()]
}

/// Returns the data around a match: from the begin of its transaction on, if that is among the data that were not inspected before,
/// and otherwise the last ones.
fn around(held: StreamWindow<'_>, begin: Option<u64>) -> &[u8] {
    let begin = begin
        .and_then(|begin| usize::try_from(begin.checked_sub(held.offset)?).ok())
        .filter(|begin| (held.new_from..held.bytes.len()).contains(begin));
    let from = begin.unwrap_or_else(|| held.bytes.len().saturating_sub(EVIDENCE_SIZE));
    let bytes = held.bytes.get(from..).unwrap_or_default();
    &bytes[..bytes.len().min(EVIDENCE_SIZE)]
}
