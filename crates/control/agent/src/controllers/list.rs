//! All connected controllers of a bridge, and the state that they share.

use millrace_model as model;
use millrace_openflow::roles::RoleArbiter;
use millrace_types::Time;

use super::buffers::Buffers;
use super::bundles::Bundles;
use super::connected::{Auxiliary, ControllerSession, NewConnection};
use super::id::{AuxiliaryId, ConnectionId};
use super::log_limit::LogLimit;
use super::monitors::Monitors;
use super::outbox::Outbox;
use super::token_bucket::TokenBucket;

/// The connected controllers of a bridge, owned by its control thread.
#[derive(Default)]
pub(crate) struct Controllers {
    connected: Vec<ControllerSession>,
    pub(crate) roles: RoleArbiter<ConnectionId>,
    pub(crate) buffers: Buffers,
    pub(crate) monitors: Monitors,
    /// Limits the log lines about refused changes.
    pub(crate) refusal_log: LogLimit,
    bucket: TokenBucket,
}

impl Controllers {
    /// Returns true if one of the configured controllers is connected. Connections that a listener accepted do not
    /// count: a person with `ovs-ofctl` is no controller.
    pub(crate) fn is_controlled(&self) -> bool {
        self.connected.iter().any(|connected| connected.is_configured)
    }

    /// Returns the number of connected controllers, no matter which side opened the connection.
    pub(crate) fn len(&self) -> usize {
        self.connected.len()
    }

    /// Returns the controller to which a main or auxiliary connection belongs.
    pub(crate) fn connected(&mut self, id: ConnectionId) -> Option<&mut ControllerSession> {
        self.connected.iter_mut().find(|connected| connected.has(id))
    }

    /// Returns the `auxiliary_id` of a connection.
    pub(crate) fn auxiliary_id(&self, id: ConnectionId) -> AuxiliaryId {
        self.auxiliary(id)
            .map_or(AuxiliaryId::default(), |auxiliary| auxiliary.number)
    }

    /// Returns the outbox for replies to requests of this connection.
    pub(crate) fn outbox(&mut self, id: ConnectionId) -> Option<Outbox> {
        match self.auxiliary(id) {
            Some(auxiliary) => Some(auxiliary.outbox.clone()),
            None => Some(self.connected(id)?.outbox.clone()),
        }
    }

    /// Returns the bundles of a connection.
    pub(crate) fn bundles(&mut self, id: ConnectionId) -> Option<&mut Bundles> {
        let connected = self.connected(id)?;
        if connected.id == id {
            return Some(&mut connected.bundles);
        }
        let mut auxiliaries = connected.auxiliaries.iter_mut();
        Some(&mut auxiliaries.find(|auxiliary| auxiliary.id == id)?.bundles)
    }

    /// Returns the size of the messages in the bundles of all connections, in bytes.
    pub(crate) fn bundled_size(&self) -> usize {
        let of_one = |connected: &ControllerSession| {
            let auxiliaries = connected.auxiliaries.iter();
            connected.bundles.size()
                + auxiliaries
                    .map(|auxiliary| auxiliary.bundles.size())
                    .sum::<usize>()
        };
        self.connected.iter().map(of_one).sum()
    }

    fn auxiliary(&self, id: ConnectionId) -> Option<&Auxiliary> {
        let mut auxiliaries = self.connected.iter().flat_map(|connected| &connected.auxiliaries);
        auxiliaries.find(|auxiliary| auxiliary.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ControllerSession> {
        self.connected.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ControllerSession> {
        self.connected.iter_mut()
    }

    /// Returns true if the limit of the bridge admits one more packet-in at `now`.
    pub(crate) fn admits_packet_in(&mut self, config: &model::Bridge, now: Time) -> bool {
        let (rate, burst) = (config.packet_in_rate.get(), config.packet_in_burst.get());
        self.bucket.take(now, rate, burst)
    }

    /// Adds a connection. Returns false if it is auxiliary to a main connection that is closed.
    pub(crate) fn add(&mut self, new: NewConnection, miss_send_len: u16) -> bool {
        let Some(auxiliary) = new.auxiliary else {
            self.connected.push(ControllerSession::new(new, miss_send_len));
            return true;
        };
        let mut connected = self.connected.iter_mut();
        let Some(main) = connected.find(|connected| connected.id == auxiliary.main) else {
            return false;
        };
        main.auxiliaries.push(Auxiliary {
            id: new.id,
            number: auxiliary.number,
            outbox: new.outbox,
            tally: new.tally,
            bundles: Bundles::default(),
        });
        true
    }

    /// Returns true if a configured controller is connected that has sent a request after the handshake.
    pub(crate) fn has_active(&self) -> bool {
        let mut connected = self.connected.iter();
        connected.any(|connected| connected.is_configured && connected.has_requested)
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.connected.retain(|connected| connected.id != id);
        for connected in &mut self.connected {
            connected.auxiliaries.retain(|auxiliary| auxiliary.id != id);
        }
        self.roles.disconnected(id);
        self.monitors.disconnected(id);
    }
}
