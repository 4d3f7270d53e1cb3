"""The emulator's draws, judged by numpy and scipy, which share no code with it: distributions, independence, correlation,
loss, reordering, bit errors, spacing. Virtual time and fixed seeds: a test passes always or never. Alpha is 0.001.
"""

import os
import subprocess
from pathlib import Path

import numpy
import pytest
from scipy import stats

ALPHA = 0.001
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("MILLRACE_TARGET", ROOT / "target/debug")) / "millrace-wan-outcomes"
RECORD = numpy.dtype(
    [("frame", "<u8"), ("at", "<u8"), ("sent", "<u8"), ("asked", "<u8"), ("reason", "<u4"), ("flips", "<u4")]
)
MS = 1_000_000


def outcomes(frames, interval="1ms", sizes="60", seed=1, **settings):
    """Returns the outcomes of frames that arrive one interval after the other."""
    texts = [f"{key.replace('_', '-')}={text}" for key, text in settings.items()]
    command = [PROGRAM, str(frames), interval, sizes, str(seed), *texts]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    return numpy.frombuffer(output, RECORD)


def is_lost(frames, **settings):
    """Returns a flag for each frame."""
    records = outcomes(frames, **settings)
    assert len(records) == frames
    return records["reason"] != 0


def runs(flags):
    """Returns the lengths of runs of true and of false that are complete."""
    edges = numpy.flatnonzero(numpy.diff(flags.astype(numpy.int8))) + 1
    lengths = numpy.diff(edges)
    first_is_true = flags[edges[0]]
    return (lengths[0::2], lengths[1::2]) if first_is_true else (lengths[1::2], lengths[0::2])


def geometric_p_value(lengths, leave):
    """Returns the p-value of a chi-square test of lengths against a geometric distribution, in classes of 10 and more."""
    last = int(numpy.flatnonzero(len(lengths) * stats.geom.sf(numpy.arange(10_000), leave) >= 10)[-1])
    # Few classes for long runs, as a test of a thousand classes sees little.
    borders = numpy.unique(numpy.linspace(0, last, min(last, 40) + 1).astype(int))
    observed, _ = numpy.histogram(lengths, bins=numpy.append(borders, numpy.iinfo(numpy.int64).max) + 0.5)
    below = numpy.append(stats.geom.cdf(borders, leave), 1)
    return stats.chisquare(observed, len(lengths) * numpy.diff(below)).pvalue


def ljung_box_p_value(series, lags=20):
    """Ljung and Box, "On a Measure of Lack of Fit in Time Series Models", 1978."""
    series = series - series.mean()
    n = len(series)
    variance = numpy.dot(series, series)
    rho = numpy.array([numpy.dot(series[:-lag], series[lag:]) / variance for lag in range(1, lags + 1)])
    statistic = n * (n + 2) * numpy.sum(rho**2 / (n - numpy.arange(1, lags + 1)))
    return stats.chi2.sf(statistic, lags)


def share_is(flags, expected):
    """Fails if the share of a correlated event is not the expected one: a t-test of the means of 100 batches."""
    batches = flags[: len(flags) // 100 * 100].reshape(100, -1).mean(axis=1)
    p_value = stats.ttest_1samp(batches, expected).pvalue
    assert p_value > ALPHA, f"{flags.mean()} instead of {expected}: p = {p_value}"


# The largest value of netem's Pareto table, which 1.1 % of its entries have.
PARETO_END = 4


def pareto_cdf(values):
    """(x - 3/2) × 4/3 for an x of shape 3; the probability of the largest value is spread over the unit above it."""
    below = stats.pareto(3, -2, 4 / 3).cdf
    return below(numpy.minimum(values, PARETO_END)) + stats.pareto.sf(4.5, 3) * numpy.clip(values - PARETO_END, 0, 1)


def spread_end(values):
    """Spreads the values at the end of netem's Pareto table evenly over the unit above it, for a continuous test."""
    at_end = numpy.flatnonzero(values >= PARETO_END - 1e-6)
    values[at_end] = PARETO_END + (numpy.arange(len(at_end)) + 0.5) / len(at_end)


def pareto_normal_cdf(values):
    """The inverse of a quarter of the normal and three quarters of the Pareto quantile."""
    share = numpy.linspace(1e-7, 1 - 1e-7, 2_000_001)
    pareto = numpy.minimum((stats.pareto.ppf(share, 3) - 1.5) * 4 / 3, PARETO_END)
    return numpy.interp(values, 0.25 * stats.norm.ppf(share) + 0.75 * pareto, share)


DISTRIBUTIONS = {
    "uniform": stats.uniform(-1, 2).cdf,
    "normal": stats.norm.cdf,
    "exponential": stats.expon(-1).cdf,
    "gamma,shape=4": stats.gamma(4, -2, 0.5).cdf,
    "gamma,shape=0.5": stats.gamma(0.5, -(0.5**0.5), 2**0.5).cdf,
    "pareto": pareto_cdf,
    "pareto-normal": pareto_normal_cdf,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_delays_have_the_asked_distribution_and_are_independent(name):
    """Kolmogorov-Smirnov of a million; of ten million for the normal distribution."""
    frames = 10_000_000 if name == "normal" else 1_000_000
    records = outcomes(frames, interval="10us", delay="100ms", jitter=f"5ms,{name}", order="reordering")
    delays = (records["at"] - records["frame"] * 10_000).astype(float)
    assert (records["asked"] == delays).all()
    standard = (delays / MS - 100) / 5
    continuous = standard.copy()
    if name == "pareto":
        spread_end(continuous)
    assert stats.kstest(continuous, DISTRIBUTIONS[name]).pvalue > ALPHA
    assert ljung_box_p_value(stats.rankdata(standard[:1_000_000])) > ALPHA


def test_a_normal_delay_near_zero_is_truncated_on_both_sides():
    records = outcomes(1_000_000, delay="10ms", jitter="8ms,normal", order="reordering")
    delays = (records["at"] - records["frame"] * MS) / MS
    bound = 10 / 8
    assert stats.kstest((delays - 10) / 8, stats.truncnorm(-bound, bound).cdf).pvalue > ALPHA


def test_a_table_of_netem_is_drawn_evenly(tmp_path):
    table = tmp_path / "table.dist"
    values = numpy.arange(-2000, 2000, 100) * 4
    table.write_text("# a table\n" + "\n".join(map(str, values)) + "\n")
    records = outcomes(1_000_000, delay="100ms", jitter=f"8.192ms,table:{table}", order="reordering")
    drawn = numpy.round((records["asked"].astype(float) - 100 * MS) / 1000).astype(int)
    assert set(drawn) == set(values)
    assert stats.chisquare(numpy.unique(drawn, return_counts=True)[1]).pvalue > ALPHA


@pytest.mark.parametrize("interval", [1, 5, 20])
@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_the_correlation_halves_in_the_half_life_at_every_frame_rate(name, interval):
    frames = 2_000_000
    jitter = f"5ms,{name},half-life=50ms"
    records = outcomes(frames, interval=f"{interval}ms", delay="100ms", jitter=jitter, order="reordering", seed=interval)
    standard = (records["asked"] / MS - 100) / 5
    # The Gaussian draws behind the delays: a copula leaves their correlation as it is.
    normal = standard if name == "normal" else stats.norm.ppf(numpy.clip((standard + 1) / 2, 1e-9, 1 - 1e-9))
    for time in (20, 40, 100):
        lag = time // interval
        expected = 0.5 ** (time / 50)
        measured = numpy.dot(normal[:-lag], normal[lag:]) / numpy.dot(normal, normal)
        # The deviation of an autocorrelation of AR(1) is below sqrt(2 × half-lives of time / time): Bartlett's formula.
        deviation = (2 / numpy.log(2) * 50 / (interval * frames)) ** 0.5
        assert abs(measured - expected) < 4 * deviation, (time, measured, expected)
    # Frames of ten half-lives distance are as good as independent; the distribution is the requested one.
    apart = standard[:: 500 // interval]
    assert stats.kstest(apart, DISTRIBUTIONS[name]).pvalue > ALPHA


def test_loss_by_probability_is_binomial_and_without_memory():
    lost = is_lost(10_000_000, loss="1%")
    assert stats.binomtest(int(lost.sum()), len(lost), 0.01).pvalue > ALPHA
    bursts, gaps = runs(lost)
    assert geometric_p_value(bursts, 0.99) > ALPHA
    assert geometric_p_value(gaps, 0.01) > ALPHA
    assert ljung_box_p_value(lost[:2_000_000].astype(float)) > ALPHA
    rare = is_lost(10_000_000, loss="1ppm")
    assert stats.binomtest(int(rare.sum()), len(rare), 1e-6).pvalue > ALPHA


def test_loss_with_correlation_keeps_its_share_and_comes_in_bursts():
    lost = is_lost(2_000_000, loss="5%,correlation=50%")
    share_is(lost, 0.05)
    # The probability that both of two Gaussian draws of this correlation are below the 5 % quantile.
    threshold = stats.norm.ppf(0.05)
    both = stats.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]]).cdf([threshold, threshold])
    share_is(lost[1:] & lost[:-1], both)


def test_a_gilbert_elliott_channel_has_geometric_bursts_and_gaps():
    lost = is_lost(5_000_000, loss="ge:1%,burst=8")
    share_is(lost, 0.01)
    bursts, gaps = runs(lost)
    assert geometric_p_value(bursts, 1 / 8) > ALPHA
    assert geometric_p_value(gaps, 1 / 8 * 0.01 / 0.99) > ALPHA


def test_a_gilbert_elliott_channel_loses_in_both_states():
    lost = is_lost(5_000_000, loss="ge:p=2%,r=10%,bad=70%,good=0.5%")
    bad = 0.02 / 0.12
    share_is(lost, bad * 0.7 + (1 - bad) * 0.005)


def test_the_channel_of_four_states_has_its_stationary_loss():
    p13, p31, p32, p23, p14 = 0.02, 0.3, 0.2, 0.4, 0.01
    text = f"4-state:p13={p13:%},p31={p31:%},p32={p32:%},p23={p23:%},p14={p14:%}"
    lost = is_lost(5_000_000, loss=text)
    chain = numpy.array(
        [[1 - p13 - p14, 0, p13, p14], [0, 1 - p23, p23, 0], [p31, p32, 1 - p31 - p32, 0], [1, 0, 0, 0]]
    )
    stationary = numpy.linalg.matrix_power(chain, 1000)[0]
    share_is(lost, stationary[2] + stationary[3])
    # Two losses in a row come from state 3 only, as state 4 is left for state 1 and then not lost.
    share_is(lost[1:] & lost[:-1], stationary[2] * chain[2, 2])


def test_every_nth_frame_is_lost():
    lost = is_lost(1_000_000, loss="every:7")
    assert (numpy.flatnonzero(lost) == numpy.arange(6, 1_000_000, 7)).all()


def test_random_outages_have_exponential_lengths():
    lost = is_lost(2_000_000, interval="20us", loss="outage:up=30ms,down=10ms")
    down, up = runs(lost)
    for lengths, mean in ((down, 10), (up, 30)):
        assert len(lengths) > 800
        assert stats.kstest(lengths * 0.02, stats.expon(scale=mean).cdf).pvalue > ALPHA


@pytest.mark.parametrize("rate", [1e-5, 1e-7])
def test_bit_errors_lose_frames_by_their_size(rate):
    records = outcomes(3_000_000, sizes="60,600,1514", loss=f"ber:{rate}")
    for at, size in enumerate((60, 600, 1514)):
        lost = records["reason"][at::3] != 0
        bits = (size + 4) * 8
        assert stats.binomtest(int(lost.sum()), len(lost), -numpy.expm1(bits * numpy.log1p(-rate))).pvalue > ALPHA


def test_delivered_bit_errors_are_binomial_by_frame_size():
    records = outcomes(3_000_000, sizes="60,600,1514", corrupt="ber:1e-4,deliver")
    for at, size in enumerate((60, 600, 1514)):
        counts = numpy.bincount(records["flips"][at::3])
        expected = stats.binom.pmf(numpy.arange(len(counts)), size * 8, 1e-4) * counts.sum()
        enough = int(numpy.flatnonzero(expected >= 10)[-1])
        observed = numpy.append(counts[:enough], counts[enough:].sum())
        expected = numpy.append(expected[:enough], counts.sum() - expected[:enough].sum())
        assert stats.chisquare(observed, expected).pvalue > ALPHA


def test_corruption_and_duplication_have_their_shares():
    flipped = outcomes(1_000_000, corrupt="2%,bits=3,deliver")["flips"]
    assert set(flipped) == {0, 3}
    assert stats.binomtest(int((flipped == 3).sum()), len(flipped), 0.02).pvalue > ALPHA
    copies = outcomes(1_000_000, duplicate="3%,extra=1ms")
    assert stats.binomtest(len(copies) - 1_000_000, 1_000_000, 0.03).pvalue > ALPHA


def reordered(records):
    """Returns the frames that RFC 4737, section 3.3, calls reordered: they arrive after a later one."""
    by_arrival = records["frame"][numpy.lexsort((records["frame"], records["at"]))]
    next_expected = numpy.maximum.accumulate(numpy.append(0, by_arrival[:-1]))
    return by_arrival, by_arrival < next_expected


def test_reordering_is_that_of_rfc_4737():
    records = outcomes(1_000_000, delay="20ms", reorder="1%,extra=4500us")
    by_arrival, late = reordered(records)
    # A frame that is 4.5 ms late arrives after the next four, which are hardly ever all late, too.
    assert stats.binomtest(int(late.sum()), len(records), 0.01).pvalue > ALPHA
    at = numpy.empty(len(by_arrival), int)
    at[by_arrival] = numpy.arange(len(by_arrival))
    # The reordering extent (RFC 4737, section 4.2.3) of a single late packet is four.
    extent = at[by_arrival[late]] - by_arrival[late]
    assert extent.max() == 4 and (extent == 4).mean() > 0.9


def test_ordered_mode_never_reorders_and_shifts_the_mean():
    settings = {"interval": "1ms", "delay": "50ms", "jitter": "5ms,normal"}
    ordered = outcomes(1_000_000, **settings)
    assert not reordered(ordered)[1].any()
    given = (ordered["at"] - ordered["sent"]) / MS
    asked = ordered["asked"] / MS
    assert given.mean() - asked.mean() > 4
    assert reordered(outcomes(1_000_000, order="reordering", **settings))[1].mean() > 0.5
    # With a half-life far above the distance of frames there is nothing to shift.
    smooth = outcomes(1_000_000, interval="1ms", delay="50ms", jitter="5ms,normal,half-life=10s")
    assert abs((smooth["at"] - smooth["sent"]).mean() - smooth["asked"].mean()) < 0.2 * MS


@pytest.mark.parametrize(("rate", "bps"), [("10kbps", 10**4), ("1Mbps", 10**6), ("1Gbps", 10**9), ("10Gbps", 10**10)])
def test_frames_are_spaced_by_the_rate(rate, bps):
    sizes = [60, 1514, 300]
    records = outcomes(10_000, interval="1ns", sizes="60,1514,300", rate=rate, queue="60s")
    sent = records["sent"][records["reason"] == 0]
    assert len(sent) > 50
    bits = numpy.cumsum(numpy.resize(sizes, len(sent)) + 4) * 8
    # The link is never idle: the end of each frame is exact, rounded up to a nanosecond.
    assert (sent == -(-bits.astype(object) * 10**9 // bps)).all()
