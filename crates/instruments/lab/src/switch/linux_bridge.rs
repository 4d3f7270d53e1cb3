//! The kernel's bridge, to compare with.

use crate::netlink::Socket;
use crate::netns;
use crate::switch::Site;
use crate::up::UpError;

pub(super) fn start(site: &mut Site<'_>) -> Result<(), UpError> {
    site.starting("the kernel's bridge");
    let switch = site.switch;
    netns::within(&site.namespace(), || {
        let socket = Socket::open()?;
        socket.add_bridge(&switch.name)?;
        switch
            .ports
            .iter()
            .try_for_each(|port| socket.attach(&port.interface, &switch.name))
    })?;
    Ok(())
}
