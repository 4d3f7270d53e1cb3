//! The ends of an emulated path.

use crate::name::WanName;

/// One end of an emulated path. Frames that are sent to the port at end a leave the path at end b, through the
/// direction `a_to_b`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WanEnd {
    /// The name of the path.
    pub name: WanName,
    /// True for end b.
    pub is_b: bool,
}

/// Parses `NAME,a` or `NAME,b`.
pub(super) fn parse(text: &str) -> Result<WanEnd, String> {
    let expected = || "expected wan:NAME,a or wan:NAME,b: one port at each end of the path `[[wan]]` NAME";
    let (name, end) = text.split_once(',').ok_or_else(expected)?;
    let is_b = match end {
        "a" => false,
        "b" => true,
        _ => return Err(expected().to_owned()),
    };
    let name = name.parse::<WanName>().map_err(|error| error.to_string())?;
    Ok(WanEnd { name, is_b })
}
