"""`monotone` halves noise, so nothing but True may switch it on."""

import pytest

from dp_polars import InvalidParameterError, mechanisms

CALLS = [
    lambda flag: mechanisms.exponential([1, 2], sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.permute_and_flip([1, 2], sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.report_noisy_max([1, 2], sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.exponential_regret(candidates=2, sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.above_threshold([1], threshold=1, sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.sparse([1], threshold=1, hits=1, sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.numeric_sparse([1], threshold=1, hits=1, sensitivity=1, epsilon=1, monotone=flag),
    lambda flag: mechanisms.sparse_error(answers=1, hits=1, sensitivity=1, epsilon=1, monotone=flag),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("flag", ["no", "yes", 1, 0, None, 0.5])
def test_only_true_and_false_are_flags(call, flag):
    with pytest.raises(InvalidParameterError, match="monotone must be True or False"):
        call(flag)
    call(True)
    call(False)
