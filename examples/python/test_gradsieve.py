"""The package against itself and the library: ranks that are threads, processes of torch.distributed, and bad input.

    GRADSIEVE_LIBRARY=.../libgradsieve_python.so python3 -m unittest test_gradsieve
"""

import copy
import ctypes
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import gradsieve

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None

LAYERS = [("weight", (50, 100)), ("bias", (10,))]
N = 5010
RECIPES = ("radix@0.01", "laplacian+bf16@0.02", "Radix + Deft + packed: raw32, fp16 @ 0.01", "radix+cyclic@0.01",
           "radix+reduce_scatter@0.01", "radix+qsgd@0.05", "int4+coded_all_reduce@1")


class Board:
    """A gather among threads."""

    def __init__(self, world):
        self.world, self.barrier, self.places = world, threading.Barrier(world), [b""] * world

    def gather(self, rank):
        def run(mine):
            self.places[rank] = mine
            self.barrier.wait(30)
            found = list(self.places)
            self.barrier.wait(30)
            return found
        return run


def on_ranks(world, body):
    """body(collectives) on each rank, a thread; what they return, or the first exception."""
    board, ends = Board(world), [None] * world

    def run(rank):
        try:
            ends[rank] = body(gradsieve.Gather(rank, world, board.gather(rank)))
        except BaseException as why:
            ends[rank] = why
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ends


def gradients(world):
    return np.random.default_rng(1).standard_normal((world, N)).astype(np.float32)


@unittest.skipUnless(np, "there is no NumPy")
class WithNumpy(unittest.TestCase):
    def test_ranks_get_the_mean_of_what_they_sent(self):
        given = gradients(3)
        for recipe in RECIPES:
            def body(ranks):
                update = given[ranks.rank].copy()
                report = gradsieve.Compressor(recipe, LAYERS).exchange(ranks, update)
                return update, report
            ends = on_ranks(3, body)
            for each in ends:
                self.assertNotIsInstance(each, BaseException, each)
            updates = [update for update, _ in ends]
            self.assertGreater(ends[0][1].selected, 10)
            self.assertEqual(ends[0][1].baseline_bytes, 4 * N)
            if "reduce_scatter" not in recipe:
                for each in updates[1:]:
                    np.testing.assert_array_equal(each, updates[0])
            np.testing.assert_allclose(updates[0][5000:], given.mean(0)[5000:], rtol=1e-5)  # biases pass through

    def test_messages_average_to_the_exchange(self):
        given = gradients(3)
        recipe = "radix+delta@0.01"
        messages = [gradsieve.Compressor(recipe, LAYERS).compress(each, rank) for rank, each in enumerate(given)]
        mean = np.empty(N, np.float32)
        gradsieve.Averager(recipe, LAYERS).apply(messages, mean)

        def body(ranks):
            update = given[ranks.rank].copy()
            gradsieve.Compressor(recipe, LAYERS).exchange(ranks, update)
            return update
        np.testing.assert_allclose(on_ranks(3, body)[0], mean, atol=1e-6)
        with self.assertRaises(gradsieve.CorruptError):
            gradsieve.Averager(recipe, LAYERS).apply([messages[0][:-1]], mean)
        with self.assertRaisesRegex(TypeError, "a list of messages"):
            gradsieve.Averager(recipe, LAYERS).apply(messages[0], mean)

    def test_formats_pieces_and_skipped_layers(self):
        given = gradients(2)

        def body(ranks):
            flat, pieces = given[ranks.rank].copy(), given[ranks.rank].copy()
            half = given[ranks.rank].astype(np.float16)
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(ranks, flat)
            parts = [pieces[:5000].reshape(50, 100).copy(), pieces[5000:].copy()]
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(ranks, parts)
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(ranks, half)
            skipping = gradsieve.Compressor("radix@0.01", LAYERS)
            first = given[ranks.rank].copy()
            skipping.exchange(ranks, first, skipped=[False, True])
            return flat, parts, half, first, skipping.residual_norm()
        for flat, parts, half, first, norm in on_ranks(2, body):
            np.testing.assert_array_equal(np.concatenate([each.ravel() for each in parts]), flat)
            self.assertEqual(half.dtype, np.float16)
            self.assertGreater(np.count_nonzero(half), 40)
            self.assertFalse(first[5000:].any())
            self.assertGreater(norm, 1)

    def test_nodes(self):
        given, boards = gradients(4), {name: [Board(2), Board(2)] for name in ("inside", "across")}
        ends = [None] * 4

        def run(rank):
            node, place = divmod(rank, 2)
            nodes = (gradsieve.Gather(place, 2, boards["inside"][node].gather(place)),
                     gradsieve.Gather(node, 2, boards["across"][place].gather(node)))
            update = given[rank].copy()
            gradsieve.Compressor("radix@0.05", LAYERS, nodes=nodes).exchange(nodes, update)
            ends[rank] = update, gradsieve.mean_factor(nodes, rank + 1)
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for rank, (update, factor) in enumerate(ends):
            np.testing.assert_array_equal(update, ends[0][0])
            self.assertAlmostEqual(factor, (rank + 1) * 4 / 10, places=6)

    def test_states(self):
        given = gradients(1)[0]
        one, other = (gradsieve.Compressor("radix@0.01", LAYERS) for _ in range(2))
        one.compress(given)
        state = one.save()
        other.load(state)
        self.assertEqual(one.compress(given), other.compress(given))
        one.discard_step()
        with self.assertRaises(gradsieve.CorruptError):
            one.load(state[:-3])
        with self.assertRaises(gradsieve.MismatchError):
            gradsieve.Compressor("radix@0.01", [("other", 7)]).load(state)
        self.assertIn("radix", one.describe())

    def test_parameters(self):
        first = np.linspace(-1, 1, N).astype(np.float32)
        goal = np.random.default_rng(2).standard_normal(N).astype(np.float32)

        def body(ranks):
            own = first.copy()
            exchange = gradsieve.ParameterExchange("radix@0.1", LAYERS, own, momentum=0.5)
            moments = gradsieve.SecondMoments(LAYERS, density=0.1)
            for step in range(60):
                gradient = own - goal + np.float32(0.1 * (ranks.rank - 0.5))
                moments.measure(ranks, gradient)
                norm = moments.clip(gradient, 1e9)
                own -= np.float32(0.1) * gradient
                report = exchange.exchange(ranks, own)
            state = exchange.save()
            other = own.copy()
            exchange.load(state, other)
            return np.array(exchange.common), np.array(moments.factors), norm, report, state
        ends = on_ranks(2, body)
        for each in ends:
            self.assertNotIsInstance(each, BaseException, each)
        np.testing.assert_array_equal(ends[0][0], ends[1][0])
        self.assertLess(np.abs(ends[0][0] - goal).mean(), 0.2 * np.abs(first - goal).mean())
        self.assertEqual(len(ends[0][1]), 2)
        self.assertLess(ends[0][3].bytes_sent, 4 * N)
        kept = gradsieve.ParameterExchange("radix@0.1", LAYERS, first).common
        gc.collect()
        np.testing.assert_array_equal(np.asarray(kept), first)  # the view keeps the object

    def test_an_exception_of_a_collective_is_the_cause(self):
        broken = gradsieve.Gather(0, 2, lambda mine: 1 // 0)
        with self.assertRaises(gradsieve.CommunicationError) as raised:
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(broken, gradients(1)[0])
        self.assertIsInstance(raised.exception.__cause__, ZeroDivisionError)
        with self.assertRaises(gradsieve.CommunicationError) as raised:
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(gradsieve.Collectives(0, 1), gradients(1)[0])
        self.assertIsInstance(raised.exception.__cause__, NotImplementedError)

    def test_interruptions_are_seen(self):
        alone = gradsieve.Gather(0, 1, lambda mine: [mine])
        kind = type(alone.table.all_gather)
        alone.table.all_gather = lost = kind(lambda *arguments: 0)  # as ctypes returns after Ctrl-C at its beginning
        with self.assertRaisesRegex(gradsieve.CommunicationError, "all_gather was interrupted"):
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(alone, gradients(1)[0])
        del lost

        def stop(mine):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(gradsieve.Gather(0, 1, stop), gradients(1)[0])
        nested = gradsieve.Compressor("radix@0.01", LAYERS)
        again = gradsieve.Gather(0, 1, lambda mine: nested.save())
        with self.assertRaises(gradsieve.CommunicationError) as raised:
            nested.exchange(again, gradients(1)[0])
        self.assertIn("in use", str(raised.exception.__cause__))
        returning = gradsieve.Collectives(0, 1)
        returning.all_gather = lambda mine, everything, sizes: mine
        with self.assertRaises(gradsieve.CommunicationError) as raised:
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(returning, gradients(1)[0])
        self.assertIn("returns nothing", str(raised.exception.__cause__))
        for each in (copy.copy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "cannot be copied"):
                each(nested)

    def test_bad_input_is_answered_by_a_sentence(self):
        alone = gradsieve.Gather(0, 1, lambda mine: [mine])
        made = gradsieve.Compressor("radix@0.01", LAYERS)
        good = gradients(1)[0]
        locked = good.copy()
        locked.setflags(write=False)
        cases = [
            (gradsieve.InvalidArgument, "there is no 'radish'; nearest are radix",
             lambda: gradsieve.Compressor("radish", LAYERS)),
            (gradsieve.InvalidArgument, "zero character", lambda: gradsieve.Compressor("radix\0", LAYERS)),
            (TypeError, "the recipe is a str", lambda: gradsieve.Compressor(b"radix", LAYERS)),
            (gradsieve.InvalidArgument, "4294967296, expected", lambda: gradsieve.Compressor("radix", [("a", 2**32)])),
            (gradsieve.InvalidArgument, "is -1, expected 0", lambda: gradsieve.Compressor("radix", [("a", -1)])),
            (TypeError, "holds float64", lambda: made.exchange(alone, good.astype(np.float64))),
            (TypeError, "not contiguous", lambda: made.exchange(alone, np.zeros((N, 2), np.float32)[:, 0])),
            (TypeError, "not contiguous", lambda: made.exchange(alone, np.zeros(N, [("a", "<f4"), ("b", "u1")])["a"])),
            (TypeError, "float32, not an array", lambda: made.exchange(alone, np.float32(5))),
            (TypeError, "masked", lambda: made.exchange(alone, np.ma.array(good, mask=good > 0))),
            (TypeError, "a message is bytes", lambda: made.apply([5], good)),
            (TypeError, "a list of", lambda: gradsieve.Compressor("radix", {"w": 5})),
            (TypeError, "a layer is", lambda: gradsieve.Compressor("radix", ["w1"])),
            (TypeError, "the shape of", lambda: gradsieve.Compressor("radix", [("w", "64")])),
            (TypeError, "a whole number", lambda: gradsieve.Compressor("radix", [("w", (2.7, 3))])),
            (gradsieve.InvalidArgument, "True", lambda: gradsieve.Compressor("radix", [("w", True)])),
            (gradsieve.InvalidArgument, "every is -1", lambda: gradsieve.SecondMoments(LAYERS, every=-1)),
            (gradsieve.InvalidArgument, "the rank is", lambda: made.compress(good, 2**32 + 1)),
            (gradsieve.InvalidArgument, "the number of ranks", lambda: gradsieve.Gather(0, 2**32 + 2, len)),
            (TypeError, "read-only", lambda: made.exchange(alone, locked)),
            (TypeError, "offers neither", lambda: made.exchange(alone, b"abc")),
            (TypeError, "offers neither", lambda: made.exchange(alone, 3.0)),
            (gradsieve.InvalidArgument, "5009", lambda: made.exchange(alone, good[:-1].copy())),
            (gradsieve.InvalidArgument, "skipped has 1", lambda: made.exchange(alone, good, skipped=[True])),
            (gradsieve.InvalidArgument, "1 pieces for 2", lambda: made.exchange(alone, [good])),
            (gradsieve.InvalidArgument, "piece 0 has 10",
             lambda: made.exchange(alone, [good[:10].copy(), good[:10].copy()])),
            (gradsieve.InvalidArgument, "weight of 2",
             lambda: gradsieve.ParameterExchange("radix", LAYERS, good, weight=2)),
            (gradsieve.InvalidArgument, "momentum is not in",
             lambda: gradsieve.ParameterExchange("radix", LAYERS, good, momentum=1)),
            (gradsieve.InvalidArgument, "weight", lambda: gradsieve.mean_factor(alone, -1)),
        ]
        for kind, says, call in cases:
            with self.subTest(says):
                with self.assertRaisesRegex(kind, says):
                    call()
        made.compress(locked)  # is only read

    @unittest.skipUnless(torch, "there is no torch")
    def test_tensors_share_their_memory(self):
        given = torch.from_numpy(gradients(1)[0])
        alone = gradsieve.Gather(0, 1, lambda mine: [mine])
        for kind in (torch.float32, torch.float16, torch.bfloat16):
            tensor = given.to(kind).clone()
            gradsieve.Compressor("radix@0.01", LAYERS).exchange(alone, tensor)
            self.assertLess(int((tensor != 0).sum()), 100)
        for says, wrong in (("not contiguous", torch.zeros(N, 2)[:, 0]),
                            ("detach", torch.zeros(N, requires_grad=True))):
            with self.assertRaisesRegex(TypeError, says):
                gradsieve.Compressor("radix@0.01", LAYERS).exchange(alone, wrong)
        gradsieve.Compressor("radix@1", [("a", (0, 3)), ("b", 4)]).exchange(alone, [torch.empty(0, 3), torch.ones(4)])

    @unittest.skipUnless(torch and torch.distributed.is_available(), "there is no torch.distributed")
    def test_torch_distributed(self):
        program = (
            "import os, sys, torch, torch.distributed as dist, gradsieve\n"
            "rank = int(sys.argv[1])\n"
            "dist.init_process_group('gloo', init_method='file://' + sys.argv[2], rank=rank, world_size=2)\n"
            "ranks = gradsieve.torch_distributed()\n"
            "torch.manual_seed(rank)\n"
            "for recipe in sys.argv[3:]:\n"
            "    update = torch.randn(5010)\n"
            "    report = gradsieve.Compressor(recipe, [('weight', 5000), ('bias', 10)]).exchange(ranks, update)\n"
            "    both = [torch.empty(5010) for _ in range(2)]\n"
            "    dist.all_gather(both, update)\n"
            "    assert 'reduce_scatter' in recipe or torch.equal(*both), recipe\n"
            "    assert (update != 0).sum() > 10, report\n"
            "dist.barrier()\n"
            "dist.destroy_process_group()\n"
            "os._exit(0)\n")  # torch's threads may abort at the interpreter's end
        path = f"/tmp/gradsieve_python_{os.getpid()}"
        ranks = [subprocess.Popen([sys.executable, "-c", program, str(rank), path, *RECIPES]) for rank in range(2)]
        try:
            self.assertEqual([each.wait(120) for each in ranks], [0, 0])
        finally:
            for each in ranks:
                each.kill()
            if os.path.exists(path):
                os.unlink(path)


@unittest.skipUnless(np and hasattr(gradsieve._library.loaded, "gradsieve_create_delta_encoder"), "there is no NumPy")
class Deltas(unittest.TestCase):
    def versions(self, kind, count=2, size=N):
        """Arrays that differ in few places, with NaN payloads and zeros of both signs."""
        random = np.random.default_rng(4)
        bits = np.dtype(f"u{np.dtype(kind).itemsize}")
        made = [random.integers(0, 2**(8 * bits.itemsize), size, dtype=bits)]
        for _ in range(count - 1):
            made.append(made[-1].copy())
            made[-1][random.integers(0, size, 20)] ^= np.array(1, bits) << np.array(8 * bits.itemsize - 1, bits)
        return [each.view(kind) for each in made]

    def assert_same_bits(self, one, other):
        self.assertEqual(one.tobytes(), other.tobytes())

    def test_round_trips_and_fingerprints(self):
        for kind in (np.float32, np.float16, np.uint8, np.int8):
            before, after = self.versions(kind)
            own, print_of = before.copy(), lambda weights: gradsieve.delta.fingerprint(LAYERS, weights, threads=2)
            encoder = gradsieve.delta.Encoder(LAYERS)
            message = encoder.encode(after, before, from_version=print_of(before), to_version=print_of(after))
            self.assertLess(len(message), 20 * (before.itemsize + 2) + 120)
            decoder = gradsieve.delta.Decoder(LAYERS, print_of(before))
            decoder.apply(message, own)
            self.assert_same_bits(own, after)
            self.assertEqual(decoder.version, print_of(own))
            self.assertEqual(encoder.version, decoder.version)
            self.assertNotEqual(print_of(before), print_of(after))

    def test_a_chain_from_an_own_copy(self):
        versions = self.versions(np.float16, 51)
        encoder, decoder, own = gradsieve.delta.Encoder(LAYERS), gradsieve.delta.Decoder(LAYERS, 7), versions[0].copy()
        encoder.keep(versions[0].copy(), 7)
        for step, each in enumerate(versions[1:]):
            decoder.apply(encoder.encode(each), own)
            self.assert_same_bits(own, each)
            self.assertEqual((decoder.version, encoder.version), (8 + step, 8 + step))

    def test_two_versions_drop_the_own_copy(self):
        first, second, third = self.versions(np.float32, 3)
        encoder = gradsieve.delta.Encoder([("a", N)])
        encoder.keep(first)
        encoder.encode(second, first)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "keep"):
            encoder.encode(third)
        none = np.zeros(0, np.float32)
        self.assertTrue(gradsieve.delta.Encoder([("a", 0)]).encode(none, none))

    def test_chunks_come_in_order(self):
        layers = [("a", 300000), ("b", 5)]
        before, after = self.versions(np.uint8, 2, 300005)
        after[100:200000] += 1
        encoder, decoder, own = gradsieve.delta.Encoder(layers, 70000, 2), gradsieve.delta.Decoder(layers), before.copy()
        message = encoder.encode(after, before)
        chunks = encoder.chunks()
        self.assertEqual(b"".join(chunks), message)
        self.assertGreater(len(chunks), 2)
        decoder.apply(chunks[0], own)
        self.assertEqual((decoder.version, decoder.complete), (0, False))
        for wrong in (chunks[0], chunks[2], chunks[1:-1] + [b"x"]):
            held = own.copy()
            with self.assertRaises(gradsieve.Error):
                decoder.apply(wrong, own)
            self.assert_same_bits(own, held)
        decoder.restart()
        decoder.apply(chunks[:2], own)
        decoder.apply(chunks[2:], own)
        self.assertEqual((decoder.version, decoder.complete), (1, True))
        self.assert_same_bits(own, after)
        decoder.reset(5)
        self.assertEqual(decoder.version, 5)

    def test_what_is_refused_changes_nothing(self):
        delta = gradsieve.delta
        before, after = self.versions(np.float32)
        message = delta.Encoder(LAYERS).encode(after, before)
        own, decoder = before.copy(), delta.Decoder(LAYERS)
        locked, damaged = before.copy(), bytearray(message)
        locked.setflags(write=False)
        damaged[len(message) // 2] ^= 4
        cases = [
            (gradsieve.CorruptError, "", lambda: decoder.apply(damaged, own)),
            (gradsieve.CorruptError, "", lambda: decoder.apply(message[:-1], own)),
            (gradsieve.MismatchError, "version", lambda: delta.Decoder(LAYERS, 3).apply(message, own)),
            (gradsieve.MismatchError, "", lambda: delta.Decoder([("other", N)]).apply(message, own)),
            (gradsieve.MismatchError, "", lambda: decoder.apply(message, np.zeros(N, np.float16))),
            (gradsieve.InvalidArgument, "5009", lambda: decoder.apply(message, own[:-1])),
            (TypeError, "read-only", lambda: decoder.apply(message, locked)),
            (TypeError, "bytes, not int", lambda: decoder.apply([5], own)),
            (TypeError, "int64; it takes .* or 8 bits", lambda: decoder.apply(message, np.zeros(N, np.int64))),
            (TypeError, "holds object", lambda: decoder.apply(message, np.zeros(N, object))),
            (TypeError, "not contiguous", lambda: delta.fingerprint([("a", 5)], np.zeros((5, 2), np.uint8)[:, 0])),
            (gradsieve.InvalidArgument, "keep", lambda: delta.Encoder(LAYERS).encode(after)),
            (gradsieve.InvalidArgument, "another type", lambda: delta.Encoder(LAYERS).encode(after, own[:-1])),
            *(() if gradsieve._library.loaded.gradsieve_has_devices() else
              ((gradsieve.InvalidArgument, "built without CUDA", lambda: delta.Decoder(LAYERS, stream=0)),)),
            (gradsieve.InvalidArgument, "a version is -1", lambda: delta.Decoder(LAYERS, -1)),
            (gradsieve.InvalidArgument, "chunk_bytes", lambda: delta.Encoder(LAYERS, 5).encode(after, before)),
            (TypeError, "cannot be copied or pickled$", lambda: copy.copy(decoder)),
            (TypeError, "holds uint8; it takes float32, float16 or bfloat16$",  # gradients
             lambda: gradsieve.Compressor("radix", [("a", 5)]).compress(np.zeros(5, np.uint8))),
        ]
        for kind, says, call in cases:
            with self.subTest(says):
                with self.assertRaisesRegex(kind, says):
                    call()
                self.assert_same_bits(own, before)
                self.assertEqual((decoder.version, decoder.complete), (0, True))
        decoder.apply(bytearray(message), own)
        self.assert_same_bits(own, after)

    def states(self):
        state = {"b.weight": self.versions(np.float32)[0].reshape(501, 10), "a": self.versions(np.float16)[0],
                 "fp8": self.versions(np.uint8)[0], "steps": np.array(5), "flag": np.array([True, False]),
                 "none": np.zeros((0, 3), np.float32), "double": np.ones(3)}
        after = {name: each.copy() for name, each in reversed(list(state.items()))}
        after["b.weight"][7, 3] = -0.0
        after["a"][11] += 1
        after["steps"] += 1
        after["flag"][1] = True
        return state, after

    def test_an_array_for_each_layer(self):
        delta, (before, after) = gradsieve.delta, self.versions(np.float16)

        def apart(weights):
            return [weights[:5000].copy().reshape(50, 100), weights[5000:].copy()]
        old, new = apart(before), apart(after)
        encoder, decoder = delta.Encoder(LAYERS), delta.Decoder(LAYERS)
        message = delta.Encoder(LAYERS).encode(after, before)
        self.assertEqual(encoder.encode(new, old), message)
        encoder.keep(old)
        self.assertEqual(encoder.encode(new), message)
        self.assertEqual(delta.fingerprint(LAYERS, new), delta.fingerprint(LAYERS, after))
        same = old[0].reshape(-1)
        for kind, says, wrong in ((gradsieve.InvalidArgument, "1 arrays for 2 layers", old[:1]),
                                  (gradsieve.InvalidArgument, "array 1 .* 9 elements for a layer of 10",
                                   [old[0], old[1][1:]]),
                                  (gradsieve.InvalidArgument, "another type", [old[0], np.zeros(10, np.float32)]),
                                  (gradsieve.InvalidArgument, "share memory", [same, same[:10]]),
                                  (TypeError, "array 0 of the weights holds int64", [np.zeros(5000, int), old[1]])):
            with self.assertRaisesRegex(kind, says):
                decoder.apply(message, wrong)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "not in pieces"):
            encoder.encode(new, before)
        decoder.apply(message, old)
        self.assert_same_bits(np.concatenate([each.reshape(-1) for each in old]), after)

    def test_states_of_mixed_types(self):
        for most in (2**32 - 1, N):  # weights of a part
            with self.subTest(most), unittest.mock.patch.object(gradsieve.delta._State, "most", most):
                self.check_states(most)

    def check_states(self, most):
        state, after = self.states()
        own = {name: each.copy() for name, each in state.items()}
        encoder, decoder = gradsieve.delta.StateEncoder(state, 3), gradsieve.delta.StateDecoder(own, 3)
        for part in encoder._state.parts:
            self.assertLessEqual(sum(size for _, size in part), most)
        message = encoder.encode(after)
        for wrong in (message[:-1], message[:9], message[:60] + b"?" + message[61:], message[:-9] + b"?" + message[-8:],
                      bytes(32), b""):
            with self.assertRaises(gradsieve.Error):
                decoder.apply(wrong, own)
            for name in state:
                self.assert_same_bits(own[name], state[name])
        own["steps"].setflags(write=False)
        with self.assertRaisesRegex(TypeError, "'steps' is read-only"):
            decoder.apply(message, own)
        own["steps"] = state["steps"].copy()
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "other names"):
            decoder.apply(message, {**own, "more": np.ones(1)})
        self.assertEqual(decoder.version, 3)
        decoder.apply(message, own)
        for _ in range(3):  # there and back
            self.assertEqual((decoder.version, gradsieve.delta.state_fingerprint(own)),
                             (encoder.version, gradsieve.delta.state_fingerprint(after)))
            for name in state:
                self.assert_same_bits(own[name], after[name])
            after["fp8"][5] ^= 1
            decoder.apply(encoder.encode(after), own)
        with self.assertRaisesRegex(gradsieve.MismatchError, "version"):
            decoder.apply(message, own)
        with self.assertRaisesRegex(gradsieve.MismatchError, "other types"):
            gradsieve.delta.StateDecoder({"a": state["a"]}).apply(message, {"a": state["a"]})
        kept = gradsieve.delta.StateDecoder(own := {name: each.copy() for name, each in state.items()})
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "share a part of their memory"):  # in any two parts
            all_bytes = np.zeros(4 * N, np.uint8)
            kept.apply(gradsieve.delta.StateEncoder(state).encode(after),
                       {**own, "a": all_bytes[:2 * N].view(np.float16), "fp8": all_bytes[N:2 * N],
                        "double": all_bytes[2 * N - 8:2 * N + 16].view(np.float64)})
        self.assert_same_bits(own["b.weight"], state["b.weight"])
        with self.assertRaisesRegex(TypeError, "or on a GPU a list, not ndarray"):
            decoder.apply(np.frombuffer(message, np.uint8), own)
        with self.assertRaisesRegex(TypeError, "a dict of tensors"):
            gradsieve.delta.StateEncoder([state["a"]])
        message, other = (gradsieve.delta.StateEncoder(state).encode(after, to_version=to) for to in (1, 2))
        parts, others = (gradsieve.delta.StateDecoder._split(each) for each in (message, other))
        spliced = b"".join([message[:8 + 8 * len(parts)], parts[0], *others[1:]])
        own = {name + "2" * (name == "steps"): each.copy() for name, each in state.items()}  # in the last part
        for kind, says, wrong, to in ((gradsieve.CorruptError, "of several", spliced, state),
                                      (gradsieve.MismatchError, "other layers", message, own)):
            held = [each.copy() for each in to.values()]
            with self.assertRaisesRegex(kind, says):
                gradsieve.delta.StateDecoder(to).apply(wrong, to)
            for one, each in zip(held, to.values()):
                self.assert_same_bits(one, each)
        with unittest.mock.patch.object(gradsieve.delta.Encoder, "encode", side_effect=MemoryError):
            with self.assertRaises(MemoryError):
                encoder.encode(after)
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "make another StateEncoder"):
            encoder.encode(after)

    @unittest.skipUnless(torch, "there is no torch")
    def test_tensors(self):
        kinds = [torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8]
        kinds += [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
        for kind in kinds:
            before = (torch.arange(N) % 100).to(torch.float32).to(kind)
            after, own = before.clone(), before.clone()
            after[70] = after[1]
            gradsieve.delta.Decoder(LAYERS).apply(gradsieve.delta.Encoder(LAYERS).encode(after, before), own)
            self.assertTrue(torch.equal(own.float(), after.float()), kind)
            self.assertFalse(torch.equal(own.float(), before.float()), kind)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3).bfloat16())
        model.register_parameter("tied", model[0].weight)
        other, apart = copy.deepcopy(model), copy.deepcopy(model)
        apart.tied = torch.nn.Parameter(model.tied.detach().clone())
        other[1].register_buffer("flags", torch.tensor([True, False]))
        model[1].register_buffer("flags", torch.tensor([True, False]))
        apart[1].register_buffer("flags", torch.tensor([True, False]))
        encoder = gradsieve.delta.StateEncoder(model.state_dict())
        decoders = [gradsieve.delta.StateDecoder(each.state_dict()) for each in (other, apart)]
        model[1](model[0](torch.ones(4, 5)))  # running means, and their int64 counter
        with torch.no_grad():
            model[2].weight[1] = 9
            model[1].flags[1] = True
            model.tied[3] = 7
        message = encoder.encode(model.state_dict())
        for decoder, own in zip(decoders, (other, apart)):
            decoder.apply(message, own.state_dict())
            for name, each in model.state_dict().items():
                self.assertTrue(torch.equal(each, own.state_dict()[name]), name)
            self.assertEqual(int(own[1].num_batches_tracked), 1)
        self.assertIs(other.tied, other[0].weight)

    def test_views_in_a_state(self):
        def of(base):  # a part, all of it, and as another type
            return {"q": base[:300], "qkv": base, "raw": base.view(np.int32), "x": np.ones(3)}
        state, own = of(np.zeros(1000, np.float32)), of(np.zeros(1000, np.float32))
        encoder, decoder = gradsieve.delta.StateEncoder(state), gradsieve.delta.StateDecoder(own)
        for _ in range(2):
            state["qkv"] += np.arange(1000, dtype=np.float32)
            decoder.apply(encoder.encode(state), own)
            self.assert_same_bits(own["qkv"], state["qkv"])
            self.assert_same_bits(own["q"], state["qkv"][:300])
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "'a' and 'b' share a part"):
            gradsieve.delta.StateDecoder({"a": state["qkv"][:9], "b": state["qkv"][5:30]})

    def test_bfloat16_of_ml_dtypes(self):
        try:
            from ml_dtypes import bfloat16, float8_e4m3fn
        except ImportError:
            self.skipTest("there is no ml_dtypes")
        for kind in (bfloat16, float8_e4m3fn):
            before, after = self.versions(kind)
            own = before.copy()
            gradsieve.delta.Decoder(LAYERS).apply(gradsieve.delta.Encoder(LAYERS).encode(after, before), own)
            self.assert_same_bits(own, after)

    def test_files(self):
        program = pathlib.Path(__file__).with_name("delta_files.py")
        with tempfile.TemporaryDirectory() as folder:
            weights, chain = os.path.join(folder, "weights.npy"), os.path.join(folder, "chain")

            def run(*arguments, before=""):
                code = f"import os, runpy, sys\nsys.argv = {[str(program), *arguments]!r}\n{before}\n" \
                       "runpy.run_path(sys.argv[0], run_name='__main__')"
                return subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE).returncode
            versions = self.versions(np.float32, 4)
            for each in versions[:3]:
                np.save(weights, each.reshape(501, 10))
                self.assertEqual(run("save", chain, weights), 0)
            np.save(weights, versions[3].reshape(501, 10))
            for when in ("fsync", "replace"):
                self.assertEqual(run("save", chain, weights, before=f"os.{when} = lambda *_: os.kill(os.getpid(), 9)"), -9)
            files = sorted(each for each in os.listdir(chain) if not each.endswith(".partial"))
            self.assertEqual(len(files), 3)
            self.assertLess(os.path.getsize(os.path.join(chain, files[2])), 500)
            out = os.path.join(folder, "out.npy")
            for arguments, expected in (((), 2), (("--version", "1"), 1), (("--version", "0"), 0)):
                self.assertEqual(run("restore", chain, out, *arguments), 0)
                self.assert_same_bits(np.load(out), versions[expected])
            self.assertEqual(run("restore", chain, out, "--version", "3"), 1)
            self.assertEqual(run("save", chain, weights), 0)
            self.assertEqual(run("restore", chain, out), 0)
            self.assert_same_bits(np.load(out), versions[3])
            with open(os.path.join(chain, files[0]), "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"?")
            self.assertEqual(run("restore", chain, out), 1)  # a damaged first file

    def test_workers_over_sockets_that_are_killed(self):
        said = subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("delta_sockets.py")), "80"],
                              stdout=subprocess.PIPE, check=True, timeout=120).stdout
        self.assertIn(b"both workers have version 80; one was killed 2 times", said)


class Floats:
    """An array without NumPy."""

    def __init__(self, values):
        self.memory = (ctypes.c_float * len(values))(*values)
        self.__array_interface__ = {"shape": (len(values),), "typestr": "<f4", "version": 3,
                                    "data": (ctypes.addressof(self.memory), False)}


class Alone(unittest.TestCase):
    def test_without_other_packages(self):
        def body(ranks):
            values = Floats([float((i * 7919 + ranks.rank) % 101) for i in range(N)])
            report = gradsieve.Compressor("radix+deft@0.01", LAYERS).exchange(ranks, values)
            return list(values.memory), report.selected
        ends = on_ranks(2, body)
        self.assertEqual(ends[0][0], ends[1][0])
        self.assertIn("radix", gradsieve.recipe_names())

    @unittest.skipUnless(torch and torch.distributed.is_available(), "no torch")
    def test_old_name_of_the_package_for_torch(self):
        with self.assertWarns(DeprecationWarning):
            import gradsieve_ddp
        from gradsieve_ddp.compressed_step import CompressedStep
        import gradsieve.torch
        self.assertIs(gradsieve_ddp, gradsieve.torch)
        self.assertIs(CompressedStep, gradsieve.torch.CompressedStep)

    def test_advise(self):
        alpha, beta, n = 3e-5, 8e-9, 1_001_000
        layers = [("w", (1000, 1000)), ("b", (1000,))]
        made = gradsieve.advise(layers, 8, (alpha, beta))
        by_name = {each.name: each for each in made.choices}
        ring = 14 * alpha + 2 * 7 / 8 * 4 * n * beta
        self.assertAlmostEqual(by_name["dense, 32 bits"].exchange, ring, delta=1e-6 * ring)
        self.assertEqual(by_name["dense, 32 bits"].speedup, 1)
        fastest = min(made.choices, key=lambda each: each.exchange + each.local)
        self.assertEqual((made.best, made.compress), (fastest.name, True))
        self.assertIn(made.best, made.sentence)
        self.assertTrue(0.01 < made.break_even_density < 1 and 1e9 < made.break_even_bandwidth < 1e10)
        self.assertEqual(made, gradsieve.advise(layers, 8, f"{alpha},{beta}"))
        self.assertFalse(gradsieve.advise(layers, 8, (1e-9, 1e-13)).compress)
        self.assertLess(made.break_even_bandwidth, gradsieve.advise(layers, 8, (alpha, beta), 0.001).break_even_bandwidth)
        self.assertGreater(gradsieve.advise(layers, 8, (alpha, beta), cores=0.5).choices[0].exchange, ring)
        for kind, arguments in ((gradsieve.InvalidArgument, (layers, 0, (alpha, beta))), (TypeError, (layers, 8, 3)),
                                (gradsieve.InvalidArgument, (layers, 8, "nowhere")), (TypeError, (5, 8, "v100-10gbe")),
                                (gradsieve.InvalidArgument, (layers, 8, (alpha, beta), 2.0)),
                                (gradsieve.InvalidArgument, (layers, 8, (alpha, -1.0))),
                                (gradsieve.InvalidArgument, (layers, 8, (alpha, beta), 0.01, -1))):
            with self.assertRaises(kind, msg=str(arguments)):
                gradsieve.advise(*arguments)


if __name__ == "__main__":
    unittest.main()
