//! V2 while a link is down: a bucket that one port decides about and that sends by another one loses its frames.

use millrace_flow::{Action, Bucket};
use millrace_types::{GroupId, PortNo};

use crate::check::Checker;
use crate::content::{GroupEntry, GroupType};
use crate::property::Property;
use crate::trace::SwitchNumber;

/// Returns the port by which a bucket sends while the port that it watches may be down.
fn unwatched(bucket: &Bucket) -> Option<PortNo> {
    let mut outputs = bucket.actions.iter().filter_map(|action| match action {
        Action::Output { port, .. } => Some(*port),
        _ => None,
    });
    outputs.find(|port| port.is_ordinary() && *port != bucket.watch_port)
}

impl Checker<'_> {
    /// Checks that each bucket of every group which chooses by liveness watches the port by which it sends.
    pub fn groups(&mut self) {
        let fabric = self.fabric;
        for (switch, content) in &fabric.switches {
            for (number, group) in &content.groups {
                self.check_group(*switch, *number, group);
            }
        }
    }

    /// Checks one group as [`Checker::groups`] does. A group that its switch does not have is no fault.
    pub fn group(&mut self, switch: SwitchNumber, number: GroupId) {
        let fabric = self.fabric;
        let content = fabric.switches.get(&switch);
        if let Some(group) = content.and_then(|content| content.groups.get(&number)) {
            self.check_group(switch, number, group);
        }
    }

    fn check_group(&mut self, switch: SwitchNumber, number: GroupId, group: &GroupEntry) {
        if !matches!(group.kind, GroupType::Select | GroupType::FastFailover) {
            return;
        }
        for (at, bucket) in group.buckets.iter().enumerate() {
            let Some(port) = unwatched(bucket) else {
                continue;
            };
            let watched = match bucket.watch_port {
                PortNo::ANY => "no port".to_owned(),
                port => format!("port {port}"),
            };
            let text = format!(
                "bucket {} of group {} at {} watches {watched} and sends by port {port}: its frames are lost while that port is down",
                at + 1,
                number.0,
                self.register.switch_name(switch)
            );
            self.found(Property::Delivery, None, text);
        }
    }
}
