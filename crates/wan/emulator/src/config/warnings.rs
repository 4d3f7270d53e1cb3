//! Warnings about valid settings with an effect that a user may not expect.

use super::{
    Correlation, DelayConfig, DirectionConfig, Distribution, Order, OverMtu, PathConfig, Rate, Shift,
};

/// RFC 8200, section 5.
const IPV6_MIN_MTU: u16 = 1280;

impl DirectionConfig {
    /// Returns the warnings of all paths. Those of a class begin with its name.
    pub fn warnings(&self) -> Vec<String> {
        let of_classes = self.class.iter().flat_map(|class| {
            let warnings = class.path.warnings().into_iter();
            warnings.map(|warning| format!("class {}: {warning}", class.name))
        });
        self.path.warnings().into_iter().chain(of_classes).collect()
    }
}

impl PathConfig {
    /// Returns a sentence for each effect of the settings that differs from the request.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let ordered = self.order == Order::Ordered;
        if let Some(jitter) = &self.jitter {
            if ordered && jitter.correlation == Correlation::None {
                warnings.push(
                    "jitter without correlation in ordered mode: a frame waits for slower ones before it, so the mean delay is \
                     above the one asked for; compare `asked` with `realised`, set a half-life, or `order = \"reordering\"`"
                        .to_owned(),
                );
            }
            let spread = jitter.spread.nanos() as f64;
            // The distance from the mean to the least delay of distributions that have one, in units of the spread.
            let least = match jitter.distribution {
                Distribution::Uniform | Distribution::Exponential => 1.0,
                Distribution::Gamma(shape) => libm::sqrt(shape),
                Distribution::Pareto => 2.0 / 3.0,
                Distribution::Normal | Distribution::ParetoNormal | Distribution::Table(_) => 0.0,
            };
            let below = |factor: f64| match self.delay {
                DelayConfig::Constant(delay) => (delay.nanos() as f64) < factor * spread,
                DelayConfig::Trace(_) => false,
            };
            match jitter.distribution {
                Distribution::Normal if below(4.0) => warnings.push(
                    "normal jitter of more than a quarter of the delay is truncated to 0 to 2 × delay, so its deviation is \
                     below the one asked for"
                        .to_owned(),
                ),
                Distribution::ParetoNormal | Distribution::Table(_) if below(4.0) => warnings.push(
                    "jitter of more than a quarter of the delay: draws below 0 are 0, so the mean delay may be above the one \
                     asked for"
                        .to_owned(),
                ),
                _ if below(least) => warnings.push(
                    "the jitter reaches below 0: such delays are 0, so the mean delay is above the one asked for".to_owned(),
                ),
                _ => {}
            }
        }
        if ordered
            && self.reorder.is_some_and(|reorder| reorder.shift == Shift::Ahead)
            && self.delay == DelayConfig::default()
        {
            warnings.push("reordering ahead without a delay has no effect".to_owned());
        }
        if self.rate.is_none() && self.queue != Default::default() {
            warnings.push("a queue without a rate never fills; set `rate`".to_owned());
        }
        if self.over_mtu == OverMtu::TooBig && self.mtu.is_none() {
            warnings.push("`over-mtu` without an MTU has no effect; set `mtu`".to_owned());
        }
        if self.over_mtu == OverMtu::TooBig && self.mtu.is_some_and(|mtu| mtu < IPV6_MIN_MTU) {
            warnings.push(format!(
                "IPv6 needs an MTU of {IPV6_MIN_MTU} at least (RFC 8200, section 5): senders ignore a smaller one, and their \
                 packets are dropped"
            ));
        }
        if matches!(self.rate, Some(Rate::Mahimahi(_))) && self.framing != Default::default() {
            warnings.push(
                "a Mahimahi trace counts layer-3 packets and 4 bytes each; `framing` has no effect"
                    .to_owned(),
            );
        }
        warnings
    }
}
