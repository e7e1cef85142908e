import pytest

from abalone.files.schema import NUMBER, misfit

SHAPE = {"name": str, "counts": [int], "best?": (NUMBER, None), "scores": {"*": NUMBER}, "on": bool}
WHOLE = {"name": "a", "counts": [1, 2], "best": None, "scores": {"x": 0.5}, "on": True, "more": object()}


def test_what_fits():
    assert misfit(WHOLE, SHAPE) is None
    assert misfit({**WHOLE, "best": 3}, SHAPE) is None
    assert misfit({key: value for key, value in WHOLE.items() if key != "best"}, SHAPE) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": None}, "it['name'] is NoneType"),
        ({"counts": {}}, "it['counts'] is dict"),
        ({"counts": [1, "2"]}, "it['counts'][1] is str"),
        ({"counts": [True]}, "it['counts'][0] is bool"),
        ({"best": "high"}, "it['best'] is str"),
        ({"scores": {"x": float("nan")}}, "it['scores'][…] is float"),
        ({"scores": {"x": 10**400}}, "it['scores'][…] is int"),
        ({"scores": []}, "it['scores'] is list"),
        ({"on": 1}, "it['on'] is int"),
    ],
)
def test_what_does_not_is_told_by_its_place(change, told):
    assert misfit({**WHOLE, **change}, SHAPE) == told


def test_what_is_missing():
    assert misfit({"name": "a"}, SHAPE) == "it has no 'counts'"
    assert misfit([], SHAPE) == "it is list"
