//! Frames that the endpoint sends on its own: probes, announcements and solicitations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use millrace_types::Mac;
use millrace_wire::{arp, icmpv6};

use crate::addresses::{Action, solicited_node};
use crate::endpoint::Endpoint;
use crate::event::{Event, UnreachableReason};
use crate::frames::multicast_mac;
use crate::nd::FLAG_OVERRIDE;
use crate::neighbours::Solicitation;

impl Endpoint {
    /// Queues the frame of an action, or reports it.
    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Usable(address) => self.push_event(Event::Usable { address }),
            Action::Probe(IpAddr::V4(address)) => {
                self.push_arp(
                    Mac::BROADCAST,
                    arp::REQUEST,
                    Ipv4Addr::UNSPECIFIED,
                    Mac::ZERO,
                    address,
                );
            }
            Action::Announce(IpAddr::V4(address)) => {
                self.push_arp(Mac::BROADCAST, arp::REQUEST, address, Mac::ZERO, address);
            }
            Action::Probe(IpAddr::V6(target)) => {
                let group = solicited_node(target);
                let message = icmpv6::NdRepr {
                    kind: icmpv6::NEIGHBOR_SOLICIT,
                    flags: 0,
                    target,
                    lla: None,
                };
                self.push_nd(multicast_mac(group), Ipv6Addr::UNSPECIFIED, group, &message);
            }
            Action::Announce(IpAddr::V6(target)) => {
                let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                let message = icmpv6::NdRepr {
                    kind: icmpv6::NEIGHBOR_ADVERT,
                    flags: FLAG_OVERRIDE,
                    target,
                    lla: Some(self.config.mac),
                };
                self.push_nd(multicast_mac(all), target, all, &message);
            }
        }
    }

    /// Queues the solicitations of the neighbour cache, and reports next hops that gave no answer.
    pub(crate) fn push_solicitations(&mut self) {
        while let Some(Solicitation { address, mac }) = self.neighbours.poll_solicitation() {
            let Some(source) = self.addresses.source(address) else {
                continue;
            };
            match (source, address) {
                (IpAddr::V4(spa), IpAddr::V4(tpa)) => {
                    let dst = mac.unwrap_or(Mac::BROADCAST);
                    self.push_arp(dst, arp::REQUEST, spa, Mac::ZERO, tpa);
                }
                (IpAddr::V6(src), IpAddr::V6(target)) => {
                    let message = icmpv6::NdRepr {
                        kind: icmpv6::NEIGHBOR_SOLICIT,
                        flags: 0,
                        target,
                        lla: Some(self.config.mac),
                    };
                    let group = solicited_node(target);
                    let (mac, dst) = mac.map_or((multicast_mac(group), group), |mac| (mac, target));
                    self.push_nd(mac, src, dst, &message);
                }
                _ => {}
            }
        }
        while let Some(address) = self.neighbours.poll_unreachable() {
            self.push_event(Event::Unreachable {
                to: SocketAddr::new(address, 0),
                reason: UnreachableReason::NoNeighbour,
            });
        }
        self.counters.unsent += self.neighbours.take_dropped();
    }
}
