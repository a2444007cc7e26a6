"""Hierarchical evidential classification: how far down a taxonomy the evidence carries."""

from .estimators import METHODS
from .utils import lazy, moved

__version__ = "0.1.0"

# The public names are those of __init__.pyi and the classifiers of METHODS. Each is imported when
# it is first used, so that `import skh2edl` and the command line start without torch.
__getattr__, __dir__, _names = lazy.attach_stub(
    __name__, **dict.fromkeys(METHODS.values(), ".estimators.methods")
)
__all__ = ["__version__", *_names]

moved.install()
