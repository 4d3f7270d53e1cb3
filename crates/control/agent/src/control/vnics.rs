//! Reconnection of virtual NICs whose driver connects only once.

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_types::{Duration, Time};

use super::bridge::BridgeControl;

/// Time between two attempts.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

impl<B: Backend> BridgeControl<B> {
    /// Opens devices again if their link is down and their driver connects only once. The link of such a port
    /// comes up when its peer is back. Flow entries, queues and counters of the port stay.
    pub(super) fn reconnect_vnics(&mut self, now: Time) {
        if self.next_vnic_reconnect.is_some_and(|next| now < next) {
            return;
        }
        self.next_vnic_reconnect = Some(now + RECONNECT_INTERVAL);
        let connects_once = |port: &model::Port| match &port.device {
            model::Device::Vnic(vnic) => vnic.connects_once(),
            _ => false,
        };
        let down = self.ports.values().filter(|port| !port.info.link_up);
        let disconnected: Vec<model::Port> = down
            .map(|port| &port.model)
            .filter(|port| connects_once(port))
            .cloned()
            .collect();
        for port in disconnected {
            self.datapath.remove_port(port.number);
            if let Err(error) = self.open_device(&port) {
                tracing::debug!(bridge = %self.config.name, port = %port.name, %error, "no peer yet");
            }
        }
    }
}
