"""Numbers of parameters and tokens as people write them."""

import pytest

from rankscope_analyzers.preflight.step_target import TargetError, count


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("16k", 16e3),
        ("350M", 350e6),
        ("2g", 2e9),
        ("7B", 7e9),
        ("1.5T", 1.5e12),
        ("999999999999999", 999_999_999_999_999.0),
    ],
)
def test_a_number_may_have_the_suffix_of_its_thousands(text, number):
    assert count(text) == number


@pytest.mark.parametrize("text", ["", "7X", "-1", "1e9", "7 B", "1" * 16, "1.0000000001"])
def test_what_is_no_such_number_is_refused(text):
    with pytest.raises(TargetError):
        count(text)
