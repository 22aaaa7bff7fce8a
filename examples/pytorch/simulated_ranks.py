#!/usr/bin/env python3
"""Trains a small GPT on the characters of a text with several ways of exchanging, all ranks in this one process.

    simulated_ranks.py --text FILE --method step --ranks 4 --density 0.06 --csv runs.csv

The ranks' parameters are stacked, so that one pass serves them all; what a rank sends is chosen as the library chooses it
(exact top-k of the whole gradient, ties aside), and its bytes are counted by the codecs' formulas: elias_fano indices and
the values' bits, and measurements. test_training.py holds the package to the same law.

Methods:
  dense           the mean gradient, one optimizer
  fp16            the same, each rank's gradient rounded to 16 bits
  hook            top-k of gradients with error feedback, one optimizer (gradsieve_ddp.register)
  powersgd        PowerSGD with error feedback (torch's hook): matrices of --matrix-rank, vectors in full
  onebit          1-bit Adam: dense for a tenth of the steps, then signs of momenta, second moments as they were then
  step            each rank's optimizer steps by itself, top-k of updates (gradsieve_ddp.CompressedStep)
"""

import argparse
import csv
import math
import pathlib
import time

import torch
from torch.nn import functional

VALUE_BITS = {"fp32": 32, "fp16": 16, "sign": 1.125}
RATES = {"adamw": 2e-3, "lion": 3e-4, "sgd": 0.3}
DECAYS = {"adamw": 0.1, "lion": 0.7, "sgd": 0.0}
RAMP = 20  # steps in which the learning rate rises
WINDOW = 50  # measurements of the factors that are averaged


def parsed(arguments=None):
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = out.add_argument
    add("--text", type=pathlib.Path, required=True, help="its last tenth is for evaluation")
    add("--method", choices=("dense", "fp16", "hook", "powersgd", "onebit", "step"), default="dense")
    add("--ranks", type=int, default=4)
    add("--optimizer", choices=tuple(RATES), default="adamw")
    add("--rate", type=float, default=1.0, help="factor of the learning rate, which is 0.002 of adamw [1]")
    add("--steps", type=int, default=1500)
    add("--batch", type=int, default=16, help="samples of a step, over all ranks [16]")
    add("--seed", type=int, default=0)
    add("--density", type=float, default=0.06)
    add("--choice", choices=("top", "leader", "deft"), default="top",
        help="each rank's top-k; one rank's for all, in turns (CLT-k); DEFT's, each layer chosen by one rank [top]")
    add("--values", choices=tuple(VALUE_BITS), default="sign", help="how values are coded [sign]")
    add("--every", type=int, default=1, help="steps of an exchange [1]")
    add("--local-weight", type=float, default=0.5, help="of what a rank has not sent, in the parameters it trains [0.5]")
    add("--passthrough", action="store_true", help="parameters of one dimension are sent in full")
    add("--no-second-moments", action="store_true", help="each rank's own")
    add("--measure-every", type=int, default=4)
    add("--clipping", choices=("mean", "estimate", "own"), default="mean",
        help="by the mean gradient's norm as all ranks estimate it, as each rank does; or by each rank's own [mean]")
    add("--warmup", type=float, default=0.0, help="share of the steps in which the hook's density falls from 0.25")
    add("--matrix-rank", type=int, default=4)
    add("--width", type=int, default=128)
    add("--layers", type=int, default=4)
    add("--context", type=int, default=64)
    add("--csv", type=pathlib.Path, help="a row is appended")
    return out.parse_args(arguments)


class Text:
    def __init__(self, path, seed):
        text = path.read_text(encoding="utf8")
        place = {each: i for i, each in enumerate(sorted(set(text)))}
        self.characters, self.seed = len(place), seed
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
    """A GPT of stacked parameters: `weights` is [ranks, elements], and so are its gradients."""

    HEADS = 4

    def __init__(self, characters, width, layers, context):
        self.characters, self.width, self.layers = characters, width, layers
        shapes = {"characters": (characters, width), "places": (context, width)}
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
        ranks, count, context = x.shape
        part = {name: each.view(ranks, *shape) for (name, shape), each in
                zip(self.shapes.items(), weights.split(self.sizes, 1))}

        def norm(values, scale, shift):
            return torch.addcmul(part[shift][:, None], functional.layer_norm(values, (self.width,)), part[scale][:, None])

        table = part["characters"].reshape(-1, self.width)
        offset = (self.characters * torch.arange(ranks)).view(ranks, 1, 1)
        stream = functional.embedding(x + offset, table) + part["places"][:, None, :context]
        stream = stream.view(ranks, count * context, self.width)
        for i in range(self.layers):
            all_three = norm(stream, f"{i}.norm1", f"{i}.bias1") @ part[f"{i}.attend"]
            q, k, v = all_three.view(ranks * count, context, 3, self.HEADS, -1).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            stream = stream + seen.transpose(1, 2).reshape(stream.shape) @ part[f"{i}.project"]
            wide = functional.gelu(norm(stream, f"{i}.norm2", f"{i}.bias2") @ part[f"{i}.widen"], approximate="tanh")
            stream = stream + wide @ part[f"{i}.narrow"]
        logits = norm(stream, "norm", "bias") @ part["characters"].transpose(1, 2)
        return functional.cross_entropy(logits.reshape(-1, self.characters), y.reshape(-1), reduction="sum") / (count * context)


class Optimizer:
    """Of stacked parameters; `update` is what it adds to them."""

    def __init__(self, name, like, is_vector):
        self.name, self.step = name, 0
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)
        self.decay = DECAYS[name] * (~is_vector).float()
        self.frozen = False

    def update(self, weights, gradient, rate, factor=1.0):
        """`factor`: of g^2, on its way into the second moments."""
        self.step += 1
        if self.name == "sgd":
            return self.first.mul_(0.9).add_(gradient).mul(-rate)
        if self.name == "lion":
            ahead = torch.lerp(self.first, gradient, 0.1).sign_()
            self.first.lerp_(gradient, 0.01)
            return ahead.addcmul_(self.decay, weights).mul_(-rate)
        self.first.lerp_(gradient, 0.1)
        if not self.frozen:
            self.second.mul_(0.99).add_(gradient.square().mul_(factor), alpha=0.01)
            self.bias = 1 - 0.99 ** self.step
        size = (self.second / self.bias).sqrt_().add_(1e-8)
        return (self.first / size).div_(1 - 0.9 ** self.step).addcmul_(self.decay, weights).mul_(-rate)


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
        alike = None if self.choice == "top" else self.chosen_for_all(rows, count)
        for rank, row in enumerate(rows):
            mine = self.largest(row, count, rank) if alike is None else alike
            scale = row[mine].abs().mean()
            value = row.sign() * scale if self.values == "sign" else row.half().float() if self.values == "fp16" else row
            sent[rank] = torch.where(self.passing, row, torch.where(mine, value, 0.0))
        self.number += 1
        indices = (math.log2(1 / density) + 2) / (1 if alike is None else len(rows))  # a rank sends those of its choice
        return sent, count * (indices + VALUE_BITS[self.values]) / 8 + 4 * int(self.passing.sum())

    def largest(self, row, count, rank):
        """Places of the largest; the threshold of the last step saves the sorting of most elements."""
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


class Ways:
    """What each method does in a step: `step` moves the stacked weights, and returns the bytes that a rank has sent."""

    def __init__(self, chosen, model, weights):
        self.chosen, self.model = chosen, model
        self.ranks = len(weights)
        self.common = weights[0].clone()
        apart = chosen.method == "step"
        self.optimizer = Optimizer(chosen.optimizer, weights if apart else self.common, model.is_vector)
        self.rest = torch.zeros_like(weights)
        self.sieve = Sieve(chosen, model)
        self.chance = torch.Generator().manual_seed(chosen.seed)
        self.factors = torch.ones(len(model.sizes))
        self.of_mean, self.mean_of, self.measured = torch.zeros(len(model.sizes)), torch.zeros(len(model.sizes)), 0
        self.bases = {name: torch.randn(shape[1], chosen.matrix_rank, generator=self.chance)
                      for name, shape in model.shapes.items() if len(shape) == 2}
        self.density = chosen.density

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
        warm = self.chosen.warmup * self.chosen.steps
        density = max(self.density, 0.25 * (self.density / 0.25) ** (number / warm)) if number < warm else self.density
        self.rest += gradients
        sent, size = self.sieve(self.rest, density)
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
            self.back = torch.zeros_like(self.common)
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
        size = 0
        if not self.chosen.no_second_moments and (number // self.chosen.every) % self.chosen.measure_every == 0:
            size += self.measure(gradients)
        squares = torch.stack([each.square().sum(1) for each in gradients.split(self.model.sizes, 1)], 1)
        squares = (squares if self.chosen.clipping == "own" else squares * self.factors).sum(1)
        norms = (squares.mean().expand_as(squares) if self.chosen.clipping == "mean" else squares).sqrt()
        gradients = gradients * (1 / norms).clamp(max=1)[:, None]
        update = self.optimizer.update(weights, gradients, rate, self.factors[self.model.parameter_of])
        self.rest += update
        if (number + 1) % self.chosen.every:
            weights += update
            return size
        sent, bytes_sent = self.sieve(self.rest, self.density)
        self.rest -= sent
        self.common += sent.mean(0)
        weights.copy_(self.common + self.chosen.local_weight * self.rest)
        return size + bytes_sent

    def measure(self, gradients):
        """As gradsieve_ddp's Factors."""
        counts = [min(size, max(16, math.ceil(1e-3 * size))) for size in self.model.sizes]
        first = 0
        weight = max(1 / (self.measured + 1), 1 / WINDOW)
        self.measured += 1
        for i, (count, size) in enumerate(zip(counts, self.model.sizes)):
            drawn = gradients[:, first + torch.randint(size, (count,), generator=self.chance)]
            self.of_mean[i].lerp_(drawn.mean(0).square().sum(), weight)
            self.mean_of[i].lerp_(drawn.square().sum(1).mean(), weight)
            first += size
        ratio = torch.where(self.mean_of > 0, self.of_mean / self.mean_of, 1.0)
        self.factors = ratio.clamp(1 / self.ranks, 1)
        return 4 * (sum(counts) + len(counts))


def learning_rate(step, steps):
    if step < RAMP:
        return (step + 1) / RAMP
    return 0.5 * (1 + math.cos(math.pi * (step + 1 - RAMP) / max(1, steps - RAMP)))


def train(chosen):
    """A row of the table."""
    text = Text(chosen.text, chosen.seed)
    model = Gpt(text.characters, chosen.width, chosen.layers, chosen.context)
    begin = model.begin(torch.Generator().manual_seed(1000 + chosen.seed))
    ranks = 1 if chosen.method == "dense" else chosen.ranks  # the mean of the ranks' gradients is that of one rank
    weights = begin.repeat(ranks, 1).requires_grad_()
    ways = Ways(chosen, model, weights.detach())
    sent, last, began = 0, [], time.monotonic()
    for number in range(chosen.steps):
        x, y = text.batch(number, ranks, chosen.batch, chosen.context)
        loss = model.loss(weights, x, y)
        gradients, = torch.autograd.grad(loss, weights)
        rate = chosen.rate * RATES[chosen.optimizer] * learning_rate(number, chosen.steps)
        with torch.no_grad():
            sent += getattr(ways, chosen.method)(weights.detach(), gradients, rate, number)
        last = [*last[-49:], loss.item() / ranks]
    with torch.no_grad():
        losses = [float(model.loss(ways.common[None], x[None], y[None])) for x, y in text.evaluations(chosen.context)]
    every = chosen.every if chosen.method == "step" else 1
    return {"method": chosen.method, "optimizer": chosen.optimizer, "ranks": chosen.ranks, "rate": chosen.rate,
            "density": chosen.density if chosen.method in ("hook", "step") else "", "every": every,
            "choice": chosen.choice if chosen.method in ("hook", "step") else "",
            "values": chosen.values if chosen.method in ("hook", "step") else "",
            "local_weight": chosen.local_weight if chosen.method == "step" else "",
            "matrix_rank": chosen.matrix_rank if chosen.method == "powersgd" else "", "elements": model.elements,
            "steps": chosen.steps, "seed": chosen.seed, "loss": f"{sum(losses) / len(losses):.4f}",
            "training_loss": f"{sum(last) / len(last):.4f}", "bytes": round(sent / chosen.steps),
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
