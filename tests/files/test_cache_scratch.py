import numpy as np

from abalone.files import cache
from abalone.files.cache import array_of, scratch_array


def test_large_arrays_lie_in_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    array = scratch_array((3, 4), np.float16)
    assert isinstance(array, np.memmap)
    array[:] = 2
    assert array.sum() == 24
    assert list(tmp_path.iterdir()) == []
    assert scratch_array((0, 4), np.float32).shape == (0, 4)


def test_only_what_is_large_does(monkeypatch):
    assert not isinstance(array_of((3, 4), np.float32), np.memmap)
    monkeypatch.setattr(cache, "IN_MEMORY", 47)
    assert isinstance(array_of((3, 4), np.float32), np.memmap)
