"""What is kept of logs, files and nodes that say a lot, and numbers that no job has."""

import pytest

from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract.failures.error_files import parse
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.kernel.events import KernelEvent
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Scrape
from rankscope_agent.contract.nccl.job_size import world_size
from rankscope_agent.sources.kernel_log.tally import Tally


def test_32_lines_that_nothing_explains_are_quoted_and_the_rest_is_counted():
    signs = FailureSigns()
    for word in range(26):
        for other in "ab":
            signs.quote("rank0.log", word, f"ERROR {chr(97 + word)}{other} failed")
    assert len(signs.quotes) == 32
    assert signs.beyond_limits == 52 - 32
    signs.quote("rank0.log", 99, "ERROR aa failed")
    assert signs.beyond_limits == 52 - 32, "what is quoted is counted there"


@pytest.mark.parametrize(("stated", "size"), [(2**20, 2**20), (2**20 + 1, 0)])
def test_a_job_of_more_than_a_million_ranks_is_none(stated, size):
    assert world_size(b"WORLD_SIZE=%d\n" % stated) == size


@pytest.mark.parametrize(("longer", "read"), [(0, True), (1, False)])
def test_an_error_file_of_more_than_four_mebibytes_is_none(longer, read):
    text = b'{"message": {"message": "ValueError: no", "extraInfo": {}}}'
    padded = text + b" " * (4 * 2**20 - len(text) + longer)
    assert (parse(padded) is not None) is read


def stuck(device):
    return KernelEvent(
        kind="nic_command_timeout",
        cause="network_nic",
        action="reboot_node",
        severity="error",
        text="timeout",
        device=device,
    )


def test_65_devices_of_a_node_share_the_last_name():
    counts = Tally()
    for number in range(66):
        counts.add(stuck(f"mlx5_{number}"), 1e9)
    assert len(counts.adapters) == 65
    assert max(counts.adapters.values()) == 2


@pytest.mark.parametrize(("longer", "invalid"), [(0, 0), (1, 1)])
def test_a_label_of_more_than_a_kibibyte_stays_off_the_page(longer, invalid):
    sample = training.STEPS.sample(1, job_id="a" * (1024 + longer), rank="0")
    (scrape,) = Validator().validate([Scrape("training", True, 0.1, (sample,), "", 1.0)])
    assert scrape.invalid == invalid
