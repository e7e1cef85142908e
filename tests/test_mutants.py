"""Where `tools/mutants.py` plants bugs, and where it does not."""

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
MODULE = '''"""At most 3 of 5."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 3

@cached(7)
def pick(x: "list[1 < 2]", limit=3) -> "1 < 2":
    """Give 1 < 2."""
    log.info("%d", 1 < 2)
    if not x and limit < 5:
        raise ValueError(f"{limit + 1} < 2")
    fresh = x
    limit += 1
    x = min(x, limit)
    x.insert(0, True)
    return x[1:limit]
'''


@pytest.fixture(scope="module")
def places():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        import mutant_places

        yield mutant_places


def test_bugs_are_planted_in_code_and_not_in_what_is_only_read(places):
    found = places.mutants_of("m.py", MODULE.encode())
    assert {(mutant.before, mutant.after) for mutant in found} == {
        ('def pick(x: "list[1 < 2]", limit=3) -> "1 < 2":', 'def pick(x: "list[1 < 2]", limit=4) -> "1 < 2":'),
        ("if not x and limit < 5:", "if (not x or limit < 5):"),
        ("if not x and limit < 5:", "if (x) and limit < 5:"),
        ("if not x and limit < 5:", "if not x and (limit <= 5):"),
        ("if not x and limit < 5:", "if not x and limit < 6:"),
        ("limit += 1", "limit -= 1"),
        ("limit += 1", "limit += 2"),
        ("limit += 1", "pass"),
        ("x = min(x, limit)", "x = max(x, limit)"),
        ("x.insert(0, True)", "x.insert(True, 0)"),
        ("x = min(x, limit)", "pass"),  # and not `fresh = x`, without which nothing would run
        ("x.insert(0, True)", "x.insert(0, False)"),
        ("x.insert(0, True)", "x.insert(1, True)"),
        ("x.insert(0, True)", "pass"),
        ("return x[1:limit]", "return None"),
        ("return x[1:limit]", "return x[1 + 1:limit]"),
        ("return x[1:limit]", "return x[1:limit - 1]"),
        ("return x[1:limit]", "return x[2:limit]"),
    }  # fmt: skip
    assert {mutant.function for mutant in found} == {6}  # where the decorator is
    assert all(mutant.is_one(MODULE.encode()) for mutant in found)


def test_a_bug_is_the_only_difference_whatever_characters_are_before_it(places):
    source = 'ä = "ü"; n = 1  # ö\n'
    (mutant,) = places.mutants_of("m.py", source.encode())
    assert mutant.planted(source.encode()).decode() == source.replace("1", "2")


@pytest.mark.parametrize(("line", "function"), [(1, None), (3, None), (6, 6), (7, 6), (12, 6)])
def test_function_around_a_line(line, function, places):
    assert places.function_at(MODULE.encode(), line) == function
