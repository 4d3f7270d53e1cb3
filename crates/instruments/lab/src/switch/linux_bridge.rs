//! The kernel's bridge, for comparison.

use super::context::SwitchContext;
use crate::netlink::Socket;
use crate::netns;
use crate::up::UpError;

pub(super) fn start(context: &mut SwitchContext<'_>) -> Result<(), UpError> {
    context.starting("the kernel's bridge");
    let switch = context.switch;
    netns::within(&context.namespace(), || {
        let socket = Socket::open()?;
        socket.add_bridge(&switch.name)?;
        switch
            .ports
            .iter()
            .try_for_each(|port| socket.attach(&port.interface, &switch.name))
    })?;
    Ok(())
}
