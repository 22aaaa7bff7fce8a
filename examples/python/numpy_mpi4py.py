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
sent = 0
for step in range(300):
    chances = np.exp(pixels[mine] @ weights[:640].reshape(64, 10) + weights[640:])
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(len(chances)), labels[mine]] -= 1
    gradient = np.concatenate([(pixels[mine].T @ chances).ravel(), chances.sum(0)]).astype(np.float32) / len(chances)
    sent += reducer.exchange(ranks, gradient).bytes_sent
    weights -= gradient

right = (pixels[1500:] @ weights[:640].reshape(64, 10) + weights[640:]).argmax(1) == labels[1500:]
if ranks.rank == 0:
    print(f"{right.mean():.1%} right; a rank sends {300 * gradient.nbytes / sent:.1f} times fewer bytes "
          "than its gradients have")
