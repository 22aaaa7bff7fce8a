"""The command line of train.py: options, their limits, and what a hook's name means. Needs no torch."""

from __future__ import annotations

import argparse
import math
import pathlib
from typing import Callable, NoReturn

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

MODELS = ("transformer", "cnn", "lstm", "ncf", "translator", "mixer")
DESCRIPTION = """\
Trains a model on 2 to 4 ranks with PyTorch's DistributedDataParallel over Gloo, once a communication hook, from the
same seed, and compares loss, bytes and time. Run it under torchrun, or let --ranks start the ranks on this machine.
"""

EPILOG = """\
hooks, by comma:
  none               plain DDP: all-reduce of the gradients as they are
  fp16               torch's fp16_compress_hook
  powersgd[:RANK]    torch's powerSGD_hook, matrices of rank RANK [1]; dense in the first --warmup steps, at
                     least 2
  gradsieve:RECIPE   gradsieve's hook; a recipe is names joined by '+' in any order, such as laplacian+deft or
                     radix+momentum+fp16, of selectors (radix, hierarchical, laplacian, adacomp, chunked,
                     trimmed, threshold_search, ldte, sidco, random_k, fixed_threshold), partitioners
                     (whole, layerwise, deft, cyclic, micro), residuals (none, error_feedback, momentum, filtered) and
                     codecs (coo, binned, or delta, bitmap, ... with fp16, bf16, int8, int4, int2, ternary, sign, qsgd).
                     With momentum (momentum correction) the hook carries the momentum, and the optimizer gets none.
  step[:H[:RECIPE]]  gradsieve's CompressedStep: ranks step by themselves, and after every H steps [1] exchange what
                     that has changed [radix]; for adam, adamw and adafactor. See --outer-lr. In place of H a preset's
                     name, diloco, streaming_diloco or sparseloco, whose values --density, --passthrough and
                     --outer-lr replace
"""


class UsageError(Exception):
    """A command line that cannot be obeyed; the program ends with code 2."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


class Hook:
    """One entry of --hook: `kind` is none, fp16, powersgd, gradsieve or step."""

    def __init__(self, name: str) -> None:
        kind, colon, rest = name.partition(":")
        self.name, self.kind = name, kind
        self.matrix_rank = 1
        self.recipe = ""
        self.every = 1  #: steps from one exchange to the next; of a preset once the model is made
        self.preset: str | None = None  #: of step
        if kind not in ("none", "fp16", "powersgd", "gradsieve", "step"):
            raise argparse.ArgumentTypeError(
                f"'{name}' is no hook: choose none, fp16, powersgd[:RANK], gradsieve:RECIPE or step[:H[:RECIPE]]")
        if kind == "gradsieve":
            self.recipe = rest
            if not rest or "" in rest.split("+"):
                raise argparse.ArgumentTypeError(
                    f"'{name}' names no recipe: write gradsieve:laplacian+deft, or other names joined by '+'")
        elif kind == "step":
            steps, _, self.recipe = rest.partition(":")
            if steps[:1].isalpha():
                self.preset = steps  # which the package knows
            else:
                self.every, self.recipe = whole(1, 1_000_000)(steps) if colon else 1, self.recipe or "radix"
        elif kind == "powersgd" and colon:
            self.matrix_rank = whole(1, 1024)(rest)
        elif colon:
            raise argparse.ArgumentTypeError(f"'{name}': {kind} takes nothing after a colon")

    @property
    def carries_momentum(self) -> bool:
        """The hook applies momentum before it selects: the optimizer must not apply it again."""
        return self.kind == "gradsieve" and "momentum" in self.recipe.split("+")


def hooks(text: str) -> list[Hook]:
    """All of --hook, in the order given."""
    found = [Hook(name) for name in text.split(",")]
    names = [hook.name for hook in found]
    for name in names:
        if names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"'{name}' is named twice")
    return found


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number within limits."""
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
        return value
    return convert


def number(least: float, most: float, above: bool = False) -> Callable[[str], float]:
    """A number within limits; `above`: the lower one is excluded."""
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (least < value <= most if above else least <= value <= most):
            limits = f"above {least:g} and up to {most:g}" if above else f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"'{text}' is not a number {limits}")
        return value
    return convert


def parser() -> Parser:
    """All options with their defaults."""
    out = Parser(prog="train.py", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False,
                 formatter_class=argparse.RawDescriptionHelpFormatter)
    many = 1_000_000_000

    job = out.add_argument_group("what is trained")
    job.add_argument("--model", choices=MODELS, default="transformer",
                     help="transformer and lstm: on characters of a text; translator: writes them backwards; cnn and "
                          "mixer: on images; ncf: on ratings [transformer]")
    job.add_argument("--text", type=pathlib.Path, metavar="FILE", default=REPOSITORY / "README.md",
                     help="text of transformer, lstm and translator; its last tenth is for evaluation [README.md]")
    job.add_argument("--data", type=pathlib.Path, metavar="PATH",
                     help="images of cnn and mixer: a folder with {train,t10k}-images-idx3-ubyte[.gz], or one such file "
                          "beside its labels; of a single file every fifth image is for evaluation")
    job.add_argument("--ratings", type=pathlib.Path, metavar="FILE",
                     help="ratings of the ncf: user, item, rating, set apart by tabs; every tenth is for evaluation")
    job.add_argument("--width", type=whole(8, 8192), metavar="N",
                     help="of transformer, lstm, translator and mixer [128], the cnn's fully connected layer [256], or the "
                          "ncf's embeddings [32]")
    job.add_argument("--layers", type=whole(1, 64), metavar="N", help="of transformer, translator and mixer [3] or the lstm [1]")
    job.add_argument("--heads", type=whole(1, 64), metavar="N", default=4, help="of its attention [4]")
    job.add_argument("--context", type=whole(2, 4096), metavar="N", default=128,
                     help="characters that a model sees [128]")
    job.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="[float32]")

    how = out.add_argument_group("how")
    how.add_argument("--ranks", type=whole(1, 64), metavar="P",
                     help="starts so many ranks on this machine [2, unless torchrun has started this one]")
    how.add_argument("--steps", type=whole(1, many), metavar="N", default=500, help="optimizer steps [500]")
    how.add_argument("--batch", type=whole(1, many), metavar="N",
                     help="samples a step, all ranks together [16 for a text, 128 for images, 512 for ratings]")
    how.add_argument("--optimizer", choices=("sgd", "adam", "adamw", "adafactor", "novograd"), default="sgd",
                     help="adafactor: with torch 2.5 [sgd]")
    how.add_argument("--lr", type=number(0, 1000, above=True), metavar="X",
                     help="learning rate: rises over the first 5 %% of the steps, at least 20, falls to a tenth until "
                          "the last [sgd: 0.15, of the cnn 0.05, of lstm and ncf 0.5; adam, adamw: 0.002; adafactor: "
                          "0.04; novograd: 0.01, of the lstm 0.03]")
    how.add_argument("--momentum", type=number(0, 0.9999), metavar="X", default=0.9,
                     help="of sgd and novograd, and the first moment's decay of adam and adamw [0.9]")
    how.add_argument("--interleave", action="store_true",
                     help="the hooks take each step in turn, so that other work on the machine slows all alike")
    how.add_argument("--seed", type=whole(0, 2**63 - 1), metavar="N", default=1,
                     help="of weights and samples [1]")

    sent = out.add_argument_group("how gradients travel")
    sent.add_argument("--hook", type=hooks, metavar="A,B", default="none,fp16,powersgd", help="see below [%(default)s]")
    sent.add_argument("--density", type=number(0, 1), metavar="X",
                      help="fraction of the elements that gradsieve sends [0.01; a preset's own]")
    sent.add_argument("--passthrough", metavar="PATTERNS",
                      help="parameters that gradsieve sends whole, by comma [<biases and norms>; of a preset none]")
    sent.add_argument("--warmup", type=whole(0, many), metavar="N",
                      help="steps over which gradsieve's density falls to --density; dense steps of powersgd [a tenth]")
    sent.add_argument("--route", choices=("python", "cpp"), default="python",
                      help="how gradsieve's hook is registered: by DDP's public call, or below Python [python]")

    sent.add_argument("--fragments", type=whole(1, 1_000_000), metavar="N",
                      help="parts of the parameters that step exchanges apart [1; a preset's own]")
    sent.add_argument("--delay", type=whole(0, 1_000_000), metavar="N",
                      help="steps that go on while an exchange of step is in flight [0; a preset's own]")
    sent.add_argument("--outer-lr", type=number(0, 1000, above=True), metavar="X",
                      help="of the SGD that moves the common parameters [1; a preset's own]")
    sent.add_argument("--outer-momentum", type=number(0, 0.9999), metavar="X",
                      help="the same, Nesterov's [0; a preset's own]")
    sent.add_argument("--plan", choices=("optimal", "mgwfbp", "free_merge", "wfbp", "single"),
                      help="steps with small buckets are timed first, then DDP gets the buckets that this planner "
                           "makes of what layers and exchanges took; prints the iteration, predicted and measured")

    kept = out.add_argument_group("what is kept")
    kept.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="one row a hook and step")
    kept.add_argument("--table", type=pathlib.Path, metavar="FILE", help="one row a hook")
    kept.add_argument("--trace", type=pathlib.Path, metavar="FILE",
                      help="one row a hook of gradsieve's and step: elements asked for, sent and updated, norm of the "
                           "residual, seconds of each part")
    kept.add_argument("--accumulators", type=pathlib.Path, metavar="FILE",
                      help="one row a hook of gradsieve's, sampled step and layer that does not pass through: how far "
                           "rank 0's gradient, alone and with what was not sent, is from Laplace's and Gauss's law")
    kept.add_argument("--accumulators-every", type=whole(1, many), metavar="N", default=50, help="steps [50]")
    kept.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="loss against bytes and against time (PNG)")
    kept.add_argument("--save", type=pathlib.Path, metavar="FILE", help="checkpoint, written after the last step")
    kept.add_argument("--resume", type=pathlib.Path, metavar="FILE", help="goes on from there, to the same bits")
    kept.add_argument("--stop", type=whole(1, many), metavar="N",
                      help="ends after step N of --steps, as if interrupted; with --save")
    return out


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options with what they imply. Ends the program with code 2, and a sentence, if they cannot be obeyed."""
    reader = parser()
    chosen = reader.parse_args(arguments)
    if chosen.width is None:
        chosen.width = {"cnn": 256, "ncf": 32}.get(chosen.model, 128)
    if chosen.layers is None:
        chosen.layers = 1 if chosen.model == "lstm" else 3
    if chosen.batch is None:
        chosen.batch = {"cnn": 128, "mixer": 128, "ncf": 512}.get(chosen.model, 16)
    if chosen.lr is None:
        of_sgd = {"cnn": 0.05, "lstm": 0.5, "ncf": 0.5}.get(chosen.model, 0.15)
        chosen.lr = {"sgd": of_sgd, "adafactor": 0.04, "novograd": 0.03 if chosen.model == "lstm" else 0.01}.get(chosen.optimizer, 0.002)
    if isinstance(chosen.hook, str):
        chosen.hook = hooks(chosen.hook)
    if not any(hook.preset for hook in chosen.hook):
        chosen.density = 0.01 if chosen.density is None else chosen.density
        chosen.passthrough = "<biases and norms>" if chosen.passthrough is None else chosen.passthrough
    if chosen.passthrough is not None:
        chosen.passthrough = tuple(pattern for pattern in chosen.passthrough.split(",") if pattern)
    try:
        check(chosen)
    except UsageError as wrong:
        reader.error(str(wrong))
    if chosen.warmup is None:
        chosen.warmup = chosen.steps // 10
    return chosen


def check(chosen: argparse.Namespace) -> None:
    """@throws UsageError where options that are fine alone do not go together."""
    heads = 4 if chosen.model == "translator" else chosen.heads
    if chosen.model in ("transformer", "translator") and chosen.width % heads != 0:
        raise UsageError(f"--width {chosen.width} is not a multiple of --heads {heads}")
    if chosen.model in ("cnn", "mixer") and chosen.data is None:
        raise UsageError(f"--model {chosen.model} needs images: --data with a folder of IDX files such as MNIST's")
    if chosen.model == "ncf" and chosen.ratings is None:
        raise UsageError("--model ncf needs ratings: --ratings with a file such as MovieLens's u.data")
    if chosen.stop is not None and chosen.stop > chosen.steps:
        raise UsageError(f"--stop {chosen.stop} lies beyond --steps {chosen.steps}")
    kinds = {hook.kind for hook in chosen.hook}
    for option, needs, why in (*((name, "step", "is of CompressedStep") for name in
                                 ("fragments", "delay", "outer_lr", "outer_momentum")),
                               ("trace", "gradsieve", "has rows of gradsieve's hook"),
                               ("accumulators", "gradsieve", "has rows of gradsieve's hook")):
        if getattr(chosen, option) is not None and needs not in kinds:
            raise UsageError(f"--{option.replace('_', '-')} {why}: no --hook here is {needs}")
    if chosen.warmup is not None and not kinds & {"powersgd", "gradsieve"}:
        raise UsageError("--warmup is of powersgd and gradsieve: no --hook here is either")
    for option in ("save", "resume", "stop"):
        if getattr(chosen, option) is not None and len(chosen.hook) > 1:
            raise UsageError(f"--{option} goes with one --hook, not with {len(chosen.hook)}")
        if chosen.plan is not None and getattr(chosen, option) is not None:
            raise UsageError(f"--{option} does not go with --plan, whose buckets follow from what it measures")
    if (chosen.save or chosen.resume) and chosen.hook[0].kind == "step":
        raise UsageError("--save and --resume: with step each rank has weights of its own, which this program does "
                         "not keep")
    if chosen.interleave and (len(chosen.hook) < 2 or chosen.plan is not None):
        raise UsageError("--interleave is for several hooks, and does not go with --plan, which times one")
    for hook in chosen.hook:
        if chosen.plan is not None and hook.kind != "gradsieve":
            raise UsageError(f"--plan is for gradsieve's hook, which times its exchanges; --hook {hook.name} does not")
        if hook.carries_momentum and chosen.optimizer != "sgd":
            raise UsageError(f"--hook {hook.name} corrects the momentum of sgd; --optimizer {chosen.optimizer} has "
                             "none of that kind: take error_feedback")


def check_world(chosen: argparse.Namespace, world: int) -> None:
    """@throws UsageError where the options do not fit this number of ranks."""
    if chosen.ranks is not None and chosen.ranks != world:
        raise UsageError(f"--ranks {chosen.ranks}, but torchrun has started {world}")
    if chosen.batch % world != 0:
        raise UsageError(f"--batch {chosen.batch} cannot be shared out equally to {world} ranks")
