//! TCP options of BGP listeners: MD5 signatures (RFC 2385) and GTSM (RFC 5082).
//!
//! ```text
//!   md5_key_file -> TCP_MD5SIG        one key for each address; accepted sockets inherit it
//!   gtsm         -> SO_ATTACH_FILTER  drops segments of an address with a TTL below 255, the SYN included
//! ```
//! `IP_MINTTL` has one value for all peers of a listener, and set on an accepted socket it comes after the first segments: the
//! filter tells peers apart from their first segment on.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4Ttl, Ipv6Ttl};
use nix::{setsockopt_impl, sockopt_impl};

/// The longest key of TCP MD5: TCP_MD5SIG_MAXKEYLEN.
pub(super) const KEY_LEN_MAX: usize = 80;
/// The option TCP_MD5SIG of Linux's `uapi/linux/tcp.h`.
const TCP_MD5SIG: libc::c_int = 14;
/// The TTL of segments that no router has forwarded (RFC 5082, section 3).
const TTL: u8 = 255;
/// The length of a `sockaddr_storage`.
const ADDRESS_SIZE: usize = 128;
/// The number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The key of an address: `struct tcp_md5sig`.
#[allow(
    unreachable_pub,
    reason = "the macro declares the option that has it as public"
)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Md5Key {
    address: [u8; ADDRESS_SIZE],
    flags: u8,
    prefix_len: u8,
    key_len: u16,
    interface: libc::c_int,
    key: [u8; KEY_LEN_MAX],
}

sockopt_impl!(
    /// The key of the segments from and to an address.
    Md5Signature,
    SetOnly,
    libc::IPPROTO_TCP,
    TCP_MD5SIG,
    Md5Key
);

sockopt_impl!(
    /// A classic BPF program, which drops segments.
    AttachFilter,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ATTACH_FILTER,
    libc::sock_fprog
);

/// The protection of sessions by their addresses.
#[derive(Default)]
pub(super) struct Protection {
    /// The keys of TCP MD5.
    pub(super) keys: Vec<(IpAddr, Vec<u8>)>,
    /// The addresses with GTSM.
    pub(super) gtsm: BTreeSet<IpAddr>,
}

/// Returns a listener. No connection is accepted before the options are set.
pub(super) fn listener(address: SocketAddr, protection: &Protection) -> Result<tokio::net::TcpListener> {
    let socket = if address.is_ipv4() {
        tokio::net::TcpSocket::new_v4()?
    } else {
        tokio::net::TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    let is_ipv6 = address.is_ipv6();
    // A listener of IPv4 has no peers of IPv6.
    let is_reachable = |peer: &IpAddr| is_ipv6 || peer.is_ipv4();
    for (peer, key) in protection.keys.iter().filter(|(peer, _)| is_reachable(peer)) {
        let key = md5_key(*peer, is_ipv6, key)?;
        setsockopt(&socket, Md5Signature, &key).with_context(|| {
            format!("{peer}: md5_key_file: the kernel refuses the key; it needs CONFIG_TCP_MD5SIG")
        })?;
    }
    // A peer with GTSM expects that of us, too, from the first answer on.
    setsockopt(&socket, Ipv4Ttl, &libc::c_int::from(TTL))?;
    if is_ipv6 {
        setsockopt(&socket, Ipv6Ttl, &libc::c_int::from(TTL))?;
    }
    let guarded: Vec<IpAddr> = protection.gtsm.iter().copied().filter(is_reachable).collect();
    if !guarded.is_empty() {
        attach(&socket, &guarded)?;
    }
    socket.bind(address)?;
    Ok(socket.listen(BACKLOG)?)
}

/// Returns the option for the key of an address. A listener of IPv6 has IPv4 addresses in the mapped form.
fn md5_key(peer: IpAddr, is_ipv6: bool, secret: &[u8]) -> Result<Md5Key> {
    if !(1..=KEY_LEN_MAX).contains(&secret.len()) {
        bail!(
            "{peer}: md5_key_file: the key has {} bytes: expected 1 to {KEY_LEN_MAX}",
            secret.len()
        );
    }
    let mut key = Md5Key {
        address: [0; ADDRESS_SIZE],
        flags: 0,
        prefix_len: 0,
        key_len: secret.len() as u16,
        interface: 0,
        key: [0; KEY_LEN_MAX],
    };
    key.key[..secret.len()].copy_from_slice(secret);
    let mut put = |at: usize, bytes: &[u8]| key.address[at..at + bytes.len()].copy_from_slice(bytes);
    match peer {
        // struct sockaddr_in: family, port, address.
        IpAddr::V4(address) if !is_ipv6 => {
            put(0, &(libc::AF_INET as u16).to_ne_bytes());
            put(4, &address.octets());
        }
        // struct sockaddr_in6: family, port, flow label, address.
        peer => {
            let address = match peer {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            put(0, &(libc::AF_INET6 as u16).to_ne_bytes());
            put(8, &address.octets());
        }
    }
    Ok(key)
}

/// Attaches the filter that drops segments of some addresses whose TTL is below 255.
fn attach(socket: &impl AsFd, guarded: &[IpAddr]) -> Result<()> {
    let mut program = program(guarded);
    let Ok(len) = u16::try_from(program.len()) else {
        bail!("gtsm: {} peers are too many for one filter", guarded.len());
    };
    let filter = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    setsockopt(socket, AttachFilter, &filter)
        .map_err(io::Error::from)
        .with_context(|| {
            format!(
                "gtsm of {} peers: the kernel refuses the filter of {len} instructions, of which it takes 4,096",
                guarded.len()
            )
        })
}

/// The offset at which classic BPF finds the IP header of a segment: SKF_NET_OFF.
const IP_HEADER: i32 = -0x10_0000;
/// The result that passes all bytes of a segment, and the one that drops it.
const PASS: u32 = u32::MAX;
const DROP: u32 = 0;

/// Returns the program. `jeq` skips as many instructions as its last argument says unless the values are equal.
fn program(guarded: &[IpAddr]) -> Vec<libc::sock_filter> {
    let step = |code: u32, k: u32, skipped: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skipped,
        k,
    };
    let load = |size: u32, offset: i32| {
        step(
            libc::BPF_LD | size | libc::BPF_ABS,
            (IP_HEADER + offset).cast_unsigned(),
            0,
        )
    };
    let jeq = |value: u32, skipped: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, skipped);
    let ret = |result: u32| step(libc::BPF_RET | libc::BPF_K, result, 0);
    let v4: Vec<Ipv4Addr> = guarded
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        })
        .collect();
    // IPv4: TTL, then the source.
    let mut ipv4 = vec![
        load(libc::BPF_B, 8),
        jeq(u32::from(TTL), 1),
        ret(PASS),
        load(libc::BPF_W, 12),
    ];
    for address in v4 {
        ipv4.extend([jeq(address.to_bits(), 1), ret(DROP)]);
    }
    ipv4.push(ret(PASS));
    // IPv6: hop limit, then the four words of the source.
    let mut ipv6 = vec![load(libc::BPF_B, 7), jeq(u32::from(TTL), 1), ret(PASS)];
    for address in guarded {
        let IpAddr::V6(address) = address else { continue };
        let bits = address.to_bits();
        for word in 0..4_u8 {
            ipv6.push(load(libc::BPF_W, 8 + 4 * i32::from(word)));
            // The rest of the words, and the drop, are two instructions each but the last.
            ipv6.push(jeq((bits >> (96 - 32 * u32::from(word))) as u32, 7 - 2 * word));
        }
        ipv6.push(ret(DROP));
    }
    ipv6.push(ret(PASS));
    let mut all = vec![
        load(libc::BPF_B, 0),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf0, 0),
        jeq(0x40, 1),
        step(libc::BPF_JMP | libc::BPF_JA, ipv6.len() as u32, 0),
    ];
    all.extend(ipv6);
    all.extend(ipv4);
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use super::*;

    /// Runs the program on an IP header, as the kernel does.
    fn passes(program: &[libc::sock_filter], header: &[u8]) -> bool {
        let (mut at, mut value) = (0_usize, 0_u32);
        loop {
            let step = program[at];
            let code = u32::from(step.code);
            at += 1;
            let offset = step.k.wrapping_sub(IP_HEADER.cast_unsigned()) as usize;
            if code == libc::BPF_LD | libc::BPF_B | libc::BPF_ABS {
                value = header[offset].into();
            } else if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                value = u32::from_be_bytes(header[offset..offset + 4].try_into().unwrap());
            } else if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K {
                value &= step.k;
            } else if code == libc::BPF_JMP | libc::BPF_JA {
                at += step.k as usize;
            } else if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K {
                at += usize::from(if value == step.k { step.jt } else { step.jf });
            } else if code == libc::BPF_RET | libc::BPF_K {
                return step.k != DROP;
            } else {
                panic!("instruction {code:#x}");
            }
        }
    }

    fn header(source: IpAddr, ttl: u8) -> Vec<u8> {
        match source {
            IpAddr::V4(source) => {
                let mut header = vec![0; 20];
                (header[0], header[8]) = (0x45, ttl);
                header[12..16].copy_from_slice(&source.octets());
                header
            }
            IpAddr::V6(source) => {
                let mut header = vec![0; 40];
                (header[0], header[7]) = (0x60, ttl);
                header[8..24].copy_from_slice(&source.octets());
                header
            }
        }
    }

    #[test]
    fn segments_that_a_router_has_forwarded_are_dropped_for_the_addresses_with_gtsm_only() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let guarded = ["192.0.2.1", "2001:db8::1", "192.0.2.7", "2001:db8:0:1::1"].map(address);
        let program = program(&guarded);
        for source in [
            "192.0.2.1",
            "192.0.2.7",
            "192.0.2.2",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8:0:1::1",
            "2001:db9::1",
        ] {
            let source = address(source);
            assert!(passes(&program, &header(source, 255)), "{source}");
            assert_eq!(
                passes(&program, &header(source, 254)),
                !guarded.contains(&source),
                "{source}"
            );
        }
    }

    #[test]
    fn a_key_is_of_the_form_that_the_kernel_reads_and_has_1_to_80_bytes() {
        assert_eq!(size_of::<Md5Key>(), 216, "struct tcp_md5sig");
        let peer = IpAddr::from([192, 0, 2, 1]);
        let key = md5_key(peer, false, b"secret").unwrap();
        assert_eq!(key.address[..8], [2, 0, 0, 0, 192, 0, 2, 1]);
        let mapped = md5_key(peer, true, b"secret").unwrap();
        assert_eq!(mapped.address[18..24], [255, 255, 192, 0, 2, 1]);
        for len in [0, 81] {
            let error = md5_key(peer, false, &vec![1; len]).err().unwrap();
            assert!(error.to_string().contains("expected 1 to 80"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_kernel_takes_keys_and_filters_of_both_families() {
        let peers = [
            IpAddr::from([127, 0, 0, 9]),
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 9]),
        ];
        let protection = Protection {
            keys: peers.map(|peer| (peer, b"secret".to_vec())).into(),
            gtsm: peers.into(),
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            listener(address.parse().unwrap(), &protection).unwrap();
        }
    }
}
