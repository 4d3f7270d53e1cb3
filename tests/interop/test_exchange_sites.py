"""The exchange of `make demo-exchange` in a short form: two sites, four real routers, a path, a trunk that fails, an attack. The
page and the end of the engine have tests of their own. Needs root, and the routers of `scripts/setup.sh routers`."""

import contextlib
import os
import sys

import pytest

from routers import KINDS
from switches import ROOT

sys.path.insert(0, str(ROOT / "demo" / "exchange"))
from demo import Demo  # noqa: E402

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not all(kind.is_installed() for kind in KINDS.values()), reason="needs `scripts/setup.sh routers`"),
]


def test_two_sites_carry_routers_and_a_path_survive_a_trunk_and_drop_an_attack_where_it_enters(tmp_path):
    with contextlib.ExitStack() as stack:
        # Ten seconds for a busy machine; check_exchange.py and the demo have one second.
        demo = Demo(tmp_path, tmp_path, stack, page=False, quarantine=False, calm=0.6, effect=10.0)
        demo.start()
        demo.peer()
        demo.order()
        gap_ms, _, repeated = demo.gap(demo.sites.wires["north"].cut)
        assert gap_ms <= 500 and repeated == 0, f"{gap_ms} ms; the bound is 150 ms on a quiet machine"
        demo.attack()
