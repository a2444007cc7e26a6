"""Hierarchical evidential classification: how far down a taxonomy the evidence carries."""

from .estimators import METHODS
from .utils import lazy, moved

__version__ = "0.1.0"

# The public names are those of `__init__.pyi` and the classifiers of METHODS. Each is imported
# when it is first used, so that `import skh2edl` and the command line start without torch.
_MODULES = lazy.names_in_stub(__name__) | dict.fromkeys(
    METHODS.values(), f"{__name__}.estimators.methods"
)
__all__ = ["__version__", *_MODULES]
__getattr__, __dir__ = lazy.importers(__name__, _MODULES)

moved.install()
