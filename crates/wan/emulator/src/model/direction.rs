//! A direction: one path for each class of frames, and frames that bypass all paths.

use millrace_types::Time;
use millrace_wire::{Depth, EtherType, L4, Layers};

use super::outcome::{Outcome, Outcomes, Release};
use super::path::{Path, PathModel};
use crate::config::{Bypass, ConfigError, DirectionConfig, DirectionId};
use crate::random::Seed;
use crate::sources::Sources;

/// The compiled configuration of a direction.
#[derive(Debug, Clone)]
pub struct DirectionModel {
    /// The default path, then those of the classes.
    pub(crate) paths: Vec<PathModel>,
    arp_nd: bool,
    multicast: bool,
}

impl DirectionModel {
    /// Returns the model of a configuration.
    ///
    /// # Errors
    /// [`ConfigError`] with the path's class in its key.
    pub fn compile(config: &DirectionConfig, sources: &dyn Sources) -> Result<DirectionModel, ConfigError> {
        config.validate()?;
        let default = PathModel::compile(&config.path, sources)?;
        let mut paths = vec![default];
        for class in &config.class {
            let model = PathModel::compile(&class.path, sources);
            let in_class = |error: ConfigError| {
                ConfigError::new(&format!("class.{}.{}", class.name, error.key), error.problem)
            };
            paths.push(model.map_err(in_class)?);
        }
        Ok(DirectionModel {
            paths,
            arp_nd: config.bypass.contains(&Bypass::ArpNd),
            multicast: config.bypass.contains(&Bypass::Multicast),
        })
    }

    /// Returns true if all frames are released in the order in which they are offered.
    pub fn keeps_order(&self) -> bool {
        let bypass = self.arp_nd || self.multicast;
        self.paths.len() == 1 && !bypass && self.paths.iter().all(PathModel::keeps_order)
    }

    /// Returns the maximum number of bytes of records in the ring, or `None` if a path has a delay and no
    /// rate.
    pub(crate) fn record_bytes(&self) -> Option<u64> {
        self.paths
            .iter()
            .try_fold(0, |sum: u64, path| Some(sum.saturating_add(path.record_bytes()?)))
    }
}

/// All paths of a direction, with their states.
#[derive(Debug, Clone)]
pub struct Direction {
    paths: Vec<Path>,
    arp_nd: bool,
    multicast: bool,
}

impl Direction {
    /// Returns a direction whose schedules and traces begin at [`Time::ZERO`].
    ///
    /// # Errors
    /// [`ConfigError`], as [`DirectionModel::compile`].
    pub fn new(
        config: &DirectionConfig,
        seed: Seed,
        toward: DirectionId,
        sources: &dyn Sources,
    ) -> Result<Direction, ConfigError> {
        let model = DirectionModel::compile(config, sources)?;
        Ok(Direction::with_model(model, seed, toward, Time::ZERO))
    }

    /// Returns a direction of a model. Its schedules and traces begin at `start`.
    pub fn with_model(model: DirectionModel, seed: Seed, toward: DirectionId, start: Time) -> Direction {
        let seed = seed.direction(toward);
        let paths = model.paths.into_iter().enumerate();
        Direction {
            paths: paths
                .map(|(class, model)| Path::with_model(model, seed.class(class), start))
                .collect(),
            arp_nd: model.arp_nd,
            multicast: model.multicast,
        }
    }

    /// Returns the outcomes of a frame of a class. Class 0 is the default, class 1 the first of the
    /// configuration. A class that does not exist counts as the default.
    pub fn offer(&mut self, arrival: Time, class: usize, frame: &[u8]) -> Outcomes {
        match self.bypass(arrival, frame) {
            Some(release) => [Outcome::Released(release)].into_iter().collect(),
            None => {
                let mut outcomes = Outcomes::new();
                self.offer_to_path(arrival, class, frame, &mut outcomes);
                outcomes
            }
        }
    }

    /// Returns the release of a frame that bypasses the paths, or `None` for any other frame.
    #[inline]
    pub(crate) fn bypass(&self, arrival: Time, frame: &[u8]) -> Option<Release> {
        let bypasses = (self.arp_nd || self.multicast) && self.bypasses(frame);
        bypasses.then_some(Release {
            at: arrival,
            sent: arrival,
            drawn_delay: 0,
            reordered: false,
            flips: None,
        })
    }

    /// Adds the outcomes of a frame that does not bypass the paths to an empty list.
    #[inline]
    pub(crate) fn offer_to_path(
        &mut self,
        arrival: Time,
        class: usize,
        frame: &[u8],
        outcomes: &mut Outcomes,
    ) {
        let class = self.existing(class);
        self.paths[class].offer_into(arrival, frame, outcomes);
    }

    /// Returns the MTU of a class if the sender of a longer packet gets an ICMP error.
    pub(crate) fn answers_too_big(&self, class: usize) -> Option<u16> {
        self.paths[self.existing(class)].model().answers_too_big()
    }

    /// Returns the class, or the default class if it does not exist.
    #[inline]
    fn existing(&self, class: usize) -> usize {
        if class < self.paths.len() { class } else { 0 }
    }

    /// Returns the bytes of background traffic on all links.
    pub fn background_bytes(&self) -> u64 {
        self.paths.iter().map(Path::background_bytes).sum()
    }

    /// Returns true if a frame passes at once and unchanged.
    pub fn bypasses(&self, frame: &[u8]) -> bool {
        let is_multicast = frame.first().is_some_and(|byte| byte & 1 != 0);
        if self.multicast && is_multicast {
            return true;
        }
        if !self.arp_nd {
            return false;
        }
        let layers = Layers::parse(frame, Depth::L4);
        // RFC 4861: router solicitation 133 to redirect 137.
        let is_nd = || {
            layers.l4() == L4::Icmpv6
                && frame
                    .get(layers.l4_offset())
                    .is_some_and(|kind| (133..=137).contains(kind))
        };
        layers.ether_type() == EtherType::ARP || is_nd()
    }

    /// Returns the path of a class.
    pub fn path(&self, class: usize) -> Option<&Path> {
        self.paths.get(class)
    }

    /// Changes the parameters for frames that are offered from now on. `model` gets the old parameters, so
    /// that the caller frees their memory. A class that exists on only one side stays unchanged.
    pub fn exchange(&mut self, model: &mut DirectionModel) {
        std::mem::swap(&mut self.arp_nd, &mut model.arp_nd);
        std::mem::swap(&mut self.multicast, &mut model.multicast);
        for (path, model) in self.paths.iter_mut().zip(&mut model.paths) {
            path.exchange(model);
        }
    }

    /// Returns the number of paths: the number of classes plus one.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns true if there is no path. This never happens.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}
