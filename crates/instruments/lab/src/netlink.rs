//! Links, addresses and routes, through the kernel's routing socket (rtnetlink(7)).
//!
//! Every function works in the namespace of the calling thread; callers use [`crate::netns::within`].

use std::fs::File;
use std::future::Future;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::Path;

use futures::TryStreamExt;
use millrace_types::{Mac, Vid};
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{
    BridgeStpState, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVlan, RouteMessageBuilder,
};

use crate::system::SystemError;
use crate::topology::{IpPrefix, Route};

/// A routing socket in the namespace of the thread that opened it.
pub(crate) struct Socket {
    runtime: tokio::runtime::Runtime,
    handle: Handle,
}

/// One end of a veth pair.
pub(crate) struct VethEnd<'a> {
    pub(crate) interface: &'a str,
    pub(crate) mac: Mac,
}

impl Socket {
    pub(crate) fn open() -> Result<Socket, SystemError> {
        let thread = |source| SystemError::Thread { source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(thread)?;
        let guard = runtime.enter();
        let (connection, handle, _) = rtnetlink::new_connection().map_err(thread)?;
        drop(guard);
        runtime.spawn(connection);
        Ok(Socket { runtime, handle })
    }

    fn ask<T>(
        &self,
        doing: impl FnOnce() -> String,
        hint: &'static str,
        request: impl Future<Output = Result<T, rtnetlink::Error>>,
    ) -> Result<T, SystemError> {
        self.runtime
            .block_on(request)
            .map_err(|source| SystemError::Netlink {
                doing: doing(),
                source: Box::new(source),
                hint,
            })
    }

    /// Creates a veth pair with `near` in this namespace and `far` in the namespace at `far_namespace`.
    pub(crate) fn add_veth(
        &self,
        near: &VethEnd<'_>,
        far: &VethEnd<'_>,
        far_namespace: &Path,
        mtu: u32,
    ) -> Result<(), SystemError> {
        let file = File::open(far_namespace).map_err(SystemError::file("open", far_namespace))?;
        let peer = LinkUnspec::new_with_name(far.interface)
            .address(far.mac.0.to_vec())
            .mtu(mtu)
            .setns_by_fd(file.as_raw_fd())
            .build();
        let link = LinkVeth::new(near.interface, far.interface)
            .address(near.mac.0.to_vec())
            .mtu(mtu)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        let doing = || format!("create the link {} - {}", near.interface, far.interface);
        self.ask(
            doing,
            "does this kernel have CONFIG_VETH?",
            self.handle.link().add(link).execute(),
        )
    }

    /// Creates a bridge and sets it up: no spanning tree, no multicast snooping, no VLAN filtering.
    pub(crate) fn add_bridge(&self, name: &str) -> Result<(), SystemError> {
        let bridge = LinkBridge::new(name)
            .stp_state(BridgeStpState::Disabled)
            .mcast_snooping(false)
            .build();
        let doing = || format!("create the bridge {name}");
        self.ask(
            doing,
            "does this kernel have CONFIG_BRIDGE?",
            self.handle.link().add(bridge).execute(),
        )
    }

    /// Makes `interface` a port of `bridge`.
    pub(crate) fn attach(&self, interface: &str, bridge: &str) -> Result<(), SystemError> {
        let (port, bridge) = (self.index(interface)?, self.index(bridge)?);
        let message = LinkUnspec::new_with_index(port).controller(bridge).build();
        self.ask(
            || format!("attach {interface} to its bridge"),
            "",
            self.handle.link().set(message).execute(),
        )
    }

    /// Creates the VLAN subinterface `INTERFACE.VID`, down, and returns its name.
    pub(crate) fn add_vlan(&self, interface: &str, vid: Vid) -> Result<String, SystemError> {
        let name = format!("{interface}.{vid}");
        let message = LinkVlan::new(&name, self.index(interface)?, vid.raw()).build();
        let doing = || format!("create the VLAN interface {name}");
        let hint = "without CONFIG_VLAN_8021Q in the kernel, or `modprobe 8021q`, a host has no `vlan`";
        self.ask(doing, hint, self.handle.link().add(message).execute())?;
        Ok(name)
    }

    pub(crate) fn up(&self, interface: &str) -> Result<(), SystemError> {
        let message = LinkUnspec::new_with_index(self.index(interface)?).up().build();
        self.ask(
            || format!("set {interface} up"),
            "",
            self.handle.link().set(message).execute(),
        )
    }

    pub(crate) fn add_address(&self, interface: &str, prefix: IpPrefix) -> Result<(), SystemError> {
        let index = self.index(interface)?;
        let mut request = self
            .handle
            .address()
            .add(index, prefix.address(), prefix.prefix_len());
        // Without this flag, the kernel drops packets to an IPv6 address until its worker has looked at the address.
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        self.ask(
            || format!("give {interface} the address {prefix}"),
            "",
            request.execute(),
        )
    }

    pub(crate) fn add_route(&self, route: Route) -> Result<(), SystemError> {
        let prefix_len = route.destination.prefix_len();
        let message = match (route.destination.address(), route.via) {
            (IpAddr::V4(to), IpAddr::V4(via)) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
                .destination_prefix(to, prefix_len)
                .gateway(via)
                .build(),
            (IpAddr::V6(to), IpAddr::V6(via)) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
                .destination_prefix(to, prefix_len)
                .gateway(via)
                .build(),
            // The parser of lab files rejects such a route.
            _ => return Ok(()),
        };
        let doing = || format!("add the route {} via {}", route.destination, route.via);
        let hint = "the next hop must be in the network of one of the host's addresses";
        self.ask(doing, hint, self.handle.route().add(message).execute())
    }

    /// Removes a link, if it is there.
    pub(crate) fn remove(&self, interface: &str) -> Result<(), SystemError> {
        let message = LinkMessageBuilder::<LinkUnspec>::new()
            .name(interface.to_owned())
            .build();
        let result = self
            .runtime
            .block_on(self.handle.link().del_with_message(message).execute());
        match result {
            Err(rtnetlink::Error::NetlinkError(answer))
                if answer.raw_code() == -(nix::errno::Errno::ENODEV as i32) =>
            {
                Ok(())
            }
            Err(source) => {
                let (doing, source) = (format!("remove the link {interface}"), Box::new(source));
                Err(SystemError::Netlink {
                    doing,
                    source,
                    hint: "",
                })
            }
            Ok(()) => Ok(()),
        }
    }

    fn index(&self, interface: &str) -> Result<u32, SystemError> {
        let link = self.link(interface)?;
        Ok(link.map_or(0, |link| link.header.index))
    }

    /// Returns true for an end of a veth pair.
    fn is_veth(&self, interface: &str) -> Result<bool, SystemError> {
        let attributes = self.link(interface)?.map(|link| link.attributes);
        let is_veth = |attribute: &LinkAttribute| match attribute {
            LinkAttribute::LinkInfo(infos) => infos.contains(&LinkInfo::Kind(InfoKind::Veth)),
            _ => false,
        };
        Ok(attributes.is_some_and(|attributes| attributes.iter().any(is_veth)))
    }

    fn link(&self, interface: &str) -> Result<Option<LinkMessage>, SystemError> {
        let mut found = self
            .handle
            .link()
            .get()
            .match_name(interface.to_owned())
            .execute();
        let doing = || format!("find the interface {interface}");
        self.ask(doing, "", found.try_next())
    }
}

/// Returns true if `interface`, in the namespace of the calling thread, is an end of a veth pair. Interface numbers
/// do not show this: the ends of a pair in two namespaces may have the same one.
///
/// # Errors
/// [`SystemError::Netlink`] if there is no such interface; [`SystemError::Thread`].
pub fn is_veth(interface: &str) -> Result<bool, SystemError> {
    Socket::open()?.is_veth(interface)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::errno::Errno;
    use nix::sched::{CloneFlags, setns, unshare};

    use super::*;

    #[test]
    fn both_ends_of_a_veth_pair_across_namespaces_are_veth_and_loopback_is_not() {
        let test = || {
            if unshare(CloneFlags::CLONE_NEWNET) == Err(Errno::EPERM) {
                eprintln!("skipped: no right to make a network namespace");
                return;
            }
            let first = File::open("/proc/thread-self/ns/net").unwrap();
            let path = format!("/proc/self/fd/{}", first.as_raw_fd());
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let near = VethEnd {
                interface: "near",
                mac: Mac([2, 0, 0, 0, 0, 1]),
            };
            let far = VethEnd {
                interface: "far",
                mac: Mac([2, 0, 0, 0, 0, 2]),
            };
            let socket = Socket::open().unwrap();
            socket.add_veth(&near, &far, Path::new(&path), 1500).unwrap();
            assert!(is_veth("near").unwrap());
            assert!(!is_veth("lo").unwrap());
            assert!(is_veth("far").is_err(), "it is in the other namespace");
            setns(first, CloneFlags::CLONE_NEWNET).unwrap();
            assert!(is_veth("far").unwrap());
        };
        thread::spawn(test).join().unwrap();
    }
}
