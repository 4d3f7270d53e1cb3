"""What the acts of the demo share: what they print, how they fail, and where they run."""

import pathlib
import sys

from sites import ENGINE

HERE = pathlib.Path(__file__).resolve().parent
ON_ENGINE = ["ip", "netns", "exec", ENGINE]
BOLD, DIM, OFF = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class Failed(Exception):
    """An act failed one of its checks."""


def act(title):
    """Prints the heading of an act."""
    print(f"\n{BOLD}== {title}{OFF}", flush=True)


def say(text):
    """Prints a line."""
    print(text, flush=True)


def row(name, *values):
    """Prints a line of a table."""
    print(f"  {name:<58}" + "".join(f"{value!s:>16}" for value in values), flush=True)


def hold(condition, text):
    """Fails the act if a condition is false."""
    if not condition:
        raise Failed(text)
