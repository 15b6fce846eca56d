"""What a ConfigMap keeps of a watch: as much as it takes, the ends of jobs first."""

import pytest

from rankscope_analyzers.intake.kubernetes_api import Answer
from rankscope_analyzers.watch import completions
from rankscope_analyzers.watch.cluster_jobs import KEPT_AS
from rankscope_analyzers.watch.completions import Completions
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.store import Part
from watched_clusters import Api, Cluster, Watch
from workload_objects import START

ENDS_KEPT = 4096


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_config_map_that_is_refused_is_named(status):
    api = Api()
    api.get = lambda *_: Answer(status, {"message": "no"})
    watch = Watch(Cluster(), ConfigMapStore(api, "state", "rankscope"))
    watch.look()
    assert "rankscope/state" in watch.said[0]
    assert str(status) in watch.said[0]


def test_what_finds_no_room_is_left_out_and_the_ends_come_first():
    api = Api()
    store = ConfigMapStore(api, "state", "rankscope")
    store.read()
    large = Part("job", "x", "y" * (500 << 10))
    assert store.write([Part(KEPT_AS, "", {}), large], 1.0) == 1
    assert [part.kind for part in store.read().parts] == [KEPT_AS]


def test_the_document_in_a_config_map_has_500_kib_at_most():
    api = Api()
    store = ConfigMapStore(api, "state", "rankscope")
    store.read()
    assert store.write([Part("job", "x", "")], 1.0) == 0
    # The number of parts, of which there is one here, may take nine digits more.
    empty = len(api.map["data"]["state"]) + 9
    for size, left_out in ((500 << 10, 0), ((500 << 10) + 1, 1)):
        assert store.write([Part("job", "x", "y" * (size - empty))], 1.0) == left_out


def test_the_most_that_is_kept_fits_into_a_config_map():
    known = Completions(began=1.0)
    for number in range(ENDS_KEPT):
        known.ends[f"{number:08d}-aaaa-bbbb-cccc-dddddddddddd"] = START + number + 0.123456
    for number in range(500):
        known.open[f"{number:08d}-aaaa-bbbb-cccc-eeeeeeeeeeee"] = completions.Open(
            "PyTorchJob", "n" * 63, "c" * 40, START
        )
    for number in range(1000):
        known.totals["n" * 60 + str(number), "c" * 40, "failed", "queue_timeout"] = number
    api = Api()
    store = ConfigMapStore(api, "state", "rankscope")
    store.read()
    assert store.write([Part(KEPT_AS, "", known.kept())], 1.0) == 0
