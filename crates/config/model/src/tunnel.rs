//! Tunnels as logical ports: the encapsulation, and the underlay port that carries the packets.
//!
//! `vxlan:remote=192.0.2.2,local=192.0.2.1,key=42,underlay=p1`: one line of text, as for other devices. With
//! `underlay=vrf:blue` the routes of the VRF `blue` carry the packets, and with `underlay=host` those of the machine itself.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use millrace_types::TunnelKind;

use crate::name::{HOST, NameError, PortName, VrfName};
use crate::node::shorten;

/// The tunnel key of the packets that belong to a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TunnelKey {
    /// Packets without a key: `gre` without key, and `mplsudp`, which has no key field.
    None,
    /// Packets with this key: a VXLAN network identifier (24 bits), a GRE key or a GTP-U tunnel endpoint identifier
    /// (32 bits).
    Fixed(u32),
    /// Packets with any key. Received packets have the key as `tunnel_id`; sent packets have the `tunnel_id` of the
    /// packet as key.
    Flow,
}

/// The carrier of the packets of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Underlay {
    /// A port of the same bridge.
    Port(PortName),
    /// The routes of a VRF.
    Vrf(VrfName),
    /// The routes that the kernel has in the namespace of the switch, over the ports of bridges with a tap device.
    Host,
}

impl FromStr for Underlay {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Underlay, NameError> {
        match text.strip_prefix("vrf:") {
            Some(vrf) => vrf.parse().map(Underlay::Vrf),
            None if text == HOST => Ok(Underlay::Host),
            None => text.parse().map(Underlay::Port),
        }
    }
}

impl fmt::Display for Underlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Underlay::Port(port) => write!(f, "{port}"),
            Underlay::Vrf(vrf) => write!(f, "vrf:{vrf}"),
            Underlay::Host => f.write_str(HOST),
        }
    }
}

/// The configuration of a tunnel port: the encapsulation, its two ends, and the underlay.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tunnel {
    kind: TunnelKind,
    remote: IpAddr,
    /// None only with [`Underlay::Host`].
    local: Option<IpAddr>,
    underlay: Underlay,
    key: TunnelKey,
    gateway: Option<IpAddr>,
    udp_port: Option<u16>,
    ttl: u8,
    dscp: Option<u8>,
    checksum: bool,
}

/// Default time to live of the outer header, the value that RFC 1700 recommends.
const TTL: u8 = 64;

const KEYS: &str = "expected KIND:remote=IP,local=IP,underlay=PORT, underlay=vrf:NAME or underlay=host, and key=NUMBER or \
                    key=flow, gateway=IP, port=UDP-PORT, ttl=1..255, dscp=0..63 or dscp=inherit, csum=true";

impl Tunnel {
    /// Returns the encapsulation.
    pub fn kind(&self) -> TunnelKind {
        self.kind
    }

    /// Returns the IP address of the remote endpoint.
    pub fn remote(&self) -> IpAddr {
        self.remote
    }

    /// Returns the IP address of the local endpoint, of the same family as the remote one. `None`, which needs
    /// [`Underlay::Host`], is the address that the kernel uses by the route to the remote one.
    pub fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Returns what carries the encapsulated packets.
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Returns the key of the packets that belong to the tunnel.
    pub fn key(&self) -> TunnelKey {
        self.key
    }

    /// Returns the address that is resolved to a MAC address: the gateway, or else the remote endpoint.
    pub fn next_hop(&self) -> IpAddr {
        self.gateway.unwrap_or(self.remote)
    }

    /// Returns the UDP destination port; 0 for GRE.
    pub fn udp_port(&self) -> u16 {
        self.udp_port.or(self.kind.udp_port()).unwrap_or(0)
    }

    /// Returns what tells the tunnel from others over one underlay: two that agree in it would receive the same packets.
    pub(crate) fn end(&self) -> (TunnelKind, u16, Option<IpAddr>, IpAddr, TunnelKey) {
        (self.kind, self.udp_port(), self.local, self.remote, self.key)
    }

    /// Returns the time to live of the outer header.
    pub fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Returns the DSCP of the outer header; `None` copies it from the inner header.
    pub fn dscp(&self) -> Option<u8> {
        self.dscp
    }

    /// Returns true if packets carry a checksum over the whole packet.
    pub fn checksum(&self) -> bool {
        self.checksum
    }

    /// Parses the text after the kind and its colon.
    pub(crate) fn parse(kind: TunnelKind, text: &str) -> Result<Tunnel, String> {
        let (mut remote, mut local, mut underlay, mut key, mut gateway) = (None, None, None, None, None);
        let (mut udp_port, mut ttl, mut dscp, mut checksum) = (None, None, None, None);
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{}` is not key=value; {KEYS}", shorten(part)))?;
            let wrong = |expected: &str| format!("`{name}={}`: expected {expected}", shorten(value));
            let address = || value.parse::<IpAddr>().map_err(|_| wrong("an IP address"));
            let repeated = match name {
                "remote" => remote.replace(address()?).is_some(),
                "local" => local.replace(address()?).is_some(),
                "gateway" => gateway.replace(address()?).is_some(),
                "underlay" => {
                    let named = value.parse::<Underlay>().map_err(|error| error.to_string())?;
                    underlay.replace(named).is_some()
                }
                "key" => key
                    .replace(parse_key(kind, value).map_err(|expected| wrong(&expected))?)
                    .is_some(),
                "port" if kind.udp_port().is_some() => {
                    let port = value.parse().ok().filter(|port| *port != 0);
                    udp_port
                        .replace(port.ok_or_else(|| wrong("1 to 65535"))?)
                        .is_some()
                }
                "ttl" => {
                    let number = value.parse().ok().filter(|ttl| *ttl != 0);
                    ttl.replace(number.ok_or_else(|| wrong("1 to 255"))?).is_some()
                }
                "dscp" => {
                    let number = value.parse::<u8>().ok().filter(|dscp| *dscp < 64);
                    let class = if value == "inherit" { None } else { number };
                    if class.is_none() && value != "inherit" {
                        return Err(wrong("0 to 63, or inherit"));
                    }
                    dscp.replace(class).is_some()
                }
                "csum" => checksum
                    .replace(value.parse::<bool>().map_err(|_| wrong("true or false"))?)
                    .is_some(),
                _ => return Err(format!("`{}` is not known here; {KEYS}", shorten(part))),
            };
            if repeated {
                return Err(format!("`{name}` is given twice; {KEYS}"));
            }
        }
        let missing = |name: &str| format!("`{name}` is missing; {KEYS}");
        let remote = remote.ok_or_else(|| missing("remote"))?;
        if local.is_none() && underlay != Some(Underlay::Host) {
            return Err(missing("local"));
        }
        let underlay = underlay.ok_or_else(|| missing("underlay"))?;
        let given = [("remote", Some(remote)), ("local", local), ("gateway", gateway)];
        for (name, address) in given
            .into_iter()
            .filter_map(|(name, address)| Some((name, address?)))
        {
            if address.is_unspecified() || address.is_multicast() {
                return Err(format!("`{name}={address}`: expected a unicast address"));
            }
            let (of, first) = local.map_or(("remote", remote), |local| ("local", local));
            if address.is_ipv4() != first.is_ipv4() {
                return Err(format!(
                    "`{name}={address}`: expected an address of the family of {of}={first}"
                ));
            }
        }
        let routes_of = match &underlay {
            Underlay::Port(_) => None,
            Underlay::Vrf(_) => Some("the VRF"),
            Underlay::Host => Some("the machine"),
        };
        if let (Some(of), Some(gateway)) = (routes_of, gateway) {
            return Err(format!(
                "`gateway={gateway}` with `underlay={underlay}`: expected no gateway, because the routes of {of} say it"
            ));
        }
        if Some(remote) == local {
            return Err(format!(
                "`remote={remote}` is `local`: expected the address of another machine"
            ));
        }
        Ok(Tunnel {
            kind,
            remote,
            local,
            underlay,
            key: key.unwrap_or(default_key(kind)),
            gateway,
            udp_port,
            ttl: ttl.unwrap_or(TTL),
            dscp: dscp.unwrap_or(Some(0)),
            checksum: checksum.unwrap_or(false),
        })
    }
}

fn default_key(kind: TunnelKind) -> TunnelKey {
    match kind {
        TunnelKind::Gre | TunnelKind::MplsUdp => TunnelKey::None,
        TunnelKind::Vxlan | TunnelKind::GtpU => TunnelKey::Fixed(0),
    }
}

fn parse_key(kind: TunnelKind, text: &str) -> Result<TunnelKey, String> {
    let max = match kind {
        TunnelKind::MplsUdp => return Err("no key: MPLS labels identify the traffic".to_owned()),
        kind => kind.key_max(),
    };
    if text == "flow" {
        return Ok(TunnelKey::Flow);
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = number.ok().filter(|key| *key <= max);
    number
        .map(TunnelKey::Fixed)
        .ok_or_else(|| format!("0 to {max}, or flow"))
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tunnel {
            kind,
            remote,
            local,
            underlay,
            ..
        } = self;
        write!(f, "{kind}:remote={remote}")?;
        if let Some(local) = local {
            write!(f, ",local={local}")?;
        }
        write!(f, ",underlay={underlay}")?;
        match self.key {
            key if key == default_key(self.kind) => {}
            TunnelKey::Fixed(key) => write!(f, ",key={key}")?,
            TunnelKey::Flow => f.write_str(",key=flow")?,
            TunnelKey::None => {}
        }
        if let Some(gateway) = self.gateway {
            write!(f, ",gateway={gateway}")?;
        }
        if let Some(port) = self.udp_port {
            write!(f, ",port={port}")?;
        }
        if self.ttl != TTL {
            write!(f, ",ttl={}", self.ttl)?;
        }
        match self.dscp {
            None => f.write_str(",dscp=inherit")?,
            Some(0) => {}
            Some(dscp) => write!(f, ",dscp={dscp}")?,
        }
        if self.checksum {
            f.write_str(",csum=true")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::device::Device;

    #[test]
    fn tunnels_print_as_they_were_written() {
        for text in [
            "vxlan:remote=192.0.2.2,local=192.0.2.1,underlay=p1",
            "vxlan:remote=fd00::2,local=fd00::1,underlay=p1,key=42,gateway=fd00::3,port=8472,ttl=9,dscp=inherit,csum=true",
            "gre:remote=192.0.2.2,local=192.0.2.1,underlay=p1,key=flow",
            "gtpu:remote=192.0.2.2,local=192.0.2.1,underlay=p1,key=4294967295,dscp=46",
            "mplsudp:remote=192.0.2.2,local=192.0.2.1,underlay=p1",
            "vxlan:remote=192.0.2.2,local=192.0.2.1,underlay=vrf:blue,key=42",
            "vxlan:remote=192.0.2.2,local=192.0.2.1,underlay=host",
            "gre:remote=fd00::2,underlay=host,key=7",
        ] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_tunnel_is_refused_with_what_was_expected() {
        let base = "remote=192.0.2.2,local=192.0.2.1,underlay=p1";
        for text in [
            "vxlan:".to_owned(),
            "vxlan:remote=192.0.2.2".to_owned(),
            "vxlan:remote=192.0.2.2,local=192.0.2.1".to_owned(),
            "vxlan:remote=192.0.2.2,local=fd00::1,underlay=p1".to_owned(),
            "vxlan:remote=192.0.2.1,local=192.0.2.1,underlay=p1".to_owned(),
            "vxlan:remote=224.0.0.1,local=192.0.2.1,underlay=p1".to_owned(),
            "vxlan:remote=host,local=192.0.2.1,underlay=p1".to_owned(),
            format!("vxlan:{base},key=16777216"),
            format!("vxlan:{base},key=1,key=2"),
            format!("vxlan:{base},ttl=0"),
            format!("vxlan:{base},dscp=64"),
            format!("vxlan:{base},csum=yes"),
            format!("vxlan:{base},color=red"),
            format!("gre:{base},port=4"),
            "gre:remote=192.0.2.2,local=192.0.2.1,underlay=vrf:".to_owned(),
            "gre:remote=192.0.2.2,local=192.0.2.1,underlay=vrf:blue,gateway=192.0.2.3".to_owned(),
            "gre:remote=192.0.2.2,underlay=vrf:blue".to_owned(),
            "gre:remote=192.0.2.2,underlay=p1".to_owned(),
            "gre:remote=192.0.2.2,underlay=host,gateway=192.0.2.3".to_owned(),
            "gre:remote=192.0.2.2,local=fd00::1,underlay=host".to_owned(),
            "gre:remote=224.0.0.1,underlay=host".to_owned(),
            format!("mplsudp:{base},key=1"),
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
