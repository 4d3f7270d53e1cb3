"""The exchange of `make demo-exchange` in a short form: two sites, four real routers, a path, a trunk that fails, attacks dropped
and found, a change that the verifier refuses. The page and the end of the engine have tests of their own. Needs root, and the
routers of `scripts/setup.sh routers`."""

import contextlib
import os
import sys

import pytest

from fabrics import FAST_BFD, SLOW_BFD
from routers import KINDS
from switches import ROOT, wait_for

sys.path.insert(0, str(ROOT / "demo" / "exchange"))
from attacks import Attacks  # noqa: E402
from demo import Demo  # noqa: E402

# The number of the port to trunk north (demo/exchange/otemachi.toml).
NORTH = 101

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not all(kind.is_installed() for kind in KINDS.values()), reason="needs `scripts/setup.sh routers`"),
]


class ShortDemo(Demo):
    """The demo on a busy machine: a switch may be away from its core for seconds, and the trunk that fails loses its carrier."""

    def switch_config(self, name):
        text = super().switch_config(name)
        assert text.count(FAST_BFD) == 2, text
        return text.replace(FAST_BFD, SLOW_BFD)

    def cut_under_traffic(self):
        """Cuts the trunk north as soon as it carries the frames of the path; BFD and BGP send some frames a second."""
        before = self.otemachi.port_packets(NORTH)[1]
        wait_for("the path is on the trunk", lambda: self.otemachi.port_packets(NORTH)[1] > before + 200)
        self.sites.wires["north"].cut()


def test_two_sites_carry_routers_and_a_path_survive_a_trunk_and_drop_an_attack_where_it_enters(tmp_path):
    with contextlib.ExitStack() as stack:
        # A minute for a busy machine; check_exchange.py and the demo have one second. The interface of a switch that is away from
        # its core has room for the frames of an attack of some seconds.
        demo = ShortDemo(tmp_path, tmp_path, stack, page=False, quarantine=False, calm=0.6, effect=60.0, attack_pps=300)
        demo.start()
        demo.peer()
        demo.order()
        gap_ms, lost, repeated = demo.gap(demo.cut_under_traffic)
        # Frames of three seconds, in which a busy machine runs all that take part; check_exchange.py has 150 ms.
        assert lost <= 3000 and repeated == 0, f"{lost} frames, a gap of {gap_ms} ms"
        attacks = Attacks(demo)
        attacks.drop()
        attacks.find()
        demo.refuse_change()
