"""Trains a network of JAX with Adam, whose changes are exchanged, 6 % in a step: mpirun -n 2 python3 jax_mpi4py.py [RECIPE]"""

import pathlib
import sys

import gradsieve
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from mpi4py import MPI

ranks = gradsieve.mpi(MPI.COMM_WORLD)
rows = np.loadtxt(pathlib.Path(__file__).parents[1] / "data/digits.csv", delimiter=",", dtype=np.float32)
pixels, labels = rows[:, :64] / 16, rows[:, 64].astype(int)
mine = slice(ranks.rank, 1500, ranks.size)

one, two = jax.random.split(jax.random.key(0))
model = {"hidden": {"bias": jnp.zeros(64), "weight": 0.125 * jax.random.normal(one, (64, 64))},
         "output": {"bias": jnp.zeros(10), "weight": 0.125 * jax.random.normal(two, (64, 10))}}
flat, tree_of = ravel_pytree(model)
layers = [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(model)]
layer_of = np.repeat(np.arange(len(layers)), [np.prod(shape) for _, shape in layers])


@jax.jit
def loss(flat, pixels, labels):
    of = tree_of(flat)
    hidden = jax.nn.relu(pixels @ of["hidden"]["weight"] + of["hidden"]["bias"])
    chances = jax.nn.log_softmax(hidden @ of["output"]["weight"] + of["output"]["bias"])
    return -chances[jnp.arange(len(labels)), labels].mean()


@jax.jit
def stepped(flat, square, gradient, factors, step):
    """Adam without momentum, which the common parameters have."""
    square = 0.99 * square + 0.01 * factors * gradient**2
    return flat - 0.002 * gradient / (jnp.sqrt(square / (1 - 0.99**step)) + 1e-8), square


gradient_of = jax.jit(jax.grad(loss))
own, square = np.array(flat), jnp.zeros(flat.size)  # arrays of JAX never change: own is a copy that does
recipe = sys.argv[1] if len(sys.argv) > 1 else "radix+sign@0.06"
exchange = gradsieve.ParameterExchange(recipe, layers, own, momentum=0.9)
moments = gradsieve.SecondMoments(layers, density=0.01)
for step in range(1, 301):
    gradient = np.array(gradient_of(own, pixels[mine], labels[mine]))
    moments.measure(ranks, gradient)
    own[:], square = stepped(own, square, gradient, np.asarray(moments.factors)[layer_of], step)
    report = exchange.exchange(ranks, own)

common = np.asarray(exchange.common)
if ranks.rank == 0:
    print(f"loss {loss(common, pixels[:1500], labels[:1500]):.3f}, of other digits {loss(common, pixels[1500:], labels[1500:]):.3f}; "
          f"{report.bytes_sent} of {report.baseline_bytes} B a step")
