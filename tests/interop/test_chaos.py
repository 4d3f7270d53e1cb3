"""Twenty seconds of connection chaos; `make soak` runs ten minutes."""

import os

import pytest

from chaos import chaos

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def test_controllers_that_are_killed_stopped_deaf_or_flood_cost_established_flows_nothing(tmp_path):
    chaos(tmp_path, 20)
