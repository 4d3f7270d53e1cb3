//! Converts refusals of the model into problem documents.

use millrace_ix_model::{Reason, Refusal, RefusalCode};

use crate::problem::{Problem, ProblemKind};

/// Returns the problem for a refused order. The refused field becomes a JSON pointer.
pub(crate) fn problem(refusal: &Refusal) -> Problem {
    let kind = match refusal.code {
        RefusalCode::NotFound => ProblemKind::NotFound,
        RefusalCode::Forbidden => ProblemKind::Forbidden,
        RefusalCode::Invalid => ProblemKind::Invalid,
        RefusalCode::Conflict | RefusalCode::Exhausted | RefusalCode::Locked => ProblemKind::Conflict,
    };
    // An object of another account gets the same answer as a missing one, byte for byte, so the answer
    // contains only the object.
    if let (RefusalCode::NotFound, Some(object)) = (refusal.code, refusal.object) {
        return Problem::absent(object);
    }
    let code = match refusal.code {
        RefusalCode::Conflict => match refusal.field.as_deref() {
            Some("name") => "name-taken",
            Some("vlan") => "vlan-taken",
            Some("capacity_mbps") => "over-capacity",
            _ => "conflict",
        },
        RefusalCode::Exhausted => "exhausted",
        RefusalCode::Locked => "locked",
        RefusalCode::NotFound => "not-found",
        RefusalCode::Forbidden => "forbidden",
        RefusalCode::Invalid => "invalid",
    };
    let reason = Reason {
        text: refusal.message.clone(),
        coded: refusal.coded.clone(),
    };
    let problem = Problem::because(kind, reason).with_code(code);
    match &refusal.field {
        Some(field) => problem.with_error(format!("/{}", field.replace('.', "/")), code),
        None => problem,
    }
}
