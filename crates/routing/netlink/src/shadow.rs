//! The addresses of a shadow interface, which the switch sets in the namespace of its VRF.
//!
//! Addresses that others set (zebra, an administrator) stay. The switch recognises its own, also those of an earlier run, by
//! the number that it gives them (`IFA_PROTO`).

use std::io;
use std::net::IpAddr;

use millrace_rib::event::Dump;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

use crate::message::{ADDRESS_PROTOCOL, Requests};
use crate::namespace::{Namespace, NamespaceError};
use crate::socket::{DATAGRAM_SIZE, Received, Socket};
use crate::wire::{Address, Change, Content, Messages};

/// The time within which the kernel answers, in milliseconds: far more than it takes, so that a missing answer is an error.
const ANSWER_MS: u16 = 5_000;

/// An address with the length of its prefix.
pub type InterfaceAddress = (IpAddr, u8);

/// An interface in a namespace, with the addresses that this handle has set.
#[derive(Debug)]
pub struct Shadow {
    namespace: Namespace,
    name: String,
    ifindex: u32,
    /// The addresses that this handle has set; kernels before 5.18 do not tell whose an address is.
    set: Vec<InterfaceAddress>,
}

impl Shadow {
    /// Returns the handle of an interface that exists.
    ///
    /// # Errors
    /// Returns [`NamespaceError`] if there is no namespace or no interface of that name.
    pub fn find(namespace: &Namespace, name: &str) -> Result<Shadow, NamespaceError> {
        let looked_up = name.to_owned();
        let ifindex = namespace.within("look up the shadow interface", move || {
            if_nametoindex(looked_up.as_str()).map_err(|errno| {
                io::Error::new(io::Error::from(errno).kind(), format!("{looked_up}: {errno}"))
            })
        })?;
        Ok(Shadow {
            namespace: namespace.clone(),
            name: name.to_owned(),
            ifindex,
            set: Vec::new(),
        })
    }

    /// Returns the kernel's number of the interface.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Gives the interface these addresses, and takes away those that the switch gave it before and that are not among them.
    ///
    /// # Errors
    /// Returns [`NamespaceError`] with the address that the kernel refused.
    pub fn set_addresses(&mut self, wanted: &[InterfaceAddress]) -> Result<(), NamespaceError> {
        let (ifindex, name) = (self.ifindex, self.name.clone());
        let (before, after) = (self.set.clone(), wanted.to_vec());
        self.set = self
            .namespace
            .within("set the addresses of a shadow interface", move || {
                let socket = Socket::open()?;
                let present = addresses(&socket, ifindex)?;
                let refused = |doing: &str, (address, len): InterfaceAddress| {
                    let name = name.clone();
                    let doing = doing.to_owned();
                    move |error: io::Error| {
                        io::Error::new(
                            error.kind(),
                            format!("{doing} {address}/{len} of {name}: {error}"),
                        )
                    }
                };
                for address in &present {
                    let key = (address.local, address.prefix_len);
                    let is_ours = address.protocol == ADDRESS_PROTOCOL || before.contains(&key);
                    if is_ours && !after.contains(&key) {
                        let mut request = Requests::default();
                        request.remove_address(ifindex, key.0, key.1);
                        execute(&socket, &request).map_err(refused("remove the address", key))?;
                    }
                }
                let mut set = Vec::new();
                for key in after {
                    if present
                        .iter()
                        .any(|address| (address.local, address.prefix_len) == key)
                    {
                        // It stays whose it was.
                        if before.contains(&key) {
                            set.push(key);
                        }
                        continue;
                    }
                    let mut request = Requests::default();
                    request.add_address(ifindex, key.0, key.1);
                    execute(&socket, &request).map_err(refused("set the address", key))?;
                    set.push(key);
                }
                Ok(set)
            })?;
        Ok(())
    }
}

/// Returns the addresses of an interface.
fn addresses(socket: &Socket, ifindex: u32) -> io::Result<Vec<Address>> {
    let mut request = Requests::default();
    request.dump(Dump::Addresses, 1);
    socket.send(request.bytes())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; DATAGRAM_SIZE];
    loop {
        for message in answer(socket, &mut buffer)? {
            match message.content().map_err(io::Error::other)? {
                Content::Address(Change::New, address) if address.interface == ifindex => found.push(address),
                Content::Done(0) => return Ok(found),
                Content::Done(number) | Content::Error(number) => {
                    return Err(io::Error::from_raw_os_error(number));
                }
                _ => {}
            }
        }
    }
}

/// Sends one request; the kernel answers only if it refuses it.
fn execute(socket: &Socket, request: &Requests) -> io::Result<()> {
    socket.send(request.bytes())?;
    let mut buffer = [0; 1024];
    while let Received::Datagram(size) = socket.receive(&mut buffer)? {
        for message in Messages::new(buffer.get(..size).unwrap_or_default()).flatten() {
            if let Ok(Content::Error(number)) = message.content()
                && number != 0
            {
                return Err(io::Error::from_raw_os_error(number));
            }
        }
    }
    Ok(())
}

fn answer<'a>(
    socket: &Socket,
    buffer: &'a mut [u8],
) -> io::Result<impl Iterator<Item = crate::wire::Message<'a>> + use<'a>> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::from(ANSWER_MS))? == 0 {
        return Err(io::Error::from(io::ErrorKind::TimedOut));
    }
    let Received::Datagram(size) = socket.receive(buffer)? else {
        return Err(io::Error::other("the kernel's answer was lost"));
    };
    Ok(Messages::new(buffer.get(..size).unwrap_or_default()).flatten())
}
