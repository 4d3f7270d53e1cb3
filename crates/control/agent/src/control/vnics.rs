//! Virtual NICs: from the configuration to devices, and peers that come back to drivers which do not look for them.

use millrace_datapath::io::{Backend, SocketAccess, VnicKind, VnicSpec};
use millrace_model as model;
use millrace_pipeline::PortState;
use millrace_types::{Duration, Time};

use super::BridgeControl;

/// How often a peer is looked for by opening the device anew.
const SEARCH: Duration = Duration::from_secs(1);

/// When a peer was looked for.
#[derive(Debug, Default)]
pub(super) struct Search {
    next: Option<Time>,
}

impl<B: Backend> BridgeControl<B> {
    /// Opens devices anew whose peer is not there and whose driver connects once: the link of such a port comes up when its
    /// peer is back. Entries, queues and counters of the port stay.
    pub(super) fn look_for_peers(&mut self, now: Time) {
        if self.search.next.is_some_and(|next| now < next) {
            return;
        }
        self.search.next = Some(now + SEARCH);
        let is_alone = |port: &model::Port| match &port.device {
            model::Device::Vnic(vnic) => vnic.connects_once(),
            _ => false,
        };
        let down = self
            .ports
            .values()
            .filter(|port| port.state.has(PortState::LINK_DOWN));
        let alone: Vec<model::Port> = down
            .map(|port| &port.model)
            .filter(|port| is_alone(port))
            .cloned()
            .collect();
        for port in alone {
            self.datapath.remove_port(port.number);
            if let Err(error) = self.open_device(&port) {
                tracing::debug!(bridge = %self.config.name, port = %port.name, %error, "its peer is not there");
            }
        }
    }
}

/// Returns the device of a virtual NIC.
pub(super) fn vnic_spec(vnic: &model::Vnic) -> VnicSpec {
    VnicSpec {
        kind: match vnic.kind() {
            model::VnicKind::Vhost => VnicKind::Vhost { tso: vnic.tso() },
            model::VnicKind::VirtioUser => VnicKind::VirtioUser {
                packed: vnic.rings() == model::VirtioRings::Packed,
            },
            model::VnicKind::Memif => VnicKind::Memif { id: vnic.id() },
        },
        path: vnic.path().to_owned(),
        access: (vnic.role() == model::VnicRole::Server).then(|| SocketAccess {
            owner: vnic.owner().map(str::to_owned),
            group: vnic.group().map(str::to_owned),
            mode: vnic.mode(),
        }),
    }
}
