//! The explanation of what the router does with a packet, step by step, for `millrace trace`.
//!
//! The packet goes through the code that workers run, with an observer that records every step and an output that sends
//! nothing. It counts nothing, and all rates are unused.

use core::fmt;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_pipeline::DropReason;
use millrace_types::Time;
use millrace_wire::Frame;

use crate::class::PuntClass;
use crate::forward::{Arrival, RouteOutput, Router, Waiting};
use crate::glean::Glean;
use crate::interface::Interface;
use crate::observe::{Observer, RouteStep};
use crate::state::RouterState;
use crate::tunnel::UnderlayPort;

/// All steps of a packet in the router, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RouteExplanation {
    pub steps: Vec<RouteStep>,
}

impl fmt::Display for RouteExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// Returns the steps of a frame that arrives now. `seed` is that of the workers' routers ([`Router::new`]).
pub fn explain(
    state: &RouterState,
    arrival: Arrival,
    frame: &[u8],
    seed: u64,
    now: Time,
) -> RouteExplanation {
    let mut burst: ArrayVec<Frame, BURST> = ArrayVec::new();
    burst.push(Frame::new(frame));
    let mut explanation = RouteExplanation::default();
    let mut router = Router::uncounted(seed);
    router.forward_observed(state, arrival, &mut burst, now, &mut Nowhere, &mut explanation);
    explanation
}

impl Observer for RouteExplanation {
    fn note(&mut self, step: impl FnOnce() -> RouteStep) {
        self.steps.push(step());
    }
}

/// The output that sends nothing.
struct Nowhere;

impl RouteOutput<Frame> for Nowhere {
    fn send(&mut self, _: &Interface, _: Frame) {}

    fn punt(&mut self, _: &Interface, _: PuntClass, _: Frame) {}

    fn wait(&mut self, _: Waiting, _: Frame) -> Result<(), Frame> {
        Ok(())
    }

    fn decapsulate(&mut self, _: UnderlayPort, _: Frame) {}

    fn probe(&mut self, _: Glean) {}

    fn dropped(&mut self, _: DropReason, _: Option<Frame>) {}
}
