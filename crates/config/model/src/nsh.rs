//! Logical ports of service function paths (RFC 8300): the path of received packets, and the header of sent
//! packets.
//!
//! `nsh:remote=02:00:00:00:00:02,underlay=p1,out=42/255,in=43/254`: one line of text, as for other devices.

use std::fmt;

use millrace_types::{Mac, ServicePath};

use crate::name::PortName;
use crate::node::shorten;

/// The service path of packets at a port: a fixed one, or any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NshPath {
    /// A fixed path identifier and index.
    Fixed(ServicePath),
    /// Any path; path identifier, index and time to live are in `tunnel_id`.
    Flow,
}

/// A logical port of service paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nsh {
    remote: Mac,
    underlay: PortName,
    takes: Option<NshPath>,
    sends: Option<NshPath>,
    ttl: u8,
    context: Option<[u8; 16]>,
}

/// The default and maximum time to live (RFC 8300, section 2.2).
const TTL: u8 = 63;

const KEYS: &str = "expected nsh:remote=MAC,underlay=PORT, in=PATH/INDEX or in=flow, out=PATH/INDEX or out=flow, and ttl=1..63, \
                    context=32 hexadecimal digits";

impl Nsh {
    /// Returns the MAC address of the other switch on the link of the underlay.
    pub fn remote(&self) -> Mac {
        self.remote
    }

    /// Returns the port of the same bridge that carries the packets.
    pub fn underlay(&self) -> &PortName {
        &self.underlay
    }

    /// Returns the path of the packets that the port receives; `None` if it receives none.
    pub fn takes(&self) -> Option<NshPath> {
        self.takes
    }

    /// Returns the path in the header of sent packets; `None` if the port sends none.
    pub fn sends(&self) -> Option<NshPath> {
        self.sends
    }

    /// Returns the time to live of sent packets, unless `tunnel_id` contains one: 1 to 63.
    pub fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Returns the fixed-length context header (MD type 1); `None` for no metadata.
    pub fn context(&self) -> Option<[u8; 16]> {
        self.context
    }

    /// Parses the text after the kind and its colon.
    pub(crate) fn parse(text: &str) -> Result<Nsh, String> {
        let (mut remote, mut underlay, mut takes, mut sends) = (None, None, None, None);
        let (mut ttl, mut context) = (None, None);
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{}` is not key=value; {KEYS}", shorten(part)))?;
            let wrong = |expected: &str| format!("`{name}={}`: expected {expected}", shorten(value));
            let service_path = || match value {
                "flow" => Ok(NshPath::Flow),
                text => text.parse().map(NshPath::Fixed).map_err(|_| {
                    wrong("PATH/INDEX with PATH from 0 to 16777215 and INDEX from 1 to 255, or flow")
                }),
            };
            let repeated = match name {
                "remote" => {
                    let address: Mac = value.parse().map_err(|_| wrong("a MAC address"))?;
                    remote.replace(address).is_some()
                }
                "underlay" => {
                    let port = value.parse::<PortName>().map_err(|error| error.to_string())?;
                    underlay.replace(port).is_some()
                }
                "in" => takes.replace(service_path()?).is_some(),
                "out" => sends.replace(service_path()?).is_some(),
                "ttl" => {
                    let number = value.parse().ok().filter(|ttl| (1..=TTL).contains(ttl));
                    ttl.replace(number.ok_or_else(|| wrong("1 to 63"))?).is_some()
                }
                "context" => {
                    let bytes = hex(value).ok_or_else(|| wrong("32 hexadecimal digits"))?;
                    context.replace(bytes).is_some()
                }
                _ => return Err(format!("`{}` is not known here; {KEYS}", shorten(part))),
            };
            if repeated {
                return Err(format!("`{name}` is given twice; {KEYS}"));
            }
        }
        let missing = |name: &str| format!("`{name}` is missing; {KEYS}");
        if takes.is_none() && sends.is_none() {
            return Err(format!(
                "neither `in` nor `out`: no packet would be received or sent; {KEYS}"
            ));
        }
        Ok(Nsh {
            remote: remote.ok_or_else(|| missing("remote"))?,
            underlay: underlay.ok_or_else(|| missing("underlay"))?,
            takes,
            sends,
            ttl: ttl.unwrap_or(TTL),
            context,
        })
    }
}

fn hex(text: &str) -> Option<[u8; 16]> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

impl fmt::Display for NshPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NshPath::Fixed(path) => write!(f, "{path}"),
            NshPath::Flow => f.write_str("flow"),
        }
    }
}

impl fmt::Display for Nsh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nsh:remote={},underlay={}", self.remote, self.underlay)?;
        if let Some(takes) = self.takes {
            write!(f, ",in={takes}")?;
        }
        if let Some(sends) = self.sends {
            write!(f, ",out={sends}")?;
        }
        if self.ttl != TTL {
            write!(f, ",ttl={}", self.ttl)?;
        }
        if let Some(context) = self.context {
            write!(f, ",context={:032x}", u128::from_be_bytes(context))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::device::Device;

    const BASE: &str = "nsh:remote=02:00:00:00:00:02,underlay=p1";

    #[test]
    fn service_path_ports_print_as_they_were_written() {
        for more in [
            "in=42/255,out=42/254",
            "in=flow,out=flow,ttl=9",
            "out=16777215/1,context=000102030405060708090a0b0c0d0e0f",
        ] {
            let text = format!("{BASE},{more}");
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_service_path_is_refused_with_what_was_expected() {
        for more in [
            "",
            ",ttl=3",
            ",in=42",
            ",in=42/0",
            ",in=16777216/1",
            ",in=1/1,in=1/2",
            ",out=1/1,ttl=0",
            ",out=1/1,ttl=64",
            ",out=1/1,context=00",
            ",out=1/1,context=+0102030405060708090a0b0c0d0e0f0",
            ",out=1/1,color=red",
        ] {
            let error = format!("{BASE}{more}").parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{more}: {error}");
        }
        for text in [
            "nsh:out=1/1,underlay=p1",
            "nsh:out=1/1,remote=02:00:00:00:00:02",
            "nsh:out=1/1,remote=x",
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
