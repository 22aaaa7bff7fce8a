#!/usr/bin/env python3
"""Trains a small GPT on the characters of a text with several ways of exchanging, all ranks in this one process.

    simulated_ranks.py --text FILE --method step --ranks 4 --density 0.06 --csv runs.csv

The ranks' parameters are stacked, so that one pass serves them all; what a rank sends is chosen as the library chooses it
(exact top-k of the whole gradient, ties aside), and its bytes are counted by the codecs' formulas: elias_fano indices and
the values' bits, and measurements. test_training.py holds the package to the same law.

Methods:
  dense           the mean gradient, one optimizer
  fp16            the same, each rank's gradient rounded to 16 bits
  hook            top-k of gradients with error feedback, one optimizer (gradsieve.torch.register)
  powersgd        PowerSGD with error feedback (torch's hook): matrices of --matrix-rank, vectors in full
  onebit          1-bit Adam: dense for a tenth of the steps, then signs of momenta, second moments as they were then
  step            each rank's optimizer steps by itself, top-k of updates (gradsieve.torch.CompressedStep)
"""

import argparse
import csv
import math
import pathlib
import time

import torch
from torch.nn import functional

VALUE_BITS = {"fp32": 32, "fp16": 16, "int4": 4.125, "int2": 2.125, "sign": 1.125}
RATES = {"adamw": 2e-3, "adamax": 4e-3, "lion": 3e-4, "muon": 2e-3, "sgd": 0.3}  # muon's for what AdamW steps
DECAYS = {"adamw": 0.1, "adamax": 0.0, "lion": 0.7, "muon": 0.1, "sgd": 0.0}
MUON_RATE = 10  # times that of AdamW, for the matrices of the layers
RAMP = 20  # steps in which the learning rate rises
SIGN_BLOCK, INT_BLOCK, CHUNK = 256, 64, 4096  # values that share a scale; elements of which as many are sent
FEW, OWN_SHARE = 8, 0.25  # steps of an exchange that have a common momentum, and how much of its own a rank takes meanwhile
WINDOW = 50  # measurements of the factors that are averaged


def parsed(arguments=None):
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = out.add_argument
    add("--text", type=pathlib.Path, required=True, help="its last tenth is for evaluation")
    add("--method", choices=("dense", "fp16", "hook", "powersgd", "onebit", "step"), default="dense")
    add("--ranks", type=int, default=4)
    add("--optimizer", choices=tuple(RATES), default="adamw")
    add("--rate", type=float, default=1.0, help="factor of the learning rate, which is 0.002 of adamw, and of muon, which "
        "steps the matrices of the layers with 0.02, and all others as adamw [1]")
    add("--steps", type=int, default=1500)
    add("--batch", type=int, default=16, help="samples of a step, over all ranks [16]")
    add("--seed", type=int, default=0)
    add("--density", type=float, default=0.06)
    add("--choice", choices=("top", "chunks", "leader", "deft"), default="top",
        help=f"each rank's top-k; that of each {CHUNK} elements; one rank's for all, in turns (CLT-k); DEFT's, each layer chosen by "
             "one rank [top]")
    add("--values", choices=tuple(VALUE_BITS), default="sign", help="how values are coded [sign]")
    add("--returned", type=float, default=0.0,
        help="coded_all_reduce: owners of shards return so many times k sums, and keep the others; 0: all ranks gather all "
             "messages [0]")
    add("--every", type=int, default=1, help="steps of an exchange [1]")
    add("--delay", type=int, choices=(0, 1), default=0,
        help="steps that go on while an exchange is in flight; 1 with --every 1 [0]")
    add("--momentum", choices=("common", "own"),
        help="one for all ranks, of the mean of what they sent, or each rank's optimizer's own; lion has its own [common, with "
             f"--every above {FEW} own]")
    add("--beta", type=float, help="of the momentum of all but lion and muon [0.9; of a common one with --every 1 below a density "
        "of 6 %%, where what waits is late already, 1 - 0.1 * min(5, 0.06 / density)]")
    add("--local-weight", type=float,
        help="of what a rank has not sent, in the parameters it trains [0.25; on more than 4 ranks, below a density of 2.5 %%, "
             "with --every above 1 above 80 steps of every / density, 0.125; with --momentum own 0.5]")
    add("--passthrough", action="store_true", help="parameters of one dimension are sent in full")
    add("--second-moments", choices=("factor", "own"), default="factor",
        help="each rank's own times a measured factor per parameter, or its own; without second moments (adamax, lion, muon) "
             "factor divides steps by its root [factor]")
    add("--decay", type=float, default=0.0, help="share of what has not been sent that is dropped in each exchange [0]")
    add("--outer-momentum", type=float, default=0.0, help="Nesterov's, of the mean of what ranks send; with --momentum own [0]")
    add("--measure-every", type=int, default=4)
    add("--clipping", choices=("mean", "estimate", "own"), default="mean",
        help="by the mean gradient's norm as all ranks estimate it, as each rank does; or by each rank's own [mean]")
    add("--matrix-rank", type=int, default=4)
    add("--width", type=int, default=128)
    add("--layers", type=int, default=4)
    add("--context", type=int, default=64)
    add("--csv", type=pathlib.Path, help="a row is appended")
    chosen = out.parse_args(arguments)
    if chosen.optimizer == "lion" or chosen.momentum is None:
        chosen.momentum = usual_momentum(chosen)
    if chosen.every > 1 and chosen.momentum == "common" and chosen.optimizer == "muon":
        out.error("--every above 1 with --momentum common goes without muon")
    if chosen.returned and (chosen.choice != "top" or chosen.passthrough or chosen.method != "step"):
        out.error("--returned goes with --method step and --choice top, without --passthrough")
    if chosen.outer_momentum and chosen.momentum != "own":
        out.error("--outer-momentum goes with --momentum own")
    if chosen.delay and (chosen.method != "step" or chosen.every > 1 or chosen.optimizer == "muon"):
        out.error("--delay goes with --method step and --every 1, without muon")
    if chosen.method == "onebit" and chosen.optimizer != "adamw":
        out.error("--method onebit is for adamw")
    chosen.beta = usual_beta(chosen) if chosen.beta is None else chosen.beta
    if chosen.local_weight is None:
        late = chosen.every / chosen.density > (40 if chosen.every == 1 else 80) or chosen.every == 1 and chosen.ranks > 4
        chosen.local_weight = 0.5 if chosen.momentum == "own" else 0.125 if late else 0.25
    return chosen


def usual_momentum(chosen):
    last = {"lion": 0, "muon": 1}.get(chosen.optimizer, FEW)  # steps of an exchange
    return "common" if chosen.every <= last else "own"


def usual_beta(chosen):
    waits = (chosen.method == "step" and chosen.momentum == "common" and chosen.every == 1 and chosen.ranks > 1 and
             chosen.optimizer != "sgd")
    return 1 - 0.1 * (min(5, max(1, 0.06 / chosen.density)) if waits else 1)


class Text:
    def __init__(self, path, seed):
        text = path.read_text(encoding="utf8")
        place = {each: i for i, each in enumerate(sorted(set(text)))}
        self.kinds, self.seed = len(place), seed
        values = torch.tensor([place[each] for each in text])
        cut = int(0.9 * len(values))
        self.training, self.evaluation = values[:cut], values[cut:]

    @staticmethod
    def _samples(of, count, context, generator):
        first = torch.randint(len(of) - context - 1, (count,), generator=generator)[:, None] + torch.arange(context)
        return of[first], of[first + 1]

    def batch(self, step, ranks, count, context):
        x, y = self._samples(self.training, count, context, torch.Generator().manual_seed(7919 * step + self.seed))
        return x.view(ranks, -1, context), y.view(ranks, -1, context)

    def evaluations(self, context):
        generator = torch.Generator().manual_seed(5)
        for _ in range(16):
            yield self._samples(self.evaluation, 64, context, generator)


class Gpt:
    """A transformer of stacked parameters: `weights` is [ranks, elements], and so are its gradients. Each token sees those
    before it and names the next."""

    HEADS = 4

    def __init__(self, task, width, layers, context):
        self.kinds, self.width, self.layers = task.kinds, width, layers
        shapes = {"kinds": (self.kinds, width), "places": (context, width)}
        for i in range(layers):
            shapes |= {f"{i}.norm1": (width,), f"{i}.bias1": (width,), f"{i}.attend": (width, 3 * width),
                       f"{i}.project": (width, width), f"{i}.norm2": (width,), f"{i}.bias2": (width,),
                       f"{i}.widen": (width, 4 * width), f"{i}.narrow": (4 * width, width)}
        self.shapes = {**shapes, "norm": (width,), "bias": (width,)}
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.elements = sum(self.sizes)
        self.is_vector = torch.cat([torch.full((size,), len(shape) == 1)
                                    for size, shape in zip(self.sizes, self.shapes.values())])
        self.parameter_of = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))

    def begin(self, generator):
        parts = []
        for name, shape in self.shapes.items():
            if len(shape) == 1:
                parts.append(torch.full(shape, float("norm" in name)))
            else:
                into_stream = name.endswith(("project", "narrow"))
                parts.append(0.02 / math.sqrt(2 * self.layers if into_stream else 1) * torch.randn(shape, generator=generator))
        return torch.cat([each.flatten() for each in parts])

    def loss(self, weights, x, y):
        """Of each rank's samples the mean, summed over ranks."""
        ranks, count, context = x.shape[:3]
        part = {name: each.view(ranks, *shape) for (name, shape), each in
                zip(self.shapes.items(), weights.split(self.sizes, 1))}

        def norm(values, scale, shift):
            return torch.addcmul(part[shift][:, None], functional.layer_norm(values, (self.width,)), part[scale][:, None])

        table = part["kinds"].reshape(-1, self.width)
        stream = functional.embedding(x + (self.kinds * torch.arange(ranks)).view(ranks, 1, 1), table)
        stream = stream + part["places"][:, None, :context]
        stream = stream.view(ranks, count * context, self.width)
        for i in range(self.layers):
            all_three = norm(stream, f"{i}.norm1", f"{i}.bias1") @ part[f"{i}.attend"]
            q, k, v = all_three.view(ranks * count, context, 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            stream = stream + seen.transpose(1, 2).reshape(stream.shape) @ part[f"{i}.project"]
            wide = functional.gelu(norm(stream, f"{i}.norm2", f"{i}.bias2") @ part[f"{i}.widen"], approximate="tanh")
            stream = stream + wide @ part[f"{i}.narrow"]
        logits = norm(stream, "norm", "bias") @ part["kinds"].transpose(1, 2)
        return functional.cross_entropy(logits.reshape(-1, self.kinds), y.reshape(-1), reduction="sum") / y[0].numel()


def orthogonal(matrices):
    """Muon's: singular values near 1, by five steps of Newton and Schulz; the larger, the higher a matrix of torch is."""
    scale = math.sqrt(max(1, matrices.shape[-1] / matrices.shape[-2]))
    out = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    out = out if out.shape[-2] <= out.shape[-1] else out.transpose(-1, -2)
    for _ in range(5):
        square = out @ out.transpose(-1, -2)
        out = 3.4445 * out + (2.0315 * square @ square - 4.775 * square) @ out
    return scale * (out if out.shape == matrices.shape else out.transpose(-1, -2))


class Optimizer:
    """Of stacked parameters; `update` is what it adds to them."""

    def __init__(self, name, like, model, beta):
        self.name, self.step, self.moves, self.beta = name, 0, 0, beta
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)
        self.decay = DECAYS[name] * (~model.is_vector).float()
        self.frozen = False
        self.common = 0.0
        self.model = model
        self.of_muon = [name == "muon" and "." in each and len(shape) == 2 for each, shape in model.shapes.items()]
        self.by_muon = torch.tensor(self.of_muon)[model.parameter_of]
        self.held = torch.zeros_like(like) if name == "muon" else None

    def update(self, weights, gradient, rate, factor=1.0, momentum=True, enlarged=lambda step: step):
        """`factor`: of g^2, on its way into the second moments. `momentum`: whether it is in the update; otherwise move() has
        it. `enlarged`: makes a step longer that has no second moments."""
        self.step += 1
        decayed = self.decay * weights
        if self.name == "sgd":
            return self.first.mul_(self.beta * momentum).add_(gradient).mul(-rate)
        if self.name == "lion":
            ahead = torch.lerp(self.first, gradient, 0.1).sign_()
            self.first.lerp_(gradient, 0.01)
            return enlarged(ahead).add(decayed).mul_(-rate)
        self.first.lerp_(gradient, 1 - self.beta if momentum else 1)
        if self.name == "adamax":
            self.second = torch.maximum(0.999 * self.second, gradient.abs() + 1e-8)
            bias = 1 - self.beta ** self.step if momentum else 1
            return enlarged(self.first / self.second).mul(-rate / bias)
        if self.name == "muon":
            self.held.lerp_(gradient, 0.05)
            ahead = torch.lerp(gradient, self.held, 0.95)
            matrices = [orthogonal(each.unflatten(-1, shape)).flatten(-2) if of_muon else torch.zeros_like(each)
                        for each, shape, of_muon in zip(ahead.split(self.model.sizes, -1), self.model.shapes.values(),
                                                        self.of_muon)]
            by_muon = enlarged(torch.cat(matrices, -1)).add(decayed).mul_(-rate * MUON_RATE)
        if not self.frozen:
            self.second.mul_(0.99).add_(gradient.square().mul_(factor), alpha=0.01)
            self.bias = 1 - 0.99 ** self.step
        size = (self.second / self.bias).sqrt_().add_(1e-8)
        bias = 1 - self.beta ** self.step if momentum else 1
        by_adam = (self.first / size).div_(bias).add_(decayed).mul_(-rate)
        return torch.where(self.by_muon, by_muon, by_adam) if self.name == "muon" else by_adam

    def move(self, mean):
        """What the common parameters move by: the momentum of the means of what ranks have sent, but of what has its own."""
        if self.name == "sgd":
            self.common = self.beta * self.common + mean
            return self.common
        self.common = torch.lerp(torch.as_tensor(self.common), mean, 1 - self.beta)
        self.moves += 1
        return torch.where(self.by_muon, mean, self.common / (1 - self.beta ** self.moves))


def coded(values, kind):
    """Consecutive entries as their codec returns them: signs times the mean magnitude of each block, or whole numbers times a
    power of two."""
    if kind in ("fp32", "fp16"):
        return values.half().float() if kind == "fp16" else values
    block = SIGN_BLOCK if kind == "sign" else INT_BLOCK
    blocks = functional.pad(values, (0, -len(values) % block)).view(-1, block)
    if kind == "sign":
        coded = blocks.sign() * blocks.abs().sum(1, keepdim=True) / (blocks != 0).sum(1, keepdim=True).clamp(min=1)
    else:
        most = 7 if kind == "int4" else 1
        scales = torch.exp2((blocks.abs().amax(1, keepdim=True) / most).clamp(min=2.0 ** -100).log2().ceil())
        coded = (blocks / scales).round() * scales
    return coded.flatten()[:len(values)]


def bits_of(density, kind):
    """Of an entry: an elias_fano or a bit an element for its place, and its value; of values alone no place."""
    return VALUE_BITS[kind] + (min(1 / density, 2 - math.log2(density)) if density < 1 else 0)


class Sieve:
    """What each rank sends of its row: top-k, or what one rank has chosen for all (--choice)."""

    ROTATE_EVERY = 100  # steps for which a rank of DEFT chooses from the same fragments

    def __init__(self, chosen, model):
        self.values, self.passing = chosen.values, model.is_vector & chosen.passthrough
        self.elements, self.last = model.elements, {}
        self.choice, self.number, self.ranks = chosen.choice, 0, chosen.ranks
        if self.choice != "top" and chosen.passthrough:
            raise SystemExit("--passthrough is for --choice top only")
        self.fragments = self.split(model.sizes)

    def __call__(self, rows, density):
        """What each rank sends of its row, and the bytes of a rank."""
        count = max(1, round(density * int((~self.passing).sum())))
        sent = torch.empty_like(rows)
        alike = self.chosen_for_all(rows, count) if self.choice in ("leader", "deft") else None
        for rank, row in enumerate(rows):
            mine = self.largest(row, count, rank) if alike is None else alike
            value = row.clone()
            value[mine] = coded(row[mine], self.values)
            sent[rank] = torch.where(self.passing, row, torch.where(mine, value, 0.0))
        self.number += 1
        bits = bits_of(density, self.values)
        if alike is not None:  # a rank sends the places of its choice
            bits = VALUE_BITS[self.values] + (bits - VALUE_BITS[self.values]) / len(rows)
        return sent, count * bits / 8 + 4 * int(self.passing.sum())

    def largest(self, row, count, rank):
        """Places of the largest; the threshold of the last step saves the sorting of most elements."""
        if count == len(row):
            return torch.ones_like(row, dtype=torch.bool)
        if self.choice == "chunks":
            chunks = functional.pad(row.abs(), (0, -len(row) % CHUNK), value=-1.0).view(-1, CHUNK)
            places = chunks.topk(max(1, round(count / len(row) * CHUNK)), 1, sorted=False).indices
            return torch.zeros_like(chunks, dtype=torch.bool).scatter_(1, places, True).flatten()[:len(row)]
        size = row.abs().masked_fill_(self.passing, -1)
        some = size[size >= 0.75 * self.last.get(rank, 0.0)]
        if some.numel() < count:
            some = size
        least = self.last[rank] = float(some.topk(count, sorted=False).values.min())
        return size >= least

    def chosen_for_all(self, rows, count):
        if self.choice == "leader":
            leader = self.number % self.ranks
            return self.largest(rows[leader], count, leader)
        return self.deft(rows, count)

    def split(self, sizes):
        """Fragments of DEFT (first, last, layer, rank): layers of more than n / ranks in `ranks` parts, packed by size."""
        parts, first, loads = [], 0, [0] * self.ranks
        for layer, size in enumerate(sizes):
            count = self.ranks if size * self.ranks > self.elements else 1
            parts += [(first + size * p // count, first + size * (p + 1) // count, layer) for p in range(count)]
            first += size
        owner = {}
        for part in sorted(parts, key=lambda each: each[0] - each[1]):
            owner[part] = loads.index(min(loads))
            loads[owner[part]] += part[1] - part[0]
        return [(*part, owner[part]) for part in parts]

    def deft(self, rows, count):
        """k by the layers' norms, then by their fragments'; each fragment's owner chooses."""
        squares = rows.square().sum(0)
        norms = [float(squares[first:last].sum()) for first, last, _, _ in self.fragments]
        layers = {}
        for i, (_, _, layer, _) in enumerate(self.fragments):
            layers.setdefault(layer, []).append(i)
        places, turn = torch.zeros(self.elements, dtype=torch.bool), self.number // self.ROTATE_EVERY
        for layer, k in shared(count, {layer: [norms[i] for i in of] for layer, of in layers.items()}).items():
            for i, budget in shared(k, {i: [norms[i]] for i in layers[layer]}).items():
                first, last, _, owner = self.fragments[i]
                mine = rows[(owner + turn) % self.ranks, first:last].abs()
                places[first + mine.topk(min(budget, last - first), sorted=False).indices] = True
        return places


def shared(count, squares):
    """`count` over parts by the norms of their squares, largest first; one at least for each square while it lasts."""
    norms = {part: math.sqrt(sum(each)) for part, each in squares.items()}
    of_norms, out = sum(norms.values()), {}
    for part in sorted(norms, key=norms.get, reverse=True):
        share = norms[part] / of_norms if of_norms > 0 else 0
        out[part] = min(count, max(len(squares[part]), round(share * count)))
        count -= out[part]
        of_norms -= norms[part]
    return out


class Coherence:
    """|mean over ranks of v|^2 / mean over ranks of |v|^2 for each parameter, of samples, as Factors of the package."""

    def __init__(self, ranks, sizes):
        self.ranks, self.sizes, self.measured = ranks, sizes, 0
        self.counts = [min(size, max(16, math.ceil(1e-3 * size))) for size in sizes]
        self.of_mean, self.mean_of = torch.zeros(len(sizes)), torch.zeros(len(sizes))
        self.values = torch.ones(len(sizes))

    def measure(self, rows, chance):
        """Returns the bytes of a rank."""
        first = 0
        weight = max(1 / (self.measured + 1), 1 / WINDOW)
        self.measured += 1
        for i, (count, size) in enumerate(zip(self.counts, self.sizes)):
            drawn = rows[:, first + torch.randint(size, (count,), generator=chance)]
            self.of_mean[i].lerp_(drawn.mean(0).square().sum(), weight)
            self.mean_of[i].lerp_(drawn.square().sum(1).mean(), weight)
            first += size
        ratio = torch.where(self.mean_of > 0, self.of_mean / self.mean_of, 1.0)
        self.values = ratio.clamp(1 / self.ranks, 1)
        return 4 * (sum(self.counts) + len(self.counts))


class Ways:
    """What each method does in a step: `step` moves the stacked weights, and returns the bytes that a rank has sent."""

    def __init__(self, chosen, model, weights):
        self.chosen, self.model = chosen, model
        self.ranks = len(weights)
        self.common = weights[0].clone()
        apart = chosen.method == "step"
        self.optimizer = Optimizer(chosen.optimizer, weights if apart else self.common, model, chosen.beta)
        self.rest = torch.zeros_like(weights)
        self.flying = None, None  # with a delay: mean, and what each rank has sent
        self.speed = 0.0  # with a common momentum between exchanges: what ranks go on by
        self.sieve = Sieve(chosen, model)
        self.chance = torch.Generator().manual_seed(chosen.seed)
        self.factors = torch.ones(len(model.sizes))
        self.of_gradient, self.of_steps = Coherence(self.ranks, model.sizes), Coherence(self.ranks, model.sizes)
        self.bases = {name: torch.randn(shape[1], chosen.matrix_rank, generator=self.chance)
                      for name, shape in model.shapes.items() if len(shape) == 2}
        self.back, self.held = torch.zeros_like(self.common), 0.0

    def of_mean_gradient(self, weights, gradient, rate):
        """With one optimizer for all."""
        norm = float(gradient.norm())
        self.common += self.optimizer.update(self.common, gradient * min(1.0, 1 / norm), rate)
        weights.copy_(self.common.expand_as(weights))

    def dense(self, weights, gradients, rate, number):
        self.of_mean_gradient(weights, gradients.mean(0), rate)
        return 4 * self.model.elements

    def fp16(self, weights, gradients, rate, number):
        self.of_mean_gradient(weights, gradients.half().float().mean(0), rate)
        return 2 * self.model.elements

    def hook(self, weights, gradients, rate, number):
        self.rest += gradients
        sent, size = self.sieve(self.rest, self.chosen.density)
        self.rest -= sent
        self.of_mean_gradient(weights, sent.mean(0), rate)
        return size

    def powersgd(self, weights, gradients, rate, number):
        self.rest += gradients
        mean, size = self.rest.mean(0), 0
        rests, means = self.rest.split(self.model.sizes, 1), mean.split(self.model.sizes)
        for (name, shape), rest, out in zip(self.model.shapes.items(), rests, means):
            if len(shape) == 1:
                rest.zero_()
                size += 4 * out.numel()
                continue
            matrices = rest.reshape(self.ranks, *shape)
            left = torch.linalg.qr((matrices @ self.bases[name]).mean(0))[0]
            self.bases[name] = (matrices.transpose(1, 2) @ left).mean(0)
            out.copy_((left @ self.bases[name].T).flatten())
            rest -= out
            size += 4 * self.chosen.matrix_rank * sum(shape)
        self.of_mean_gradient(weights, mean, rate)
        return size

    def onebit(self, weights, gradients, rate, number):
        if number < self.chosen.steps / 10:
            return self.dense(weights, gradients, rate, number)
        if not self.optimizer.frozen:
            self.optimizer.frozen = True
            self.momenta = self.optimizer.first.repeat(self.ranks, 1)
        self.momenta.lerp_(gradients, 0.1)

        def signs(values):
            return torch.cat([each.sign() * each.abs().mean(-1, keepdim=True)
                              for each in values.split(self.model.sizes, -1)], -1)
        self.rest += self.momenta
        sent = signs(self.rest)
        self.rest -= sent
        self.back += sent.mean(0)
        mean = signs(self.back)
        self.back -= mean
        self.momenta.copy_(mean.expand_as(self.momenta))
        self.optimizer.first.copy_(mean)
        self.common += self.optimizer.update(self.common, mean, rate)  # a momentum that gets itself stays
        weights.copy_(self.common.expand_as(weights))
        return self.model.elements / 8

    def step(self, weights, gradients, rate, number):
        size, moments = 0, self.chosen.second_moments
        measures = moments == "factor" and (number // self.chosen.every) % self.chosen.measure_every == 0
        if measures:
            size += self.of_gradient.measure(gradients, self.chance)
            self.factors = self.of_gradient.values
        squares = torch.stack([each.square().sum(1) for each in gradients.split(self.model.sizes, 1)], 1)
        squares = (squares if self.chosen.clipping == "own" else squares * self.factors).sum(1)
        norms = (squares.mean().expand_as(squares) if self.chosen.clipping == "mean" else squares).sqrt()
        gradients = gradients * (1 / norms).clamp(max=1)[:, None]
        factor = self.factors[self.model.parameter_of]

        def enlarged(steps):
            nonlocal size
            size += self.of_steps.measure(steps, self.chance) if measures else 0
            return steps * self.of_steps.values[self.model.parameter_of] ** -0.5
        update = self.optimizer.update(weights, gradients, rate, factor, self.chosen.momentum == "own", enlarged)
        self.rest += update
        every, coasts = self.chosen.every, self.chosen.every > 1 and self.chosen.momentum == "common"
        if (number + 1) % every:
            weights += OWN_SHARE * update + self.speed if coasts else update
            return size
        sent, bytes_sent = self.sieve(self.rest, self.chosen.density)
        self.rest -= sent
        self.rest *= 1 - self.chosen.decay
        mean = sent.mean(0)
        if self.chosen.returned:
            mean, back = self.returned(sent)
            bytes_sent += back
        own, ahead = self.chosen.momentum == "own", 0.0
        if self.chosen.delay:  # what was in flight arrives, and this goes off
            (mean, _), self.flying = self.flying, (mean, sent)
        if mean is not None:
            for _ in range(1 if own else every):
                move = self.outer(mean) if own else self.optimizer.move(mean / every)
                self.common += move
            if not own and (coasts or self.chosen.delay or self.chosen.density < 1):
                ahead = sum(self.chosen.beta ** (1 + late) for late in range(1 + self.chosen.delay)) * move
            self.speed = move
        weights.copy_(self.common + ahead + self.chosen.local_weight * self.rest)
        if self.chosen.delay:
            weights.add_(self.flying[1], alpha=1.0 if own else self.chosen.local_weight)
        return size + bytes_sent

    def outer(self, mean):
        """What an SGD of its own, at a rate of 1, moves the common parameters by."""
        momentum = self.chosen.outer_momentum
        self.held = momentum * self.held + mean
        return mean + momentum * self.held

    def returned(self, sent):
        """The mean of the sums that the owners of shards return, coded, and their bytes; an owner keeps in
        its rest what it does not return."""
        mean, bits, sums, got = torch.zeros_like(self.common), 0.0, sent.sum(0), (sent != 0).sum(0)
        size = -(-self.model.elements // self.ranks)
        for rank, first in enumerate(range(0, self.model.elements, size)):
            mine, count = sums[first:first + size], int(got[first:first + size].sum())
            count = min(math.ceil(self.chosen.returned * count / self.ranks), int((mine != 0).sum()))
            count = len(mine) if self.chosen.density == 1 else count
            places = mine.abs().topk(count, sorted=False).indices.sort().values
            mean[first + places] = coded(mine[places], self.chosen.values)
            self.rest[rank, first:first + size] += mine - mean[first:first + size]
            bits += count * bits_of(max(count, 1) / len(mine), self.chosen.values)
        return mean / self.ranks, bits / 8


def learning_rate(step, steps):
    if step < RAMP:
        return (step + 1) / RAMP
    return 0.5 * (1 + math.cos(math.pi * (step + 1 - RAMP) / max(1, steps - RAMP)))


def options(chosen):
    """Those of --method step that are not the package's."""
    usual = {"second_moments": "factor", "decay": 0.0, "passthrough": False,
             "clipping": "mean", "measure_every": 4, "returned": 0.0, "delay": 0, "outer_momentum": 0.0,
             "momentum": usual_momentum(chosen), "beta": usual_beta(chosen)}
    return " ".join(f"{name}={getattr(chosen, name)}" for name, value in usual.items() if getattr(chosen, name) != value)


def train(chosen):
    """A row of the table."""
    task = Text(chosen.text, chosen.seed)
    model = Gpt(task, chosen.width, chosen.layers, chosen.context)
    begin = model.begin(torch.Generator().manual_seed(1000 + chosen.seed))
    ranks = 1 if chosen.method == "dense" else chosen.ranks  # the mean of the ranks' gradients is that of one rank
    weights = begin.repeat(ranks, 1).requires_grad_()
    ways = Ways(chosen, model, weights.detach())
    sent, last, began = 0, [], time.monotonic()
    for number in range(chosen.steps):
        x, y = task.batch(number, ranks, chosen.batch, chosen.context)
        loss = model.loss(weights, x, y)
        gradients, = torch.autograd.grad(loss, weights)
        rate = chosen.rate * RATES[chosen.optimizer] * learning_rate(number, chosen.steps)
        with torch.no_grad():
            sent += getattr(ways, chosen.method)(weights.detach(), gradients, rate, number)
        last = [*last[-49:], loss.item() / ranks]
    with torch.no_grad():
        losses = [float(model.loss(ways.common[None], x[None], y[None])) for x, y in task.evaluations(chosen.context)]
    every = chosen.every if chosen.method == "step" else 1
    sparse = chosen.method in ("hook", "step")
    return {"task": "text", "method": chosen.method, "optimizer": chosen.optimizer, "ranks": chosen.ranks,
            "rate": chosen.rate, "density": chosen.density if sparse else "", "every": every,
            "choice": chosen.choice if sparse else "", "values": chosen.values if sparse else "",
            "local_weight": chosen.local_weight if chosen.method == "step" else "",
            "matrix_rank": chosen.matrix_rank if chosen.method == "powersgd" else "", "options": options(chosen),
            "elements": model.elements, "steps": chosen.steps, "seed": chosen.seed,
            "loss": f"{sum(losses) / len(losses):.4f}", "training_loss": f"{sum(last) / len(last):.4f}",
            "bytes": round(sent / chosen.steps),
            "ratio": f"{4 * model.elements * chosen.steps / sent:.1f}", "seconds": f"{time.monotonic() - began:.0f}"}


def main():
    chosen = parsed()
    torch.set_num_threads(1)
    row = train(chosen)
    print(", ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
    if chosen.csv is not None:
        fresh = not chosen.csv.exists()
        with chosen.csv.open("a", newline="", encoding="utf8") as file:
            writer = csv.DictWriter(file, list(row))
            if fresh:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
