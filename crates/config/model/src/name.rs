//! Names and short texts for OpenFlow fields of fixed size, command lines and paths.

use std::fmt;
use std::str::FromStr;

use millrace_types::{Dpid, Mac, PortNo};
use thiserror::Error;

use crate::decode::{Decoder, Detail, Field, decode_text, text_field};
use crate::node::{Node, shorten};
use crate::schema::Shape;

/// The length limit of a name, in bytes: `OFP_MAX_PORT_NAME_LEN` without its NUL (OpenFlow 1.3.5, section 7.2.1).
const NAME_MAX: usize = 15;

/// The error for a text that cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a valid {what}: {reason}", shorten(.text))]
pub struct NameError {
    /// The kind of name expected: "bridge name".
    pub what: &'static str,
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: &'static str,
}

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    let refuse = |reason| {
        Err(NameError {
            what,
            text: text.to_owned(),
            reason,
        })
    };
    if text.is_empty() || text.len() > NAME_MAX {
        return refuse("expected 1 to 15 characters");
    }
    if !text
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
    {
        return refuse("expected only letters, digits, `_`, `-` and `.`");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return refuse("expected a letter, a digit or `_` first");
    }
    if text.parse::<PortNo>().is_ok() || text.bytes().all(|c| c.is_ascii_digit()) {
        return refuse("it reads as a port number or a reserved port; expected a name of its own");
    }
    Ok(())
}

macro_rules! name {
    ($( $(#[doc = $doc:literal])+ $Name:ident, $what:literal, $example:literal; )*) => {$(
        $(#[doc = $doc])+
        ///
        /// 1 to 15 ASCII letters, digits, `_`, `-` and `.`, the first a letter, a digit or `_`; neither a
        /// number nor the name of a reserved port.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name(String);

        impl $Name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $Name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<$Name, NameError> {
                check($what, text).map(|()| $Name(text.to_owned()))
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $Name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        text_field!($Name, "1 to 15 letters, digits, `_`, `-` and `.`", $example);
    )*};
}

name! {
    /// The name of a bridge, unique in the switch; also the name of its LOCAL port.
    BridgeName, "bridge name", "br0";
    /// The name of a port, unique in its bridge.
    PortName, "port name", "p1";
    /// The name of a chain of network functions.
    ChainName, "chain name", "edge";
    /// The name of a hop of a chain, or of a function.
    HopName, "hop name", "firewall";
    /// The name of a link between two ports of this switch.
    LinkName, "link name", "patch0";
    /// The name of a LAG, unique in its bridge.
    LagName, "LAG name", "uplink";
    /// The name of a mirror, unique in its bridge.
    MirrorName, "mirror name", "span";
    /// The name of an emulated path, unique in the switch.
    WanName, "path name", "geo";
    /// The name of an interface of the kernel, unique in its network namespace.
    InterfaceName, "interface name", "tap0";
    /// The name of a VRF, unique in the switch.
    VrfName, "VRF name", "blue";
    /// The name of an access list, unique in the switch.
    AclName, "access list name", "edge-in";
}

impl From<&BridgeName> for PortName {
    /// Returns the name of the bridge as the name of its LOCAL port.
    fn from(bridge: &BridgeName) -> PortName {
        PortName(bridge.0.clone())
    }
}

/// The text of the underlay that is the machine itself. No port with this name can be an underlay.
pub(crate) const HOST: &str = "host";

impl VrfName {
    /// Returns the name of the VRF with the routes of the machine itself ([`Underlay::Host`](crate::Underlay::Host)).
    pub(crate) fn host() -> VrfName {
        VrfName(HOST.to_owned())
    }
}

impl From<&BridgeName> for InterfaceName {
    /// Returns the name of the bridge as the interface of its LOCAL port.
    fn from(bridge: &BridgeName) -> InterfaceName {
        InterfaceName(bridge.0.clone())
    }
}

/// Returns the FNV-1a hash of bytes, which is the same on every machine and in every release.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns a locally administered MAC address that is derived from a name.
pub(crate) fn derived_mac(name: impl Iterator<Item = u8>) -> Mac {
    let hash = fnv1a(name);
    let [.., a, b, c, d, e] = (hash ^ (hash >> 40)).to_be_bytes();
    Mac([0x02, a, b, c, d, e])
}

impl BridgeName {
    /// Returns the datapath id of a bridge without a configured one: a locally administered address (an FNV-1a hash of
    /// the name) in the low 48 bits, zero above, as in OpenFlow 1.3.5, section 7.3.1. Equal names give equal ids on
    /// every machine.
    pub fn derived_dpid(&self) -> Dpid {
        let hash = fnv1a(self.0.bytes());
        Dpid((hash ^ (hash >> 40)) & 0x00ff_ffff_ffff | 0x0200_0000_0000)
    }
}

/// The name of a network namespace: the name of its file in `/run/netns`, which `ip netns` creates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(String);

impl NamespaceName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamespaceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<NamespaceName, NameError> {
        let is_file = !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']);
        if is_file && text.len() <= 255 && !text.chars().any(char::is_control) {
            return Ok(NamespaceName(text.to_owned()));
        }
        Err(NameError {
            what: "name of a network namespace",
            text: text.to_owned(),
            reason: "expected the name of a file in /run/netns, of 1 to 255 bytes",
        })
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_field!(NamespaceName, "the name of a network namespace", "blue");

/// The error for a text that does not fit its OpenFlow field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the text of {size} bytes does not fit: expected at most {max} bytes without control characters")]
pub struct DescriptionError {
    /// The size of the text, in bytes.
    pub size: usize,
    /// The size of the field without its NUL, in bytes.
    pub max: usize,
}

/// Text of at most `MAX` bytes of UTF-8 without control characters: one field of `OFPMP_DESC`
/// (OpenFlow 1.3.5, section 7.3.5.1), whose last byte is NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DescriptionText<const MAX: usize>(String);

impl<const MAX: usize> DescriptionText<MAX> {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a text known at compile time, truncated to `MAX` bytes.
    pub(crate) fn fixed(text: &'static str) -> Self {
        DescriptionText(text.get(..MAX).unwrap_or(text).to_owned())
    }
}

impl<const MAX: usize> FromStr for DescriptionText<MAX> {
    type Err = DescriptionError;

    fn from_str(text: &str) -> Result<Self, DescriptionError> {
        if text.len() > MAX || text.chars().any(char::is_control) {
            Err(DescriptionError {
                size: text.len(),
                max: MAX,
            })
        } else {
            Ok(DescriptionText(text.to_owned()))
        }
    }
}

impl<const MAX: usize> fmt::Display for DescriptionText<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_field!(DescriptionText<255>, "text of at most 255 bytes", "Rack 4, lab 2");
text_field!(
    DescriptionText<32>,
    "a group of this machine, by name or number",
    "millrace-mgmt"
);
text_field!(DescriptionText<22>, "text of at most 22 bytes", "ovs");
text_field!(DescriptionText<31>, "text of at most 31 bytes", "any text");

/// The name of this release in `OFPMP_DESC`.
const RELEASE: &str = concat!("Millrace ", env!("CARGO_PKG_VERSION"));

/// The description of the software. A configuration never contains a release of Millrace, because an upgrade
/// would then change the configuration. Earlier versions stored their release; such a text is read as
/// [`SoftwareText::Release`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum SoftwareText {
    /// The running release.
    #[default]
    Release,
    /// A configured text.
    Text(DescriptionText<255>),
}

impl SoftwareText {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match self {
            SoftwareText::Release => RELEASE,
            SoftwareText::Text(text) => text.as_str(),
        }
    }
}

impl FromStr for SoftwareText {
    type Err = DescriptionError;

    fn from_str(text: &str) -> Result<Self, DescriptionError> {
        if text.strip_prefix("Millrace ").is_some_and(is_version) {
            Ok(SoftwareText::Release)
        } else {
            text.parse().map(SoftwareText::Text)
        }
    }
}

impl fmt::Display for SoftwareText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Field for SoftwareText {
    fn shape() -> Shape {
        DescriptionText::<255>::shape()
    }

    fn decode(decoder: &mut Decoder, node: &Node) -> Option<SoftwareText> {
        decode_text(decoder, node, &Self::shape(), str::parse::<SoftwareText>)
    }

    fn encode(&self, detail: Detail) -> Option<Node> {
        match self {
            SoftwareText::Release => None,
            SoftwareText::Text(text) => text.encode(detail),
        }
    }
}

/// Returns true for a version `MAJOR.MINOR.PATCH`.
fn is_version(text: &str) -> bool {
    let mut parts = text.split('.');
    let numbers = parts
        .by_ref()
        .take(3)
        .filter(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()));
    numbers.count() == 3 && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_flow_syntax_would_misread_are_refused() {
        for text in [
            "",
            "a name",
            "LOCAL",
            "in_port",
            "12",
            "0x10",
            "-p",
            "p/1",
            "sixteen_letters_",
            "é",
        ] {
            let error = text.parse::<PortName>().unwrap_err();
            assert!(error.to_string().contains("expected"), "{error}");
        }
        for text in ["p1", "eth0.100", "veth-a_b", "1p", "fifteen_letters"] {
            assert_eq!(text.parse::<PortName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn the_name_of_any_release_is_no_text_of_its_own() {
        for text in ["Millrace 0.0.9", "Millrace 12.3.40", RELEASE] {
            assert_eq!(text.parse(), Ok(SoftwareText::Release), "{text}");
        }
        for text in [
            "",
            "7.1",
            "Millrace",
            "Millrace 1.2",
            "Millrace 1.2.3.4",
            "Millrace 1..3",
            "Millrace 1.2.3 lab",
        ] {
            assert_eq!(text.parse::<SoftwareText>().unwrap().as_str(), text);
        }
        assert_eq!(SoftwareText::Release.encode(Detail::Full), None);
        assert_eq!(SoftwareText::Release.as_str(), RELEASE);
    }

    #[test]
    fn a_derived_dpid_is_stable_local_and_differs_by_name() {
        let name = |text: &str| text.parse::<BridgeName>().unwrap().derived_dpid();
        assert_eq!(name("br0"), name("br0"));
        assert_ne!(name("br0"), name("br1"));
        assert_eq!(name("br0").0 >> 40 & 0xff02, 0x02);
    }
}
