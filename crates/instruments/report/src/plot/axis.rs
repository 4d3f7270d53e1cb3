//! Axes: the mapping of values to positions, and the labels of ticks.

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero or the smallest negative value.
    Linear,
    /// Logarithmic; values of zero and below are drawn at the start.
    Log,
}

/// An axis, which maps values to positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    scale: Scale,
    values: (f64, f64),
    positions: (f64, f64),
    /// The values that have a grid line.
    pub(super) ticks: Vec<f64>,
}

/// The steps between ticks, times a power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

impl Axis {
    /// Returns an axis for `values` between the positions `positions`, with about `wanted` ticks.
    pub(super) fn new(
        scale: Scale,
        values: impl Iterator<Item = f64> + Clone,
        positions: (f64, f64),
        wanted: usize,
    ) -> Axis {
        let finite = values.filter(|value| value.is_finite());
        let max = finite.clone().fold(f64::NEG_INFINITY, f64::max);
        match scale {
            Scale::Linear => {
                let min = finite.fold(0.0, f64::min);
                let max = if max > min { max } else { min + 1.0 };
                let step = step((max - min) / wanted.max(1) as f64);
                let first = (min / step).floor();
                let last = (max / step - 1e-9).ceil().max(first + 1.0);
                let ticks: Vec<f64> = (0..=(last - first) as usize)
                    .map(|index| (first + index as f64) * step)
                    .collect();
                Axis {
                    scale,
                    values: (first * step, last * step),
                    positions,
                    ticks,
                }
            }
            Scale::Log => {
                let least = finite.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
                let (least, max) = if least <= max { (least, max) } else { (0.1, 1.0) };
                let (low, high) = (floor_125(least), ceil_125(max));
                let high = if high > low { high } else { low * 10.0 };
                let decades = (high / low).log10();
                // Ticks are at 1, 2 and 5 times powers of ten if there is space, else at powers of ten, of a thousand,
                // and so on.
                let ticks: Vec<f64> = if decades * 3.0 <= wanted as f64 * 1.5 {
                    marks(low, high)
                } else {
                    let every = (decades / wanted.max(1) as f64).ceil().max(1.0) as i32;
                    let first = low.log10().ceil() as i32;
                    (0..)
                        .map(|index| 10_f64.powi(first + index * every))
                        .take_while(|tick| *tick <= high * 1.000_001)
                        .collect()
                };
                Axis {
                    scale,
                    values: (low, high),
                    positions,
                    ticks,
                }
            }
        }
    }

    /// Returns an axis from zero to the maximum of `values` without ticks, for values that have names.
    pub(super) fn of_names(values: impl Iterator<Item = f64>, positions: (f64, f64)) -> Axis {
        let max = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        Axis {
            scale: Scale::Linear,
            values: (0.0, if max > 0.0 { max } else { 1.0 }),
            positions,
            ticks: Vec::new(),
        }
    }

    /// Returns the position of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let share = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value.max(low) / low).log10() / (high / low).log10(),
        };
        self.positions.0 + share.clamp(0.0, 1.0) * (self.positions.1 - self.positions.0)
    }
}

/// Returns the smallest of 1, 2, 5, 10, … times a power of ten that is at least `rough`.
fn step(rough: f64) -> f64 {
    ceil_125(if rough > 0.0 { rough } else { 1.0 })
}

fn ceil_125(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    STEPS
        .into_iter()
        .chain([10.0])
        .map(|step| step * power)
        .find(|step| *step >= value * (1.0 - 1e-9))
        .unwrap_or(power * 10.0)
}

fn floor_125(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    STEPS
        .into_iter()
        .rev()
        .map(|step| step * power)
        .find(|step| *step <= value * (1.0 + 1e-9))
        .unwrap_or(power)
}

fn marks(low: f64, high: f64) -> Vec<f64> {
    let mut ticks = vec![low];
    while let Some(last) = ticks.last().copied().filter(|last| *last < high * 0.999) {
        ticks.push(ceil_125(last * 1.01));
    }
    ticks
}

/// Returns a number with three significant digits, without trailing zeroes.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    let digits = match size {
        _ if size == 0.0 => 0,
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        // The digits are the zeroes after the decimal point and three more.
        _ => 3 + (-size.log10()).floor().clamp(0.0, 9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    grouped(&text)
}

/// Inserts commas between thousands, from 10,000 on.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    if digits.len() < 5 || digits.contains('.') {
        return text.to_owned();
    }
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (51.674, "51.7"),
            (1.0, "1"),
            (0.012_34, "0.0123"),
            (0.1, "0.1"),
            (123.4, "123"),
            (1234.0, "1234"),
            (12_345_678.0, "12,345,678"),
            (-12_345.0, "-12,345"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_at_a_round_number() {
        let axis = Axis::new(Scale::Linear, [51.6, 22.4].into_iter(), (0.0, 100.0), 5);
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0]);
        assert_eq!((axis.at(0.0), axis.at(30.0), axis.at(60.0)), (0.0, 50.0, 100.0));
    }

    #[test]
    fn an_axis_of_names_ends_with_the_last() {
        let axis = Axis::of_names([1.0, 16.0, f64::NAN].into_iter(), (0.0, 100.0));
        assert_eq!((axis.at(0.0), axis.at(8.0), axis.at(16.0)), (0.0, 50.0, 100.0));
        assert_eq!(Axis::of_names([].into_iter(), (0.0, 100.0)).at(1.0), 100.0);
    }

    #[test]
    fn a_logarithmic_axis_shows_small_and_large_values() {
        let axis = Axis::new(Scale::Log, [0.9, 41.0].into_iter(), (0.0, 100.0), 6);
        assert_eq!(axis.ticks, [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(axis.at(0.0), 0.0);
        assert!((axis.at(5.0) - 50.0).abs() < 1e-9);
        let wide = Axis::new(Scale::Log, [1e-3, 1e6].into_iter(), (0.0, 100.0), 5);
        assert_eq!(wide.ticks.len(), 5);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_still_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [&[][..], &[0.0], &[7.0], &[f64::NAN]] {
                let axis = Axis::new(scale, values.iter().copied(), (0.0, 10.0), 4);
                assert!(axis.ticks.len() >= 2, "{scale:?} {values:?} {axis:?}");
                assert!(axis.at(7.0).is_finite());
            }
        }
    }
}
