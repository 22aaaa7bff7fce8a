#!/usr/bin/env python3
"""Writes the traces beside it: the gradient tensors of published architectures, and how long each takes.

Tensors and parameters are those of the models; the script checks their numbers against what the models are known to
have. Times are estimates: a step's computing time (measured, where `source` says so) is 1/3 forward and 2/3
backward; of each a quarter is spread evenly over the tensors and the rest by the operations of matrix products. Rows are
in ready order, the last layer of the network first; bytes are of binary32 gradients, times in seconds.
"""

import argparse
import csv
import pathlib


class Model:
    """Tensors in forward order: name, elements, operations of the forward pass for one sample."""

    def __init__(self):
        self.tensors = []
        self.late = 0.0  # operations behind the last tensor: of a head whose weights are tied to the input's

    def add(self, name, elements, operations=0.0):
        self.tensors.append((name, elements, float(operations)))

    def conv(self, name, inputs, outputs, kernel, side, bias=False):
        """A convolution with an output of side x side; kernel is a number or (height, width)."""
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        weights = inputs * outputs * height * width
        self.add(name + ".weight", weights, 2 * weights * side * side)
        if bias:
            self.add(name + ".bias", outputs)

    def norm(self, name, channels):
        self.add(name + ".weight", channels)
        self.add(name + ".bias", channels)

    def linear(self, name, inputs, outputs, positions=1, bias=True):
        self.add(name + ".weight", inputs * outputs, 2 * inputs * outputs * positions)
        if bias:
            self.add(name + ".bias", outputs)


def resnet(blocks):
    model = Model()
    model.conv("conv1", 3, 64, 7, 112)
    model.norm("bn1", 64)
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        side = 56 >> stage
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            before = side * 2 if stage > 0 and block == 0 else side  # the 3x3 convolution has the stride
            model.conv(name + ".conv1", channels, width, 1, before)
            model.norm(name + ".bn1", width)
            model.conv(name + ".conv2", width, width, 3, side)
            model.norm(name + ".bn2", width)
            model.conv(name + ".conv3", width, 4 * width, 1, side)
            model.norm(name + ".bn3", 4 * width)
            if block == 0:
                model.conv(name + ".downsample.0", channels, 4 * width, 1, side)
                model.norm(name + ".downsample.1", 4 * width)
            channels = 4 * width
    model.linear("fc", channels, 1000)
    return model


def vgg16():
    model = Model()
    channels, side, index = 3, 224, 0
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            model.conv(f"features.{index}", channels, width, 3, side, bias=True)
            channels, index = width, index + 2
        side, index = side // 2, index + 1
    for name, inputs, outputs in (("0", 512 * 7 * 7, 4096), ("3", 4096, 4096), ("6", 4096, 1000)):
        model.linear("classifier." + name, inputs, outputs)
    return model


def densenet(growth, first, blocks):
    model = Model()
    model.conv("conv0", 3, first, 7, 112)
    model.norm("norm0", first)
    channels, side = first, 56
    for number, count in enumerate(blocks, 1):
        for layer in range(1, count + 1):
            name = f"block{number}.layer{layer}"
            model.norm(name + ".norm1", channels)
            model.conv(name + ".conv1", channels, 4 * growth, 1, side)
            model.norm(name + ".norm2", 4 * growth)
            model.conv(name + ".conv2", 4 * growth, growth, 3, side)
            channels += growth
        if number < len(blocks):
            model.norm(f"transition{number}.norm", channels)
            model.conv(f"transition{number}.conv", channels, channels // 2, 1, side)
            channels, side = channels // 2, side // 2
    model.norm("norm5", channels)
    model.linear("classifier", channels, 1000)
    return model


def inception_v4():
    model = Model()

    def unit(name, inputs, outputs, kernel, side):
        model.conv(name + ".conv", inputs, outputs, kernel, side)
        model.norm(name + ".bn", outputs)

    def branch(name, inputs, side, *layers):
        for index, (outputs, kernel) in enumerate(layers):
            unit(f"{name}.{index}", inputs, outputs, kernel, side)
            inputs = outputs

    row, column = (1, 7), (7, 1)
    unit("stem.0", 3, 32, 3, 149)
    unit("stem.1", 32, 32, 3, 147)
    unit("stem.2", 32, 64, 3, 147)
    unit("stem.3", 64, 96, 3, 73)
    branch("stem.4.a", 160, 73, (64, 1), (96, 3))
    branch("stem.4.b", 160, 73, (64, 1), (64, row), (64, column), (96, 3))
    unit("stem.5", 192, 192, 3, 35)
    for block in range(4):
        name = f"a{block}"
        branch(name + ".0", 384, 35, (96, 1))
        branch(name + ".1", 384, 35, (64, 1), (96, 3))
        branch(name + ".2", 384, 35, (64, 1), (96, 3), (96, 3))
        branch(name + ".3", 384, 35, (96, 1))
    branch("reduce_a.0", 384, 17, (384, 3))
    branch("reduce_a.1", 384, 35, (192, 1), (224, 3))
    unit("reduce_a.1.2", 224, 256, 3, 17)
    for block in range(7):
        name = f"b{block}"
        branch(name + ".0", 1024, 17, (384, 1))
        branch(name + ".1", 1024, 17, (192, 1), (224, row), (256, column))
        branch(name + ".2", 1024, 17, (192, 1), (192, column), (224, row), (224, column), (256, row))
        branch(name + ".3", 1024, 17, (128, 1))
    branch("reduce_b.0", 1024, 17, (192, 1))
    unit("reduce_b.0.1", 192, 192, 3, 8)
    branch("reduce_b.1", 1024, 17, (256, 1), (256, row), (320, column))
    unit("reduce_b.1.3", 320, 320, 3, 8)
    for block in range(3):
        name = f"c{block}"
        branch(name + ".0", 1536, 8, (256, 1))
        branch(name + ".1", 1536, 8, (384, 1))
        branch(name + ".1a", 384, 8, (256, (1, 3)))
        branch(name + ".1b", 384, 8, (256, (3, 1)))
        branch(name + ".2", 1536, 8, (384, 1), (448, (3, 1)), (512, (1, 3)))
        branch(name + ".2a", 512, 8, (256, (1, 3)))
        branch(name + ".2b", 512, 8, (256, (3, 1)))
        branch(name + ".3", 1536, 8, (256, 1))
    model.linear("fc", 1536, 1000)
    return model


def bert(layers, width, positions):
    """With both heads of the pre-training; the word embedding is also the decoder's matrix."""
    vocabulary = 30522
    model = Model()
    model.add("embeddings.word", vocabulary * width)
    model.add("embeddings.position", 512 * width)
    model.add("embeddings.type", 2 * width)
    model.norm("embeddings.norm", width)
    for layer in range(layers):
        for part in ("query", "key", "value", "output"):
            model.linear(f"{layer}.{part}", width, width, positions)
        model.norm(f"{layer}.norm1", width)
        model.linear(f"{layer}.up", width, 4 * width, positions)
        model.linear(f"{layer}.down", 4 * width, width, positions)
        model.norm(f"{layer}.norm2", width)
    model.linear("pooler", width, width)
    model.linear("head.dense", width, width, positions)
    model.norm("head.norm", width)
    model.add("head.bias", vocabulary)
    model.linear("head.next", width, 2)
    model.late = 2.0 * vocabulary * width * positions
    return model


def gpt2(layers, width, positions):
    """The word embedding is also the head's matrix."""
    vocabulary = 50257
    model = Model()
    model.add("wte", vocabulary * width)
    model.add("wpe", 1024 * width)
    for layer in range(layers):
        model.norm(f"{layer}.ln_1", width)
        model.linear(f"{layer}.attn.c_attn", width, 3 * width, positions)
        model.linear(f"{layer}.attn.c_proj", width, width, positions)
        model.norm(f"{layer}.ln_2", width)
        model.linear(f"{layer}.mlp.c_fc", width, 4 * width, positions)
        model.linear(f"{layer}.mlp.c_proj", 4 * width, width, positions)
    model.norm("ln_f", width)
    model.late = 2.0 * vocabulary * width * positions
    return model


def lstm(layers, width, vocabulary, positions):
    """A word-level language model; the recurrence sums a layer's gradients over all positions."""
    model = Model()
    model.add("encoder.weight", vocabulary * width)
    for layer in range(layers):
        for part in ("ih", "hh"):
            model.add(f"weight_{part}_l{layer}", 4 * width * width, 8 * width * width * positions)
        for part in ("ih", "hh"):
            model.add(f"bias_{part}_l{layer}", 4 * width)
    model.linear("decoder", width, vocabulary, positions)
    return model


TPDS = "measured on a V100, MG-WFBP (TPDS 2021), binary32, batch "
# name: model, tensors, parameters, seconds of a step, where they come from
TRACES = {
    "resnet50": (resnet((3, 4, 6, 3)), 161, 25_557_032, 1.5 * 0.1686, "V100, batch 64"),
    "resnet152": (resnet((3, 8, 36, 3)), 467, 60_192_808, 0.883, TPDS + "128"),
    "vgg16": (vgg16(), 32, 138_357_544, 0.300, "assumed"),
    "densenet161": (densenet(48, 96, (6, 12, 36, 24)), 484, 28_681_000, 0.478, TPDS + "64"),
    "densenet201": (densenet(32, 64, (6, 12, 48, 32)), 604, 20_013_928, 0.361, TPDS + "64"),
    "inception_v4": (inception_v4(), 449, 42_679_816, 0.611, TPDS + "128"),
    "bert_base": (bert(12, 768, 64), 206, 110_106_428, 1.5 * 0.2005, "V100"),
    "bert_large": (bert(24, 1024, 64), 398, 336_226_108, 0.900, "assumed"),
    "gpt2": (gpt2(12, 768, 1024), 148, 124_439_808, 0.400, "assumed"),
    "lstm": (lstm(2, 1500, 10_000, 35), 11, 66_034_000, 0.120, "assumed"),
}


def rows(model, seconds):
    """Name, elements, backward and forward seconds of each tensor, in ready order."""
    operations = [each[2] for each in model.tensors]
    operations[-1] += model.late
    total = sum(operations)
    shares = [0.25 / len(operations) + 0.75 * each / total for each in operations]
    table = [(name, elements, seconds * 2 / 3 * share, seconds / 3 * share)
             for (name, elements, _), share in zip(model.tensors, shares)]
    return reversed(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                        help="folder for the CSV files [this one]")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    chosen = parser.parse_args()
    for name, (model, tensors, parameters, seconds, source) in TRACES.items():
        found = len(model.tensors), sum(each[1] for each in model.tensors)
        assert found == (tensors, parameters), f"{name}: {found}, expected {(tensors, parameters)}"
        lines = [["name", "bytes", "backward", "forward", "dtype"]]
        lines += [[layer, str(4 * elements), f"{backward:.4e}", f"{forward:.4e}", "0"]
                  for layer, elements, backward, forward in rows(model, seconds)]
        path = chosen.output / f"{name}.csv"
        if chosen.check:
            with open(path, newline="", encoding="utf-8") as file:
                assert list(csv.reader(file)) == lines, f"{path} is not what this script writes"
        else:
            with open(path, "w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(lines)
        small = sum(each[1] < 8192 for each in model.tensors) / tensors
        print(f"{name}: {tensors} tensors, {parameters:,} parameters, {small:.0%} of the tensors below 8192 elements; "
              f"step {seconds * 1e3:.0f} ms ({source})")


if __name__ == "__main__":
    main()
