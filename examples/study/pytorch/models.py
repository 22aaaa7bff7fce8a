"""Six small models, in torch calls that version 1.13 has already. No buffers, no dropout: a step is its gradient."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Causal attention and a two-layer perceptron, each behind a norm and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden`: (context, context), minus infinity where a character must not look."""
        batch, context, width = x.shape
        parts = self.attention(self.norm1(x)).view(batch, context, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads) + hidden
        seen = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, context, width)
        x = x + self.project(seen)
        return x + self.contract(functional.gelu(self.expand(self.norm2(x))))


class Transformer(nn.Module):
    """Next-character model: (batch, context) codes to (batch, context, classes) logits.

    About layers * 12 * width^2 parameters.
    """

    def __init__(self, classes: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            elif name.startswith(("token", "position")):
                nn.init.normal_(parameter, std=0.25)
            else:  # what is added to the residual stream is smaller, the more is added
                deep = name.endswith(("project.weight", "contract.weight"))
                nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1] * (2 * layers if deep else 1)))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        context = codes.shape[1]
        x = self.token(codes) + self.position.weight[:context]
        hidden = torch.full((context, context), -math.inf, dtype=x.dtype).triu(1)
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x))


class Cnn(nn.Module):
    """Images (batch, 1, height, width) to logits: two convolutions with pooling, one hidden layer of `width`."""

    def __init__(self, classes: int, side: tuple[int, int], width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * (side[0] // 4) * (side[1] // 4), width)
        self.fc2 = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Lstm(nn.Module):
    """Next-character model: (batch, context) codes to (batch, context, classes) logits."""

    def __init__(self, classes: int, width: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.token(codes))[0])


class Translator(nn.Module):
    """Encoder and decoder of torch: (batch, 2, context) codes, of a text and of its translation one place late, to (batch,
    context, classes) logits of the translation. `width` in 4 heads, `layers` in each."""

    def __init__(self, classes: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.read, self.said, self.position = (nn.Embedding(each, width) for each in (classes, classes + 1, context))
        self.core = nn.Transformer(width, 4, layers, layers, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        places, context = self.position.weight, codes.shape[2]
        hidden = torch.full((context, context), -math.inf, dtype=places.dtype).triu(1)
        return self.head(self.core(self.read(codes[:, 0]) + places, self.said(codes[:, 1]) + places, tgt_mask=hidden))


class Mixer(nn.Module):
    """Images (batch, 1, height, width) to logits: patches of 4 x 4, `layers` of perceptrons over the patches and over
    `width`, each behind a norm and added to what came in; source: Tolstikhin et al. 2021."""

    def __init__(self, classes: int, side: tuple[int, int], width: int, layers: int) -> None:
        super().__init__()
        tokens = (side[0] // 4) * (side[1] // 4)
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.mix = nn.ModuleList(nn.Sequential(nn.Linear(size, wide), nn.GELU(), nn.Linear(wide, size))
                                 for _ in range(layers) for size, wide in ((tokens, 2 * tokens), (width, 4 * width)))
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        for i, mix in enumerate(self.mix):
            y = self.norms[i](x)
            x = x + (mix(y) if i % 2 else mix(y.transpose(1, 2)).transpose(1, 2))
        return self.head(self.norms[-1](x).mean(1))


class Ncf(nn.Module):
    """Neural collaborative filtering: (batch, 2) numbers of a user and an item to logits of the rating. One pair of
    embeddings is multiplied, another goes through two layers; source: He et al. 2017.
    """

    def __init__(self, classes: int, users: int, items: int, width: int) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, 2 * width), nn.Embedding(items, 2 * width)
        self.fc1 = nn.Linear(2 * width, width)
        self.fc2 = nn.Linear(width, width)
        self.head = nn.Linear(2 * width, classes)
        for each in (self.user, self.item):
            nn.init.normal_(each.weight, std=0.1)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        users, items = (each.chunk(2, -1) for each in (self.user(pairs[:, 0]), self.item(pairs[:, 1])))
        deep = functional.relu(self.fc2(functional.relu(self.fc1(torch.cat((users[1], items[1]), -1)))))
        return self.head(torch.cat((users[0] * items[0], deep), -1))


def loss_and_hits(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropy, and the number of targets that got the largest logit."""
    flat, wanted = logits.flatten(0, -2), targets.flatten()
    return functional.cross_entropy(flat, wanted), (flat.argmax(-1) == wanted).sum()
