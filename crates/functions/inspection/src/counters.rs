//! The counters of a function: its own, and those of its engine.

use millrace_ips_engine::tcp::TcpProblem;
use millrace_ips_engine::{Cause, Engine};
use millrace_nf::Counters;

/// Counters that the engine does not have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    pub(crate) dropped: u64,
    pub(crate) rewritten: u64,
    pub(crate) rejected: u64,
    pub(crate) not_rejected: u64,
    pub(crate) events_lost: u64,
    /// Packets that passed without inspection.
    pub(crate) uninspected: u64,
    /// Packets of several segments.
    pub(crate) segmented: u64,
    /// Packets of several segments that could not be read or changed.
    pub(crate) unreadable: u64,
    pub(crate) level: u64,
    pub(crate) level_changes: u64,
    pub(crate) exceptions: [u64; Cause::ALL.len()],
}

/// Counters by name, in the order of [`NAMES`].
const FIXED: &[&str] = &[
    "frames",
    "alerts",
    "alerts_lost",
    "events_lost",
    "dropped",
    "dropped_flow",
    "rewritten",
    "rejected",
    "not_rejected",
    "uninspected",
    "overload_level",
    "overload_changes",
    "flows",
    "flows_created",
    "flows_timed_out",
    "flows_evicted",
    "memory_bytes",
    "parser_memory_bytes",
    "parsers_given_up",
    "not_ip",
    "invalid",
    "refused",
    "segmented",
    "unreadable",
    "tcp_sessions",
    "tcp_gaps",
    "tcp_conflicts",
    "tcp_normalized",
    "fragments",
    "reassembled",
    "fragments_refused",
    "evaluations",
    "step_limits",
    "pcre_limits",
    "rates_lost",
    "bits_lost",
];

const LEN: usize = FIXED.len() + Cause::ALL.len() + TcpProblem::ALL.len();

/// Names of counters of TCP problems, in the order of [`TcpProblem::ALL`].
const PROBLEMS: [&str; TcpProblem::ALL.len()] = [
    "tcp_checksum",
    "tcp_flags",
    "tcp_no_ack",
    "tcp_window",
    "tcp_ack",
    "tcp_timestamp",
    "tcp_reset",
    "tcp_syn_in_connection",
    "tcp_handshake",
    "tcp_one_sided",
    "tcp_early_data",
    "tcp_closed",
    "tcp_after_fin",
    "tcp_midstream",
    "tcp_memory",
    "tcp_fragmented",
];

/// Names of counters of causes, in the order of [`Cause::ALL`].
const CAUSES: [&str; Cause::ALL.len()] = [
    "policy_flow_table",
    "policy_segment_memory",
    "policy_fragment_memory",
    "policy_midstream",
    "policy_one_sided",
    "policy_invalid_tcp",
    "policy_urgent",
    "policy_parser_error",
    "policy_ambiguous_message",
    "policy_parser_memory",
    "policy_match_limit",
    "policy_overload",
    "policy_no_rules",
];

/// The names of all counters.
pub(crate) const NAMES: [&str; LEN] = {
    let mut names = [""; LEN];
    let mut at = 0;
    while at < FIXED.len() {
        names[at] = FIXED[at];
        at += 1;
    }
    let mut from = 0;
    while from < CAUSES.len() {
        names[at] = CAUSES[from];
        (at, from) = (at + 1, from + 1);
    }
    from = 0;
    while from < PROBLEMS.len() {
        names[at] = PROBLEMS[from];
        (at, from) = (at + 1, from + 1);
    }
    names
};

/// Writes all counters.
pub(crate) fn write(counters: &Counters, engine: &Engine, own: &Own) {
    let of_engine = engine.counters();
    let (flows, fragments) = (engine.flow_counters(), engine.defragment_counters());
    let (tcp, detect) = (&of_engine.tcp, engine.detect_counters());
    let fixed = [
        of_engine.frames,
        detect.alerts,
        detect.alerts_lost,
        own.events_lost,
        own.dropped,
        of_engine.dropped_flow,
        own.rewritten,
        own.rejected,
        own.not_rejected,
        own.uninspected,
        own.level,
        own.level_changes,
        engine.flows() as u64,
        flows.created,
        flows.timeouts,
        flows.evicted_full + flows.evicted_set,
        engine.memory() as u64,
        engine.parser_memory() as u64,
        of_engine.parsers_given_up,
        of_engine.not_ip,
        of_engine.invalid,
        of_engine.refused,
        own.segmented,
        own.unreadable,
        tcp.sessions,
        tcp.gaps,
        tcp.conflicts,
        tcp.rewritten + tcp.trimmed + tcp.urgent + tcp.reserved + tcp.options,
        fragments.fragments,
        fragments.reassembled,
        fragments.refused,
        detect.evaluations,
        detect.step_limits,
        detect.pcre_limits,
        detect.rates_lost,
        detect.bits_lost,
    ];
    let causes = of_engine.exceptions.iter().zip(own.exceptions);
    let causes = causes.map(|(engine, own)| engine + own);
    let all = fixed.into_iter().chain(causes).chain(tcp.problems);
    for (index, value) in all.enumerate() {
        counters.set(index, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_engine() {
        for (name, problem) in PROBLEMS.iter().zip(TcpProblem::ALL) {
            assert_eq!(*name, format!("tcp_{}", problem.name()));
        }
        for (name, cause) in CAUSES.iter().zip(Cause::ALL) {
            assert_eq!(*name, format!("policy_{}", cause.name()));
        }
    }
}
