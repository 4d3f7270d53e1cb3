"""The 95th percentiles of months beside those of numpy, rrdtool and Prometheus, over the same rates (gate A26).

Needs rrdtool and Prometheus (`scripts/setup.sh collectors`); `make exchange-check` runs it.
"""

import datetime
import json
import math
import random
import shutil
import subprocess
import urllib.parse
import urllib.request

import numpy
import pytest

from switches import TARGET, end, free_port, wait_for

pytestmark = [
    pytest.mark.skipif(not shutil.which("rrdtool"), reason="needs rrdtool: scripts/setup.sh collectors"),
    pytest.mark.skipif(not shutil.which("promtool"), reason="needs prometheus: scripts/setup.sh"),
]
STEP_S = 300
# The tolerances: of rrdtool and numpy, and of Prometheus, which interpolates between samples at the edges of its range.
EXACT, PROMETHEUS = 0.001, 0.01


def usual(hour, peak, noise):
    """Returns a rate in bit/s of a day with a high in the evening."""
    return round(peak * (0.55 + 0.45 * math.cos((hour - 21) * math.pi / 12)) * noise.uniform(0.8, 1.2))


def burst(hour, peak, noise):
    """Returns a rate in bit/s that is low for nine tenths of the time."""
    return round(peak * (noise.uniform(0.5, 1) if noise.random() < 0.1 else 0.01))


def long_tail(hour, peak, noise):
    """Returns a rate in bit/s of a log-normal law, whose upper values lie far apart."""
    return round(min(peak * noise.lognormvariate(-2, 1), 4e11))


MONTHS = [(usual, 2026, 2, 0), (burst, 2026, 11, 540), (long_tail, 2024, 12, -210), (usual, 2024, 2, 60)]


def bounds(year, month, offset):
    """Returns the first second of a month and of the next one, in a zone that is `offset` minutes ahead of UTC."""
    def first(year, month):
        return int(datetime.datetime(year, month, 1, tzinfo=datetime.timezone.utc).timestamp()) - 60 * offset
    return first(year, month), first(year + month // 12, month % 12 + 1)


def rates(law, seed, start, stop):
    """Returns (time, towards the exchange, from it) for each known interval."""
    noise, found, at = random.Random(seed), [], start
    while at < stop:
        if noise.random() < 0.0005:
            at += STEP_S * noise.randrange(1, 40)
            continue
        hour = at % 86400 / 3600
        found.append((at, law(hour, 1e9, noise), law(hour, 3e8, noise)))
        at += STEP_S
    return found


def ours(found, year, month, offset):
    lines = "".join(f"{at} {one} {other}\n" for at, one, other in found)
    said = subprocess.run([TARGET / "examples" / "month", f"{year}-{month:02}", str(offset)], input=lines, text=True,
                          capture_output=True, timeout=300, check=True)
    one, other, coverage = map(int, said.stdout.split())
    return (one, other), coverage


def by_rrdtool(folder, found, start, stop):
    file, count = folder / "month.rrd", (stop - start) // STEP_S
    # An interval's value stands at its end; gaps are longer than the heartbeat.
    subprocess.run(["rrdtool", "create", file, "--start", str(start), "--step", str(STEP_S), f"DS:in:GAUGE:{STEP_S}:0:U",
                    f"DS:out:GAUGE:{STEP_S}:0:U", f"RRA:AVERAGE:0.5:1:{count}"], timeout=60, check=True)
    for begin in range(0, len(found), 1000):
        updates = [f"{at + STEP_S}:{one}:{other}" for at, one, other in found[begin:begin + 1000]]
        subprocess.run(["rrdtool", "update", file, *updates], timeout=60, check=True)
    said = subprocess.run(
        ["rrdtool", "graph", "/dev/null", "--start", str(start), "--end", str(stop), "--step", str(STEP_S), "--width", str(count),
         *(word for name in ("in", "out") for word in (
             f"DEF:{name}={file}:{name}:AVERAGE", f"VDEF:p{name}={name},95,PERCENTNAN", f"PRINT:p{name}:%.0lf"))],
        text=True, capture_output=True, timeout=60, check=True)
    return tuple(map(int, said.stdout.split()[1:]))


class Prometheus:
    """A Prometheus over blocks that promtool makes of the rates."""

    def __init__(self, folder, found):
        lines = ["# TYPE rate gauge"]
        lines += [f'rate{{way="{way}"}} {values[column]} {values[0]}' for column, way in ((1, "in"), (2, "out")) for values in found]
        (folder / "rates.om").write_text("\n".join([*lines, "# EOF", ""]))
        (folder / "prometheus.yml").write_text("global: {}\n")
        blocks = folder / "blocks"
        # A month in blocks of two hours takes minutes.
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "--max-block-duration=768h", "openmetrics", folder / "rates.om", blocks],
                       timeout=300, check=True, stdout=subprocess.DEVNULL)
        self.port, self.log = free_port(), (folder / "prometheus.log").open("w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={blocks}",
             "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)

    def value(self, way, start, stop):
        expression = f'quantile_over_time(0.95, rate{{way="{way}"}}[{stop - start}s])'
        query = urllib.parse.urlencode({"query": expression, "time": stop - 1})

        def answer():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=60) as reply:
                    return json.load(reply)["data"]["result"]
            except OSError:
                return None
        return float(wait_for("Prometheus answers", answer)[0]["value"][1])


@pytest.mark.parametrize(("law", "year", "month", "offset"), MONTHS)
def test_the_percentiles_of_a_month_are_those_of_numpy_rrdtool_and_prometheus(tmp_path, law, year, month, offset):
    start, stop = bounds(year, month, offset)
    found = rates(law, f"{year}-{month}", start, stop)
    values, coverage = ours(found, year, month, offset)
    assert coverage == 1000 * len(found) * STEP_S // (stop - start)
    rrdtool = by_rrdtool(tmp_path, found, start, stop)
    with Prometheus(tmp_path, found) as prometheus:
        for column, (way, value) in enumerate(zip(("in", "out"), values), 1):
            others = {"numpy": numpy.percentile([rate[column] for rate in found], 95), "rrdtool": rrdtool[column - 1],
                      "Prometheus": prometheus.value(way, start, stop)}
            print(f"{year}-{month:02} {law.__name__} {way}: {value}; " + ", ".join(f"{name} {other:.0f}" for name, other in others.items()))
            for name, other in others.items():
                assert math.isclose(value, other, rel_tol=PROMETHEUS if name == "Prometheus" else EXACT), (name, value, other)
