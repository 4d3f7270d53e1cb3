//! Conditions on a buffer that contradict each other: a rule with them would never match, or asks for something else than it seems.

use millrace_ips_rules::options::protocols::ProtocolOf;
use millrace_ips_rules::{Reason, Syntax};

use super::builder::Builder;
use crate::app::AppProtocol;
use crate::detect::compile::bytes::List;
use crate::detect::compile::protocols;
use crate::detect::program::{Absence, AppTest, BufferTest, Operation, ProtocolOfFlow};

impl Builder<'_> {
    /// Refuses a content that is larger than the size of the buffer that the rule asks for.
    pub(super) fn check_size(&mut self, list: List) -> Result<(), Reason> {
        let operations = self.operations(list);
        let largest = operations.iter().filter_map(|operation| match operation {
            Operation::Size(comparison) => comparison.largest(),
            _ => None,
        });
        let Some(largest) = largest.min() else {
            return Ok(());
        };
        let size = operations.iter().filter_map(|operation| match operation {
            Operation::Content(content) if !content.is_negated => Some(content.pattern.len() as u64),
            _ => None,
        });
        match size.max().filter(|size| *size > largest) {
            None => Ok(()),
            Some(size) => Err(Reason::Invalid {
                problem: format!("a content of {size} bytes in a buffer of at most {largest}"),
                expected: "a bsize that has room for each content",
            }),
        }
    }

    /// Refuses a buffer without a condition before another one: its author meant something else.
    pub(super) fn check_sticky(&self) -> Result<(), Reason> {
        let List::Buffer(at) = self.list else {
            return Ok(());
        };
        let is_idle = |test: &&BufferTest| {
            test.operations.is_empty() && test.absence == Absence::Fails && self.syntax == Syntax::Suricata
        };
        match self.buffers.get(at).filter(is_idle) {
            None => Ok(()),
            Some(test) => Err(Reason::Invalid {
                problem: format!(
                    "there is no condition on {} before this buffer",
                    test.buffer.names().words
                ),
                expected: "conditions behind each buffer",
            }),
        }
    }

    /// Refuses a condition on the protocol of the flow that contradicts or repeats those before it.
    pub(super) fn check_protocol(&self, test: &ProtocolOfFlow) -> Result<(), Reason> {
        let overlap = |other: &ProtocolOfFlow| {
            let is_shared = |app| other.protocols.contains(app);
            test.protocols.iter().any(is_shared) || test.takes_unknown && other.takes_unknown
        };
        let covers = |all: &ProtocolOfFlow, part: &ProtocolOfFlow| {
            !part.takes_unknown && part.protocols.iter().all(|app| all.protocols.contains(app))
        };
        let is_contrary = |other: &ProtocolOfFlow| match (test.is_negated, other.is_negated) {
            (false, false) => !overlap(other),
            (true, true) => overlap(other),
            (true, false) => covers(test, other),
            (false, true) => covers(other, test),
        };
        let others = self.app.iter().filter_map(|before| match before {
            AppTest::Protocol(other) if other.of == test.of => Some(other),
            _ => None,
        });
        let header = protocols::header(self.protocol).app;
        let is_in_header = |app: &AppProtocol| {
            let is_doh = *app == AppProtocol::Doh2 && protocols::DOH2.iter().any(|app| header.contains(app));
            header.contains(app) || is_doh
        };
        let is_outside = match test.is_negated {
            _ if header.is_empty() || test.of != ProtocolOf::Packet => false,
            true => header.iter().all(|app| test.protocols.contains(app)),
            false => !test.protocols.iter().any(is_in_header),
        };
        match is_outside || others.into_iter().any(is_contrary) {
            false => Ok(()),
            true => Err(Reason::Invalid {
                problem: "the protocol contradicts or repeats another condition of the rule".to_owned(),
                expected: "conditions on the protocol that a flow can satisfy, each once",
            }),
        }
    }

    /// Refuses conditions on a buffer that must not be there.
    pub(super) fn check_absence(&self) -> Result<(), Reason> {
        let is_contrary =
            |test: &BufferTest| test.absence == Absence::Required && !test.operations.is_empty();
        match self.buffers.iter().any(is_contrary) {
            false => Ok(()),
            true => Err(Reason::Invalid {
                problem: "absent beside conditions on the buffer".to_owned(),
                expected: "absent alone, or absent:or_else",
            }),
        }
    }
}
