//! The configuration of a direction: a path for each class of frames.

use serde::{Deserialize, Serialize};

use super::{ConfigError, PathConfig};
use crate::text::{ByteSize, words};

/// One direction of an emulated path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct DirectionConfig {
    /// The path of frames that match no class.
    pub path: PathConfig,
    /// Classes with paths of their own. A frame belongs to the first class that matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class: Vec<ClassConfig>,
    /// Frames that pass at once and unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypass: Vec<Bypass>,
    /// Memory for frames in flight. If unset, it is rate × (longest delay + queue) × 1.4. The factor is up to
    /// 2 with framings that count fewer bytes than Ethernet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
}

/// Frames with a path of their own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ClassConfig {
    /// The name in statistics.
    pub name: String,
    /// The match. Its syntax is not defined in this crate: the caller classifies each frame that it offers.
    #[serde(rename = "match")]
    pub filter: String,
    pub path: PathConfig,
}

/// Frames that pass at once and unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bypass {
    /// ARP, and neighbour discovery (RFC 4861).
    ArpNd,
    /// Frames to a multicast or broadcast address.
    Multicast,
}

words!(Bypass, "a set of frames that may bypass", "arp-nd" => ArpNd, "multicast" => Multicast);

impl DirectionConfig {
    /// The maximum number of classes.
    pub const MAX_CLASSES: usize = 63;

    /// Checks each path.
    ///
    /// # Errors
    /// [`ConfigError`] with the first problem. Its key begins with `class.NAME.` for the path of a class.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.path.validate()?;
        if self.class.len() > DirectionConfig::MAX_CLASSES {
            let (len, most) = (self.class.len(), DirectionConfig::MAX_CLASSES);
            return Err(ConfigError::new(
                "class",
                format!("there are {len}; expected {most} at most"),
            ));
        }
        for (at, class) in self.class.iter().enumerate() {
            let in_class = |error: ConfigError| {
                ConfigError::new(&format!("class.{}.{}", class.name, error.key), error.problem)
            };
            class.path.validate().map_err(in_class)?;
            if self.class[..at].iter().any(|other| other.name == class.name) {
                let problem = format!(
                    "the name `{}` is there already; expected one class of a name",
                    class.name
                );
                return Err(ConfigError::new("class", problem));
            }
        }
        Ok(())
    }

    /// Returns the paths: the default path, then those of the classes.
    pub fn paths(&self) -> impl Iterator<Item = &PathConfig> {
        std::iter::once(&self.path).chain(self.class.iter().map(|class| &class.path))
    }
}

/// One of the two directions. Each draws its own random numbers from the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectionId {
    /// Frames go from the first end to the second.
    Forward,
    /// Frames go from the second end to the first.
    Backward,
}

words!(DirectionId, "a direction", "forward" => Forward, "backward" => Backward);
