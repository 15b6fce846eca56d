import json

import numpy as np
import pytest

from rankscope_agent.contract.metrics import gpus
from rankscope_analyzers.configuration.document import parse
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_analyzers.configuration.values import Configuration, of_document
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.intake.observed import Series, gathered
from rankscope_analyzers.watch.bill import Bill, gpu_models, models_of, most_common

KNOWN = of_document(parse(EXAMPLE, "example"), "example")
H100 = "NVIDIA H100 80GB HBM3"


def values(bill):
    return {
        (one.metric.name.removeprefix("rankscope_project_"), *one.labels): one.value
        for one in bill.samples()
        if one.value
    }


def test_gpu_time_costs_what_the_first_price_that_fits_says():
    bill = Bill(KNOWN)
    bill.add(("llm", "production"), {parts.PRODUCTIVE: 7200.0, parts.HANG: 1800.0}, H100)
    bill.add(("vision", ""), {parts.PRODUCTIVE: 3600.0}, H100)
    bill.add(("", ""), {parts.PRODUCTIVE: 3600.0}, "")
    assert values(bill) == {
        ("cost_total", "llm", "production", "productive", "EUR"): pytest.approx(4.2),
        ("cost_total", "llm", "production", "hang", "EUR"): pytest.approx(1.05),
        ("cost_total", "vision", "", "productive", "EUR"): pytest.approx(2.4),
        ("cost_total", "", "", "productive", "EUR"): pytest.approx(1.2),
        ("budget", "llm", "EUR"): 400000.0,
    }


def test_time_that_no_price_fits_is_told_apart():
    text = "version: 1\nprices: {currency: USD, gpu_hours: [{gpu: H100, price: 2}]}"
    bill = Bill(of_document(parse(text, "f"), "f"))
    bill.add(("llm", ""), {parts.PRODUCTIVE: 10.0, parts.IDLE: 5.0}, "NVIDIA A100")
    assert values(bill) == {("unpriced_gpu_seconds_total", "llm"): 15.0}


def test_without_prices_nothing_costs_anything():
    bill = Bill(Configuration())
    bill.add(("llm", ""), {parts.PRODUCTIVE: 10.0}, H100)
    assert not values(bill)


def test_sums_go_on_from_what_was_kept_in_the_same_currency():
    bill = Bill(KNOWN)
    bill.add(("llm", ""), {parts.PRODUCTIVE: 3600.0}, H100)
    kept = json.loads(json.dumps(bill.kept()))
    later = Bill(KNOWN)
    later.restore(kept)
    assert values(later) == values(bill)
    other = Bill(of_document(parse(EXAMPLE.replace("EUR", "USD"), "f"), "f"))
    other.restore(kept)
    assert {key[0] for key in values(other)} == {"budget"}
    for bad in (
        {**kept, "costs": [["a", "b", {"productive": -1}]]},
        {**kept, "unpriced": {"a": -1}},
    ):
        with pytest.raises(ValueError, match=r"not (a )?sum"):
            later.restore(bad)


def test_a_job_is_of_the_project_of_its_label_or_else_of_its_namespace():
    bill = Bill(KNOWN)
    assert bill.owner("vision-prod/job", ("", "research")) == ("vision", "research")
    assert bill.owner("vision-prod/job", ("own", "")) == ("own", "")
    assert bill.owner("slurm-17", ("", "")) == ("", "")


def info(node, uuid, model):
    labels = {"uuid": uuid, "model": model}
    return Series(node, gpus.GPU_INFO.name, labels, np.array([1.0]), np.array([1.0]))


def test_a_jobs_gpus_are_of_the_model_that_most_of_its_ranks_have():
    models = gpu_models(
        gathered([info("a", "1", H100), info("a", "2", "A100"), info("b", "1", H100)])
    )
    ranks = [
        RankLocation(0, "a", uuid="1"),
        RankLocation(1, "a", uuid="2"),
        RankLocation(2, "b", uuid="1"),
    ]
    assert models_of(ranks, models) == [H100, "A100", H100]
    assert most_common(models_of(ranks, models)) == H100
    assert most_common(models_of([RankLocation(0, "c", uuid="1")], models)) == ""
