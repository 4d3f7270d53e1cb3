//! Packets of tunnels among those that a bridge sends to the kernel by a tap device, whose addresses the kernel has.
//!
//! ```text
//!  bridge: LOCAL or internal port --> transmit queue --> diversion --+--> tap device: all that is no tunnel's
//!                                                                    |
//!                                     router of the bridge, inbox <--+
//! ```
//! Whatever sends to the port, flow entries, NORMAL or a packet-out, its frames pass here, as in the datapath of Open vSwitch.

use millrace_datapath::io::{Burst, Diversion};
use millrace_datapath::publish::Reader;
use millrace_types::Mac;
use millrace_wire::Packet;

use crate::service::{PeerQueue, PeerTarget};
use crate::state::RouterState;
use crate::tunnel::{UNDERLAY_MAC, UnderlayPort};

/// The diversion of a passive interface's port.
pub(crate) struct TunnelDiversion<P> {
    state: Reader<RouterState>,
    /// The index of the interface.
    interface: u16,
    /// The inbox of the router of this bridge in this worker.
    inbox: PeerQueue<P>,
}

impl<P> TunnelDiversion<P> {
    pub(crate) fn new(state: Reader<RouterState>, interface: u16, inbox: PeerQueue<P>) -> TunnelDiversion<P> {
        TunnelDiversion {
            state,
            interface,
            inbox,
        }
    }
}

/// Returns the underlay port of the tunnel of a frame that a bridge sends to an interface's kernel; `None` for other frames.
fn tunnel_of<P: Packet>(state: &RouterState, interface: u16, frame: &P) -> Option<UnderlayPort> {
    let interface = state.interface(interface)?;
    let tunnels = state.vrf(interface.vrf)?.tunnels.as_deref()?;
    let dst = frame.head().first_chunk::<6>()?;
    // A bridge floods frames for others here, too.
    interface.has_mac(Mac(*dst)).then(|| tunnels.port_of(frame))?
}

impl<P: Packet> Diversion<P> for TunnelDiversion<P> {
    fn divert(&mut self, burst: &mut Burst<P>, device: &mut Burst<P>) {
        let state = self.state.enter();
        let mut left = Burst::new();
        for mut frame in burst.drain(..) {
            let Some(to) = tunnel_of(&state, self.interface, &frame) else {
                device.push(frame);
                continue;
            };
            if self.inbox.is_full() {
                left.push(frame);
                continue;
            }
            if let Some(macs) = frame.head_mut().first_chunk_mut::<12>() {
                macs[..6].copy_from_slice(&UNDERLAY_MAC.0);
                macs[6..].copy_from_slice(&UNDERLAY_MAC.0);
            }
            // There is room, because only this worker puts packets there.
            let _room = self.inbox.push((PeerTarget::Underlay(to), frame));
        }
        *burst = left;
    }

    fn takes(&mut self, packet: &P) -> bool {
        tunnel_of(&self.state.enter(), self.interface, packet).is_some()
    }

    fn has_in_flight(&self) -> bool {
        !self.inbox.is_empty()
    }
}
