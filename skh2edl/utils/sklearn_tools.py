"""The only door to scikit-learn's private tools."""

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeVar

from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import validate_data

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks
    _Method = TypeVar("_Method", bound=Callable[..., Any])

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands where scikit-learn's own would."""

    def with_callbacks(method: _Method) -> _Method:
        """Return the method as it is."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "HasMethods",
    "Interval",
    "StrOptions",
    "check_sample_weight",
    "encoding_tool",
    "safe_indexing",
    "validate_data",
    "with_callbacks",
]


# Functions that call `fit` with integers in place of labels -> what a user calls them.
_ENCODERS = {
    ("sklearn.ensemble._bagging", "_parallel_build_estimators"): "BaggingClassifier",
    ("sklearn.ensemble._base", "_fit_single_estimator"): "VotingClassifier or StackingClassifier",
    ("sklearn.multiclass", "_fit_binary"): "OneVsRestClassifier or a tool like it",
    ("sklearn.model_selection._validation", "_fit_and_predict"): "cross_val_predict",
    ("sklearn.calibration", "_fit_classifier_calibrator_pair"): "CalibratedClassifierCV",
    ("sklearn.calibration", "fit"): "CalibratedClassifierCV",
}


def encoding_tool() -> str | None:
    """Return the tool of scikit-learn that calls this fit with encoded labels, or None.

    The integers themselves do not tell: those of three labels and the leaves 0, 1 and 2 look
    alike. The functions on the stack do, also in a process that joblib started. What decodes
    labels marks its frame by a local variable `labels_are_decoded`.
    """
    found = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if "labels_are_decoded" in frame.f_locals:
            return found
        place = (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
        tool = _ENCODERS.get(place)
        # The outermost tool is the one that the user called.
        if tool is not None and (found is not None or _encodes(tool, frame.f_locals)):
            found = tool
        frame = frame.f_back
    return found


def _encodes(tool: str, variables: Mapping[str, Any]) -> bool:
    """Return whether a tool that encodes only sometimes does so here, by its own variables."""
    if tool == "cross_val_predict":
        methods = ("decision_function", "predict_proba", "predict_log_proba")
        return variables.get("method") in methods
    if tool == "CalibratedClassifierCV":
        classes = variables.get("classes", getattr(variables.get("self"), "classes_", ()))
        return any(isinstance(label, str) for label in classes)
    return True
