"""kill −9 while a model is written, as a folder or as one file: there is always a whole one."""

import os
from functools import partial

import pytest

from victims import strike_export, strike_saving, workshop

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


@pytest.mark.parametrize("strike", [strike_saving, partial(strike_export, graph_again=False)], ids=["folder", "file"])
def test_killed_writers_leave_a_whole_model(strike, tmp_path):
    with workshop(tmp_path) as shop:
        assert strike(shop, 3, 1).kills == 3
