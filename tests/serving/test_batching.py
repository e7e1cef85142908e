import asyncio
import threading

import pytest

from abalone.serving import batching
from abalone.serving.batching import Batcher, Busy
from patience import PATIENCE


class Model:
    """Answers with the item, and remembers its batches; waits at the gate where there is one."""

    def __init__(self, gate=None):
        self.gate, self.entered, self.batches = gate, threading.Event(), []

    def __call__(self, items):
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(PATIENCE)
        self.batches.append(list(items))
        if "boom" in items:
            raise RuntimeError("boom")
        return [f"<{item}>" for item in items]


def use(model, scenario, **options):
    """Run `scenario(batcher)` with a batcher of its own."""
    batcher = Batcher(model, len, **options)
    try:
        return asyncio.run(scenario(batcher))
    finally:
        batcher.close()


async def entered(model):
    assert await asyncio.to_thread(model.entered.wait, 20)


def test_answers_come_in_the_order_of_the_items():
    async def scenario(batcher):
        return await asyncio.gather(*(batcher.submit([f"{job}.{place}" for place in range(job)]) for job in range(9)))

    answers = use(Model(), scenario)
    assert answers == [[f"<{job}.{place}>" for place in range(job)] for job in range(9)]


def test_what_arrives_while_the_model_is_busy_goes_together():
    gate = threading.Event()
    model = Model(gate)

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.submit(["first"]))
        await entered(model)
        others = [asyncio.ensure_future(batcher.submit([f"{i}"])) for i in range(20)]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, *others)

    use(model, scenario)
    assert [len(batch) for batch in model.batches] == [1, 20]


def test_a_batch_has_bounds(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_ITEMS", 4)
    monkeypatch.setattr(batching, "BATCH_CHARACTERS", 10)
    model = Model()

    async def scenario(batcher):
        await batcher.submit(["x"] * 10)
        await batcher.submit(["x" * 6] * 4)

    use(model, scenario)
    assert [len(batch) for batch in model.batches] == [4, 4, 2, 2, 2]


def test_one_text_does_not_wait_for_a_long_list(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_ITEMS", 8)
    gate = threading.Event()
    model = Model(gate)

    async def scenario(batcher):
        long = asyncio.ensure_future(batcher.submit(["long"] * 100))
        await entered(model)
        short = asyncio.ensure_future(batcher.submit(["short"]))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(long, short)

    use(model, scenario)
    assert "short" in model.batches[1]


def test_only_the_job_that_the_model_fails_on_fails():
    gate = threading.Event()
    model = Model(gate)

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.submit(["first"]))
        await entered(model)
        others = [asyncio.ensure_future(batcher.submit([item, "x"])) for item in ("good", "boom", "fine")]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    _, good, failed, fine = use(model, scenario)
    assert good == ["<good>", "<x>"]
    assert fine == ["<fine>", "<x>"]
    assert isinstance(failed, RuntimeError)


def test_a_job_whose_client_has_gone_is_dropped():
    gate = threading.Event()
    model = Model(gate)

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.submit(["first"]))
        await entered(model)
        gone = asyncio.ensure_future(batcher.submit(["gone"] * 5))
        await asyncio.sleep(0)
        assert batcher.waiting == 5
        gone.cancel()
        await asyncio.wait([gone])
        assert batcher.waiting == 0
        gate.set()
        await first
        assert await batcher.submit(["next"]) == ["<next>"]

    use(model, scenario)
    assert model.batches == [["first"], ["next"]]


def test_newcomers_are_sent_away_when_there_is_no_room():
    gate = threading.Event()
    model = Model(gate)

    async def scenario(batcher):
        first = asyncio.ensure_future(batcher.submit(["first"]))
        await entered(model)
        waiting = asyncio.ensure_future(batcher.submit(["waiting"] * 3))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="3 texts are waiting already") as refused:
            await batcher.submit(["one", "too many"])
        assert 1 <= refused.value.retry_after <= 60
        fits = asyncio.ensure_future(batcher.submit(["fits"]))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, waiting, fits)

    use(model, scenario, room=4)


def test_long_lists_leave_room_for_few_texts(monkeypatch):
    monkeypatch.setattr(batching, "FEW", 1)
    model = Model(gate=threading.Event())

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit(["at work"]))
        await entered(model)
        taken = [asyncio.create_task(batcher.submit(["a", "b"])) for _ in range(3)]  # 6 of 8
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="6 texts are waiting already"):
            await batcher.submit(["c", "d"])
        single = asyncio.create_task(batcher.submit(["e"]))
        await asyncio.sleep(0)
        model.gate.set()
        await asyncio.gather(first, *taken)
        assert await single == ["<e>"]

    use(model, scenario, room=8)


def test_closing_answers_what_waits_and_takes_no_more():
    gate = threading.Event()
    model = Model(gate)

    async def scenario(batcher):
        jobs = [asyncio.ensure_future(batcher.submit([f"{i}"])) for i in range(5)]
        await entered(model)
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close))
        while batcher.alive:
            await asyncio.sleep(0.001)
        with pytest.raises(Busy, match="stopping"):
            await batcher.submit(["late"])
        gate.set()
        await closing
        return await asyncio.gather(*jobs)

    assert use(model, scenario) == [[f"<{i}>"] for i in range(5)]


def test_a_failure_outside_the_model_does_not_end_the_worker():
    def observe(items, seconds):
        raise KeyboardInterrupt

    async def scenario(batcher):
        return [await batcher.submit([item]) for item in "abc"]

    assert use(Model(), scenario, observe=observe) == [["<a>"], ["<b>"], ["<c>"]]


def test_batches_are_observed():
    seen = []

    async def scenario(batcher):
        await batcher.submit(["a", "b"])

    use(Model(), scenario, observe=lambda items, seconds: seen.append((items, seconds >= 0)))
    assert seen == [(2, True)]
