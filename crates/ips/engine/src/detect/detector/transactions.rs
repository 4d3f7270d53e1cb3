//! The rules over the transactions of a flow.

use std::collections::BTreeSet;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;
use millrace_ips_rules::options::words::TextField;

use super::{Context, Detector, GroupId};
use crate::app::transaction::INCOMPLETE;
use crate::app::{AppEvent, Progress, Transaction, Transactions, protocol_of};
use crate::detect::compile::Ruleset;
use crate::detect::evaluate::Captured;
use crate::detect::fields;
use crate::detect::program::{AppTest, Disabled, Rule};
use crate::detect::subject::Variables;
use crate::detect::transaction;
use crate::detect::transaction_state::{CAPTURED, Candidate, DirectionState, Seen};
use crate::flow::{Direction, Flow};

impl Detector {
    /// Evaluates the rules over the transactions of a flow.
    pub(super) fn transactions(&mut self, rules: &Ruleset, context: Context<'_>, flow: &mut Flow) {
        let direction = context.direction;
        // Most packets belong to no transaction.
        if !flow.app.transactions.list.is_empty() {
            self.transactions_of_list(rules, context, flow);
        }
        if flow.app.frames.is_some() {
            self.frames(rules, context, flow);
        }
        if flow
            .detect
            .has_new_events(direction, &flow.app.transactions.events)
        {
            self.events(rules, context, flow);
        }
    }

    /// Evaluates the rules over the transactions of a flow that has some.
    fn transactions_of_list(&mut self, rules: &Ruleset, context: Context<'_>, flow: &mut Flow) {
        let direction = context.direction;
        let mut transactions = std::mem::take(&mut flow.app.transactions);
        note_matches(direction, flow, &transactions);
        let mut is_incomplete = false;
        for transaction in &mut transactions.list {
            transaction.is_new[direction.index()] = false;
            is_incomplete |= transaction.exceeds_limits;
            flow.app.is_ambiguous |= transaction.is_ambiguous;
            if transaction.is_inspected[direction.index()]
                || transaction.progress[direction.index()] == Progress::Idle
            {
                continue;
            }
            self.transaction(rules, context, flow, transaction);
            transaction.is_inspected[direction.index()] =
                transaction.progress[direction.index()] == Progress::Complete;
        }
        if is_incomplete {
            flow.app.has_failed = true;
            transactions.raise(INCOMPLETE);
        }
        flow.app.transactions = transactions;
    }

    /// Evaluates the rules over the frames of a flow.
    #[cold]
    fn frames(&mut self, rules: &Ruleset, context: Context<'_>, flow: &mut Flow) {
        let Some(mut frames) = flow.app.frames.take() else {
            return;
        };
        for frame in frames.pending(context.direction) {
            self.transaction(rules, context, flow, frame);
        }
        flow.app.frames = Some(frames);
    }

    /// Evaluates the rules over the anomalies of a flow that belong to no transaction. Each rule matches once.
    #[cold]
    fn events(&mut self, rules: &Ruleset, context: Context<'_>, flow: &mut Flow) {
        let side = context.direction.index();
        let events = std::mem::take(&mut flow.app.transactions.events);
        let new = std::mem::replace(&mut flow.detect.events[side], events.len());
        for &index in &rules.prefilter.events {
            let Some(rule) = rules.rules.get(index as usize) else {
                continue;
            };
            let is_asked = |event: &&AppEvent| {
                rule.app.iter().all(|test| match test {
                    AppTest::Field(_, value) => event.eq_ignore_ascii_case(value),
                    AppTest::Protocol(_)
                    | AppTest::Number(..)
                    | AppTest::Digest { .. }
                    | AppTest::Progress(_) => true,
                })
            };
            let Some(event) = events[new..].iter().find(is_asked) else {
                continue;
            };
            if flow.detect.raised.iter().any(|raised| raised.contains(&index))
                || !self.common(
                    rule,
                    context,
                    Some(flow),
                    protocol_of(event).or(flow.app.protocol),
                )
            {
                continue;
            }
            self.counters.evaluations += 1;
            self.scratch.begin();
            let is_match = self.payload(rule, context, Some(flow));
            self.note_limit(index, rule);
            if is_match {
                flow.detect.raised[side].push(index);
                self.record(index, rule, context, Some(flow), None);
            }
        }
        flow.app.transactions.events = events;
    }

    /// Evaluates the rules over a transaction, whose bits they may test and set.
    fn transaction(
        &mut self,
        rules: &Ruleset,
        context: Context<'_>,
        flow: &mut Flow,
        transaction: &mut Transaction,
    ) {
        flow.detect.bits.transaction = transaction.frame.is_none().then_some(transaction.id);
        self.candidates(rules, context, flow, transaction);
        flow.detect.bits.transaction = None;
    }

    /// Evaluates the candidates that a transaction already has, and those that its new bytes add.
    fn candidates(
        &mut self,
        rules: &Ruleset,
        context: Context<'_>,
        flow: &mut Flow,
        transaction: &mut Transaction,
    ) {
        let direction = transaction.tested(context.direction);
        let Some((hooks, always)) = rules.prefilter.transaction(transaction, direction) else {
            return;
        };
        let mut state = std::mem::take(&mut transaction.detect.directions[direction.index()]);
        let now = Seen {
            version: transaction.version(),
            flow: flow.state,
            packet: Some(context.direction),
        };
        if state.seen == now && !state.has_varying {
            transaction.detect.directions[direction.index()] = state;
            return;
        }
        if state.seen.version != now.version {
            self.find_candidates(rules, (hooks, always), transaction, direction, &mut state);
        }
        state.seen = now;
        state.has_varying = false;
        if std::mem::take(&mut transaction.has_new_trailer[direction.index()]) {
            repeat_headers(rules, &mut state.candidates);
        }
        let DirectionState {
            candidates,
            variables,
            captured,
            has_varying,
            ..
        } = &mut state;
        for candidate in candidates.iter_mut().filter(|candidate| !candidate.is_done) {
            let Some(rule) = rules.rules.get(candidate.rule as usize) else {
                continue;
            };
            *has_varying |= transaction::varies(rule);
            let sample = self.begin_sample();
            let kept = (&mut *variables, &mut *captured);
            let is_match = self.transaction_rule(rule, (candidate, kept), context, flow, transaction);
            self.end_rule(sample, candidate.rule, is_match);
            if is_match {
                candidate.is_done = true;
                if matches_once(rule)
                    && transaction
                        .detect
                        .has_matched(candidate.rule, direction.reverse())
                {
                    continue;
                }
                if (transaction.is_reading || transaction.is_ambiguous)
                    && let Some(begin) = transaction.begin[direction.index()]
                    && !flow.detect.readings.add(direction, begin, candidate.rule)
                {
                    continue;
                }
                let id = transaction.frame.is_none().then_some(transaction.id);
                self.record(candidate.rule, rule, context, Some(flow), id);
                transaction.is_unlogged |= rule.disables == Some(Disabled::Logging);
                if let Some(store) = rule.store {
                    for (side, is_stored) in store.directions(direction).into_iter().enumerate() {
                        transaction.stores[side] |= is_stored;
                        flow.app.stores[side] |= is_stored && store.is_of_flow;
                    }
                }
                if let Some(found) = self.matches.last_mut() {
                    found.is_reading = transaction.is_reading;
                    found.frame = transaction.frame;
                }
            }
        }
        transaction.detect.directions[direction.index()] = state;
    }

    /// Adds the rules that the prefilter finds in the new bytes of a transaction to the candidates.
    fn find_candidates(
        &mut self,
        rules: &Ruleset,
        (hooks, always): (&[u16], &[u32]),
        transaction: &Transaction,
        direction: Direction,
        state: &mut DirectionState,
    ) {
        state.mark(&mut self.memory.0);
        if !std::mem::replace(&mut state.has_always, true) {
            let marks = &mut self.memory.0;
            always.iter().for_each(|rule| state.add(*rule, marks));
        }
        for &index in hooks {
            let at = usize::from(index);
            if let (Some(hook), Some(group)) = (rules.hooks.get(at), rules.prefilter.hooks.get(at)) {
                let (sample, known) = (self.begin_sample(), state.candidates.len());
                let size = state.scan(
                    (index, hook, group),
                    transaction,
                    direction,
                    &mut self.memory,
                    &mut self.scratch,
                );
                if size > 0 {
                    let hits = state.candidates.len() - known;
                    self.end_group(sample, GroupId::Hook(index), hits, size);
                }
            }
        }
        state.candidates.sort_unstable_by_key(|candidate| candidate.rule);
    }

    /// Returns true if a rule matches a transaction. Buffers that matched at an earlier call need not match
    /// again; `kept` has the variables that they set, for the buffers behind them, and `captured` what their expressions captured.
    fn transaction_rule(
        &mut self,
        rule: &Rule,
        (candidate, (kept, captured)): (&mut Candidate, Kept<'_>),
        context: Context<'_>,
        flow: &Flow,
        transaction: &Transaction,
    ) -> bool {
        if !self.common(rule, context, Some(flow), Some(transaction.app)) {
            return false;
        }
        let direction = transaction.tested(context.direction);
        let at = (direction, context.packet.time, flow.key.client);
        let fields = rule
            .app
            .iter()
            .all(|test| fields::satisfies(test, transaction, at));
        if !fields {
            return false;
        }
        let every = (1u64 << rule.buffers.len()).wrapping_sub(1) as u32;
        let all_matched = candidate.matched == every;
        let evaluated = std::mem::replace(&mut candidate.evaluated, transaction.version());
        if evaluated == transaction.version() && !all_matched {
            // The transaction is unchanged, so the buffers that did not match still do not match.
            return false;
        }
        self.counters.evaluations += 1;
        self.scratch.begin();
        let known = candidate.matched;
        if rule.shares_variables
            && let Some((_, variables)) = kept.iter().find(|(rule, _)| *rule == candidate.rule)
        {
            self.scratch.variables = *variables;
        }
        if !captured.is_empty() {
            let of_rule = captured.extract_if(.., |(rule, _)| *rule == candidate.rule);
            self.scratch.captured.extend(of_rule.map(|(_, group)| group));
        }
        // Bytes of a range may be removed from their buffer, so that no test of them waits.
        let late = if transaction.range.is_none() { rule.late } else { 0 };
        let has_waited = known | late != every;
        let mut all = true;
        for is_late in [false, true] {
            if is_late && (!all || late == 0) {
                break;
            }
            for (at, test) in rule.buffers.iter().enumerate() {
                if candidate.matched >> at & 1 != 0 || (late >> at & 1 != 0) != is_late {
                    continue;
                }
                // The buffers of the other direction may have changed at other versions, and a buffer behind one that did not match
                // was not evaluated, nor was a body.
                let is_first = rule.shares_variables && known.trailing_ones() < at as u32;
                let since = if rule.spans_transaction || is_first || is_late && has_waited {
                    0
                } else {
                    evaluated
                };
                let is_match = transaction::matches(
                    test,
                    transaction,
                    (direction, since),
                    &mut self.scratch,
                    &mut self.memory.1,
                );
                self.note_limit(candidate.rule, rule);
                match is_match {
                    true => {
                        candidate.matched |= 1 << at;
                        if rule.shares_variables {
                            keep(kept, candidate.rule, self.scratch.variables);
                        }
                    }
                    false => {
                        all = false;
                        // The buffers behind it need its variables.
                        if rule.shares_variables {
                            break;
                        }
                    }
                }
            }
        }
        let is_match = all && self.payload(rule, context, Some(flow));
        self.note_limit(candidate.rule, rule);
        if !is_match && !self.scratch.captured.is_empty() {
            let room = CAPTURED.saturating_sub(captured.len());
            let groups = self.scratch.captured.drain(..).take(room);
            captured.extend(groups.map(|group| (candidate.rule, group)));
        }
        is_match
    }
}

/// Variables and groups of expressions that the buffers which matched so far leave for those behind them, by rule.
type Kept<'a> = (&'a mut Vec<(u32, Variables)>, &'a mut Vec<(u32, Captured)>);

/// Keeps the variables of a rule in place of those that it had before.
fn keep(kept: &mut Vec<(u32, Variables)>, rule: u32, variables: Variables) {
    match kept.iter_mut().find(|(known, _)| *known == rule) {
        Some((_, before)) => *before = variables,
        None => kept.push((rule, variables)),
    }
}

/// Returns true if a rule matches one direction of a transaction: the first in which it does.
///
/// A rule over a request and its response is one. Suricata inspects the keyword `modbus` on requests alone, and `ftpdata_command` in
/// the direction of the command alone, which is not that of the file in active mode.
fn matches_once(rule: &Rule) -> bool {
    let is_of_one_side = |test: &AppTest| {
        matches!(
            test,
            AppTest::Field(TextField::Modbus, _) | AppTest::Number(NumberField::FtpDataCommand, ..)
        )
    };
    rule.spans_transaction || rule.flow.direction.is_none() && rule.app.iter().any(is_of_one_side)
}

/// Notes the rules that matched a message before it turned out to have further readings, on which they match no more.
fn note_matches(direction: Direction, flow: &mut Flow, transactions: &Transactions) {
    let side = direction.index();
    let is_new = |transaction: &&Transaction| transaction.is_reading && transaction.is_new[side];
    // Hardly any message has several readings, and this runs once a packet.
    if !transactions.list.iter().any(|transaction| is_new(&transaction)) {
        return;
    }
    let begins = transactions.list.iter().filter(is_new);
    let begins: BTreeSet<u64> = begins.filter_map(|reading| reading.begin[side]).collect();
    for transaction in transactions.list.iter().filter(|other| !other.is_reading) {
        let Some(begin) = transaction.begin[side].filter(|begin| begins.contains(begin)) else {
            continue;
        };
        let candidates = transaction.detect.directions[side].candidates.iter();
        for candidate in candidates.filter(|candidate| candidate.is_done) {
            flow.detect.readings.add(direction, begin, candidate.rule);
        }
    }
}

/// Makes rules over `http.header` candidates once more. As observed, they are evaluated again with the
/// trailer of a message.
fn repeat_headers(rules: &Ruleset, candidates: &mut [Candidate]) {
    let is_over_headers = |rule: &Rule| rule.buffers.iter().any(|test| test.buffer == Buffer::HttpHeader);
    for candidate in candidates {
        if rules
            .rules
            .get(candidate.rule as usize)
            .is_some_and(is_over_headers)
        {
            candidate.begin();
        }
    }
}
