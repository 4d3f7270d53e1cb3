"""The options of `--netem` beside those of `tc qdisc add … netem`: what tc takes, `millrace wan` takes, and what tc refuses, it refuses.

tc parses before it asks the kernel, so the kernel needs no netem: a kernel without it refuses with another status than the parser.
"""

import itertools
import random
import subprocess

import pytest

from switches import TARGET

# The status of tc for a refusal by the kernel, which comes after the parser has taken the options, and for none.
TAKEN = (0, 2)
TIMES = ["10ms", "15ms", "10MS", "1.5ms", "1e3", "1500", "0", "20msec", "0.01s", "1secs", "10usecs", "500us", "10", "10m", "-1ms",
         "soon", "ms", "1 ms"]
SHARES = ["1%", "1", "0.5", "25%", "100%", "0%", "101%", "-1%", "half", "1 %"]
SIZES = ["1000", "1k", "10kb", "1.5k", "2KB", "1mb", "1kbit", "1b", "-1", "many", "1x"]
RATES = ["1mbit", "1MBIT", "10Mbps", "1000", "1kbit", "5KiBps", "1Gibit", "20gbit", "0.5mbit", "fast", "1mbits"]
OPTIONS = {
    "delay": [TIMES, [""] + TIMES, ["", "25%", "0.3"]],
    "loss": [["", "random"], SHARES, ["", "25%"]],
    "loss state": [SHARES[:4], ["", "50%"], ["", "10"], ["", "50"]],
    "loss gemodel": [SHARES[:4], ["", "10%"], ["", "70%"], ["", "0.1%"]],
    "drop": [SHARES],
    "duplicate": [SHARES, ["", "20%"]],
    "corrupt": [SHARES],
    "limit": [SIZES],
    "rate": [RATES],
}
COMBINED = ["delay 10ms", "delay 10ms 15ms", "delay 10ms 5ms 25%", "loss 1%", "loss gemodel 1% 10%", "duplicate 1%", "reorder 25% 50%",
            "reorder 1%", "gap 5", "rate 1mbit", "limit 1k", "distribution normal", "distribution pareto", "delay 0", "corrupt 0.1%",
            "delay", "loss", "bogus"]


def family():
    """Returns each option with its values, and drawn combinations of options."""
    texts = []
    for option, words in OPTIONS.items():
        every = [f"{option} {' '.join(filter(None, values))}" for values in itertools.product(*words)]
        texts += random.Random(option).sample(every, min(len(every), 11))
    draw = random.Random(1)
    texts += COMBINED
    texts += sorted({" ".join(draw.sample(COMBINED, draw.choice((2, 2, 3)))) for _ in range(30)})
    return texts


def test_tc_and_the_emulator_take_the_same_options():
    differences = []
    for text in family():
        of_tc = subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", *text.split()], capture_output=True, text=True,
                               timeout=60)
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True, timeout=60, check=False)
        own = subprocess.run([TARGET / "millrace", "wan", "between", "mr-none1", "mr-none2", "--memory", "8MiB", "--netem", text],
                             capture_output=True, text=True, timeout=60)
        # Neither interface exists: an emulator that has taken the options says so.
        is_taken = "mr-none1" in own.stderr
        if is_taken != (of_tc.returncode in TAKEN):
            differences.append(f"{text}: tc {of_tc.returncode} {of_tc.stderr.splitlines()[:1]}, millrace {own.stderr.strip()}")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("text, part", [
    ("slot 1ms", "`slot`"), ("rate 1mbit 20 48", "`48`"), ("rate 1mbit -20", "negative overhead"), ("delay 20s", "10s"),
    ("delay 10ms 1ms 100%", "100%"), ("loss 1% ecn", "`ecn`"),
])
def test_what_the_emulator_does_not_have_is_refused_by_name(text, part):
    own = subprocess.run([TARGET / "millrace", "wan", "between", "mr-none1", "mr-none2", "--memory", "8MiB", "--netem", text],
                         capture_output=True, text=True, timeout=60)
    assert part in own.stderr, own.stderr
