//! Replacement of a rule set while flows are active.
//!
//! Flow bits and counters keep their numbers, because each name keeps its number. A flow also stores rules by
//! index: prefilter hits, candidates of transactions and rules that already matched. The indexes of a flow
//! are renumbered at its next packet, so that the replacement itself takes no time.

use super::numbers::Numbers;
use crate::flow::Flow;

/// Renumbers the rules that a flow stores. The flow forgets them if it had no packet while the previous set
/// was in use.
#[cold]
pub(super) fn renumber(flow: &mut Flow, numbers: &Numbers) {
    let is_next = flow.detect.generation + 1 == numbers.generation;
    let stays = |rule: &mut u32| match numbers.renumbered(*rule) {
        Some(new) if is_next => {
            *rule = new;
            true
        }
        _ => false,
    };
    for raised in &mut flow.detect.raised {
        raised.retain_mut(stays);
    }
    flow.detect.overruled.retain_mut(stays);
    flow.detect.readings.renumber(stays);
    // Rules over addresses that the previous set did not have are evaluated on the flow, too.
    flow.detect.ip_only = Default::default();
    for pending in &mut flow.detect.pending {
        pending.retain_mut(|(rule, _)| stays(rule));
    }
    for transaction in &mut flow.app.transactions.list {
        for state in &mut transaction.detect.directions {
            state.renumber(stays);
        }
    }
    flow.detect.generation = numbers.generation;
}
