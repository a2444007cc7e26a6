"""One thread for numpy while torch computes, and as many as before afterwards."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.linalg.blas  # noqa: F401 (its library is one of those)
import torch
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from skh2edl import H2EDLClassifier
from skh2edl.training.network import Network
from skh2edl.utils.threads import one_thread_for_numpy


def threads():
    own = "libscipy_openblas"
    return {each["num_threads"] for each in threadpool_info() if each["prefix"] == own}


@pytest.fixture(autouse=True)
def three_threads():
    if not ThreadpoolController().select(prefix="libscipy_openblas").lib_controllers:
        pytest.skip("numpy and scipy have another library here")
    with threadpool_limits(3, user_api="blas"):
        yield


def test_there_is_one_thread_inside_and_as_many_as_before_afterwards():
    with one_thread_for_numpy():
        assert threads() == {1}
        with one_thread_for_numpy():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {3}


def test_torch_keeps_its_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread_for_numpy():
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_error_gives_the_threads_back():
    with pytest.raises(KeyError), one_thread_for_numpy():
        raise KeyError
    assert threads() == {3}


def test_another_thread_changes_nothing(monkeypatch):
    """Two of them could not give back what each found."""
    asked = []
    monkeypatch.setattr(
        "skh2edl.utils.threads._libraries", lambda: asked.append(1) or nullcontext()
    )

    def inside():
        with one_thread_for_numpy():
            return "done"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(inside).result(60) == "done"
    assert asked == []


def test_a_fit_of_fixed_features_asks_for_it(monkeypatch):
    seen = []
    standardize = Network.standardize

    def watched(self, mean, scale):
        seen.append(threads())
        standardize(self, mean, scale)

    def watched_minimize(*args, **options):
        seen.append(threads())
        return minimize(*args, **options)

    monkeypatch.setattr(Network, "standardize", watched)
    monkeypatch.setattr("skh2edl.training.solver.minimize", watched_minimize)
    X = np.random.default_rng(0).normal(size=(12, 3))
    H2EDLClassifier(backbone=None).fit(X, np.array(["a", "b"])[np.arange(12) % 2])
    # Once for the scale of the features, then once for each solve.
    assert len(seen) > 1
    assert set(map(frozenset, seen)) == {frozenset({1})}
    assert threads() == {3}
