//! Encapsulation and decapsulation of packets of a burst.

use arrayvec::ArrayVec;
use millrace_flow::Field;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId};
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;

use super::batch::PortBatch;
use super::observe::Observer;
use super::origin::Origin;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::tunnel::{CompiledTunnel, Decapsulation, decapsulate, encapsulate};
use crate::{DropReason, Egress, Tunnels};

/// The maximum number of datagrams of a train, as Linux sends and receives them (UDP_MAX_SEGMENTS): a guest that states a
/// segment size of one byte must not cost 65,000 datagrams.
const TRAIN_MAX: usize = 128;

/// Consecutive decapsulated packets with one tunnel and one tunnel_id.
struct Arrivals<'a, P> {
    of: Option<(&'a CompiledTunnel, u64)>,
    packets: ArrayVec<P, BURST>,
}

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Returns the tunnel of a logical port.
    #[inline]
    pub(crate) fn tunnel(&self, port: PortNo) -> Option<&'a CompiledTunnel> {
        self.fwd.tunnels()?.find(port)
    }

    /// Returns the tunnel_id of packet `i` of the burst.
    pub(crate) fn tunnel_id(&self, i: usize) -> u64 {
        self.scratch.keys[i].field(Field::TunnelId) as u64
    }

    /// Encapsulates a packet and sends it. A GSO packet is segmented first, because no device segments
    /// encapsulated packets.
    #[cold]
    #[inline(never)]
    pub(crate) fn encapsulate(
        &mut self,
        tunnel: &CompiledTunnel,
        tunnel_id: u64,
        queue: Option<QueueId>,
        packet: P,
    ) {
        self.egress.encapsulating(tunnel.port, &packet);
        if packet.segment_size().is_none() {
            return self.enclose_one(tunnel, tunnel_id, queue, packet);
        }
        let Some(gso) = GsoLayout::of(&packet) else {
            return self.drop(PacketSource::Move(packet), DropReason::NotSegmentable);
        };
        for number in 0..gso.count() {
            let Some(segment) = gso.segment(&packet, number) else {
                return self.drop(PacketSource::Move(packet), DropReason::NoBuffer);
            };
            self.enclose_one(tunnel, tunnel_id, queue, segment);
        }
    }

    fn enclose_one(
        &mut self,
        tunnel: &CompiledTunnel,
        tunnel_id: u64,
        queue: Option<QueueId>,
        mut packet: P,
    ) {
        let (underlay, size) = (tunnel.underlay, packet.len());
        let blocked = match self.fwd.port(underlay) {
            None => Some(DropReason::NoSuchPort),
            Some(port) => port.underlay_block(),
        };
        let outcome = match blocked {
            Some(reason) => Err(reason),
            None => encapsulate(&mut packet, tunnel, tunnel_id),
        };
        match outcome {
            Ok(()) => {
                if O::IS_REAL {
                    tunnel.counts.sent(size);
                }
                self.leave(underlay, queue, packet);
            }
            Err(reason) => self.drop(PacketSource::Move(packet), reason),
        }
    }

    /// Sends packet `i` of the burst into the tunnel of a port.
    #[cold]
    #[inline(never)]
    pub(crate) fn tunnel_to(&mut self, i: usize, packet: P, port: PortNo) {
        if let Some(tunnel) = self.tunnel(port) {
            self.encapsulate(tunnel, self.tunnel_id(i), None, packet);
        }
    }

    /// Decapsulates those packets of a burst from an underlay port that belong to tunnels, and processes them as
    /// packets of the tunnels' ports. Packets of one tunnel stay in order.
    #[cold]
    #[inline(never)]
    pub(crate) fn terminate(&mut self, burst: &mut ArrayVec<P, BURST>) {
        let Some(tunnels) = self.fwd.tunnels() else { return };
        let underlay = self.origin.in_port;
        let mut others = ArrayVec::new();
        let mut arrivals = Arrivals {
            of: None,
            packets: ArrayVec::new(),
        };
        for mut packet in burst.drain(..) {
            match decapsulate(&mut packet, tunnels, underlay) {
                Decapsulation::Other => others.push(packet),
                Decapsulation::Neighbour => self.egress.neighbour(underlay, packet),
                Decapsulation::Drop(reason) => self.drop(PacketSource::Move(packet), reason),
                Decapsulation::Train => self.terminate_train(tunnels, packet, &mut arrivals),
                Decapsulation::Packet(tunnel, tunnel_id) => {
                    self.arrive(tunnel, tunnel_id, packet, &mut arrivals);
                }
            }
        }
        self.come_in(&mut arrivals);
        *burst = others;
        self.flush();
    }

    /// Decapsulates the datagrams of a train.
    #[cold]
    #[inline(never)]
    fn terminate_train(&mut self, tunnels: &'a Tunnels, train: P, arrivals: &mut Arrivals<'a, P>) {
        let underlay = self.origin.in_port;
        let Some(gso) = GsoLayout::of(&train) else {
            return self.drop(PacketSource::Move(train), DropReason::NotSegmentable);
        };
        if gso.count() > TRAIN_MAX {
            return self.drop(PacketSource::Move(train), DropReason::TunnelMalformed);
        }
        for number in 0..gso.count() {
            let Some(mut segment) = gso.segment(&train, number) else {
                return self.drop(PacketSource::Move(train), DropReason::NoBuffer);
            };
            match decapsulate(&mut segment, tunnels, underlay) {
                Decapsulation::Packet(tunnel, tunnel_id) => {
                    self.arrive(tunnel, tunnel_id, segment, arrivals);
                }
                Decapsulation::Drop(reason) => self.drop(PacketSource::Move(segment), reason),
                // All datagrams have the addresses and ports of the train.
                Decapsulation::Other | Decapsulation::Neighbour | Decapsulation::Train => {
                    self.drop(PacketSource::Move(segment), DropReason::TunnelMalformed);
                }
            }
        }
    }

    /// Adds a decapsulated packet to the arrivals, which are processed first if they are full or of another tunnel.
    #[inline]
    fn arrive(
        &mut self,
        tunnel: &'a CompiledTunnel,
        tunnel_id: u64,
        packet: P,
        arrivals: &mut Arrivals<'a, P>,
    ) {
        if arrivals.packets.is_full()
            || arrivals
                .of
                .is_some_and(|(before, id)| id != tunnel_id || before.port != tunnel.port)
        {
            self.come_in(arrivals);
        }
        arrivals.of = Some((tunnel, tunnel_id));
        arrivals.packets.push(packet);
    }

    /// Processes decapsulated packets as packets of their tunnel's port.
    fn come_in(&mut self, arrivals: &mut Arrivals<'a, P>) {
        let Some((tunnel, tunnel_id)) = arrivals.of else {
            return;
        };
        let run = &mut arrivals.packets;
        if O::IS_REAL {
            let bytes = run.iter().map(Packet::len).sum();
            tunnel.counts.received(run.len(), bytes);
        }
        let origin = Origin {
            in_port: tunnel.port,
            in_phy_port: self.origin.in_port,
            tunnel_id,
            metadata: 0,
        };
        self.egress.decapsulated(tunnel.port, run);
        let outside = core::mem::replace(&mut self.origin, origin);
        self.forget_ingress();
        self.burst(run);
        run.clear();
        self.origin = outside;
        self.forget_ingress();
    }

    /// Resets the state that is kept from packet to packet and depends on the ingress port, because the
    /// ingress port changes.
    fn forget_ingress(&mut self) {
        self.flush();
        self.port_batches = core::array::from_fn(|_| PortBatch::none());
        self.recent_source = None;
    }
}
