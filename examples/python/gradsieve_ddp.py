"""The old name of gradsieve.torch. It goes with the next version."""

import sys
import warnings

import gradsieve.torch

warnings.warn("gradsieve_ddp is now gradsieve.torch: import that", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = gradsieve.torch
