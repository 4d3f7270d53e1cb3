//! The learned index of NuevoMatch (RQ-RMI), which maps a value to the index of the range that contains it.
//!
//! There are three stages of models. A model's output chooses the model of the next stage. The output of the last
//! stage is the index with an error bound, within which a binary search ends. The stages have the widths of the paper.
//!
//! Each model is the paper's: eight hidden units with ReLU, one input, one output. Such a model is a continuous
//! function of at most eight linear pieces. The paper trains it with Adam; this code fits the pieces to the data
//! directly, with knots at the inputs of the greatest error. The fit takes milliseconds. Every piece rises, so the
//! inputs of a model are intervals, and their ends give exact error bounds. Numbers have 64 bits, and the compiler
//! vectorises the loop over the units (the paper: 32 bits and AVX).

use crate::rule::Range;

/// The number of hidden units of a model.
const UNITS: usize = 8;

/// The function `bias + sum of slope * max(0, x - knot)`.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Model {
    knots: [f64; UNITS],
    slopes: [f64; UNITS],
    bias: f64,
}

/// The inputs `lo..=hi`, all of which use one model of a stage.
#[derive(Clone, Copy)]
struct Reach {
    lo: u32,
    hi: u32,
    model: usize,
}

pub(crate) struct RqRmi {
    stages: Vec<Vec<Model>>,
    /// The maximum error of each model of the last stage, in indices.
    errors: Vec<u32>,
    /// The number of ranges.
    len: usize,
}

impl Model {
    #[inline(always)]
    fn eval(&self, input: u32) -> f64 {
        let input = f64::from(input);
        let mut sums = [0.0f64; 4];
        for half in 0..UNITS / 4 {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let unit = 4 * half + lane;
                *sum += self.slopes[unit] * (input - self.knots[unit]).max(0.0);
            }
        }
        self.bias + ((sums[0] + sums[1]) + (sums[2] + sums[3]))
    }

    /// Returns a model that meets the first and the last of the sorted `points`, and the points with the
    /// greatest error.
    fn fit(points: &[(u32, f64)]) -> Model {
        let mut model = Model::default();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return model;
        };
        model.bias = first.1;
        if first.0 == last.0 {
            return model;
        }
        let slope = |from: usize, to: usize| {
            let (a, b) = (points[from], points[to]);
            (b.1 - a.1) / (f64::from(b.0) - f64::from(a.0))
        };
        let worst = |from: usize, to: usize| {
            let rise = slope(from, to);
            let error = |at: usize| {
                let line = points[from].1 + rise * (f64::from(points[at].0) - f64::from(points[from].0));
                // A function cannot meet two points with one input.
                let apart = points[at].0 > points[from].0 && points[at].0 < points[to].0;
                if apart { (points[at].1 - line).abs() } else { 0.0 }
            };
            let worst = (from..=to).map(|at| (error(at), at));
            worst.fold((0.0, from), |a, b| if b.0 > a.0 { b } else { a })
        };
        let mut pieces = vec![(0, points.len() - 1, worst(0, points.len() - 1))];
        while pieces.len() < UNITS {
            let errors = pieces.iter().map(|(.., worst)| worst.0).enumerate();
            let (at, error) = errors.fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
            if error == 0.0 {
                break;
            }
            let (from, to, (_, middle)) = pieces.swap_remove(at);
            pieces.push((from, middle, worst(from, middle)));
            pieces.push((middle, to, worst(middle, to)));
        }
        pieces.sort_unstable_by_key(|(from, ..)| *from);
        let mut before = 0.0;
        for (unit, (from, to, _)) in pieces.iter().enumerate() {
            let slope = slope(*from, *to);
            model.knots[unit] = f64::from(points[*from].0);
            model.slopes[unit] = slope - before;
            before = slope;
        }
        model
    }
}

impl RqRmi {
    /// Returns the index of sorted ranges that do not overlap.
    pub(crate) fn new(ranges: &[Range]) -> RqRmi {
        let widths: &[usize] = match ranges.len() {
            0..1_000 => &[1, 4],
            1_000..10_000 => &[1, 4, 16],
            10_000..100_000 => &[1, 4, 128],
            _ => &[1, 8, 256],
        };
        let mut made = RqRmi {
            stages: Vec::new(),
            errors: Vec::new(),
            len: ranges.len(),
        };
        let mut reaches = vec![Reach {
            lo: 0,
            hi: u32::MAX,
            model: 0,
        }];
        for (stage, width) in widths.iter().enumerate() {
            let mut points = vec![Vec::new(); *width];
            for reach in &reaches {
                points[reach.model].extend(ends(ranges, *reach));
            }
            let models: Vec<Model> = points.iter().map(|points| Model::fit(points)).collect();
            match widths.get(stage + 1) {
                Some(next) => {
                    let parts = reaches.iter().flat_map(|reach| {
                        parts(*reach, |input| {
                            made.choose(models[reach.model].eval(input), *next)
                        })
                    });
                    reaches = parts.collect();
                }
                None => {
                    made.errors = vec![0; *width];
                    for reach in &reaches {
                        for (input, place) in ends(ranges, *reach) {
                            let error = (models[reach.model].eval(input) - place).abs();
                            let held = &mut made.errors[reach.model];
                            // One position is added for rounding.
                            *held = (*held).max(error.ceil() as u32 + 1);
                        }
                    }
                }
            }
            made.stages.push(models);
        }
        made
    }

    /// Returns the index of the model to use in a stage of `width` models.
    #[inline(always)]
    fn choose(&self, place: f64, width: usize) -> usize {
        ((place * width as f64 / self.len as f64).max(0.0) as usize).min(width - 1)
    }

    /// Returns the indices `from..to` that include the range with `input`, if there is one.
    #[inline(always)]
    pub(crate) fn places(&self, input: u32) -> (usize, usize) {
        let mut model = 0;
        let mut place = 0.0;
        for (stage, models) in self.stages.iter().enumerate() {
            if stage > 0 {
                model = self.choose(place, models.len());
            }
            place = models[model].eval(input);
        }
        let (place, error) = (place.max(0.0) as usize, self.errors[model] as usize);
        let to = (place + error + 1).min(self.len);
        (place.saturating_sub(error).min(to), to)
    }

    pub(crate) fn error_max(&self) -> u32 {
        self.errors.iter().copied().max().unwrap_or(0)
    }

    pub(crate) fn heap_size(&self) -> usize {
        let models = self.stages.iter().map(Vec::len).sum::<usize>();
        models * size_of::<Model>() + self.errors.len() * 4
    }
}

/// Returns both ends of each range, clipped to the inputs of a model, with the index of the range.
fn ends(ranges: &[Range], reach: Reach) -> impl Iterator<Item = (u32, f64)> {
    let from = ranges.partition_point(|range| range.hi < reach.lo);
    let within = ranges[from..]
        .iter()
        .take_while(move |range| range.lo <= reach.hi);
    within.enumerate().flat_map(move |(at, range)| {
        let place = (from + at) as f64;
        let (lo, hi) = (range.lo.max(reach.lo), range.hi.min(reach.hi));
        let both = [(lo, place), (hi, place)];
        both.into_iter().take(if lo == hi { 1 } else { 2 })
    })
}

/// Divides inputs into intervals with the same choice. `choice` must not decrease with the input.
fn parts(reach: Reach, choice: impl Fn(u32) -> usize) -> Vec<Reach> {
    let mut parts = Vec::new();
    let mut lo = reach.lo;
    loop {
        let model = choice(lo);
        let (mut last, mut beyond) = (u64::from(lo), u64::from(reach.hi) + 1);
        while beyond - last > 1 {
            let middle = (last + beyond) / 2;
            if choice(middle as u32) == model {
                last = middle;
            } else {
                beyond = middle;
            }
        }
        let hi = last as u32;
        parts.push(Reach { lo, hi, model });
        if hi == reach.hi {
            return parts;
        }
        lo = hi + 1;
    }
}
