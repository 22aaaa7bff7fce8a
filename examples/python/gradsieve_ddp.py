"""The old name of gradsieve.torch. It goes with the next version."""

import sys
import warnings

import gradsieve.torch

warnings.warn("gradsieve_ddp is now gradsieve.torch: import that", DeprecationWarning, stacklevel=2)
for name in [each for each in sys.modules if each.startswith("gradsieve.torch")]:
    sys.modules[name.replace("gradsieve.torch", __name__, 1)] = sys.modules[name]
