"""Trains softmax regression on the digits with compressed gradients: mpirun -n 2 python3 numpy_mpi4py.py"""

import pathlib

import gradsieve
import numpy as np
from mpi4py import MPI

ranks = gradsieve.mpi(MPI.COMM_WORLD)
rows = np.loadtxt(pathlib.Path(__file__).parents[1] / "data/digits.csv", delimiter=",", dtype=np.float32)
pixels, labels = rows[:, :64] / 16, rows[:, 64].astype(int)
mine = slice(ranks.rank, 1500, ranks.size)

weights = np.zeros(65 * 10, np.float32)
reducer = gradsieve.Compressor("laplacian+bf16@0.05", [("weight", (64, 10)), ("bias", (10,))])
carried = 0  # bytes, both ways
for step in range(300):
    chances = np.exp(pixels[mine] @ weights[:640].reshape(64, 10) + weights[640:])
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(len(chances)), labels[mine]] -= 1
    gradient = np.concatenate([(pixels[mine].T @ chances).ravel(), chances.sum(0)]).astype(np.float32) / len(chances)
    report = reducer.exchange(ranks, gradient)
    carried += report.bytes_sent + report.bytes_received
    weights -= gradient

right = (pixels[1500:] @ weights[:640].reshape(64, 10) + weights[640:]).argmax(1) == labels[1500:]
ring = 300 * gradient.nbytes * 2 * 2 * (ranks.size - 1) / ranks.size  # what a dense ring all-reduce moves, both ways
if ranks.rank == 0:
    print(f"{right.mean():.1%} right; a dense ring moves {ring / max(carried, 1):.1f} times as many bytes")
