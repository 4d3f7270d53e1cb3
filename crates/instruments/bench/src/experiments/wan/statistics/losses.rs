//! Tests of the models of loss: lengths of runs, shares, and exact schedules.

use millrace_types::Time;
use millrace_wan_emulator::{NoSources, Outcome, Path, Seed, Sources};

use super::super::error::WanBenchError;
use super::super::record::{LossRuns, WanRecord};
use super::super::recorder::Recorder;
use super::super::settings::path as config;
use super::judge::{
    KS_CRITICAL, Z_TWO_SIDED, binomial_z, chi_square, erlang, kolmogorov_smirnov, record_test,
};
use crate::gated::Gate;
use crate::gated::recorder::case;

/// The number of different run lengths that are counted.
const LENGTHS: usize = 10_000;
/// The time between two frames in nanoseconds.
const GAP: u64 = 100_000;

/// Returns true for each frame that was lost, in the order of sending.
fn losses(
    settings: &[(&str, &str)],
    frames: u64,
    size: usize,
    sources: &dyn Sources,
) -> Result<Vec<bool>, WanBenchError> {
    let mut path = Path::new(&config(settings)?, Seed::new(9), sources)?;
    let lost = |number: u64| {
        let outcomes = path.offer_sized(Time::from_nanos(number * GAP), size);
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Dropped(_)))
    };
    Ok((0..frames).map(lost).collect())
}

/// Returns the number of runs with 1, 2, 3, … frames: runs of lost frames if `lost` is true, else runs of
/// frames that arrived. The first and the last run may be incomplete, and are not counted.
pub(in super::super) fn run_lengths(frames: &[bool], lost: bool) -> Vec<u64> {
    let mut counts = vec![0; LENGTHS];
    let runs: Vec<&[bool]> = frames.chunk_by(|a, b| a == b).collect();
    let inner = runs.get(1..runs.len().saturating_sub(1)).unwrap_or_default();
    for run in inner.iter().filter(|run| run.first() == Some(&lost)) {
        counts[(run.len() - 1).min(LENGTHS - 1)] += 1;
    }
    counts
}

/// Returns the shares of run lengths 1, 2, 3, … if a run ends with probability `end` after each frame
/// (geometric distribution).
pub(in super::super) fn geometric(end: f64) -> Vec<f64> {
    (0..LENGTHS as i32 - 1)
        .map(|k| end * (1.0 - end).powi(k))
        .collect()
}

/// A model of loss, with the distribution of run lengths that follows from its transitions.
struct Model {
    loss: &'static str,
    /// The shares of the lengths of runs of lost frames, and (`gaps`) of the gaps between them if these are
    /// geometric.
    losses: Vec<f64>,
    gaps: Option<Vec<f64>>,
}

fn models() -> Vec<Model> {
    let burst = 1.0 / 8.0;
    // The 4-state model has p13 = 2 %, p31 = 20 %, p32 = 10 %, p23 = 30 %, p14 = 1 %. A run of losses begins
    // with a transition 1 → 4, 1 → 3 or 2 → 3. The frequency of each is in proportion to the time in states 1
    // and 2. The times in states 3 and 2, relative to state 1, follow from the balance of the transitions.
    let (p13, p31, p32, p23, p14) = (0.02, 0.2, 0.1, 0.3, 0.01);
    let three = p13 / p31;
    let two = three * p32 / p23;
    let isolated = p14 / (p14 + p13 + two * p23);
    let end: f64 = p31 + p32;
    let mut four = geometric(end);
    for share in &mut four {
        *share *= 1.0 - isolated;
    }
    four[0] += isolated;
    vec![
        Model {
            loss: "5%",
            losses: geometric(0.95),
            gaps: Some(geometric(0.05)),
        },
        Model {
            loss: "ge:1%,burst=8",
            losses: geometric(burst),
            gaps: Some(geometric(burst * 0.01 / 0.99)),
        },
        Model {
            loss: "ge:p=2%,r=25%,bad=100%,good=0%",
            losses: geometric(0.25),
            gaps: Some(geometric(0.02)),
        },
        Model {
            loss: "4-state:p13=2%,p31=20%,p32=10%,p23=30%,p14=1%",
            losses: four,
            gaps: None,
        },
    ]
}

/// Judges the lengths of runs of lost frames, and of the gaps between them, by chi-square.
pub(super) fn runs(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    for Model {
        loss,
        losses: asked,
        gaps,
    } in models()
    {
        let frames = losses(&[("loss", loss)], recorder.length.frames, 60, &NoSources)?;
        let row = |what: &str| {
            case(
                format!("W5 loss {loss}: chi-square of {what} / critical value"),
                loss,
                Gate::AtMost(1.0),
                "",
            )
        };
        let counts = run_lengths(&frames, true);
        recorder.value(&row("lengths of losses"), 0, chi_square(&counts, &asked))?;
        if let Some(gaps) = gaps {
            let statistic = chi_square(&run_lengths(&frames, false), &gaps);
            recorder.value(&row("lengths of gaps"), 0, statistic)?;
        }
        let total: u64 = counts.iter().sum();
        recorder.add(WanRecord::Runs(LossRuns {
            loss: loss.to_owned(),
            asked: asked.iter().take(40).copied().collect(),
            realised: counts
                .iter()
                .take(40)
                .map(|count| *count as f64 / total as f64)
                .collect(),
            runs: total as usize,
        }))?;
    }
    Ok(())
}

/// Compares deterministic models of loss with their definition, frame by frame.
pub(super) fn exact(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let frames = recorder.length.frames.min(200_000);
    let trace = "0010000000111000";
    let file = move |_: &str| Ok::<_, String>(trace.to_owned());
    type Expected = fn(u64) -> bool;
    let expected: [(&str, Expected); 3] = [
        ("every:100", |number| number % 100 == 99),
        ("outage:at=1s,for=30ms,every=200ms", |number| {
            let nanos = number * GAP;
            nanos >= 1_000_000_000 && (nanos - 1_000_000_000) % 200_000_000 < 30_000_000
        }),
        ("trace:FILE", |number| {
            b"0010000000111000"[(number % 16) as usize] == b'1'
        }),
    ];
    for (loss, is_lost) in expected {
        let lost = losses(&[("loss", loss)], frames, 60, &file)?;
        let wrong = lost
            .iter()
            .zip(0..)
            .filter(|(lost, number)| **lost != is_lost(*number))
            .count();
        let row = case(
            format!("W5 loss {loss}: frames with another outcome"),
            loss,
            Gate::Exactly(0.0),
            "frames",
        );
        recorder.value(&row, 0, wrong as f64)?;
    }
    Ok(())
}

/// Judges shares of frames by the binomial distribution.
pub(super) fn shares(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let frames = recorder.length.frames;
    let ge_mixed = {
        // The loss is 30 % in the bad state and 1 % in the good state. The share of time in the bad state is
        // p/(p + r). Frames are correlated, so only every hundredth frame is judged.
        let bad = 0.1 / (0.1 + 0.4);
        bad * 0.3 + (1.0 - bad) * 0.01
    };
    let of_bits = |size: f64| 1.0 - (1.0 - 1e-5_f64).powf(8.0 * size);
    let expected = [
        ("1%", 60, 0.01, 1),
        ("0.0100%", 60, 1e-4, 1),
        ("ge:p=10%,r=40%,bad=30%,good=1%", 60, ge_mixed, 100),
        ("ber:1e-5", 60, of_bits(64.0), 1),
        ("ber:1e-5", 1514, of_bits(1518.0), 1),
    ];
    for (loss, size, probability, every) in expected {
        let all = losses(&[("loss", loss)], frames, size, &NoSources)?;
        let judged: Vec<bool> = all.into_iter().step_by(every).collect();
        let lost = judged.iter().filter(|lost| **lost).count();
        let z = binomial_z(lost as u64, judged.len() as u64, probability);
        let row = case(
            format!("W5 loss {loss}, {} B: share, deviation", size + 4),
            format!("{:.4} %", probability * 100.0),
            Gate::AtMost(Z_TWO_SIDED),
            "sigma",
        );
        recorder.value(&row, 0, z.abs())?;
    }
    damage(recorder)
}

/// Judges the shares of duplicated, corrupted and reordered frames.
fn damage(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let frames = recorder.length.frames;
    type Happened = fn(&[Outcome]) -> bool;
    let stages: [(&str, &str, Happened); 3] = [
        ("duplicate", "1%", |outcomes| outcomes.len() == 2),
        ("corrupt", "1%", |outcomes| {
            matches!(outcomes, [Outcome::Dropped(_)])
        }),
        (
            "reorder",
            "1%,extra=5ms",
            |outcomes| matches!(outcomes, [Outcome::Released(release)] if release.reordered),
        ),
    ];
    for (key, text, happened) in stages {
        let mut path = Path::new(
            &config(&[("delay", "10ms"), (key, text)])?,
            Seed::new(9),
            &NoSources,
        )?;
        let frame = [0; 60];
        let count = (0..frames)
            .filter(|number| happened(&path.offer(Time::from_nanos(number * GAP), &frame)))
            .count();
        let row = case(
            format!("W5 {key} {text}: share, deviation"),
            text,
            Gate::AtMost(Z_TWO_SIDED),
            "sigma",
        );
        recorder.value(&row, 0, binomial_z(count as u64, frames, 0.01).abs())?;
    }
    Ok(())
}

/// Judges whether the lengths of random outages are exponentially distributed with the asked mean.
pub(super) fn outages(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let loss = "outage:up=200ms,down=50ms";
    let frames = losses(&[("loss", loss)], recorder.length.frames * 4, 60, &NoSources)?;
    let runs: Vec<&[bool]> = frames.chunk_by(|a, b| a == b).collect();
    let inner = runs.get(1..runs.len().saturating_sub(1)).unwrap_or_default();
    for (lost, what, mean_ms) in [(true, "outages", 50.0), (false, "periods without", 200.0)] {
        // A period shorter than the time between two frames may not be seen. Only periods with at least one
        // frame are judged.
        let gap_ms = GAP as f64 / 1e6;
        let mut lengths: Vec<f64> = inner
            .iter()
            .filter(|run| run.first() == Some(&lost))
            .map(|run| (run.len() as f64 - 0.5) * gap_ms)
            .collect();
        let statistic = kolmogorov_smirnov(&mut lengths, |ms| erlang(1, ms / mean_ms));
        let row = case(
            format!("W5 loss {loss}: Kolmogorov-Smirnov of {what}, sqrt(n) D"),
            format!("{mean_ms} ms"),
            Gate::AtMost(KS_CRITICAL),
            "",
        );
        record_test(recorder, &row, statistic, lengths.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_runs_are_counted_by_length() {
        let frames: Vec<bool> = "1101100010".bytes().map(|byte| byte == b'1').collect();
        let (lost, gaps) = (run_lengths(&frames, true), run_lengths(&frames, false));
        assert_eq!((lost[0], lost[1], lost.iter().sum()), (1, 1, 2_u64));
        assert_eq!((gaps[0], gaps[2], gaps.iter().sum()), (1, 1, 2_u64));
    }
}
