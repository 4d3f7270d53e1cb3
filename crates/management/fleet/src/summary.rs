//! One line for each node: who runs what.

use crate::document::{Ack, Outcome};
use crate::rollout::NodeView;

/// The relation of a node to its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It has no document.
    NoDocument,
    /// It runs its document.
    InSync,
    /// It has not answered to its document.
    Behind,
    /// The answer, other than that it runs the document.
    Answered(Outcome),
}

impl Relation {
    /// Returns the word.
    pub const fn name(self) -> &'static str {
        match self {
            Relation::NoDocument => "no document",
            Relation::InSync => "in sync",
            Relation::Behind => "behind",
            Relation::Answered(outcome) => outcome.name(),
        }
    }
}

/// A node in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub node: String,
    pub relation: Relation,
    /// `away`, `detached`, `unhealthy` or `healthy`.
    pub health: &'static str,
    /// The first thing that an operator should know.
    pub note: String,
}

/// Returns the line of a node whose document was written at `document`, if it has one.
pub fn row(node: &str, document: Option<u64>, view: &NodeView) -> Row {
    let of_document = |ack: &&Ack| Some(ack.mod_revision) == document;
    let ack = view.ack.as_ref().filter(of_document);
    let relation = match (document, ack) {
        (None, _) => Relation::NoDocument,
        (Some(_), None) => Relation::Behind,
        (Some(_), Some(ack)) if ack.outcome == Outcome::Applied => Relation::InSync,
        (Some(_), Some(ack)) => Relation::Answered(ack.outcome),
    };
    let health = match &view.status {
        None => "away",
        Some(status) if status.detached => "detached",
        Some(status) if status.healthy => "healthy",
        Some(_) => "unhealthy",
    };
    let reason = ack.map(Ack::reason).filter(|reason| !reason.is_empty());
    let shortfall = || {
        view.status
            .as_ref()
            .and_then(|status| status.shortfalls.first().cloned())
    };
    let link = || {
        let down = &view.status.as_ref()?.links_down;
        (!down.is_empty()).then(|| format!("no link: {}", down.join(", ")))
    };
    Row {
        node: node.to_owned(),
        relation,
        health,
        note: reason.or_else(shortfall).or_else(link).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Fault, Status};

    #[test]
    fn a_line_says_whether_a_node_runs_its_document_and_why_not() {
        let ack = |mod_revision, outcome, errors| Ack {
            schema: 1,
            cluster: "a".to_owned(),
            mod_revision,
            seen: mod_revision,
            seen_epoch: 1,
            tag: None,
            revision: None,
            outcome,
            errors,
        };
        let view = |ack| NodeView {
            ack,
            status: Some(Status {
                healthy: true,
                ..Status::default()
            }),
        };
        let applied = row("sw1", Some(7), &view(Some(ack(7, Outcome::Applied, Vec::new()))));
        assert_eq!(
            (applied.relation, applied.health, applied.note.as_str()),
            (Relation::InSync, "healthy", "")
        );
        let behind = row("sw1", Some(8), &view(Some(ack(7, Outcome::Applied, Vec::new()))));
        assert_eq!(behind.relation.name(), "behind");
        let refused = row(
            "sw1",
            Some(7),
            &view(Some(ack(7, Outcome::Refused, vec![Fault::at("/a", "bad")]))),
        );
        assert_eq!(
            (refused.relation.name(), refused.note.as_str()),
            ("refused", "/a: bad")
        );
        let none = row("sw1", None, &NodeView::default());
        assert_eq!((none.relation.name(), none.health), ("no document", "away"));
    }
}
