"""Gradient compression for data-parallel training, over the C library of gradsieve: for NumPy arrays, or any that
offer their memory by ``__array_interface__`` or DLPack, on any transport. It needs no other package.

    import gradsieve
    ranks = gradsieve.mpi(MPI.COMM_WORLD)                  # or torch_distributed(), Gather(...), your own Collectives
    reducer = gradsieve.Compressor("laplacian+deft@0.001", [("conv.weight", (64, 3, 7, 7)), ("conv.bias", (64,))])
    report = reducer.exchange(ranks, gradient)             # in place: the mean over the ranks of what they sent
"""

from . import delta
from ._library import (CommunicationError, CorruptError, Error, InvalidArgument, MismatchError, NonFiniteError,
                       Report, mean_factor, recipe_names)
from .advice import Advice, Choice, advise
from .collectives import Collectives, Gather, mpi, torch_distributed
from .compressor import Averager, Compressor
from .parameters import ParameterExchange, SecondMoments

__all__ = ["Advice", "Averager", "Choice", "Collectives", "CommunicationError", "Compressor", "CorruptError", "Error", "Gather",
           "InvalidArgument", "MismatchError", "NonFiniteError", "ParameterExchange", "Report", "SecondMoments",
           "advise", "delta", "mean_factor", "mpi", "recipe_names", "torch_distributed"]
