import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from running import LetterCounter, running

from abalone.evaluation.decision import NEVER, Decision, Thresholds
from abalone.serving.limits import Limits
from patience import PATIENCE


def predict(client, **asked):
    return client.post("/v1/predict", json=asked)


def test_an_answer_of_too_many_labels_is_refused_before_the_model_works_on_it():
    model = LetterCounter()
    with running(model, limits=Limits(labels=7)) as client:
        refused = predict(client, texts=["abc"] * 3, top_k=20_000)
        assert refused.status_code == 422
        assert "the answer would have 9 labels, at most 7 are given at a time" in refused.json()["detail"]
        assert model.batches == []
        assert predict(client, texts=["abc"] * 3, top_k=2).status_code == 200
        assert client.get("/v1/labels").json()["max_labels"] == 7


def test_labels_that_reach_their_threshold_can_be_too_many_as_well():
    with running(LetterCounter(), limits=Limits(labels=3)) as client:
        refused = predict(client, texts=["ab"] * 4)
        assert refused.status_code == 422
        assert "the answer would have 8 labels, at most 3" in refused.json()["detail"]
        assert predict(client, text="ab").status_code == 200


def test_every_label_of_one_text_may_be_asked_for_however_many_there_are():
    with running(LetterCounter(), limits=Limits(labels=1)) as client:
        assert len(predict(client, text="a", top_k=3).json()["predictions"][0]["labels"]) == 3


def test_threshold_that_only_certainty_reaches_is_shown_and_one_that_nothing_reaches_is_not():
    model = LetterCounter()
    model.decision = Decision(Thresholds(np.array([1.0, NEVER, 0.5])))
    with running(model) as client:
        (answer,) = predict(client, text="aaa", top_k=3).json()["predictions"]
    shown = {label["name"]: (label["threshold"], label["given"]) for label in answer["labels"]}
    assert shown == {"a": (1.0, True), "b": (None, False), "c": (0.5, False)}


class SlowNames(tuple):
    """Label names that take their time."""

    asked, may_go = threading.Event(), threading.Event()

    def __getitem__(self, place):
        self.asked.set()
        assert self.may_go.wait(PATIENCE)
        return super().__getitem__(place)


def test_others_are_answered_while_a_large_answer_is_written():
    model = LetterCounter()
    model.label_names = SlowNames("abc")
    with running(model) as client, ThreadPoolExecutor(1) as pool:
        large = pool.submit(predict, client, text="a", top_k=3)
        assert model.label_names.asked.wait(PATIENCE)
        assert client.get("/healthz").status_code == 200
        model.label_names.may_go.set()
        assert large.result().status_code == 200
