"""Local steps: ranks train alone for a while, then exchange how far they have come.

    outer = gradsieve_ddp.OuterStep(model, optimizer, every=50, recipe="chunked+int4", decay=0.95)
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        outer.step()        # the optimizer's step, and after every 50 of them a round
"""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import _arguments

STATE_VERSION = 1
STATE_PARTS = {
    "done": _arguments.is_count, "rounds": _arguments.is_count, "outer": lambda value: isinstance(value, dict),
    "hook": lambda value: isinstance(value, dict),
    "common": lambda value: isinstance(value, (list, tuple)) and all(isinstance(each, torch.Tensor) for each in value)}


class OuterStep:
    """An optimizer's steps on each rank alone, and after `every` of them a round: the way from the common weights to
    this rank's, the pseudo-gradient, is compressed and averaged as a gradient would be, an outer SGD moves the common
    weights by the mean, and all ranks go on from there.

    model: the bare module, not in DDP or FSDP; all ranks begin with rank 0's weights. optimizer: the inner one; its state
        stays on its rank. What is no parameter with a gradient, such as statistics of a batch norm, is not averaged.
    every: inner steps of a round, at least 1.
    lr, momentum, nesterov: of the outer SGD. lr 1 and momentum 0 put the mean of what was sent in place.
    decay: in [0, 1]; what has not been sent is multiplied with it before each round. Below 1 what is old fades. Not
        with recipes that carry momentum, nor with filtered.
    recipe, density, passthrough and other options: as register() has them.
    process_group: of the ranks that train together; None: all. hook_group: another one of the same ranks for the
        exchange alone; None: a new one with the same timeout, which ends with this object.

    Collective: the constructor, and the step() that ends a round.
    Cost: of a round one pass over the weights each for difference, exchange, outer step and copy. Memory: beside the
    recipe's residual 16 bytes an element: common weights, their gradient, DDP's buckets, outer momentum; while a
        round is under way a copy of the residual.
    When not: where links are fast enough for every step's gradient, which trains better for the same samples.
    Source: DiLoCo (Douillard et al. 2023): lr 0.7 and Nesterov momentum 0.9 outside; SparseLoCo (Sarfi et al. 2025):
    sparse pseudo-gradients of 2 bits, error feedback with decay 0.95; DeMo (Peng et al. 2024): chunks, every = 1.
    """

    def __init__(self, model, optimizer, *, every, recipe="chunked+int4", density=None, lr=0.7, momentum=0.9,
                 nesterov=True, decay=1.0, process_group=None, hook_group=None, **options):
        from . import _groups, _shards, register

        if isinstance(model, type) or not isinstance(model, nn.Module):
            raise _arguments.refused("model", model, "the module that is trained")
        if isinstance(model, (DistributedDataParallel, nn.DataParallel)) or any(
                _shards.kind_of(each) for each in model.modules()):
            raise ValueError("gradsieve: OuterStep takes the bare module: DDP and FSDP would average the gradients of "
                             "each step")
        _arguments.optimizer(optimizer)
        every = _arguments.whole("every", every, 1)
        lr, momentum = _arguments.number("lr", lr, 0), _arguments.number("momentum", momentum, 0)
        decay = _arguments.number("decay", decay, 0, 1)
        _arguments.flag("nesterov", nesterov)
        for name, group in (("process_group", process_group), ("hook_group", hook_group)):
            _arguments.group(name, group)
        recipe = _arguments.recipe(recipe)
        names = set(recipe.split("+"))
        if decay != 1 and names & {"momentum", "filtered", "none"}:
            raise ValueError(f"gradsieve: decay goes with error_feedback, recipe '{recipe}' has another residual: "
                             "leave decay out")
        if momentum != 0 and "momentum" in names:
            raise ValueError(f"gradsieve: recipe '{recipe}' carries the momentum: choose momentum=0 outside")
        trained = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        if not trained:
            raise ValueError("gradsieve: no parameter of the model has requires_grad: there is nothing to train")
        stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if not any(id(each) in stepped for _, each in trained):
            raise ValueError("gradsieve: the optimizer has none of the model's parameters: make it of "
                             "model.parameters()")
        self.every, self.decay, self.rounds = every, decay, 0
        self._optimizer = optimizer
        self._done = 0  # inner steps of this round
        self._local = [each for _, each in trained]
        self._ddp = DistributedDataParallel(_Common(trained, model), process_group=process_group)
        self._common = list(self._ddp.parameters())
        self._outer = torch.optim.SGD(self._common, lr=lr, momentum=momentum, nesterov=nesterov and momentum != 0)
        if hook_group is not None:
            _groups.check_same_ranks("hook_group", hook_group, self._ddp.process_group)
        self.hook = register(self._ddp, recipe=recipe, density=density, process_group=hook_group, **options)
        self._go_on()

    def step(self):
        """The inner optimizer's step; True if a round has ended with it. @throws as exchange(), in its place."""
        self._optimizer.step()
        self._done += 1
        if self._done < self.every:
            return False
        self.exchange()
        return True

    def exchange(self):
        """Ends the round here. Collective. RuntimeError on every rank where the exchange fails: weights and what was
        not sent are as they were then, the round is not over, and it may be called again."""
        before = self.hook.state_dict()
        if self.decay != 1:
            self.hook.rescale(self.decay)
        with torch.no_grad():
            ways = [common - local for common, local in zip(self._common, self._local)]
        self._outer.zero_grad(set_to_none=True)
        try:
            self._ddp(ways).backward()
        except RuntimeError:  # some buckets may have been exchanged
            self._outer.zero_grad(set_to_none=True)
            self.hook.load_state_dict(before)
            raise
        self._outer.step()
        self._outer.zero_grad(set_to_none=True)
        self._done = 0
        self.rounds += 1
        self._go_on()

    def report(self):
        """As Hook.report(), of the last round."""
        return self.hook.report()

    def state_dict(self):
        """What the next rounds depend on beside the model and the inner optimizer, at any step; of this rank."""
        return {
            "version": STATE_VERSION,
            "done": self._done,
            "rounds": self.rounds,
            "common": [each.detach().clone() for each in self._common],
            "outer": self._outer.state_dict(),
            "hook": self.hook.state_dict(),
        }

    def load_state_dict(self, state):
        """Goes on where state_dict() was taken, to the bit; load the model and the inner optimizer too. On every rank,
        before the first step.

        `state`: this rank's; or a list of all ranks', taken between rounds, for a world of another size: see
        Hook.load_state_dict(). All ranks then begin with the common weights.
        ValueError or RuntimeError if it does not fit.
        """
        alone = isinstance(state, Mapping)
        states = _arguments.states(state, (STATE_VERSION,), STATE_PARTS, "outer.state_dict()")
        if not alone and any(each["done"] != 0 for each in states):
            raise ValueError("gradsieve: ranks join and leave between rounds, this state is of the middle of one")
        first = states[0]
        if [each.shape for each in first["common"]] != [each.shape for each in self._common]:
            raise ValueError("gradsieve: the outer step's state is of other parameters")
        self.hook.load_state_dict(first["hook"] if alone else [each["hook"] for each in states])
        self._outer.load_state_dict(first["outer"])
        self._done, self.rounds = first["done"], first["rounds"]
        with torch.no_grad():
            for common, saved in zip(self._common, first["common"]):
                common.copy_(saved)
        if not alone:
            self._go_on()

    def __reduce__(self):
        raise TypeError("gradsieve: an OuterStep belongs to one model in one process and is neither copied nor pickled: "
                        "save its state_dict()")

    def _go_on(self):
        with torch.no_grad():
            for local, common in zip(self._local, self._common):
                local.copy_(common)


class _Common(nn.Module):
    """The common weights, under the model's names. A backward pass gives each of them the gradient that it is told."""

    def __init__(self, trained, model):
        super().__init__()
        self.stands_for = (model,)  # in a tuple it is no submodule
        for name, each in trained:
            *path, last = name.split(".")
            place = self
            for part in path:
                if part not in place._modules:
                    place.add_module(part, nn.Module())
                place = place._modules[part]
            place.register_parameter(last, nn.Parameter(each.detach().clone()))
        self._order = [name for name, _ in trained]

    def forward(self, ways):
        mine = dict(self.named_parameters())
        return _Given.apply(len(ways), *ways, *(mine[name] for name in self._order))


class _Given(torch.autograd.Function):
    """Zero, whose gradients are the first tensors."""

    @staticmethod
    def forward(ctx, count, *tensors):
        ctx.count = count
        ctx.save_for_backward(*tensors[:count])
        return tensors[count].new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return (None,) + (None,) * ctx.count + tuple(each.clone() for each in ctx.saved_tensors)
