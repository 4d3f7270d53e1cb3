//! Other programs that remove, rename or empty the kernel's interfaces of the router, or their namespaces: then the
//! configuration is applied again, as after a change.

use millrace_datapath::io::Backend;
use millrace_rib::event::{Address, Change, Object, Source};
use millrace_rib::{Event, Netns};

use super::state::{RunningInterface, State};

impl<B: Backend> State<B> {
    /// Takes notice of an event. Returns true if something that the configuration asks for is missing since.
    pub(super) fn is_disturbed_by(&mut self, event: &Event) -> bool {
        let netns = event.netns;
        match &event.change {
            Change::There(Object::Link(link)) => self.link_is_lost(netns, link.ifindex, Some(&link.name)),
            Change::Gone(Object::Link(link)) => self.link_is_lost(netns, link.ifindex, None),
            Change::Gone(Object::Address(address)) => self.asks_for(netns, address),
            Change::Closed => event.source == Source::Kernel,
            _ => false,
        }
    }

    /// Gives the kernel's interface up that has another name now, or is gone. Returns true if it was one of the router's.
    fn link_is_lost(&mut self, netns: Netns, ifindex: u32, name: Option<&str>) -> bool {
        let of_link = |held: &RunningInterface| held.netns == netns && held.ifindex == Some(ifindex);
        let found = self.interfaces.iter_mut().find(|(_, held)| of_link(held));
        let Some(((_, own_name), held)) = found.filter(|((_, own_name), _)| name != Some(own_name)) else {
            return false;
        };
        (held.shadow, held.ifindex) = (None, None);
        self.router.lock().remove_shadow(held.interface.index);
        tracing::warn!(
            interface = own_name,
            renamed = name,
            "another program took the kernel's interface away: it is made again"
        );
        true
    }

    /// Returns true if an address is one that the configuration gives an interface.
    fn asks_for(&self, netns: Netns, address: &Address) -> bool {
        let mut interfaces = self.interfaces.values();
        let held = interfaces.find(|held| held.netns == netns && held.ifindex == Some(address.ifindex));
        let Some(held) = held else {
            return false;
        };
        let mut wanted = held.plan.config.addresses.iter();
        wanted.any(|wanted| (wanted.address(), wanted.prefix_len()) == (address.address, address.prefix_len))
    }
}
