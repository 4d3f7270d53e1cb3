//! Traces of packets through chains: nothing is sent, and no running function is involved.
//!
//! The verdict of a built-in function comes from a new instance with the hop's settings, so it is the verdict on the
//! first packet of a flow. A function from a file is not loaded here: it is assumed to pass the packet on unchanged.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millrace_builtin::CATALOGUE;
use millrace_chain::{ChainPlan, HopPlan, HopState, OnFailure};
use millrace_datapath::io::Backend;
use millrace_nf::{Buffer, Context, Direction, Effects, Verdict};
use millrace_types::{PortNo, Time};
use millrace_wire::{Frame, Packet};

use super::bridge::BridgeControl;

/// A hop on the path of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedHop {
    /// The name of the hop.
    pub name: String,
    pub function: String,
    /// The class: `inline`, `ring` or `isolated`.
    pub class: &'static str,
    /// The outcome in words: a verdict, or the effect of `on_failure`.
    pub outcome: String,
}

/// The end of a packet's path through a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainTraceEnd {
    /// The bridge receives the packet at this port.
    Received {
        /// The logical port: an end of the chain, or the port of a hop with `steer`.
        port: PortNo,
        /// The bytes of the packet.
        frame: Vec<u8>,
    },
    /// A function sends the packet out of this port.
    Sent {
        port: PortNo,
        /// The bytes of the packet.
        frame: Vec<u8>,
    },
    /// This hop drops the packet.
    Dropped {
        /// The name of the hop.
        hop: String,
    },
}

/// The path of a packet through a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainTrace {
    /// The name of the chain.
    pub chain: String,
    /// The hops on the path, in order.
    pub hops: Vec<TracedHop>,
    /// The end of the path.
    pub end: ChainTraceEnd,
}

impl<B: Backend> BridgeControl<B> {
    /// Returns the path of a frame that is sent to a logical port of a chain; `None` if no running chain has this port.
    pub fn trace_chain(&mut self, port: PortNo, frame: &[u8]) -> Option<ChainTrace> {
        let now = self.datapath.now();
        let mut running = self.chains.running.values_mut();
        let running = running.find(|running| entry(running.chain.plan(), port).is_some())?;
        let stats = running.chain.stats().hops;
        let state = |name: &str| {
            let hop = stats.iter().find(|hop| hop.name == name);
            hop.map_or(HopState::Down, |hop| hop.state)
        };
        let plan = running.chain.plan();
        let (direction, first) = entry(plan, port)?;
        Some(trace(plan, direction, first, frame, now, state))
    }
}

/// Returns the direction, and the position of the first hop, of packets that are sent to a port of the chain.
fn entry(plan: &ChainPlan, port: PortNo) -> Option<(Direction, usize)> {
    if port == plan.near {
        return Some((Direction::Forward, 0));
    }
    if port == plan.far {
        return Some((Direction::Backward, 0));
    }
    let at = plan.hops.iter().position(|hop| hop.number == Some(port))?;
    Some((Direction::Forward, at))
}

/// The outcome of a hop.
enum Outcome {
    /// The verdict of the function.
    Verdict(Verdict),
    /// The hop is down, with this setting of `on_failure`.
    Failed(OnFailure),
}

/// Follows a frame from hop to hop. Positions count in the direction of the packet.
fn trace(
    plan: &ChainPlan,
    direction: Direction,
    first: usize,
    frame: &[u8],
    now: Time,
    state: impl Fn(&str) -> HopState,
) -> ChainTrace {
    let exit = match direction {
        Direction::Forward => plan.far,
        Direction::Backward => plan.near,
    };
    let mut frame = Frame::new(frame);
    let mut hops = Vec::new();
    let mut position = first;
    let received = |port: PortNo, frame: &Frame| ChainTraceEnd::Received {
        port,
        frame: bytes(frame),
    };
    let end = loop {
        let at = match direction {
            Direction::Forward => Some(position),
            Direction::Backward => plan.hops.len().checked_sub(position + 1),
        };
        let Some(hop) = at.and_then(|at| plan.hops.get(at)) else {
            break received(exit, &frame);
        };
        let (outcome, words) = judge(hop, state(&hop.name), &mut frame, Context::new(now, direction));
        hops.push(TracedHop {
            name: hop.name.clone(),
            function: hop.function.clone(),
            class: hop.class.as_str(),
            outcome: words,
        });
        let steer = hop.number.filter(|_| hop.steer);
        let dropped = || ChainTraceEnd::Dropped {
            hop: hop.name.clone(),
        };
        match outcome {
            Outcome::Failed(OnFailure::Closed) | Outcome::Verdict(Verdict::Drop) => break dropped(),
            Outcome::Failed(OnFailure::Bypass) => break received(exit, &frame),
            Outcome::Verdict(Verdict::ToPort(port)) => {
                break ChainTraceEnd::Sent {
                    port,
                    frame: bytes(&frame),
                };
            }
            Outcome::Verdict(Verdict::Skip(over)) if steer.is_none() => position += 1 + usize::from(over),
            _ => match steer {
                Some(port) => break received(port, &frame),
                None => position += 1,
            },
        }
    };
    ChainTrace {
        chain: plan.name.clone(),
        hops,
        end,
    }
}

/// Returns the outcome of a hop, and the same outcome in words. The function may change the packet.
fn judge(hop: &HopPlan, state: HopState, packet: &mut Frame, context: Context) -> (Outcome, String) {
    let next = || Outcome::Verdict(Verdict::Next);
    match state {
        HopState::Drained => return (next(), "drained: packets pass it by".to_owned()),
        HopState::Down => {
            let words = match hop.on_failure {
                OnFailure::Closed => "down: dropped, as on_failure is closed",
                OnFailure::Open => "down: on to the next hop, as on_failure is open",
                OnFailure::Bypass => "down: out of the chain, as on_failure is bypass",
            };
            return (Outcome::Failed(hop.on_failure), words.to_owned());
        }
        HopState::Up | HopState::Starting => {}
    }
    let Some(verdict) = verdict_of_new(hop, packet, context) else {
        return (
            next(),
            "assumed to pass it on unchanged: a function from a file is not run here".to_owned(),
        );
    };
    let words = match verdict {
        Verdict::Next => "next".to_owned(),
        Verdict::Skip(over) => format!("skips {over} hops"),
        Verdict::Drop => "drop".to_owned(),
        Verdict::ToPort(port) => format!("sends it out of port {port}"),
    };
    (Outcome::Verdict(verdict), words)
}

/// Returns the verdict of a new instance of a built-in function; `None` for other functions.
fn verdict_of_new(hop: &HopPlan, packet: &mut Frame, context: Context) -> Option<Verdict> {
    let kind = CATALOGUE.find(&hop.function).ok()?;
    let mut function = kind.make_function(&kind.small_setup(&hop.settings)).ok()?;
    let mut verdicts = [Verdict::Next];
    let run = || {
        function.tick(context.now);
        let packet: &mut dyn Buffer = packet;
        function.process_with_effects(&context, &mut [packet], &mut verdicts, &mut Effects::new());
    };
    // A function that panics on this packet has no verdict: in the worker, the hop would be down.
    catch_unwind(AssertUnwindSafe(run)).ok()?;
    Some(verdicts[0])
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.copy_to(&mut bytes, usize::MAX);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_nf::Settings;

    const NEAR: PortNo = PortNo::from_raw(100);
    const FAR: PortNo = PortNo::from_raw(101);

    fn hop(name: &str, function: &str, settings: &[&str]) -> HopPlan {
        HopPlan {
            settings: Settings::parse(settings).unwrap(),
            ..HopPlan::new(name, function)
        }
    }

    fn plan() -> ChainPlan {
        ChainPlan {
            hops: vec![
                hop("fw", "firewall", &["default=deny", "rule=allow udp port 53"]),
                hop("watch", "monitor", &[]),
            ],
            ..ChainPlan::new("edge", NEAR, FAR)
        }
    }

    fn udp(port: u16) -> Vec<u8> {
        let text = format!("udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=4000,tp_dst={port}");
        let packet: millrace_flow::compose::PacketText = text.parse().unwrap();
        packet.frame().unwrap()
    }

    fn outcomes(traced: &ChainTrace) -> Vec<(&str, &str)> {
        let hops = traced.hops.iter();
        hops.map(|hop| (hop.name.as_str(), hop.outcome.as_str()))
            .collect()
    }

    #[test]
    fn a_packet_that_all_hops_pass_is_received_at_the_other_end() {
        let up = |_: &str| HopState::Up;
        let forward = trace(&plan(), Direction::Forward, 0, &udp(53), Time::ZERO, up);
        assert_eq!(outcomes(&forward), [("fw", "next"), ("watch", "next")]);
        let received = |port| ChainTraceEnd::Received { port, frame: udp(53) };
        assert_eq!(forward.end, received(FAR));
        let backward = trace(&plan(), Direction::Backward, 0, &udp(53), Time::ZERO, up);
        assert_eq!(backward.hops.first().unwrap().name, "watch");
    }

    #[test]
    fn a_packet_that_a_function_drops_ends_at_its_hop() {
        let denied = trace(&plan(), Direction::Forward, 0, &udp(80), Time::ZERO, |_| {
            HopState::Up
        });
        assert_eq!(outcomes(&denied), [("fw", "drop")]);
        assert_eq!(denied.end, ChainTraceEnd::Dropped { hop: "fw".to_owned() });
    }

    #[test]
    fn a_hop_that_is_down_does_what_its_on_failure_says() {
        let state = |name: &str| match name {
            "fw" => HopState::Down,
            _ => HopState::Up,
        };
        for (on_failure, hops, drops) in [
            (OnFailure::Closed, 1, true),
            (OnFailure::Open, 2, false),
            (OnFailure::Bypass, 1, false),
        ] {
            let mut plan = plan();
            plan.hops[0].on_failure = on_failure;
            let traced = trace(&plan, Direction::Forward, 0, &udp(80), Time::ZERO, state);
            assert_eq!(traced.hops.len(), hops, "{on_failure:?}");
            assert_eq!(
                matches!(traced.end, ChainTraceEnd::Dropped { .. }),
                drops,
                "{on_failure:?}"
            );
        }
    }

    #[test]
    fn a_steered_hop_gives_its_packets_back_to_the_tables_at_its_own_port() {
        let mut plan = plan();
        let port = PortNo::from_raw(110);
        plan.hops[0].number = Some(port);
        plan.hops[0].steer = true;
        assert_eq!(entry(&plan, port), Some((Direction::Forward, 0)));
        let traced = trace(&plan, Direction::Forward, 0, &udp(53), Time::ZERO, |_| {
            HopState::Up
        });
        assert!(
            matches!(traced.end, ChainTraceEnd::Received { port: at, .. } if at == port),
            "{traced:?}"
        );
    }

    #[test]
    fn a_function_from_a_file_is_assumed_to_pass_packets_on() {
        let mut plan = plan();
        plan.hops[0].function = "wasm:/nowhere.wasm".to_owned();
        let traced = trace(&plan, Direction::Forward, 0, &udp(80), Time::ZERO, |_| {
            HopState::Up
        });
        assert!(outcomes(&traced)[0].1.starts_with("assumed"), "{traced:?}");
        assert_eq!(traced.hops.len(), 2);
    }
}
