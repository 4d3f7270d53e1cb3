//! Events of a transfer, for progress lines and for programs (`--json`), and its outcome.

use crate::refusal::RefuseCode;
use serde::Serialize;

/// The resource that limits the rate of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The network path.
    Network,
    /// The receiver's disk.
    PeerDisk,
    /// This machine's disk.
    OwnDisk,
    /// This machine's processor.
    Cpu,
    /// The rate that the user set.
    Rate,
    /// Nothing limits it: no data remain to be sent.
    Nothing,
}

impl Limit {
    /// Returns the word that progress lines show.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Network => "network",
            Limit::PeerDisk => "peer's disk",
            Limit::OwnDisk => "own disk",
            Limit::Cpu => "CPU",
            Limit::Rate => "--rate",
            Limit::Nothing => "-",
        }
    }
}

/// An event. Peers are named as the user named them, or by key.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The receiver waits for senders at an address.
    Listening {
        ticket: String,
        /// The receiver's key.
        key: String,
        /// The address that is bound.
        address: String,
    },
    /// The receiver accepted the transfer.
    Accepted {
        peer: String,
        /// Bytes of the session.
        bytes: u64,
        /// Bytes that the receiver had before.
        present: u64,
    },
    /// The progress of a peer.
    Progress {
        peer: String,
        /// Verified bytes, including those that the receiver had before.
        verified: u64,
        /// Bytes of the session.
        bytes: u64,
        /// Payload, in bits a second.
        rate_bps: u64,
        /// Seconds until the end at this rate.
        eta_s: Option<u64>,
        /// The round-trip time in milliseconds.
        rtt_ms: f64,
        /// The share of packets lost.
        loss: f64,
        /// The resource that limits the rate.
        limit: Limit,
        /// Bytes of the largest IP packet that passes to the peer, as far as the sender knows.
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<u64>,
    },
    /// No progress for a while.
    Stalled {
        peer: String,
        /// The time without progress, in seconds.
        seconds: u64,
    },
    /// The path to the peer loses half of the packets or more, so the circuit breaker (RFC 8084) holds the rate down.
    HeavyLoss {
        peer: String,
        /// The share of all packets so far that were lost.
        loss: f64,
    },
    /// The peer was lost; the session waits for it to come back.
    Lost { peer: String, reason: String },
    /// A file has its final name, or was withdrawn or failed.
    File {
        peer: String,
        /// The number of the file in the manifest, if it is known.
        file: Option<u64>,
        /// The path at the receiver, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The reason why the file does not have its final name.
        problem: Option<String>,
    },
    /// A fact about a transfer that its user should know.
    Notice { peer: String, text: String },
    /// The transfer with a peer has ended: the peer has everything, or will not get it in this run.
    Done {
        peer: String,
        /// How it ended.
        #[serde(flatten)]
        outcome: Outcome,
        /// Verified bytes, including those that the receiver had before.
        bytes: u64,
        /// The bytes that a sender sent to the peer, repairs included.
        #[serde(skip_serializing_if = "Option::is_none")]
        sent: Option<u64>,
        /// The duration in seconds. A sender counts from the acceptance, or without one from the first dial; a receiver
        /// counts from the connection, or from the request to a daemon that sent nothing.
        seconds: f64,
    },
    /// The end of the transfer.
    Summary {
        /// Peers that have everything.
        delivered: usize,
        /// Peers in all.
        peers: usize,
    },
}

/// How a transfer to or from one peer ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// All files are verified and in place.
    Delivered,
    /// The peer refused the transfer.
    Refused {
        /// The name of the reason.
        code: &'static str,
        reason: String,
    },
    /// The receiver's receipt does not match, or a file changed while it was read and was left out, or could not be read.
    Integrity {
        /// The finding.
        reason: String,
    },
    /// The peer was lost, or the user stopped the transfer. The same command resumes it.
    Resumable { reason: String },
}

impl Outcome {
    pub(crate) fn refused(code: RefuseCode, reason: String) -> Outcome {
        Outcome::Refused {
            code: code.name(),
            reason,
        }
    }
}

/// Returns the outcome of a transfer to a peer that has another key than the expected one: no repetition changes that.
pub(crate) fn wrong_key(reason: String) -> Outcome {
    Outcome::Refused {
        code: WRONG_KEY,
        reason,
    }
}

/// The code of a refusal by this end: the peer has another key than the expected one.
pub(crate) const WRONG_KEY: &str = "wrong_key";

/// Returns the outcome of a transfer in which files changed and were left out.
pub(crate) fn left_out(files: u64) -> Outcome {
    Outcome::Integrity {
        reason: format!(
            "{files} files changed while they were read and were left out, all others are delivered and verified; send again"
        ),
    }
}

/// The exit status if some peers have everything, and others do not.
pub const EXIT_PARTIAL: u8 = 3;
/// The exit status if no peer has everything, and a peer refused the transfer or a ticket has expired.
pub const EXIT_REFUSED: u8 = 4;
/// The exit status if a receipt is wrong, or a file changed or could not be read.
pub const EXIT_INTEGRITY: u8 = 5;
/// The exit status if the same command can resume the transfer.
pub const EXIT_RESUMABLE: u8 = 6;

/// Returns the exit status for the outcomes of all peers: 0 if all have everything, else one of the `EXIT_` constants.
/// Without any outcome, it is [`EXIT_RESUMABLE`].
pub fn exit_status(outcomes: &[Outcome]) -> u8 {
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count();
    let delivered = count(|outcome| matches!(outcome, Outcome::Delivered));
    if count(|outcome| matches!(outcome, Outcome::Integrity { .. })) > 0 {
        EXIT_INTEGRITY
    } else if delivered == outcomes.len() && delivered > 0 {
        0
    } else if delivered > 0 {
        EXIT_PARTIAL
    } else if count(|outcome| matches!(outcome, Outcome::Refused { .. })) > 0 {
        EXIT_REFUSED
    } else {
        EXIT_RESUMABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_names_the_worst_that_the_user_can_act_on() {
        let refused = Outcome::refused(RefuseCode::Files, "full".into());
        let lost = Outcome::Resumable {
            reason: "lost".into(),
        };
        let wrong = Outcome::Integrity {
            reason: "receipt".into(),
        };
        let cases = [
            (vec![Outcome::Delivered, Outcome::Delivered], 0),
            (vec![Outcome::Delivered, lost.clone()], 3),
            (vec![refused.clone(), lost.clone()], 4),
            (vec![Outcome::Delivered, wrong], 5),
            (vec![lost], 6),
            (Vec::new(), 6),
        ];
        for (outcomes, status) in cases {
            assert_eq!(exit_status(&outcomes), status, "{outcomes:?}");
        }
        let json = serde_json::to_string(&Event::Done {
            peer: "a".into(),
            outcome: refused,
            bytes: 1,
            sent: None,
            seconds: 0.5,
        });
        assert_eq!(
            json.unwrap(),
            r#"{"event":"done","peer":"a","outcome":"refused","code":"files","reason":"full","bytes":1,"seconds":0.5}"#
        );
    }
}
