//! The behaviour of a bridge while no controller is connected (OpenFlow 1.3.5, section 6.3.2).
//!
//! ```text
//!                      connected                    lost for less than the wait         lost for longer
//!  secure              entries                      entries                             entries
//!  standalone          entries                      entries, NORMAL for misses          NORMAL for all packets
//! ```
//! The wait gives every controller the chance to answer an echo request and to connect again, as in Open vSwitch: three
//! times the longest `echo_interval_s`. A bridge without configured controllers has lost none, so its entries, which
//! people set, stay in effect.

use millrace_datapath::io::Backend;
use millrace_flow::Match;
use millrace_model as model;
use millrace_pipeline::{FlowMod, FlowModCommand, PacketInReason, Standalone};
use millrace_types::{Duration, Priority, TableId};

use super::bridge::BridgeControl;
use crate::asynchronous::takes_packet_in;

/// The number of echo intervals in the wait: the idle time before an echo request, the time for its answer, and the time
/// to connect again.
const WAIT_INTERVALS: u64 = 3;

/// Returns the time without a controller after which NORMAL forwards all packets.
fn wait(config: &model::Bridge) -> Duration {
    let intervals = config.controllers.iter().map(|controller| {
        // Without echo requests, the time to connect again is the same.
        match controller.echo_interval_s.get() {
            0 => model::EchoInterval::DEFAULT.get(),
            interval => interval,
        }
    });
    Duration::from_secs(WAIT_INTERVALS * u64::from(intervals.max().unwrap_or_default()))
}

/// Returns the packets that NORMAL forwards on a bridge that has had no controller for `lost`; `None` if one is
/// connected.
fn standalone(config: &model::Bridge, lost: Option<Duration>) -> Standalone {
    match (config.fail_mode, lost) {
        (model::FailMode::Secure, _) | (_, None) => Standalone::Off,
        (model::FailMode::Standalone, Some(lost)) => {
            if config.controllers.is_empty() || lost < wait(config) {
                Standalone::Misses
            } else {
                Standalone::All
            }
        }
    }
}

impl<B: Backend> BridgeControl<B> {
    /// Applies `fail_mode` to the tables, as the connections and the time require.
    pub(crate) fn update_standalone(&mut self) {
        let lost =
            (!self.controllers.is_controlled()).then(|| self.datapath.now().since(self.uncontrolled_since));
        let (before, after) = (self.tables.standalone(), standalone(&self.config, lost));
        if before == after {
            return;
        }
        self.tables.set_standalone(after, &mut self.ops);
        let bridge = &self.config.name;
        if after == Standalone::All {
            let seconds = lost.unwrap_or_default().as_secs();
            tracing::warn!(
                %bridge, seconds, standalone_flows = %self.config.standalone_flows,
                "no controller is connected: NORMAL forwards all packets until one is"
            );
            if self.config.standalone_flows == model::StandaloneFlows::Delete {
                self.delete_flows();
            }
        } else if before == Standalone::All {
            tracing::info!(%bridge, "the flow entries forward packets again");
        }
    }

    /// Notes that the last configured controller has disconnected.
    pub(crate) fn lost_controllers(&mut self) {
        self.uncontrolled_since = self.datapath.now();
    }

    /// Deletes all flow entries.
    fn delete_flows(&mut self) {
        let request = FlowMod::new(FlowModCommand::Delete, TableId::ALL, Priority(0), Match::any());
        let now = self.datapath.now();
        let outcome = self
            .tables
            .prepare(request)
            .and_then(|mut prepared| self.tables.apply(&mut prepared, now, &mut self.ops));
        let bridge = &self.config.name;
        match outcome {
            Ok(outcome) => {
                tracing::info!(%bridge, deleted = outcome.removed, "flow entries deleted (standalone_flows)");
            }
            Err(error) => tracing::error!(%bridge, %error, "the flow entries cannot be deleted"),
        }
    }

    /// Returns true if a connected controller takes packet-ins for this reason.
    pub fn takes_packet_in(&self, reason: PacketInReason) -> bool {
        takes_packet_in(&self.controllers, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &str) -> model::Bridge {
        let text = format!("[[bridge]]\nname = \"b\"\n{settings}\n");
        model::Config::from_toml("b.toml", &text).unwrap().bridges[0].clone()
    }

    #[test]
    fn a_standalone_bridge_waits_three_echo_intervals_of_its_slowest_controller() {
        let slow = config(
            "fail_mode = \"standalone\"\ncontrollers = [{ target = \"tcp:127.0.0.1\", echo_interval_s = 7 }, \"tcp:127.0.0.2\"]",
        );
        let seconds = |seconds| standalone(&slow, Some(Duration::from_secs(seconds)));
        assert_eq!(
            (seconds(0), seconds(20)),
            (Standalone::Misses, Standalone::Misses)
        );
        assert_eq!(seconds(21), Standalone::All);
        assert_eq!(standalone(&slow, None), Standalone::Off);
    }

    #[test]
    fn a_bridge_that_has_no_controller_to_lose_keeps_its_entries_in_effect() {
        let long = Some(Duration::from_secs(100_000));
        assert_eq!(
            standalone(&config("fail_mode = \"standalone\""), long),
            Standalone::Misses
        );
        assert_eq!(
            standalone(&config("controllers = [\"tcp:127.0.0.1\"]"), long),
            Standalone::Off,
            "secure"
        );
    }
}
