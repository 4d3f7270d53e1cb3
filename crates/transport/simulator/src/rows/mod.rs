//! Gates T1, T2 and T4 to T9 (docs/gates.md) in virtual time, for tests and for `millrace bench transport`.
//!
//! ```text
//!  Part::run(size, report) -> goodput | rivals | group | stragglers | feedback | ramp | sharing … -> Measured
//!                                        └──────────── Simulation, Session ────────────┘
//! ```
//!
//! A part measures its cases one after the other and reports each. After each run, the part checks the
//! simulation's balances ([`Simulation::check`](crate::Simulation::check)): a packet unaccounted for is an
//! error, not a result.

mod case;
mod changing;
mod fairness;
mod goodput;
mod group;
mod hostile;
mod path;
mod ramp;

pub use case::{Gate, Measured, RowError, Size};

/// A part of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// T1: goodput over Ideal.
    Goodput,
    /// T2: goodput over that of CUBIC, Reno and BBR version 1.
    Rivals,
    /// T4: ten receivers.
    Group,
    /// T5: a slow receiver, a stopped one, and a late one.
    Stragglers,
    /// T6: bytes of feedback.
    Feedback,
    /// T7: the time until nine tenths of the rate.
    Ramp,
    /// T8: shares of equal flows, and of flows with round-trip times 10:1.
    Sharing,
    /// T8: the queue of one flow.
    Queue,
    /// T8: harm to CUBIC.
    Harm,
    /// T9: a policer, random loss, a path with a falling rate.
    Hostile,
    /// T9: a path that becomes longer or shorter, and loss near and above what the user tolerates.
    Changing,
}

impl Part {
    /// All parts, in the order of the rows.
    pub const ALL: [Part; 11] = [
        Part::Goodput,
        Part::Rivals,
        Part::Group,
        Part::Stragglers,
        Part::Feedback,
        Part::Ramp,
        Part::Sharing,
        Part::Queue,
        Part::Harm,
        Part::Hostile,
        Part::Changing,
    ];

    /// Returns the number of the row: 1 for T1.
    pub fn row(self) -> u8 {
        match self {
            Part::Goodput => 1,
            Part::Rivals => 2,
            Part::Group => 4,
            Part::Stragglers => 5,
            Part::Feedback => 6,
            Part::Ramp => 7,
            Part::Sharing | Part::Queue | Part::Harm => 8,
            Part::Hostile | Part::Changing => 9,
        }
    }

    /// Measures the cases of the part, and reports each case after its measurement.
    ///
    /// # Errors
    /// [`RowError`]. The later cases are not measured.
    pub fn run(self, size: Size, report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
        match self {
            Part::Goodput => goodput::goodput(size, report),
            Part::Rivals => goodput::rivals(size, report),
            Part::Group => group::ten_receivers(size, report),
            Part::Stragglers => group::stragglers(report),
            Part::Feedback => goodput::feedback(report),
            Part::Ramp => ramp::ramp(size, report),
            Part::Sharing => fairness::sharing(report),
            Part::Queue => fairness::queue(report),
            Part::Harm => fairness::harm(report),
            Part::Hostile => hostile::hostile(report),
            Part::Changing => changing::changing(report),
        }
    }
}
