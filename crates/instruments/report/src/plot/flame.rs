//! Flame graphs: the stacks of a program by their share of the samples. The width of a frame is its share, and its
//! callees are above it in the order of their names.

use std::collections::BTreeMap;

use super::axis::number;
use super::svg::Anchor;
use super::{FONT, Paint, Plot, WIDTH};

/// A frame with its callees.
#[derive(Debug, Default)]
struct Frame {
    /// The number of samples of the frame and its callees.
    count: u64,
    callees: BTreeMap<String, Frame>,
}

const ROW: f64 = 17.0;
const TOP: f64 = 6.0;
/// The smallest width of a frame that is drawn.
const NARROWEST: f64 = 1.2;
const DEPTH_MAX: usize = 48;

/// Returns the flame graph of folded stacks: `caller;callee`, with the number of samples.
pub fn flame<'a>(id: &str, title: &str, stacks: impl Iterator<Item = (&'a str, u64)>) -> Plot {
    let mut root = Frame::default();
    for (stack, count) in stacks {
        root.count += count;
        let mut frame = &mut root;
        for name in stack.split(';').take(DEPTH_MAX) {
            frame = frame.callees.entry(name.to_owned()).or_default();
            frame.count += count;
        }
    }
    let scale = (WIDTH - 4.0) / root.count.max(1) as f64;
    let rows = depth(&root, scale);
    let mut plot = Plot::new(id, title, TOP * 2.0 + ROW * rows as f64);
    let total = root.count;
    draw(&mut plot, &root, (2.0, rows), scale, total);
    plot.description = format!(
        "Flame graph of {total} samples. Widest at the bottom: {}.",
        widest(&root, total).join(", ")
    );
    plot
}

fn is_drawn(count: u64, scale: f64) -> bool {
    count as f64 * scale >= NARROWEST
}

fn depth(frame: &Frame, scale: f64) -> usize {
    let below = frame
        .callees
        .values()
        .filter(|callee| is_drawn(callee.count, scale));
    below.map(|callee| 1 + depth(callee, scale)).max().unwrap_or(0)
}

/// Draws the callees of `frame` in row `at.1`, counted from 1 at the top, and their callees above. `at.0` is
/// the left edge.
fn draw(plot: &mut Plot, frame: &Frame, at: (f64, usize), scale: f64, total: u64) {
    let mut x = at.0;
    let Some(row) = at.1.checked_sub(1) else { return };
    for (name, callee) in &frame.callees {
        let width = callee.count as f64 * scale;
        if is_drawn(callee.count, scale) {
            let y = TOP + ROW * row as f64;
            let percent = 100.0 * callee.count as f64 / total.max(1) as f64;
            let tip = format!("{name}: {} %, {} samples", number(percent), callee.count);
            plot.block((x, y), (width - 0.6, ROW - 1.0), frame_colour(name), 0.55, &tip);
            let fits = ((width - 6.0) / (FONT - 3.0) / 0.58) as usize;
            if fits >= 4 {
                let short = shortened(name, fits);
                plot.text((x + 3.0, y + 12.0), Anchor::Start, Paint::Ink, FONT - 3.0, &short);
            }
            draw(plot, callee, (x, row), scale, total);
        }
        x += width;
    }
}

/// Returns the colour of a frame; frames with the same name have the same colour.
fn frame_colour(name: &str) -> Paint {
    let sum = name
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    Paint::Series([1, 2, 7, 5][(sum % 4) as usize])
}

/// Shortens a name to `fits` characters. The end is kept, as it says more than the start of a path.
fn shortened(name: &str, fits: usize) -> String {
    let count = name.chars().count();
    if count <= fits {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(count - (fits - 1)).collect();
    format!("…{tail}")
}

fn widest(root: &Frame, total: u64) -> Vec<String> {
    let mut frames: Vec<(&String, u64)> = root
        .callees
        .iter()
        .map(|(name, frame)| (name, frame.count))
        .collect();
    frames.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    frames
        .into_iter()
        .take(5)
        .map(|(name, count)| format!("{name} {} %", number(100.0 * count as f64 / total.max(1) as f64)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_wide_as_its_share_and_stands_on_its_caller() {
        let stacks = [("main;receive", 25), ("main;lookup;compare", 50), ("idle", 25)];
        let plot = flame("f", "flame", stacks.into_iter());
        assert_eq!(
            plot.description,
            "Flame graph of 100 samples. Widest at the bottom: main 75 %, idle 25 %."
        );
        let svg = plot.inline();
        assert!(svg.contains("<title>lookup: 50 %, 50 samples</title>"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(svg.contains(&format!("0 0 {WIDTH} {}", TOP * 2.0 + 3.0 * ROW)));
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("millrace_flow::lookup", 8), "…:lookup");
        assert_eq!(shortened("short", 8), "short");
    }
}
