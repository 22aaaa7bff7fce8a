#!/usr/bin/env python3
"""Writes ratings for train.py --model ncf: 100,000 of 300 items by 500 users, of 5 values, some items far more often than
others. A rating is the inner product of 4 hidden numbers of the user and 4 of the item, with noise.

    make_ratings.py ratings.tsv
"""

import sys

import numpy as np

if len(sys.argv) != 2:
    sys.exit(__doc__)
USERS, ITEMS, RATINGS, HIDDEN = 500, 300, 100_000, 4

chance = np.random.default_rng(1)
of_users, of_items = chance.normal(size=(USERS, HIDDEN)), chance.normal(size=(ITEMS, HIDDEN))
often = 1 / (10 + np.arange(ITEMS))
users, items = chance.integers(0, USERS, RATINGS), chance.choice(ITEMS, RATINGS, p=often / often.sum())
scores = (of_users[users] * of_items[items]).sum(1) / HIDDEN ** 0.5 + 0.5 * chance.normal(size=RATINGS)
values = 1 + np.digitize(scores, (-1.2, -0.4, 0.4, 1.2))
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.writelines(f"{user}\t{item}\t{value}\n" for user, item, value in zip(users, items, values))
