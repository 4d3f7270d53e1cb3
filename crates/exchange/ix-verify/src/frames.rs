//! Sets of frames under way: their headers as they entered, their tags, and the fields that were set.

use millrace_flow::{Action, Field};

use crate::content::Entry;
use crate::space::{Cube, Space, Var};

/// The bit `OFPVID_PRESENT`.
const PRESENT: u16 = 0x1000;

/// A VLAN tag of a frame under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The position in the frame as it entered, 0 for the outermost tag; `None` for a tag that the exchange pushed.
    pub origin: Option<u8>,
    /// The EtherType; `None` for that of the original tag.
    pub ethertype: Option<u16>,
    /// The VID; `None` for that of the original tag.
    pub vid: Option<u16>,
    /// The priority; `None` for that of the original tag.
    pub pcp: Option<u8>,
}

impl Tag {
    pub(crate) const fn original(position: u8) -> Tag {
        Tag {
            origin: Some(position),
            ethertype: None,
            vid: None,
            pcp: None,
        }
    }
}

/// A set of frames under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frames {
    /// The frames, as they entered the exchange.
    pub space: Space,
    /// The tags that are known, the outermost last.
    pub tags: Vec<Tag>,
    /// The number of original tags that are known.
    pub seen: u8,
    /// True if there may be more original tags.
    pub more: bool,
    /// The fields that were set.
    pub set: Vec<(Field, u128)>,
}

impl Frames {
    /// Returns all frames.
    pub fn all() -> Frames {
        Frames::with_tags(0, true)
    }

    /// Returns all frames with a number of tags, or with at least as many.
    pub fn with_tags(count: u8, more: bool) -> Frames {
        Frames {
            space: Space::default(),
            tags: (0..count).rev().map(Tag::original).collect(),
            seen: count,
            more,
            set: Vec::new(),
        }
    }

    /// Returns the value that a field was set to.
    pub fn set_to(&self, field: Field) -> Option<u128> {
        let found = self.set.iter().find(|(other, _)| *other == field);
        found.map(|(_, value)| *value)
    }

    /// Returns true if it is not known whether the frames have a tag.
    pub(crate) const fn is_open(&self) -> bool {
        self.tags.is_empty() && self.more
    }

    /// Returns the frames without a further tag and those with one.
    pub(crate) fn split(self) -> [Frames; 2] {
        let mut tagged = self.clone();
        tagged.tags.push(Tag::original(self.seen));
        tagged.seen += 1;
        [Frames { more: false, ..self }, tagged]
    }

    /// Returns the conditions under which the frames match an entry, or `None` if none of them does.
    pub(crate) fn condition(&self, entry: &Entry) -> Option<Cube> {
        let mut cube = Cube::any();
        let top = self.tags.last();
        if let Some((value, mask)) = entry.vid {
            match top {
                None if value & mask == 0 => {}
                None => return None,
                Some(_) if mask & PRESENT != 0 && value & PRESENT == 0 => return None,
                Some(tag) => {
                    let (value, mask) = (value & 0xfff, mask & 0xfff);
                    match (tag.vid, tag.origin) {
                        (Some(vid), _) if (vid ^ value) & mask != 0 => return None,
                        (Some(_), _) | (None, None) => {}
                        (None, Some(at)) => {
                            if !cube.constrain(Var::Vid(at), value.into(), mask.into()) {
                                return None;
                            }
                        }
                    }
                }
            }
        }
        if let Some(wanted) = entry.pcp {
            match top?.pcp {
                Some(pcp) if pcp != wanted => return None,
                Some(_) => {}
                None => {
                    let at = top?.origin.unwrap_or_default();
                    if !cube.constrain(Var::Pcp(at), wanted.into(), 7) {
                        return None;
                    }
                }
            }
        }
        for (field, value, mask) in &entry.fields {
            match self.set_to(*field) {
                Some(is) if (is ^ value) & mask != 0 => return None,
                Some(_) => {}
                None => {
                    if !cube.constrain(Var::Field(*field), *value, *mask) {
                        return None;
                    }
                }
            }
        }
        Some(cube)
    }

    /// Returns these frames as far as they are in a space.
    pub(crate) fn in_space(&self, space: Space) -> Frames {
        Frames {
            space,
            tags: self.tags.clone(),
            set: self.set.clone(),
            ..*self
        }
    }

    pub(crate) fn apply(&mut self, action: &Action) -> Result<(), &'static str> {
        match action {
            Action::PopVlan => {
                if self.tags.pop().is_none() && self.more {
                    return Err("more tags are popped than the verifier follows");
                }
            }
            Action::PushVlan(ethertype) => {
                // The new tag has the values of the outermost one (OpenFlow 1.3.5, section 5.12.1).
                let top = self.tags.last().copied();
                let (vid, pcp) = top.map_or((Some(0), Some(0)), |tag| (tag.vid, tag.pcp));
                if top.is_some_and(|tag| tag.vid.is_none() || tag.pcp.is_none()) {
                    // The next actions set both; until then the values are those of another tag.
                    self.tags.push(Tag {
                        origin: None,
                        ethertype: Some(ethertype.0),
                        vid: Some(0),
                        pcp: Some(0),
                    });
                } else {
                    self.tags.push(Tag {
                        origin: None,
                        ethertype: Some(ethertype.0),
                        vid,
                        pcp,
                    });
                }
            }
            Action::SetField(set) => match set.field() {
                Field::VlanVid => match self.tags.last_mut() {
                    Some(tag) => tag.vid = Some(set.value() as u16 & 0xfff),
                    None if self.more => return Err("a VID is set where the verifier does not know the tag"),
                    None => {}
                },
                Field::VlanPcp => match self.tags.last_mut() {
                    Some(tag) => tag.pcp = Some(set.value() as u8),
                    None if self.more => {
                        return Err("a priority is set where the verifier does not know the tag");
                    }
                    None => {}
                },
                field => {
                    self.set.retain(|(other, _)| *other != field);
                    self.set.push((field, set.value()));
                }
            },
            Action::SetQueue(_) => {}
            _ => return Err("an action that no plan of an exchange has"),
        }
        Ok(())
    }
}
