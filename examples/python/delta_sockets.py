"""A trainer sends its new weights to two inference workers over sockets, as deltas; one is killed, again and again, in the
middle of its work, and its successor catches up: delta_sockets.py [versions]

A worker asks for what leads on from its version. It gets deltas, or all weights where the trainer has no delta from there.
Its own copy on disk is replaced as a whole, so that a successor begins with a whole version.
"""

import multiprocessing
import os
import pathlib
import random
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

import gradsieve
import numpy as np

N, NOTHING = 200_000, 2**64 - 1
LAYERS = [("embedding.weight", N // 2), ("head.weight", N // 2)]
HEAD = struct.Struct("<?QQ")  # whether it is a delta; the version that it leads to; bytes that follow


def exactly(link, size):
    data = bytearray()
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side is gone")
        data += part
    return bytes(data)


class Trainer:
    """Has the last versions' deltas, and all weights of the last one."""

    def __init__(self):
        self.weights = np.random.default_rng(0).standard_normal(N).astype(np.float16)
        self.encoder, self.deltas, self.version = gradsieve.delta.Encoder(LAYERS), {}, 0
        self.encoder.keep(self.weights)
        self.changed = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.listen, daemon=True).start()

    def step(self, chance):
        """1 % of the weights change."""
        with self.changed:
            self.weights[chance.integers(0, N, N // 100)] *= np.float16(1.01)
            self.deltas[self.version] = self.encoder.encode(self.weights)
            self.deltas.pop(self.version - 8, None)
            self.version += 1
            self.changed.notify_all()

    def listen(self):
        while True:
            threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, link):
        try:
            (has,) = struct.unpack("<Q", exactly(link, 8))
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.version != has)
                    is_delta = has in self.deltas
                    data = self.deltas[has] if is_delta else self.weights.tobytes()
                    has = has + 1 if is_delta else self.version
                link.sendall(HEAD.pack(is_delta, has, len(data)) + data)
        except OSError:  # the worker is gone; its successor asks anew
            pass


def worker(port, path, last):
    """Applies what comes, until it has version `last`."""
    weights, version = np.zeros(N, np.float16), NOTHING
    if path.exists():
        saved = path.read_bytes()
        version, weights = struct.unpack("<Q", saved[:8])[0], np.frombuffer(saved[8:], np.float16).copy()
    decoder = gradsieve.delta.Decoder(LAYERS, 0 if version == NOTHING else version)
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(struct.pack("<Q", version))
        while version != last:
            is_delta, to, size = HEAD.unpack(exactly(link, HEAD.size))
            data = exactly(link, size)
            if is_delta:
                decoder.apply(data, weights)  # all of it is checked before a weight is written
            else:
                weights[:] = np.frombuffer(data, np.float16)
                decoder.reset(to)
            version = to
            partial = path.with_suffix(".partial")
            partial.write_bytes(struct.pack("<Q", version) + weights.tobytes())
            os.replace(partial, path)


def main(versions):
    trainer, chance, kills = Trainer(), np.random.default_rng(1), 0
    port = trainer.listener.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, f"worker{i}") for i in range(2)]
        start = lambda i: context.Process(target=worker, args=(port, paths[i], versions))  # noqa: E731
        workers = [start(0), start(1)]
        for each in workers:
            each.start()
        for version in range(versions):
            trainer.step(chance)
            time.sleep(0.01)
            if version % 40 == 39:
                time.sleep(random.uniform(0, 0.3))
                os.kill(workers[1].pid, signal.SIGKILL)
                workers[1].join()
                kills += 1
                workers[1] = start(1)
                workers[1].start()
        for each, path in zip(workers, paths):
            each.join(60)
            assert path.read_bytes() == struct.pack("<Q", versions) + trainer.weights.tobytes(), path
    sizes = sum(map(len, trainer.deltas.values())) / len(trainer.deltas)
    print(f"both workers have version {versions}; one was killed {kills} times; a delta had {sizes:.0f} bytes of "
          f"{trainer.weights.nbytes}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
