//! The time stamps of the frames of a run in the guest.

/// The frames of a run in the order of sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    /// The time stamps of entry and of exit in nanoseconds; `None` for the exit of a lost frame.
    frames: Vec<(i64, Option<i64>)>,
}

impl Observed {
    /// Parses the time stamps of a run of `frames` frames, as `load.c` prints them. Returns the reason if the
    /// text has another form.
    pub(super) fn parse(text: &str, frames: usize) -> Result<Observed, String> {
        let line = |line: &str| {
            let (entered, left) = line.split_once(' ')?;
            let left = match left {
                "-" => None,
                stamp => Some(stamp.parse().ok()?),
            };
            Some((entered.parse().ok()?, left))
        };
        let mut found = Vec::with_capacity(frames);
        // The serial console adds a carriage return to each line.
        for text in text.lines().map(str::trim_end).filter(|text| !text.is_empty()) {
            found.push(line(text).ok_or_else(|| {
                format!("the guest printed `{text}`: expected the stamps of a frame at entry and exit")
            })?);
        }
        match found.len() {
            len if len == frames => Ok(Observed { frames: found }),
            len => Err(format!("the guest printed {len} of {frames} frames")),
        }
    }

    /// Returns the number of frames.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the milliseconds from entry to exit of the frames that arrived.
    pub(super) fn delays_ms(&self) -> impl Iterator<Item = f64> {
        self.frames
            .iter()
            .filter_map(|(entered, left)| Some((left.as_ref()? - entered) as f64 / 1e6))
    }

    /// Returns true for each frame that was lost, in the order of sending.
    pub(super) fn lost(&self) -> Vec<bool> {
        self.frames.iter().map(|(_, left)| left.is_none()).collect()
    }

    pub(super) fn lost_count(&self) -> u64 {
        self.frames.iter().filter(|(_, left)| left.is_none()).count() as u64
    }

    /// Returns the number of frames that arrived after a later one (RFC 4737, section 3).
    pub(super) fn reordered(&self) -> usize {
        let mut arrivals: Vec<(i64, usize)> = self
            .frames
            .iter()
            .enumerate()
            .filter_map(|(number, (_, left))| Some(((*left)?, number)))
            .collect();
        arrivals.sort_unstable();
        let mut next = 0;
        arrivals
            .iter()
            .filter(|(_, number)| {
                let is_late = *number < next;
                next = next.max(number + 1);
                is_late
            })
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_and_a_frame_that_overtakes_others_makes_these_reordered() {
        let observed = Observed::parse("0 500\r\n100 900\r\n200 700\r\n300 -\r\n400 800\r\n", 5).unwrap();
        assert_eq!(
            observed.delays_ms().collect::<Vec<_>>(),
            [500e-6, 800e-6, 500e-6, 400e-6]
        );
        assert_eq!(observed.lost(), [false, false, false, true, false]);
        assert_eq!((observed.lost_count(), observed.reordered()), (1, 1));
    }

    #[test]
    fn other_text_and_missing_frames_are_errors_that_name_them() {
        let text = |text: &str| Observed::parse(text, 2).unwrap_err();
        assert!(text("0 1\nError: Unknown qdisc").contains("Unknown qdisc"));
        assert!(text("- 1\n0 1").contains("`- 1`"));
        assert_eq!(text("0 1\n"), "the guest printed 1 of 2 frames");
    }
}
