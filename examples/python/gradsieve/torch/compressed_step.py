"""Ranks that step by themselves, and exchange how far they have come: for Adam and others that normalise gradients.

    sync = gradsieve.torch.CompressedStep(model, optimizer)  # 6 % of the changes, as signs
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        sync.clip_grad_norm_(1.0)  # where you clip: by the mean gradient's norm
        sync.step()                # the optimizer's step, and the exchange of what it has changed
    with sync.common_parameters():
        evaluate(model)            # or save it: the same parameters on all ranks
"""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from . import (_arguments, _buffers, _calls, _momentum, _optimizers, _parameters, _replica, _second_moments,
               _step_checks)
from ._flight import Flight, are_changes
from ._hook import Changes
from ._report import Report, set_ratios
from ._weights import Weights

STATE_VERSION = 3
OWNERS = 5  #: ranks from which on the usual recipe sums in shards: what a link carries then does not grow with them
RETURNED = 4  #: and how many times as many sums as a rank sends come back: with 2 less is sent, and a little more lost
MESSAGES = MEASURE, CLIP, STEPS, EXCHANGE, END = range(5)  #: of join()
LOOKS = 2  #: steps after which an optimizer's state is searched for copies of the weights
MEASURE_EVERY = 4  #: exchanges from one measurement of the second moments' factors to the next

OFTEN = 4  #: exchanges in a row before which weights were changed, after which a rank warns
PATIENCE = 20  #: steps in a row without a finite gradient, after which a rank warns

DROPPED = ("gradsieve: {what} NaN or infinite: the steps since the last exchange are dropped on all ranks, which have the "
           "parameters that they began with, and may go on")

ALL_LEFT_OUT = (f"gradsieve: this rank's gradients were NaN or infinite in each of the last {PATIENCE} steps, which its "
                "optimizer has left out: look after the loss, or lower the learning rate")

BROKEN = ("gradsieve: what this rank's optimizer has changed is NaN or infinite in {count} elements, which count as zero: "
          "load an earlier state of the optimizer, or lower its learning rate")

ALIKE = ("gradsieve: this rank's gradients have been the mean of all ranks', twice in a row. Either the model is in a "
         "DistributedDataParallel, which has averaged them in full before CompressedStep does: train the bare model, or "
         "register torch's noop_hook with the DDP; or all ranks read the same data")

ELSEWHERE = (f"gradsieve: before each of the last {OFTEN} exchanges something else than the optimizer has changed the weights, "
             "such as clamp_(), which ranks exchange in full: change weights less often, or choose common_momentum=False, "
             "with which it is compressed, too")

OTHER_SHARD = "gradsieve: the exchange of another rank of this replica has failed; its own error says why"
OTHER_STATE = "gradsieve: another rank of this replica has been refused its optimizer's state; its own error says why"

OTHER_TIMES = "gradsieve: the ranks have been given different every, fragments or delay: give all the same"

DIFFERENT = "gradsieve: the ranks have been given different recipes, densities or options: give all the same"

OTHER_PLACE = ("gradsieve: the state is of other shards, of place {there} in a replica, and this rank's is {here}: load what this "
               "rank has saved, or a list of all ranks'. Into other shards go the model and the optimizer, saved inside "
               "common_parameters()")

COMMON = ("gradsieve: common_momentum is not the same on all ranks, or their optimizers are of other classes or have other "
          "param_groups: make them alike, or choose common_momentum=False on all ranks")

LATE_MOMENTUM = ("gradsieve: the optimizer's state has a momentum, and the common one begins at zero: load the optimizer's "
                 "state before CompressedStep is made, or choose common_momentum=False, with which the state was saved")

Optimizers = "torch.optim.Optimizer | Sequence[torch.optim.Optimizer]"


class CompressedStep:
    """Each rank's optimizer steps this rank's parameters, with this rank's gradients. What it has changed is compressed,
    averaged and added to the common parameters, which are the same on all ranks; what was not sent waits, as a gradient
    would. Compressing gradients instead fails with Adam: it divides by their size, so that an element that has waited a
    hundred steps comes out as one step.

    model: the bare module, not in DDP. What else changes its weights between steps, such as model.load_state_dict() and
        clamp_(), counts as a change of this rank's own parameters; with a common momentum the next step exchanges it in
        full, and the mean moves the common parameters once. Or a module after fully_shard(), or of tensor parallelism, with
        replicas on other ranks: each rank then steps its shards, as a rank of its replica, and exchanges them with those
        that have the same. As long as this object lives gradients are reduced inside of a replica only. Not
        FullyShardedDataParallel. All ranks begin with the parameters and buffers of the group's first rank, frozen ones
        included, sparse buffers not. Call exchange() before a parameter is unfrozen, or add_param_group(), and make a new
        CompressedStep afterwards, which begins with the first rank's parameters: step() raises until then.
    optimizer: any of torch.optim but LBFGS, or a list of them, over the model's parameters; its state stays on its rank,
        but for master weights: a tensor in optimizer.state[parameter] that has the parameter's values after each of the
        first two steps is exchanged in its place, as long as it has them. Not ScheduleFree, nor another optimizer that
        computes the weights from an iterate of its own, which is not recognised.
        What bounds weights after its steps, such as clamp_(), does not bound the common parameters.
    recipe, density, passthrough and other options: as register() has them; recipe ["radix+sign"; with 5 ranks
        or more and without nodes "radix+sign+coded_all_reduce" and returned=4, with which the bytes of a link do not grow
        with the ranks], density [0.06, where the recipe has one]. With density 1 a recipe names values alone, such as "int4":
        everything is sent, both ways in that many bits an element. An optimizer that normalises makes changes of one size
        in all parameters, so that none need pass through.
    preset: a way of local steps by its name; what is given beside it counts instead of its own. None: none.
        "diloco": recipe "int4" at density 1, every=30, outer_momentum=0.5 (Nesterov's), local_weight=0.
        "streaming_diloco": the same with fragments=3 and delay=1.
        "sparseloco": "chunked+int2", 64 of 4096 elements, every=15, outer_momentum=0.5, local_weight=0.5, decay=0.95.
        Ranks average rarely, and end behind dense training, more so the more ranks there are: see the README.
    every: steps of an exchange, at least 1 [1]. With more, ranks train alone in between. With a common momentum, which 2 to
        8 have, a rank takes a quarter of its own steps meanwhile, and goes on as the common parameters have moved, and the mean
        counts in as many equal moves; with each rank's own it takes its steps as they are.
    fragments: parts of the parameters that are exchanged apart, each every so many steps, evenly spread over them [1]: as
        many bytes, but fewer at a time. At most `every`, and the number of parameters.
    delay: steps that go on while an exchange is in flight, at most every // fragments [0]. Its mean is applied after so many
        further steps, and what these have changed stays: no step waits for the link, if that needs no longer than they. The
        common parameters are without it until then. At the end exchange() waits for it, and exchanges the rest; describe(),
        state_dict() and on a GPU report() wait for it, too. Small messages are waited for still: those of measurements,
        weights, buffers that change, and agreements, on a GPU and where a rank has no gradient of a parameter. What else
        changes weights moves the other ranks late, too. With a common momentum ranks train ahead of the common parameters
        by what it alone moves them in two exchanges: one is in flight, and one makes it Nesterov's, where the optimizer's
        is not. Groups of nodes(), and a hook_group, are for this object alone then: what else uses them would meet what is
        in flight.
    local_weight: in [0, 1]; how much of what it has not sent, or keeps as the owner of a shard, a rank sees in the
        parameters that it trains; with a common momentum of what is in flight, too. Less, and it answers late to its own
        changes; more, and it trains further away from the other ranks. None: with a common momentum 0.25, but 0.125 below
        a density of 2.5 %, on more than 4 ranks with every=1, and in local steps above 80 of every / density; without one 0.5; of
        a rank alone 1, but not in local steps with a common momentum; 0 with nodes, where the ranks of a node share what
        was not sent, and with momentum, filtered and none.
    common_momentum: True: the optimizers step without momentum, and the common parameters move with that which these
        were given (`betas[0]`, `momentum`; what a scheduler makes of it counts, as the mean over the ranks): ranks then
        compress what is of one scale and linear in their gradients, which loses less. Of torch's Adam, AdamW, NAdam, RAdam,
        Adamax and SGD, and of their subclasses without a step() of their own; other optimizers keep theirs. Not with an
        outer step of its own, or a recipe that carries momentum; with every > 1 not with fragments, a delay, or weights of
        less than 32 bits. False: each rank keeps its own. None: True where it can be, but not for SGD, which lost more with
        it on small models; with every > 1 up to 8, where all optimizers have it and local_weight is above 0. Below a
        density of 6 % changes are sent late, and a long momentum delays them more: 1 - betas[0] is multiplied by min(5,
        0.06 / density), so that 0.9 becomes 0.5 at 1 %; not SGD's, with every > 1, on a rank alone, or with none, which
        keeps nothing. A number from 0 and below 1: True, with this momentum in place of the optimizers', which have one. A
        parameter that gets no gradient on any rank stays as it is, with its momentum and what has not been sent of it; so
        do all in a step that all ranks leave out. Below density 1, also in a warm-up to it, what ranks send is late: there
        and in local steps they train ahead of the common parameters by the momentum times the last move, as with Nesterov's
        momentum (NAdam and SGD with nesterov have that already), but not behind exchange().
    second_moments: whether those of the optimizer become the mean gradient's, which are smaller than a rank's own, by a
        measured factor for each parameter. Of torch's Adam, AdamW, NAdam, RAdam, RMSprop and Adagrad, and of their
        subclasses without a step() of their own. Without such a second moment it is the steps that are enlarged, as their
        mean is shorter than each: what step() has changed, beside a decay by lr * weight_decay, is divided by the root of a
        factor that is measured on these changes. Of torch's Adafactor, Adamax, Adadelta, Rprop, Muon and RMSprop with
        `centered`, and of classes with Adafactor, Lion or Muon in their names. Other optimizers are left alone, one that
        has `betas` with a warning. A list names further classes that normalise: `exp_avg_sq` of theirs must become betas[1]
        * exp_avg_sq + (1 - betas[1]) * g^2; without one, steps are enlarged.
    outer_lr, outer_momentum, nesterov: of the SGD that moves the common parameters by the mean. 1 and 0: by the mean [1, 0;
        with an outer_momentum True].
    buffers: what becomes of buffers that training changes, such as statistics of norms and codebooks, in each exchange:
        "mean", of counters and other whole numbers the first rank's; "broadcast": the first rank's, as DDP's
        broadcast_buffers has it; "own": each rank keeps its own. Frozen parameters that training changes count as buffers
        up to a sixteenth of the trained elements; a larger teacher stays each rank's. They are sent in full, and constants
        are not sent: what changes is found in the first 4 exchanges or in each 16th, by value, of large ones by torch's
        count and by 16,384 elements. Ranks where one is NaN or infinite, or has got another shape, have no part in its mean.
        describe() lists all.
    decay: in [0, 1]; what has not been sent is multiplied with it before each exchange [1]. Below 1 what is old fades. Not
        with recipes that carry momentum, nor with filtered.
    process_group: of the ranks that train together; None: all. Of a sharded model those that have the same shards; None:
        those of the replicating dimension, on which fully_shard() was called; or inside and across, of nodes(). hook_group:
        another one of the same ranks for the exchange alone; None: a new one with the same timeout, which ends with this
        object. Where process_group is not of
        all ranks, see register() for when new groups are made.

    Collective: the constructor, and the step() that ends with an exchange; of a sharded model each one, inside.
    Cost: of an exchange, beside a compressed gradient's, five passes over the parameters, with a common momentum six, below
    density 1 seven, and an all-reduce of about a byte a parameter; in every fourth one an all-reduce of 0.1 % of the
    elements; of a sharded model two all-reduces of 4 bytes inside in each step, and small ones in measurements and
    clip_grad_norm_(). With every > 1 and a common momentum three passes in each other step. Memory: beside the recipe's
    residual 8 bytes an element: common parameters, and those that the step began with; 4 more for a common or an outer
    momentum, for undo=True, which every > 1 has, in an exchange with a decay, of a fragment in flight, and with every > 1
    and a common momentum; 4 more with undo=True for one in flight with a common momentum.
    When not: with SGD where the backward pass can hide the exchange, which register() makes in it.
    Source: derivation, see the README; with local_weight 1 CSER's error reset (Xie et al. 2020); with every > 1 DiLoCo
    (Douillard et al. 2023) and SparseLoCo (Sarfi et al. 2025); fragments and delay Streaming DiLoCo (Douillard et al. 2025),
    which blends what arrives with a rank's parameters, where here the changes since are added to it.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizers, recipe: str | None = None,
                 density: float | None = None, *, preset: str | None = None, passthrough: Sequence[str] = (),
                 every: int | None = None, fragments: int | None = None, delay: int | None = None,
                 common_momentum: bool | float | None = None, local_weight: float | None = None,
                 second_moments: bool | Sequence[type] = True, outer_lr: float | None = None,
                 outer_momentum: float | None = None, nesterov: bool | None = None, decay: float | None = None,
                 process_group: Any = None, hook_group: Any = None, buffers: str = "mean", **options: Any) -> None:
        from . import _groups, register

        is_usual = recipe is None and preset is None
        recipe, density, every, fragments, delay, local_weight, outer_lr, outer_momentum, decay = _step_checks.of_preset(
            preset, recipe=recipe, density=density, every=every, fragments=fragments, delay=delay,
            local_weight=local_weight, outer_lr=outer_lr, outer_momentum=outer_momentum, decay=decay)
        self._optimizers = _step_checks.stepped_here(optimizer)
        self._parts = _optimizers.parts(self._optimizers)
        self._two_passes = any(map(_optimizers.has_two_passes, self._optimizers))
        trained = _step_checks.trained(model, self._optimizers)
        self.every, self.rounds = _arguments.whole("every", every, 1), 0
        self.fragments, self.delay = _step_checks.schedule(self.every, fragments, delay)
        self.decay = _arguments.number("decay", decay, 0, 1)
        outer_lr = _arguments.number("outer_lr", outer_lr, 0)
        outer_momentum = _arguments.number("outer_momentum", outer_momentum, 0)
        if nesterov is not None and _arguments.flag("nesterov", nesterov) and not outer_momentum:
            raise ValueError("gradsieve: nesterov is True, but outer_momentum is 0: give outer_momentum, or leave nesterov out")
        nesterov = nesterov is not False
        _arguments.choice("buffers", buffers, _buffers.WAYS)
        self._scales = second_moments is not False
        self._scaled, self._enlarged = _step_checks.scaled(second_moments, self._optimizers)
        for name, group in (("process_group", process_group), ("hook_group", hook_group)):
            _arguments.group(name, group)
        recipe = _arguments.recipe(recipe)
        given = {name: options[name] for name in ("inside", "across") if options.get(name) is not None}
        replica, made = _replica.replica_of(model, trained, process_group, given.get("inside"), given.get("across"))
        if any(hasattr(each, "device_mesh") for _, each in trained):
            options = {name: value for name, value in options.items() if name not in given}
        self._replica, self._groups = replica, _groups.Attached(_groups.Peers(replica.everyone, None, made))
        has_nodes = "inside" in options and options["inside"] is not None
        self.local_weight = _step_checks.local_weight(local_weight, recipe, has_nodes)
        fixed = _step_checks.fixed_momentum(common_momentum)
        commons = _step_checks.with_common_momentum(
            common_momentum, self._optimizers, [each for _, each in trained], recipe, self.every, (outer_lr, outer_momentum),
            self.local_weight, self.fragments > 1 or self.delay > 0)
        _step_checks.check_residual(recipe, self.decay, outer_momentum)
        if options.get("on_non_finite") == "propagate":
            raise ValueError("gradsieve: on_non_finite=\"propagate\" is for gradients, and would make the common parameters "
                             "NaN: choose \"skip\" or \"fail\"; a GradScaler goes into step(scaler=scaler)")
        if options.get("on_non_finite") == "fail" and self.fragments > 1:
            raise ValueError("gradsieve: on_non_finite=\"fail\" goes with fragments=1: it drops steps, of which other "
                             "fragments are exchanged already; choose \"skip\"")
        if options.get("on_non_finite") == "fail" and options.get("inside") is not None:
            raise ValueError("gradsieve: on_non_finite=\"fail\" does not go with nodes in CompressedStep: each rank of a node "
                             "exchanges a part, and only those of the part with a NaN would drop the round; choose "
                             "\"skip\"")
        options.setdefault("undo", self.every > 1)
        self._fails = options.get("on_non_finite") == "fail"
        self._undoes = _arguments.flag("undo", options["undo"]) or self._fails
        self._done = 0  # steps since all fragments were exchanged
        self._next = 0  # fragment that is exchanged next
        self._fresh = True  # no step since all were exchanged, and none in flight
        self._flight: Flight | None = None
        self._reported: Report | None = None  # with a delay, of the exchange that has ended last
        self._number = 0  # of the step, for the choice of places
        self._names, self._own = [name for name, _ in trained], [each for _, each in trained]
        self._trained = {id(each) for each in self._own}
        self._all = range(len(self._own))  # numbers of all parameters
        self._kept: list[torch.Tensor] | None = None  # what _own is outside of common_parameters()
        self._copies: list[tuple[int, str]] = []  # of parameters in the optimizers' states: number of _parts, name
        self._copies_elsewhere: set[str] = set()
        self._looks = LOOKS  # for copies that are still to come
        self._checked = False  # that the optimizers' states are finite, before the first step
        self._left_out = self._total_left_out = self._left_out_in_a_row = 0  # steps: since the last exchange, of all
        self._failed = False  # with on_non_finite="fail": a step since the last exchange was left out
        self._joins = False  # inside join()
        self._told_broken = self._told_left_out = False
        self._used: set[int] = set()  # with a common momentum: parameters with a gradient in a step since the last exchange
        self._outside: dict[int, torch.Tensor] = {}  # and what something else than an optimizer has changed
        self._outside_in_a_row = 0  # exchanges with such
        self._coasted = 0  # local steps in this round after which the parameters have moved as before
        self._speeds: dict[int, tuple[float, float]] = {}  # in it, and how far a rank begins ahead
        self._last: list[torch.Tensor] = []  # in such rounds: this rank's parameters behind its last step
        held = [each for part in self._parts for each in _optimizers.kept(part) if _optimizers.equals(each[2], each[0])]
        self._group = group = replica.across
        device = _parameters.local(self._own[0]).device
        if is_usual and not has_nodes and torch.distributed.get_world_size(group) >= OWNERS:
            recipe += "+coded_all_reduce"
            options.setdefault("returned", RETURNED)
        elif is_usual and "returned" in options:
            raise ValueError(f"gradsieve: returned is of coded_all_reduce, which the usual recipe has from {OWNERS} ranks on, and "
                             f"not with nodes: leave it out, or name the recipe, '{recipe}+coded_all_reduce'")
        _parameters.make_common(model, replica, device)
        self._changes = Changes(model, trained, group, self.fragments)
        self._start = self._changes.parts  # what this rank's steps began with; in an exchange its changes, and their mean
        self._common = [each.clone() for each in self._start]
        self._outer = torch.optim.SGD(self._common, lr=outer_lr, momentum=outer_momentum,
                                      nesterov=nesterov and outer_momentum != 0)
        _groups.raise_together(self._not_finite_state(), replica.everyone, device)
        _step_checks.check_alike(repr((self.every, self.fragments, self.delay)), replica.everyone, device, OTHER_TIMES)
        _step_checks.check_alike(_momentum.kind_of(commons, self._own, fixed) if commons else "", replica.everyone, device, COMMON)
        if replica:  # across it is checked in each exchange
            _step_checks.check_alike(repr((recipe, density, decay, local_weight, sorted(options.items(), key=str))),
                         replica.everyone, device, DIFFERENT)
        self._buffers = _buffers.Buffers(model, buffers, replica.alike, device)
        self._weighting = Weights(replica, device)
        self._factor = 1.0  # of this rank's changes in the last exchange
        if hook_group is not None:
            _groups.check_same_ranks("hook_group", hook_group, group)
        if density is None and "adacomp" not in recipe.split("+"):
            density = _step_checks.DENSITY
        self.hook = register(self._changes, recipe=recipe, density=density, passthrough=passthrough,
                             process_group=hook_group, **options)
        ranks = torch.distributed.get_world_size(group)
        alone = ranks == 1
        self._momentum = _momentum.CommonMomentum(
            commons, self._own, self._common, group, _step_checks.faster(recipe, ranks, self.every, density),
            fixed) if commons else None
        self._coasts = self._momentum is not None and self.every > 1
        if local_weight is None and self.local_weight:
            self.local_weight = (1.0 if alone and not self._coasts else
                                 _step_checks.usual_local_weight(self._momentum is not None, ranks, self.every, density))
        # Where nothing is late training is that of one optimizer; in flight it is _go_ahead() that looks further.
        self._looks_ahead = self._momentum is not None and not self.delay and (
            self._coasts or _step_checks.is_late(recipe, density))
        self._factors = _second_moments.Factors(self._own, replica) if not alone or replica else None
        self._of_steps = (_second_moments.Factors(self._own, replica, self._enlarged) if self._factors and self._enlarged
                          else None)
        self._beyond: dict[int, torch.Tensor] = {}  # of a step that 16 bits would round
        self._measured = False  # in this step
        self._told_alike = False
        self._last_bytes = self._total_bytes = self._measurements = 0  # of measurements: of the last exchange, of all, since
        self._total_buffers = 0  # bytes
        self._begin_round(self._all)
        with torch.no_grad():
            for parameter, _, copy in held:  # of other parameters, on ranks that began with them
                if not _optimizers.equals(copy, parameter):
                    copy.copy_(_parameters.local(parameter))
        replica.reduce_inside_only(self)

    # ---- training ---------------------------------------------------------------------------------------------------

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Before step(): limits the norm of the mean gradient, which the ranks estimate together from their own and the
        measured factors. A rank's own norm is up to sqrt(P) times as large: clipping by it cuts where one rank with all
        samples would not, and cuts ranks by their noise. With every > 1 each rank estimates alone. Returns the estimate
        before it was limited. Collective with every = 1, an all-reduce of 24 bytes; and as step() is, in a step that ends
        with an exchange: all ranks clip in it, or none does."""
        max_norm = _arguments.number("max_norm", max_norm, 0)
        if self._factors is None:
            return float(nn.utils.clip_grad_norm_(self._own, max_norm))
        with _calls.missing_ranks_are_named():
            self._replica.complete(self._own)
            self._measure()
            if self.every == 1:
                self._announce(CLIP)
            return self._factors.clip(max_norm, self.every == 1)

    def step(self, closure: Callable[[], Any] | None = None, *, scaler: Any = None, weight: float | None = None) -> Any:
        """The optimizer's step; True if an exchange has ended in it, after which the common parameters are others.

        closure: as of optimizer.step(closure): called first, and its loss is returned in place of True or False. An
            optimizer of two passes (SAM: first_step() and second_step()) calls it for the second one, after the caller's
            backward() of the first.
        scaler: a GradScaler; the step is scaler.step(optimizer) and scaler.update() then, after
            scaler.unscale_(optimizer) where that was not called.
        weight: at least 0; what this step counts in the mean of the ranks' changes, such as the tokens of its batch: weights
            in the loss vanish where an optimizer normalises. The loss is the mean over this rank's samples then, without
            the weight. With every > 1 the weights of a rank's steps add up, as in federated averaging. The changes of a rank
            with 0 are dropped. In each step on all ranks, or on none; not with fragments. Second moments that are scaled, and
            steps that are enlarged, get one size on all ranks, too; of other optimizers each rank's own size stays in its steps.

        A rank whose gradients are NaN or infinite, or whose squares are in float32, leaves its optimizer's step out: that
        changes nothing but report()'s `steps_left_out`, and the rank takes part in the exchange. It warns after 20 such
        steps in a row. With on_non_finite="fail" the exchange raises once, on all ranks; not for what a scaler skips.
        Cost: a reading pass over the gradients, with an exchange also over copies of the weights; of an optimizer of two
        passes, and of parameters whose steps are enlarged, two copies of the parameters.
        @throws as exchange(), in its place. ValueError, before anything has happened, if an optimizer has a parameter with
        a gradient that was not there, or frozen, when this object was made, or a state that is NaN or infinite, or if
        there is a weight, and earlier steps had none; at its second step if it keeps copies of the weights outside of
        optimizer.state, which no exchange reaches. ValueError on every rank in the exchange, before it changes anything, if
        a weight is below 0 or not finite, all are 0, or some steps have none: the next exchange has the changes, by the
        weights of the steps since."""
        self._check_outside("step()")
        if weight is not None and self.fragments > 1:
            raise ValueError("gradsieve: weight goes with fragments=1: a fragment's changes are of other steps than another's")
        self._weighting.check(weight)
        if scaler is not None:
            _arguments.grad_scaler(scaler, ("unscale_", "step", "update"))
        self._check_closure(closure, scaler)
        if not all(id(each) in self._trained for optimizer in self._optimizers for group in optimizer.param_groups
                   for each in group["params"] if each.requires_grad):
            raise ValueError("gradsieve: an optimizer has a parameter with a gradient that is not exchanged: call exchange() "
                             "before unfreezing, add_param_group() or replacing parameters, and make a new CompressedStep "
                             "after it")
        if not self._checked:
            why = self._not_finite_state()
            if not self._replica.all(why is None):
                raise ValueError(why or OTHER_STATE)
            self._checked = True
            if self._momentum is not None and self._flight is None and self._momentum.misses():
                warnings.warn(LATE_MOMENTUM, UserWarning, stacklevel=2)
        again: _calls.Closure | None = None
        if closure is not None:
            again = _calls.Closure(closure)
            if not self._two_passes:
                again.call_ahead()
        with _calls.interrupts_wait(), torch.inference_mode(False), torch.no_grad():
            with _calls.missing_ranks_are_named():
                self._replica.complete(self._own)
                if scaler is not None:
                    self._unscale(scaler)
                finite = self._gradients_are_finite()
            scales = self._factors is not None and bool(self._scaled)
            if self._factors is not None:
                self._factors.sized = weight is not None
            if scales:
                self._measure()
            self._find_outside()
            looks = self._looks and (self._done == 0 or not self._changed())
            begun = self._step_optimizers(scaler, scales, again) if finite else None
            stepped = begun is not None
            is_due = self._done + 1 >= (self._next + 1) * self.every // self.fragments
            ends = self._flight is not None and (self._flight.flies_on() or is_due)
            if scaler is not None:
                scaler.update()
            self._count(stepped, fails=self._fails and not _is_enabled(scaler))
            self._used |= {i for i, each in enumerate(self._own) if self._failed or stepped and each.grad is not None}
            if looks and stepped:
                self._look_for_copies()
            if stepped and self._copies and (ends or is_due or begun):  # what is one for a while may be an average later
                finite_ones = [each for each in self._own if bool(torch.isfinite(_parameters.local(each)).all())]
                still = _optimizers.copies(self._parts, finite_ones)
                self._copies = [each for each in self._copies if still.get(each, True)]
            if self._of_steps is not None:
                self._enlarge(begun or {})
            del begun
            self._done += 1
            self._fresh = False
            self._weighting.add(weight)
            landed = self._land(goes_on=is_due) if ends else None
            if self._coasts:
                self._go_on(is_due)
            if is_due:
                self._exchange(self._next, landed=landed)
                ends |= self.delay == 0
        return again.loss if again is not None else ends

    def exchange(self) -> None:
        """Exchanges what the steps so far have changed. Collective. RuntimeError on every rank where it fails. With
        undo=True or on_non_finite="fail" parameters and what was not sent are then as they were before it, and it may be
        called again; otherwise restart from a checkpoint. A change that is not finite counts as zero with "skip", with a
        warning, and the rank's parameters are finite afterwards. With "fail" it is an error, as a step that was left out
        is, which drops the steps since the last exchange: all ranks have the parameters that those began with, and go
        on. Also for an optimizer that was stepped by the caller, such as SAM's first_step() and second_step(), but not with a
        common momentum, which it would have twice (ValueError); with one and no step on any rank since the last exchange what
        waits goes on waiting. One in flight is waited for first; then all fragments are exchanged, and nothing is in flight."""
        self._check_outside("exchange()")
        if self._momentum is not None and (self._coasted or self._done == 0) and self._changed(since=self._last):
            raise ValueError("gradsieve: exchange() after the optimizer's own step(), in which it has its momentum, which the "
                             "common parameters have, too: call sync.step(), or choose common_momentum=False")
        with _calls.interrupts_wait(), torch.inference_mode(False), torch.no_grad():
            if self._flight is not None:
                self._land()
            self._exchange()
            self._end_ahead()

    def _end_ahead(self) -> None:
        """What begins with these parameters is not ahead."""
        if self._looks_ahead:
            self._speeds = {i: (speed, 0.0) for i, (speed, _) in self._speeds.items()}
            self._begin_round(self._all)

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """`with sync.join():` around a loop over data of which some ranks have more than others. A rank that is through
        takes part in the exchanges of the others, in which it sends what it has not sent yet, and all leave together. The
        mean stays one over all ranks; where steps have a weight, that of a rank that is through is 0.
        Collective: on all ranks or on none. Cost: an all-reduce of 16 bytes with each exchange, clip_grad_norm_() and
        measurement. @throws ValueError with fragments or a delay"""
        self._check_outside("join()")
        if self.fragments > 1 or self.delay:
            raise ValueError("gradsieve: join() goes without fragments and delay: give all ranks as many batches, and call "
                             "exchange() at the end")
        if self._joins:
            raise ValueError("gradsieve: join() inside another join() of the same CompressedStep: leave the inner one out")
        self._joins = True
        try:
            yield
            while True:
                others = self._announce()
                if not any(others):
                    break
                with _calls.interrupts_wait(), torch.inference_mode(False), torch.no_grad():
                    self._take_part(others)
        finally:
            self._joins = False

    def _exchange(self, fragment: int | None = None, announces: bool = True, landed: Flight | None = None) -> None:
        """Of one fragment, whose mean arrives later where there is a delay; None: of all, at once. `landed`: the flight after
        which this rank's steps have gone on; None: they began with the common parameters."""
        which = self._all if fragment is None else self._changes.fragments[fragment]
        delays = self.delay > 0 and fragment is not None
        unused: set[int] = set()
        try:
            with _calls.missing_ranks_are_named():
                if announces:
                    self._announce(END if fragment is None else EXCHANGE)
                factor = self._weighting.factor()
                asked = self._ask()
                if self._momentum is not None and (self._start[0].is_cuda or not self._momentum.parameters <= self._used):
                    unused = self._momentum.parameters - self._momentum.hear(asked)[0]
        except BaseException:
            if landed is not None:
                self._end_round(landed)
            self._remember()
            raise
        self._measured = False
        if self._looks == LOOKS:  # this rank has left its steps out: what equals its first weights follows the others
            self._copies = [] if self._changed(landed) else _copies_among(_optimizers.copies(self._parts, self._own))
        before = self.hook.state_dict() if self.decay != 1 and self._undoes else None
        if self.decay != 1:
            self.hook._native.rescale(self.decay, () if len(which) == len(self._own) else which)
        start, weights = _of(self._start, which), _of(self._weights(), which)
        begun = start if landed is None else landed.left
        goes_ahead = delays and self._momentum is not None
        left = [each.clone() for each in weights] if delays and not goes_ahead else []
        wants_steps = goes_ahead and (self._undoes or len(self._momentum.parameters) < len(which))  # type: ignore[union-attr]
        steps = [own.to(each) - its.to(each) for each, its, own in zip(start, begun, weights)] if wants_steps else []
        if landed is None and _parameters.alike(start, weights):
            torch._foreach_sub_(start, weights)
        else:
            for each, its, own in zip(start, begun, weights):
                torch.sub(its.to(each), own.to(each), out=each)  # master weights may be elsewhere
        if self._coasts:
            for i in self._momentum.parameters:  # type: ignore[union-attr]
                speed = self._speeds.get(i, (0.0, 0.0))[0]
                self._start[i].sub_(self._momentum.values(i), alpha=self._coasted * speed)  # type: ignore[union-attr]
                self._start[i].div_(_step_checks.OWN_SHARE)
        beyond, self._beyond = self._beyond, {}
        for i, change in beyond.items():
            self._start[i].sub_(change.to(self._start[i].device))
        for each in start if factor != 1 else ():
            each.mul_(factor) if factor else each.zero_()
        for i in self._replica.follows.intersection(which):
            self._start[i].zero_()
        is_finite = not self._fails or self._replica.all(_second_moments.finite(start))
        if self._failed or not is_finite:  # which all ranks hear of
            for each in start:
                each.view(-1)[:1] = float("nan")
        what = ("this rank's gradients were" if self._failed else
                "another rank's gradients or changes are" if is_finite else
                "what this rank's optimizer has changed, by its state or its learning rate, is")
        flight = Flight(fragment, which, left, self.delay, factor, before, unused, what, weights=self._weighting.state(),
                        beyond=beyond, asked=asked, outside=self._outside)
        self._outside = {}
        agreed = self._momentum.bytes if self._momentum is not None else 0
        self._last_bytes, self._measurements = agreed + self._measurements, 0
        self._total_bytes += agreed
        if delays:
            if goes_ahead:
                self._go_ahead(flight, steps, landed.left if landed is not None else ())
            self.hook._native.begin(which, unused)
            self._flight = flight
            self._end_steps(fragment)
            return
        self._await(flight, functools.partial(self.hook._native.exchange, which, unused))

    def _land(self, goes_on: bool = False) -> Flight | None:
        """What was in flight has arrived, or is waited for. `goes_on`: an exchange follows; with a common momentum it takes what
        the steps have changed since this one began, which is returned."""
        flight, self._flight = self._flight, None
        assert flight is not None
        goes_on &= self._momentum is not None
        self._await(flight, self.hook._native.wait, goes_on)
        return flight if goes_on else None

    def _await(self, flight: Flight, wait: Callable[[], None], goes_on: bool = False) -> None:
        """Until it has arrived."""
        error: Exception | None = None
        with _calls.missing_ranks_are_named():
            try:
                wait()
            except Exception as its:
                error = its
            if flight.asked is not None and (error is None or self._drops(error)):
                try:
                    flight.in_full = self._settle(flight)
                except Exception as its:
                    error = its
        try:
            self._arrive(flight, error, goes_on)
        finally:
            error = None  # which keeps this frame

    def _go_ahead(self, flight: Flight, steps: list[torch.Tensor], free: Sequence[torch.Tensor]) -> None:
        """With a common momentum, as an exchange of all begins: a rank sees of its changes in flight as much as of what it has
        not sent, and its next step begins where the momentum will have moved the common parameters when that counts. What
        has no common momentum stays as the `steps` of this rank have changed it. `free`: memory of the last flight, if any."""
        assert self._momentum is not None
        if self._undoes:
            flight.undone = steps
        share = min(self.local_weight, 1 / max(self._factor, flight.factor, 1))
        kept = self.hook._native.residuals([each.numel() for each in self._start]) if share else [None] * len(self._start)
        asks = not self._start[0].is_cuda  # on a GPU it would wait for the step
        changes = self._start if asks and _second_moments.finite(self._start) else list(map(_finite, self._start))
        moves = self._momentum.ahead(self.delay)
        ahead = []
        for i, (common, change, unsent) in enumerate(zip(self._common, changes, kept)):
            there = free[i] if free and free[i].dtype == common.dtype else torch.empty_like(common)
            if i in moves:
                torch.sub(common, change, alpha=share, out=there)
            else:
                torch.add(common, _finite(steps[i]), out=there)
            if unsent is not None:
                there.sub_(unsent.view(there.shape), alpha=share)
            if i in moves and i not in flight.unused:
                there.sub_(moves[i][0], alpha=moves[i][1])
            if i in flight.outside:
                there.add_(_finite(flight.outside[i]))
            ahead.append(there)
        self._replica.follow(ahead)
        self._set_weights(self._all, ahead)
        flight.left = [begun if begun.dtype == each.dtype else each.clone() for begun, each in zip(ahead, self._weights())]

    def _drops(self, error: Exception | None) -> bool:
        """Steps, on all ranks."""
        return self._fails and "NaN or infinite" in str(error)

    def _arrive(self, flight: Flight, error: Exception | None, goes_on: bool = False) -> None:
        """What the changes have become in the exchange is applied to the common parameters. `goes_on`: this rank's are left to
        the exchange that follows."""
        which = flight.which
        dropped = self._drops(error)
        self._reported = None
        with _calls.missing_ranks_are_named():
            if not self._replica.all(error is None):
                error = error or RuntimeError(OTHER_SHARD)
                dropped = not self._replica.all(not dropped)  # a rank without elements cannot say so to those across
        if error is not None:
            if flight.before is not None:
                self.hook.load_state_dict(flight.before)
            elif self._undoes and self.hook._native.begun:  # otherwise the last step is that of the exchange before
                self.hook.undo_step()
            try:
                if dropped:  # on all ranks
                    self._end_round(flight, drops=True)
                    raise RuntimeError(DROPPED.format(what=flight.what)) from error
                for i, change in flight.outside.items():
                    self._outside[i] = change + self._outside.get(i, 0)
                self._find_start(which)
                self._remember()
                for i, change in flight.beyond.items():
                    self._beyond[i] = change + self._beyond.get(i, 0)
                if flight.left:
                    self._weighting.add_state(flight.weights)
                if self._momentum is not None and flight.left:  # as if the next step were this one's second half
                    self._done = max(self._done, 1)
                    self._used |= self._momentum.parameters - set(flight.unused)
                if flight.undone:
                    since = [now.to(left) - left for now, left in zip(self._weights(), flight.left)]
                    self._set_weights(which, [start + step + each for start, step, each in
                                              zip(self._start, flight.undone, since)])
                with _calls.missing_ranks_are_named():
                    raise error
            finally:
                error = None  # which keeps this frame
        self._replica.follow(self._start)
        for i in which:
            self._common[i].grad = self._start[i]
        if self._momentum is not None:
            self._momentum.move(self._common, flight.unused)
            if self._looks_ahead and self._momentum.has_steps:
                still = () if self._coasts else self._speeds.keys() & flight.unused  # which stay where they are
                self._speeds = {i: of if i not in flight.unused else self._speeds[i]
                                for i, of in self._momentum.speeds().items() if i not in flight.unused or i in still}
        else:
            self._outer.step()
        self._outer.zero_grad(set_to_none=True)
        self._buffers.bytes = 0
        if flight.fragment in (None, self.fragments - 1):
            with _calls.missing_ranks_are_named():
                self._buffers.exchange(flight.factor, self.rounds)
            self.rounds += 1
        self._buffers.bytes += flight.in_full
        self._total_buffers += self._buffers.bytes
        self._factor = flight.factor
        asks = not self._start[0].is_cuda  # on a GPU it would wait for the step
        self._reported = self._of_exchange() if asks and self.delay else None
        if not self._told_broken and asks:
            count = (self._reported or self.hook._native.report())["non_finite"]
            if count:
                warnings.warn(BROKEN.format(count=count), UserWarning, stacklevel=4)
                self._told_broken = True
        if not goes_on:
            self._end_round(flight)

    def _end_steps(self, fragment: int | None) -> None:
        """The steps from now on belong to the next exchange of this fragment; None: of all."""
        self._next = 0 if fragment is None else (fragment + 1) % self.fragments
        if self._next == 0:
            self._done = 0
        self._failed = False
        self._coasted, self._last = 0, []
        self._used.clear()
        self._weighting.clear()

    def _end_round(self, flight: Flight, drops: bool = False) -> None:
        """drops: with what the steps since it began have changed, too."""
        if drops:
            self._beyond = {}
        if drops or not flight.left:
            self._end_steps(flight.fragment)
            self._fresh = len(flight.which) == len(self._own)
        since = zip(flight.which, flight.left if not drops else ())
        weights = self._weights() if flight.left else ()
        self._begin_round(flight.which, [weights[i].to(self._common[i]) - left.to(self._common[i]) for i, left in since])

    @contextlib.contextmanager
    def common_parameters(self) -> Iterator[None]:
        """`with sync.common_parameters():` the model has the common parameters, which are the same on all ranks, without an
        exchange in flight; after it this rank's own again. Do not train inside; state_dict() may be called. Local. Memory: a
        copy of the parameters."""
        if self._kept is not None:  # inside another one
            yield
            return
        if self._coasted:  # what has changed in local steps would be seen as a step in a state
            with torch.no_grad():
                self._find_outside()
        self._kept = [_parameters.local(each).detach().clone() for each in self._own]
        self._put(self._common)
        try:
            with self._momentum.in_optimizers() if self._momentum is not None else contextlib.nullcontext():
                yield
        finally:
            self._put(self._kept)
            self._kept = None

    # ---- what has happened ------------------------------------------------------------------------------------------

    def factors(self) -> dict[str, float]:
        """By which second moments are multiplied, for each parameter, as last measured, and whose root divides steps that are
        enlarged: 1 / P to 1; empty with second_moments=False. The first are measured in clip_grad_norm_(), and in step() if
        it scales second moments, the others in step()."""
        if self._factors is None or not self._scales:
            return {}
        enlarged = self._factors.without_second_moment(self._enlarged)
        return {name: (self._of_steps if i in enlarged else self._factors).values[i]  # type: ignore[union-attr]
                for i, name in enumerate(self._names)}

    def report(self) -> Report:
        """As Hook.report(), of the last exchange, on the host of the last that has ended; its bytes are also those of
        measurements and agreements
        (`bytes_measured`) and of what is sent in full, buffers and changes of weights between steps (`bytes_buffers`).
        `step_ring_ratio`: `ring_ratio` times `every`, against a ring in every step. Beside it `steps_left_out`: this rank's
        since the exchange before, with fragments in this round, as their gradients were not finite."""
        report = self._of_exchange() if self._reported is None else copy.copy(self._reported)
        report.update(steps_left_out=self._left_out, total_steps_left_out=self._total_left_out)
        return report

    def _of_exchange(self) -> Report:
        report = self.hook.report()
        for prefix, measured, buffers in (("", self._last_bytes, self._buffers.bytes),
                                          ("total_", self._total_bytes, self._total_buffers)):
            report[prefix + "bytes_measured"], report[prefix + "bytes_buffers"] = measured, buffers
            report[prefix + "bytes_sent"] += measured + buffers
            report[prefix + "bytes_received"] += measured + buffers
        set_ratios(report)
        for name in ("ring_ratio", "total_ring_ratio"):
            report[name.replace("ring", "step_ring")] = report[name] * self.every
        return report

    def describe(self) -> str:
        """As Hook.describe(); whose momentum it is; and which buffers and frozen parameters are exchanged, and which not."""
        momentum = "each rank's own"
        if self._momentum is not None:
            momentum = (f"the common parameters', of {len(self._momentum.parameters)} of {len(self._own)}, "
                        f"{self._momentum.described()}")
            momentum += ", which ranks train a move ahead" * self._looks_ahead
        return f"{self.hook.describe()}; momentum: {momentum}{self._buffers.describe()}"

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What the next steps depend on beside the optimizer's state, at any step; of this rank. An exchange in flight is
        waited for; what has failed in it is raised, here and where it ends."""
        self.hook._native.wait(forgets=False)
        hook = self.hook.state_dict()
        if self._coasted and self._kept is None:
            with torch.no_grad():
                self._find_outside()
        kept = self._kept if self._kept is not None else [_parameters.local(each) for each in self._own]
        own = [now if is_itself else weight for now, (is_itself, weight) in zip(kept, map(self._weights_of, self._own))]
        return {
            "version": STATE_VERSION,
            "done": self._done, "next": self._next,
            "in_flight": self._flight.state(self._start) if self._flight is not None else {},
            "rounds": self.rounds,
            "number": self._number,
            "common": [each.detach().clone() for each in self._common],
            "own": [] if self._fresh else [each.detach().clone() for each in own],
            "coasted": self._coasted, "speeds": {i: list(of) for i, of in self._speeds.items()}, "used": sorted(self._used),
            "round": self._round(),
            "outside": {i: each.clone() for i, each in self._outside.items()},
            "outer": self._outer.state_dict(),
            "momentum": self._momentum.state() if self._momentum is not None else {},
            "hook": hook,
            "factors": self._factors.state() if self._factors else {},
            "of_steps": self._of_steps.state() if self._of_steps else {},
            "copies": list(map(list, self._copies)), "looks": self._looks, "failed": self._failed,
            "left_out": self._total_left_out,
            "factor": self._factor, "place": self._replica.place,
            "weights": self._weighting.state(),
            "buffers": self._buffers.state(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Goes on where state_dict() was taken, to the bit; load the optimizer's state too. The model gets the parameters
        of this state. On every rank, before the first step.

        `state`: this rank's; or a list of all ranks', taken between exchanges, for a world of another size: see
        Hook.load_state_dict(). Of a sharded model for another number of replicas; their shards are the same. A rank that is new takes the optimizer's state of any other.
        ValueError or RuntimeError if it does not fit.
        """
        self._check_outside("load_state_dict()")
        alone = isinstance(state, Mapping)
        states = _arguments.states(state, (STATE_VERSION,), _step_checks.STATE_PARTS, "sync.state_dict()")
        if not alone and any(each["done"] or each["own"] for each in states):
            raise ValueError("gradsieve: ranks join and leave between exchanges, this state is of the middle of local steps"
                             + ": call sync.exchange() before sync.state_dict()" * (self.fragments > 1 or self.delay > 0))
        fitting = [each for each in states if each["place"] == self._replica.place]
        if not fitting:
            raise ValueError(OTHER_PLACE.format(there=states[0]["place"], here=self._replica.place))
        states, first = fitting, fitting[0]
        shapes, momentum, flying = [each.shape for each in self._common], first["momentum"], first["in_flight"]
        if any([each.shape for each in first[name]] != shapes for name in ("common", "own")
               if name == "common" or first["done"] or first["own"]):
            raise ValueError("gradsieve: the state is of other parameters, or of a model in other shards")
        if not _step_checks.is_outer(first["outer"], shapes) or not are_changes(first["outside"], shapes):
            raise ValueError("gradsieve: 'outer' or 'outside' of the state is damaged, or of other parameters")
        if not _step_checks.are_names(first["copies"], len(self._parts)):
            raise ValueError("gradsieve: 'copies' of the state is damaged, or of other optimizers")
        factors = [(each, first[name]) for each, name in ((self._factors, "factors"), (self._of_steps, "of_steps"))
                   if each and first[name]]
        if not all(each.is_state(found) for each, found in factors):
            raise ValueError("gradsieve: the factors of the state are damaged, or of other parameters")
        if first["next"] >= self.fragments or flying and not Flight.is_state(
                flying, shapes, self._changes.fragments, self.delay, self._momentum.size_of_asked() if self._momentum else 0):
            raise ValueError("gradsieve: 'next' or 'in_flight' of the state is damaged, or of a CompressedStep with other "
                             "fragments or another delay")
        if first["done"] and first["round"] != self._round():
            raise ValueError("gradsieve: the state is of the middle of local steps with another every, local_weight, "
                             "common_momentum, delay or density: call sync.exchange() before sync.state_dict()")
        if not all(_arguments.is_count(i) and i < len(shapes) for name in ("speeds", "used") for i in first[name]) or not all(
                _arguments.are_numbers(of, 2) for of in first["speeds"].values()) or (
                self._momentum is not None and not first["speeds"].keys() <= self._momentum.parameters):
            raise ValueError("gradsieve: 'speeds' or 'used' of the state is damaged, or of other parameters")
        if (momentum and (self._momentum is None or not self._momentum.is_state(momentum)) or
                flying and not momentum and self._momentum is not None):
            raise ValueError("gradsieve: 'momentum' of the state is damaged, or of a CompressedStep with another momentum or "
                             "other optimizers")
        self._weighting.restore(first["weights"] if alone else [0.0, 0.0, 0.0])
        self._buffers.restore(first["buffers"])
        self.hook._native.forget()
        self.hook.load_state_dict(first["hook"] if alone else [each["hook"] for each in states])
        self._outer.load_state_dict(first["outer"])
        if self._momentum is not None:
            self._momentum.restore(momentum) if momentum else self._momentum.begin()
        for each, found in factors:
            each.restore(found, alone)
        self._done, self.rounds, self._number = first["done"], first["rounds"], first["number"]
        self._next, self._fresh = first["next"], not first["own"]
        self._reported = None
        self._flight = Flight.of(flying, self._changes.fragments, self._momentum) if flying else None
        self._coasted = first["coasted"]
        self._speeds = {i: tuple(of) for i, of in first["speeds"].items()} if momentum and self._looks_ahead else {}
        self._used, self._beyond = set(first["used"]), {}
        self._outside = {i: each.to(self._common[i], copy=True) for i, each in first["outside"].items()} if alone else {}
        self._copies, self._looks = [(part, name) for part, name in first["copies"]], first["looks"]
        self._total_left_out, self._failed, self._checked = first["left_out"] * alone, first["failed"], False
        self._factor = first["factor"] if alone else 1.0
        with torch.no_grad():
            for common, saved in zip(self._common, first["common"]):
                common.copy_(saved)
            self._begin_round(self._all)
            if first["own"]:
                self._set_weights(self._all, first["own"])
            if flying:
                _copy_all(_of(self._start, self._flight.which), flying["mean"])  # type: ignore[union-attr]
            self._remember()

    def _round(self) -> list[float]:
        """With which a state inside of a round goes on."""
        return [self.every * self._coasts, self.local_weight, float(self._looks_ahead)]

    def __reduce__(self) -> Any:
        raise TypeError("gradsieve: a CompressedStep belongs to one model in one process and is neither copied nor pickled: "
                        "save its state_dict()")

    # ---- the parts of a step ----------------------------------------------------------------------------------------

    def _step_optimizers(self, scaler: Any, scales: bool,
                         again: _calls.Closure | None) -> dict[int, tuple[torch.Tensor, float, float]] | None:
        """Of those whose step is to be enlarged, by number, the weights before it, its rate and the share that it decays them by.
        None if the gradients of a second pass were not finite, or the scaler has left the step out, as one that hears of
        other ranks does: as if it had not been called."""
        begun = {}
        before = [_parameters.local(each).clone() for each in self._own] if self._two_passes else []
        if self._two_passes and again is not None:
            again.check = self._gradients_are_finite
        if scales:
            assert self._factors is not None
            begun = {i: (self._weights_of(self._own[i])[1].clone(), *of_group) for i, of_group in
                     self._factors.without_second_moment(self._enlarged).items() if self._own[i].grad is not None}
            self._factors.scale_second_moments(self._scaled)
        try:
            taken_out = self._momentum.taken_out() if self._momentum is not None else contextlib.nullcontext()
            with torch.enable_grad(), taken_out:
                for optimizer in self._optimizers:
                    if scaler is not None:
                        scaler.step(optimizer)
                    elif again is not None and _optimizers.takes_closure(optimizer):
                        optimizer.step(again)
                    else:
                        optimizer.step()
            found = getattr(scaler, "_found_inf_per_device", None)  # of torch's
            if found is not None and _is_enabled(scaler) and all(any(found(each).values()) for each in self._optimizers):
                raise _calls.NotFinite
        except BaseException as error:
            if scales:
                self._factors.scale_second_moments(self._scaled, undo=True)  # type: ignore[union-attr]
            if before:
                self._put(before)
            if isinstance(error, _calls.NotFinite):
                return None
            raise
        return begun

    def _enlarge(self, begun: Mapping[int, tuple[torch.Tensor, float, float]]) -> None:
        """Divides what the step has changed by sqrt(factor), of those that have begun it without a second moment and have none
        now, but not elements that it has left alone, and not weight decay. Collective in a step that measures."""
        assert self._factors is not None and self._of_steps is not None
        without = self._factors.without_second_moment(self._enlarged)
        # Not a copy that has just been found, in another format.
        which = [i for i in begun if i in without and begun[i][0].dtype == self._weights_of(self._own[i])[1].dtype]

        def change_of(i: int) -> torch.Tensor:
            (before, _, decay), now = begun[i], self._weights_of(self._own[i])[1]
            dtype = torch.promote_types(now.dtype, torch.float32)
            change = now.to(dtype) - before.to(dtype)
            return change.addcmul_(before.to(dtype), (change != 0).to(dtype), value=decay) if decay else change
        if self._measured:
            with _calls.missing_ranks_are_named():
                self._announce(STEPS)
            self._measure_steps(change_of(i).div_(begun[i][1]) if i in which else None for i in self._all)
        size = self._factors.size if self._factors.sized else 1.0
        values = []
        for i in which:
            now = self._weights_of(self._own[i])[1]
            change = change_of(i).mul_((self._of_steps.values[i] * size) ** -0.5 - 1)
            is_rounded = self.every == 1 and now.element_size() < change.element_size()
            if is_rounded:
                self._beyond[i] = change.add_(self._beyond.get(i, 0))  # of a step whose exchange has failed
            values.append(now if is_rounded else now + change)
        self._set_weights(which, values)

    def _check_closure(self, closure: Any, scaler: Any) -> None:
        if closure is not None and not callable(closure):
            raise _arguments.refused("closure", closure, "a function that computes the loss and its gradients; what else "
                                     "there is goes by its name, as in step(scaler=scaler)")
        if self._two_passes and (closure is None or scaler is not None):
            name = type(self._optimizers[0]).__name__
            raise ValueError(f"gradsieve: {name} takes two passes: " + (
                "a GradScaler knows of one: train in bfloat16 or float32, without it" if scaler is not None else
                "call step(closure) with a function that computes the loss again, and its gradients; or first_step(), "
                "second_step() and exchange()"))

    def _unscale(self, scaler: Any) -> None:
        for optimizer in self._optimizers:
            try:
                scaler.unscale_(optimizer)
            except RuntimeError as error:
                if "already been called" not in str(error):
                    raise

    def _gradients_are_finite(self) -> bool:
        """Those that the optimizers step with, of a sharded model on all ranks of the replica."""
        return self._replica.all(_second_moments.finite(
            [_parameters.gradient_of(each) for optimizer in self._optimizers for group in optimizer.param_groups
             for each in group["params"] if each.grad is not None]))

    def _count(self, stepped: bool, fails: bool) -> None:
        if self._done == 0:
            self._left_out = 0
        self._left_out += not stepped
        self._total_left_out += not stepped
        self._left_out_in_a_row = 0 if stepped else self._left_out_in_a_row + 1
        self._failed |= fails and not stepped
        if self._left_out_in_a_row == PATIENCE and not self._told_left_out:
            warnings.warn(ALL_LEFT_OUT, UserWarning, stacklevel=3)
            self._told_left_out = True

    # ---- ranks that have no more data -------------------------------------------------------------------------------

    def _announce(self, message: int | None = None) -> list[bool]:
        """Inside join(), before each message: tells the ranks that are through which one it is. None: this rank is. Returns
        for each of MESSAGES whether a rank that trains makes it."""
        if not self._joins:
            return []
        told = torch.tensor([each == message for each in MESSAGES], dtype=torch.float32, device=self._common[0].device)
        torch.distributed.all_reduce(told, group=self._group)
        return told.bool().tolist()

    def _take_part(self, others: Sequence[bool]) -> None:
        """In the messages that the others make."""
        assert self._factors is not None
        for each in self._own:
            each.grad = None
        if others[MEASURE]:
            self._measure_now()
        if others[CLIP]:
            self._factors.clip(0.0, True)
        if others[STEPS]:
            self._measure_steps(None for _ in self._own)
        if not (others[EXCHANGE] or others[END]):
            return
        self._find_outside()
        try:
            self._exchange(announces=False)
            if others[END]:
                self._end_ahead()
        except (RuntimeError, ValueError) as error:  # of dropped steps, or of weights: those that train hear of it
            if "dropped on all ranks" not in str(error) and not isinstance(error, ValueError):
                raise

    # ---- with a common momentum --------------------------------------------------------------------------------------

    def _find_outside(self) -> None:
        """Before a step. What has changed weights since the last exchange, beside the optimizers, is no step: this one
        begins with it."""
        if self._momentum is None or self._done and not self._coasted:
            return
        left, last = self._left(self._flight), self._last if self._coasted else ()
        for i in self._momentum.parameters & self._changed(since=last):
            weights, start = self._weights_of(self._own[i])[1], left.get(i, self._start[i])
            common = self._common[i]
            change = weights.to(common) - (last[i] if last else start).to(common)
            self._outside[i] = change + self._outside.get(i, 0)  # of a step that has raised
            if last:
                start.add_(change)
                last[i].copy_(weights)
            else:
                start.copy_(weights)

    def _go_on(self, is_due: bool) -> None:
        """Behind a local step: the parameters take a share of it, and where no exchange follows they move on as the last common
        ones have."""
        assert self._momentum is not None
        weights, before, which = self._weights(), self._last or self._start, list(self._momentum.parameters)
        values = [torch.lerp(before[i].to(weights[i]), weights[i], _step_checks.OWN_SHARE) for i in which]
        for i, value in zip(which, values if not is_due else ()):
            value.sub_(self._momentum.values(i).to(value), alpha=self._speeds.get(i, (0.0, 0.0))[0])
        self._set_weights(which, values)
        if not is_due:
            self._coasted += 1
            moved = dict(zip(which, values))
            self._last = [moved[i] if i in moved else each.clone() for i, each in enumerate(weights)]

    def _remember(self) -> None:
        """What this rank's steps have made of its parameters, so that what else changes them is seen."""
        self._last = [each.clone() for each in self._weights()] if self._coasted else []

    def _ask(self) -> _momentum.Asked | None:
        """Begins the agreement with the other ranks that goes with an exchange. Collective."""
        if self._momentum is None:
            return None
        self._outside_in_a_row = (self._outside_in_a_row + 1) * bool(self._outside)
        if self._outside_in_a_row == OFTEN:
            warnings.warn(ELSEWHERE, UserWarning, stacklevel=4)
        return self._momentum.ask(self._used, self._outside, self._done if self._coasts else 1)

    def _settle(self, flight: Flight) -> int:
        """Adds what something else has changed, as the mean over the ranks, to the common parameters; how many bytes that has
        sent. Collective: an all-reduce of each such."""
        changed = self._momentum.hear(flight.asked)[1]  # type: ignore[union-attr]
        world, sent = torch.distributed.get_world_size(self._group), 0
        for i in sorted(changed):
            change = flight.outside.pop(i) if i in flight.outside else torch.zeros_like(self._common[i])
            change = _finite(change).mul_(flight.factor)
            torch.distributed.all_reduce(change, group=self._group)
            self._common[i].add_(change, alpha=1 / world)
            sent += 2 * (world - 1) * change.numel() * change.element_size() // world  # by a ring, as it is dense
        return sent

    # ---- copies of the weights in an optimizer's state ----------------------------------------------------------------

    def _weights(self) -> list[torch.Tensor]:
        """Of each parameter, where its optimizer keeps the weights: itself, or the finest copy."""
        if not self._copies:
            return list(map(_parameters.local, self._own))
        return [self._weights_of(each)[1] for each in self._own]

    def _weights_of(self, parameter: torch.Tensor) -> tuple[bool, torch.Tensor]:
        """Whether it is the parameter itself."""
        own = _parameters.local(parameter)
        found = max([own, *self._copies_of(parameter)], key=lambda each: each.element_size())
        return found is own, found

    def _copies_of(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        found = [self._parts[part].state.get(parameter, {}).get(name) for part, name in self._copies]
        parts = [_parameters.local(each) for each in found if isinstance(each, torch.Tensor)]
        return [each for each in parts if each.shape == _parameters.local(parameter).shape]

    @torch.no_grad()
    def _put(self, values: Sequence[torch.Tensor], which: Sequence[int] | None = None) -> None:
        """Into the parameters of these numbers; None: into all."""
        _copy_all([_parameters.local(each) for each in _of(self._own, self._all if which is None else which)], values)
        self._replica.reshard()

    def _set_weights(self, which: Sequence[int], values: Sequence[torch.Tensor]) -> None:
        self._put(values, which)
        if self._copies:
            for i, value in zip(which, values):
                for copy in self._copies_of(self._own[i]):
                    copy.copy_(value)

    def _changed(self, flight: Flight | None = None, since: Sequence[torch.Tensor] = ()) -> list[int]:
        """Numbers of the parameters that this round's steps have changed; of those in flight, that steps since have. `flight`:
        that has landed. `since`: what they had."""
        if since:
            pairs = list(zip(since, self._weights()))
        else:
            left, own = self._left(flight or self._flight), map(_parameters.local, self._own)
            pairs = [(left.get(i, self._start[i]).to(each), each) for i, each in enumerate(own)]
        if not self._start[0].is_cuda:
            return [i for i, (start, own) in enumerate(pairs) if not torch.equal(start, own)]
        changed = torch.stack([(start != own).any() for start, own in pairs])  # which is waited for once
        return changed.nonzero().view(-1).tolist()

    @staticmethod
    def _left(flight: Flight | None) -> dict[int, torch.Tensor]:
        """By number, what steps have begun with since the parameter's exchange did, if that is in flight."""
        return dict(zip(flight.which, flight.left)) if flight is not None else {}

    def _look_for_copies(self) -> None:
        """After the first step of a round that has changed anything. A copy of the weights equals the parameter after each
        step; what is equal once may be something else, such as the slow weights of Lookahead."""
        changed = [self._own[i] for i in self._changed()]
        if not changed:
            return
        copies = _copies_among(_optimizers.copies(self._parts, changed))
        elsewhere = _optimizers.copies_elsewhere(self._parts, changed)
        if self._looks < LOOKS:
            copies = [each for each in copies if each in self._copies]
            elsewhere &= self._copies_elsewhere
        self._copies, self._copies_elsewhere = copies, elsewhere
        self._looks -= 1
        if self._looks == 0 and elsewhere:
            raise ValueError(f"gradsieve: {type(self._optimizers[0]).__name__} keeps a copy of the weights in its attribute "
                             f"'{min(elsewhere)}', where no exchange reaches it: keep it in optimizer.state[parameter] "
                             "under a name, or take an optimizer without a copy")

    def _not_finite_state(self) -> str | None:
        found = _optimizers.not_finite(self._parts)
        if found is None:
            return None
        name = next((name for name, own in zip(self._names, self._own) if own is found[0]), "of another model")
        return (f"gradsieve: '{found[1]}' in the optimizer's state of parameter '{name}' is NaN or infinite, and every step "
                "would be: load an earlier state, or make a new optimizer")

    def _check_outside(self, call: str) -> None:
        if self._kept is not None:
            raise ValueError(f"gradsieve: {call} inside common_parameters(), where the model has not this rank's "
                             "parameters: call it outside")

    def _measure(self) -> None:
        """Once in the step that an exchange ends, where it is due, and in the next one if hardly a rank had a gradient."""
        assert self._factors is not None
        since = self.rounds % MEASURE_EVERY
        is_short = self._factors.short or (self._of_steps is not None and self._of_steps.short and
                                           self.rounds < MEASURE_EVERY)
        if not self._measured and self._done + 1 >= self.every and (since == 0 or since == 1 and is_short):
            with _calls.missing_ranks_are_named():
                self._announce(MEASURE)
            self._measure_now()

    def _measure_now(self) -> None:
        assert self._factors is not None
        with _calls.missing_ranks_are_named():
            self._factors.measure(self._number, map(_parameters.gradient_of, self._own))
        self._number += 1
        if self._factors.alike == 2 and not self._told_alike:
            warnings.warn(ALIKE, UserWarning, stacklevel=3)
            self._told_alike = True
        self._measured = True
        self._measurements += self._factors.bytes
        self._total_bytes += self._factors.bytes

    def _measure_steps(self, changes: Iterable[torch.Tensor | None]) -> None:
        assert self._of_steps is not None
        with _calls.missing_ranks_are_named():
            self._of_steps.measure(self._number, changes)
        self._measurements += self._of_steps.bytes
        self._total_bytes += self._of_steps.bytes

    def _begin_round(self, which: Sequence[int], since: Sequence[torch.Tensor] = ()) -> None:
        """This rank's parameters of these numbers become the common ones with its share of what it has not sent, and with
        what has changed `since` the exchange began; elements of that which are not finite count as zero."""
        self._find_start(which)
        with torch.no_grad():
            values = _of(self._start, which)
            if since:
                values = [start + _finite(each) for start, each in zip(values, since)]
            self._set_weights(which, values)

    def _find_start(self, which: Sequence[int]) -> None:
        """The same numbers each time that nothing else has happened, rounded to the format of the model."""
        with torch.no_grad():
            if self.local_weight:
                share = min(self.local_weight, 1 / max(self._factor, 1))  # at most this rank's own changes, once
                kept = self.hook._native.residuals([each.numel() for each in self._start])
                for i in which:
                    start, unsent, common = self._start[i], kept[i], self._common[i]
                    if unsent is None:  # nothing, also of float64, which density 1 sends
                        start.copy_(common)
                    else:
                        torch.add(common, unsent.view(common.shape), alpha=-share, out=start)
                self._replica.follow(self._start)
            else:
                _copy_all(_of(self._start, which), _of(self._common, which))
            for i in self._outside.keys() & which:  # until an exchange has it
                self._start[i].add_(_finite(self._outside[i]))
            for i in (i for i in which if self._speeds.get(i, (0.0, 0.0))[1]):  # not where the optimizer's is Nesterov's
                self._start[i].sub_(self._momentum.values(i), alpha=self._speeds[i][1])  # type: ignore[union-attr]
            weights = self._weights()
            for i in which:
                if weights[i].dtype != self._start[i].dtype:
                    self._start[i].copy_(self._start[i].to(weights[i].dtype))


def OuterStep(model: nn.Module, optimizer: torch.optim.Optimizer, *, every: int, recipe: str = "chunked+int4",
              lr: float = 0.7, momentum: float = 0.9, **options: Any) -> CompressedStep:
    """CompressedStep under its old name, with what was its default. Goes with the next version."""
    warnings.warn("gradsieve: OuterStep is now CompressedStep: lr is outer_lr, momentum is outer_momentum",
                  DeprecationWarning, stacklevel=2)
    return CompressedStep(model, optimizer, recipe, every=every, outer_lr=lr, outer_momentum=momentum,
                          **{"local_weight": 0.0, "second_moments": False, "common_momentum": False, **options})


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Elements that are not finite are zero."""
    return values.nan_to_num(0.0, 0.0, 0.0)


def _is_enabled(scaler: Any) -> bool:
    return scaler is not None and getattr(scaler, "is_enabled", lambda: True)()


def _copies_among(seen: Mapping[tuple[int, str], bool]) -> list[tuple[int, str]]:
    return [each for each, is_copy in seen.items() if is_copy]


def _copy_all(to: Sequence[torch.Tensor], of: Sequence[torch.Tensor]) -> None:
    if hasattr(torch, "_foreach_copy_") and _parameters.alike(to, of):  # torch 2.1
        torch._foreach_copy_(to, of)
    else:
        for each, source in zip(to, of):
            each.copy_(source)


def _of(each: Sequence[torch.Tensor], which: Sequence[int]) -> list[torch.Tensor]:
    return [each[i] for i in which]
