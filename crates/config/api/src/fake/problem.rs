//! The state that the switch cannot reach.

use crate::view;

/// The only problem of the switch.
pub(super) fn problem() -> view::StatusProblem {
    view::StatusProblem {
        subject: "/bridge/br0/port/h2".to_owned(),
        message: "the link is down".to_owned(),
        next_step: "connect the other end".to_owned(),
    }
}
