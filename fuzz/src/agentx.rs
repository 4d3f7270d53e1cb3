//! PDUs of an AgentX master agent.

use millrace_agentx::{Objects, Oid, Session, Value};

/// Feeds a session in pieces of different sizes.
///
/// Properties: any bytes end the session or are taken; an answer is bounded by what was asked.
pub(crate) fn session(bytes: &[u8]) {
    let mut objects = Objects::default();
    for at in 0..20 {
        objects.insert(Oid::new(&[1, 3, 6, 1, 2, 1, 2, at]), Value::Counter64(at.into()));
    }
    let mut session = Session::new("fuzz", "", &[Oid::new(&[1, 3, 6, 1, 2, 1, 2])]);
    session.take_output();
    let mut rest = bytes;
    let mut size = 1;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(size.min(rest.len()));
        rest = tail;
        size = size % 97 * 2 + 1;
        if session.receive(piece, &objects).is_err() {
            return;
        }
        // GetBulk multiplies what was asked: up to 500 bindings for each of at most 3 requests in a piece.
        assert!(session.take_output().len() <= 400_000 + bytes.len() * 64);
    }
}
