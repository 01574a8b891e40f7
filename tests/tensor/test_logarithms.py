"""logadd and logsub of numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as hs

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument

NUMBERS = hs.floats(-50, 50)


@given(NUMBERS, NUMBERS)
def test_logadd_and_logsub_are_those_of_the_powers(a, b):
    assert st.logadd(a, b) == pytest.approx(math.log(math.exp(a) + math.exp(b)), rel=1e-13, abs=1e-13)
    low, high = sorted((a, b))
    if high - low > 1e-3:
        assert st.logsub(high, low) == pytest.approx(math.log(math.exp(high) - math.exp(low)), rel=1e-9, abs=1e-9)


@given(NUMBERS, hs.floats(1e-12, 40))
def test_logsub_undoes_logadd(a, gap):
    total = st.logadd(a, a + gap)
    assert st.logsub(total, a) == pytest.approx(a + gap, rel=1e-12, abs=1e-12)


def test_where_powers_overflow_and_where_nothing_is_left():
    assert st.logadd(1000, 1000) == pytest.approx(1000 + math.log(2))
    assert st.logadd(1000, -1000) == st.logadd(-1000, 1000) == st.logsub(1000, -1000) == 1000.0
    assert st.logsub(2, 2) == st.logadd(-math.inf, -math.inf) == -math.inf
    assert st.logadd(-math.inf, 3) == st.logsub(3, -math.inf) == 3.0
    assert st.logadd(math.inf, math.inf) == st.logadd(0, math.inf) == math.inf
    assert st.logsub(1e-20, 0) == pytest.approx(math.log(1e-20)), "near each other"
    assert math.isnan(st.logadd(math.nan, 1))
    assert type(st.logadd(st.tensor(1.0), 2)) is float


def test_what_is_refused():
    with pytest.raises(InvalidArgument, match="below"):
        st.logsub(1, 2)
    for function in (st.logadd, st.logsub):
        with pytest.raises(DTypeError, match="str"):
            function("a", 1)
        with pytest.raises(DTypeError, match="list"):
            function(1, [2])
