"""Plant small bugs, one at a time, and see whether the tests notice: `python tools/mutants.py`, or `make mutants`.

Bugs are drawn by a seed from the places of `mutant_places.py`, each in a copy of the tree, and the tests that run the
changed function are run until one fails. Which tests these are is recorded once, and again where sources or tests have
changed. A bug that no test notices is a missing test, or none at all: tools/mutants_accepted.toml has those, with
reasons.
"""

import argparse
import importlib
import json
import random
import signal
import sys
import tomllib
from datetime import UTC, datetime
from typing import Any

from mutant_places import Mutant, function_at, mutants_of
from mutant_runs import ROOT, WORK, Tests, Tree, modules, run_all

KNOWN, ACCEPTED = ROOT / "tools" / "mutants_known.toml", ROOT / "tools" / "mutants_accepted.toml"
RESULTS = WORK / "results.json"
# Imported once, before the processes of the tests part from this one.
PRELOADED = ("torch", "scipy.stats", "sklearn.linear_model", "transformers", "tokenizers", "hypothesis", "httpx",
             "typer", "pyarrow.parquet", "fastapi", "uvicorn")  # fmt: skip

Results = dict[str, str]  # by the key of a mutant: `survived`, `accepted`, or what has noticed it


def main() -> int:
    """Run the command; its exit status is 1 where a bug has survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200, help="how many bugs (200)")
    parser.add_argument("--seed", default=f"{datetime.now(UTC):%Y%m%d}", help="which ones (today's date)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (1)")
    parser.add_argument("--resume", action="store_true", help="go on with the last run, and try its survivors again")
    parser.add_argument("--known", action="store_true", help=f"plant the bugs of {KNOWN.name} instead")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that nothing stays behind
    WORK.mkdir(parents=True, exist_ok=True)
    for name in PRELOADED:
        importlib.import_module(name)
    trees = [Tree(WORK / f"tree-{number}") for number in range(options.jobs)]
    try:
        tests = Tests.recorded(trees)
        return replay(trees, tests) if options.known else search(trees, tests, options)
    finally:
        for tree in trees:
            tree.remove()


def search(trees: list[Tree], tests: Tests, options: argparse.Namespace) -> int:
    """Plant randomly drawn bugs, and print those that survive."""
    before = json.loads(RESULTS.read_text()) if options.resume and RESULTS.exists() else {}
    seed, results = str(before.get("seed", options.seed)), Results(before.get("results", {}))
    places = {mutant.key: mutant for mutant in all_mutants()}
    accepted = read_accepted(places)
    drawn = [places[key] for key in results if key in places] if results else draw(list(places.values()), options)
    results = {mutant.key: results.get(mutant.key, "waiting") for mutant in drawn}
    results |= {mutant.key: "accepted" for mutant in drawn if mutant.key in accepted}
    waiting = [mutant for mutant in drawn if results[mutant.key] in ("waiting", "survived")]
    print(f"{len(drawn)} bugs, seed {seed}: {len(waiting)} to try")
    for tree, mutant, outcome in run_all(trees, waiting, lambda tree, mutant: start(tree, mutant, tests)):
        tree.plant(mutant.file, (ROOT / mutant.file).read_bytes())
        results[mutant.key] = outcome
        RESULTS.write_text(json.dumps({"seed": seed, "results": results}, indent=1))
        tried = sum(result not in ("waiting", "accepted") for result in results.values())
        print(f"{tried:4} {mutant.file}:{mutant.line}: {outcome}", flush=True)
    survivors = [mutant for mutant in drawn if results[mutant.key] == "survived"]
    for mutant in survivors:
        print(f"\n{mutant.file}:{mutant.line}\n- {mutant.before}\n+ {mutant.after}")
    spared = sum(result == "accepted" for result in results.values())
    counted = len(drawn) - spared
    print(
        f"\n{counted - len(survivors)} of {counted} bugs killed ({1 - len(survivors) / max(counted, 1):.1%}), ", end=""
    )
    print(f"{spared} accepted as none; seed {seed}")
    return 1 if survivors else 0


def replay(trees: list[Tree], tests: Tests) -> int:
    """Plant the known bugs, which tests once missed."""
    missed, planted = 0, list[Mutant]()
    for bug in tomllib.loads(KNOWN.read_text(encoding="utf-8"))["bug"]:
        source = (ROOT / bug["file"]).read_text(encoding="utf-8")
        if source.count(bug["old"]) != 1:
            print(f"does not apply to {bug['file']}: {bug['what']}; {KNOWN.name} needs the lines as they are now")
            missed += 1
            continue
        start_ = source.index(bug["old"])
        line = source.count("\n", 0, start_) + 1
        function = function_at(source.encode(), line + bug["old"].count("\n") // 2)
        first, last = len(source[:start_].encode()), len(source[: start_ + len(bug["old"])].encode())
        planted.append(Mutant(bug["file"], first, last, bug["new"], line, function, bug["what"], ""))
    for tree, mutant, outcome in run_all(trees, planted, lambda tree, mutant: start(tree, mutant, tests)):
        tree.plant(mutant.file, (ROOT / mutant.file).read_bytes())
        missed += outcome == "survived"
        print(f"{mutant.before}: {outcome}", flush=True)
    print(f"\n{len(planted)} known bugs planted, {missed} not applied or not noticed")
    return 1 if missed else 0


def start(tree: Tree, mutant: Mutant, tests: Tests) -> None:
    """Plant a bug and run the tests that may notice it."""
    tree.plant(mutant.file, mutant.planted((ROOT / mutant.file).read_bytes()))
    found = tests.of(mutant.file, mutant.function)
    # One file of tests is enough for most bugs, and it takes seconds to import the others.
    first = [test for test in found if test.partition("::")[0] == found[0].partition("::")[0]]
    tree.start(first, tests.limits(), further=found[len(first) :])


def all_mutants() -> list[Mutant]:
    """Return every mutant of the modules."""
    files = [path.relative_to(ROOT).as_posix() for path in modules()]
    return [mutant for file in files for mutant in mutants_of(file, (ROOT / file).read_bytes())]


def draw(places: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Draw so many mutants by the seed."""
    random.Random(options.seed).shuffle(places)
    drawn: list[Mutant] = []
    for mutant in places:
        if len(drawn) == options.count:
            break
        if mutant.is_one((ROOT / mutant.file).read_bytes()):
            drawn.append(mutant)
    return drawn


def read_accepted(places: dict[str, Mutant]) -> set[str]:
    """Read the keys of accepted mutants, and name those that no longer match any place."""
    stored: list[dict[str, Any]] = tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))["accepted"]
    keys = {f"{one['file']}: {one['before']} -> {one['after']}" for one in stored}
    for key in sorted(keys - places.keys()):
        print(f"{ACCEPTED.name} has what is no longer there: {key}")
    return keys


if __name__ == "__main__":
    sys.exit(main())
