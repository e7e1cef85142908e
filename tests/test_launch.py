"""What launchers say in the environment, and that nothing said means one process."""

import pytest

from abalone.launch import is_main, launched, launched_here

VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "7"}, (0, 1)),  # a variable of something else
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "WORLD_SIZE": "1"}, (2, 4)),
    ],
)
def test_launched(environment, expected, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched() == expected
    assert is_main() == (expected[0] == 0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, (0, 1)),  # variables of something else
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (None, 8)),
        (
            {f"OMPI_COMM_WORLD_{name}": "2" for name in ("RANK", "SIZE")}
            | {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            (0, 1),
        ),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (1, 2)),
    ],
)
def test_launched_here(environment, expected, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched_here() == expected
