//! V2 while a link is down: a bucket that one port decides about and that sends by another one loses its frames.

use millrace_flow::{Action, Bucket};
use millrace_types::PortNo;

use crate::check::Checker;
use crate::content::GroupType;
use crate::property::Property;

/// Returns the port by which a bucket sends while the port that it watches may be down.
fn unwatched(bucket: &Bucket) -> Option<PortNo> {
    let mut outputs = bucket.actions.iter().filter_map(|action| match action {
        Action::Output { port, .. } => Some(*port),
        _ => None,
    });
    outputs.find(|port| port.is_ordinary() && *port != bucket.watch_port)
}

impl Checker<'_> {
    /// Checks that each bucket of a group which chooses by liveness watches the port by which it sends.
    pub fn groups(&mut self) {
        let mut found = Vec::new();
        for (switch, content) in &self.fabric.switches {
            let groups = content.groups.iter();
            let chosen =
                groups.filter(|(_, group)| matches!(group.kind, GroupType::Select | GroupType::FastFailover));
            for (number, group) in chosen {
                for (at, bucket) in group.buckets.iter().enumerate() {
                    if let Some(port) = unwatched(bucket) {
                        found.push((*switch, *number, at + 1, bucket.watch_port, port));
                    }
                }
            }
        }
        for (switch, number, bucket, watched, port) in found {
            let watched = match watched {
                PortNo::ANY => "no port".to_owned(),
                port => format!("port {port}"),
            };
            let text = format!(
                "bucket {bucket} of group {} at {} watches {watched} and sends by port {port}: its frames are lost while that port is down",
                number.0,
                self.register.switch_name(switch)
            );
            self.found(Property::Delivery, None, text);
        }
    }
}
