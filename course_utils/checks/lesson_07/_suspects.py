"""7.8's suspects: small models, built by hand, whose heads are in random order.

The residual stream has five blocks for each token: the token, a note, what the query asks for, the
answer, and a block that no head reads. Each head attends somewhere, and copies the token block of
what it finds into another block.
"""

import functools
import itertools

import torch
import torch.nn.functional as F

TOKEN, NOTE, ASKED, ANSWER, UNREAD = range(5)
ALL = slice(None)
HEADS = {  # name: where it attends, the block it writes, how strongly, for which tokens
    "writer": ("before", NOTE, 1.0, ALL),
    "most": ("before", NOTE, 1.0, slice(8)),
    "rest": ("before", NOTE, 1.0, slice(8, None)),
    "some": ("before", NOTE, 1.0, slice(11, None)),
    "low": ("before", NOTE, 1.0, slice(5)),
    "middle": ("before", NOTE, 1.0, slice(5, 10)),
    "high": ("before", NOTE, 1.0, slice(10, None)),
    "echo": ("before", UNREAD, 1.0, ALL),
    "finder": ("after", ANSWER, 1.0, ALL),
    "first half": ("after", ANSWER, 1.0, slice(8)),  # a little more than half
    "second half": ("after", ANSWER, 1.0, slice(8, None)),
    "faint": ("after, faintly", ANSWER, 1.0, ALL),
    "firm": ("after, firmly", ANSWER, 1.0, ALL),
    "mirror": ("after", UNREAD, 1.0, ALL),
    "asker": ("itself", ASKED, 1.0, ALL),
    "idle": ("anywhere", ANSWER, 0.2, ALL),
}
LAYERS = [  # one string per layer; what a writer in the last layer writes comes too late
    ("writer echo idle", "finder mirror idle"),
    ("writer writer echo idle", "finder idle finder writer"),
    ("idle echo", "writer idle", "mirror finder"),
    ("asker writer idle", "finder writer mirror"),
    ("low middle high echo", "finder mirror idle idle"),  # each does a third of one job
    ("writer idle", "writer mirror", "finder finder"),
    ("writer writer writer echo", "finder finder finder finder"),
    ("most some echo", "finder mirror idle"),  # without "some", most answers are right
]
BACK = {"before": 1, "itself": 0}  # heads that use only the position: how far back they look
LARGE = 8.0  # a score, among noise of size 1
AFTER = {"after": LARGE, "after, faintly": 2.4, "after, firmly": 2.8}


def suspect(seed, V=14, B=12, L=36, shortest=5, layers=None):
    """Return a model, and texts (B, L) that repeat, with periods from ``shortest`` to 12.

    ``model(tokens, removed=[])`` returns logits (B, L, V) and weights (layers, B, H, L, L);
    ``layers`` are the heads of each layer, by default some of LAYERS.
    ``removed`` lists heads as (layer, head), both counted from 0, whose outputs are left out.
    """
    rng = torch.Generator().manual_seed(seed)
    if layers is None:
        layers = [layer.split() for layer in LAYERS[seed % len(LAYERS)]]
    layers = [[names[i] for i in torch.randperm(len(names), generator=rng)] for names in layers]
    scores = torch.randn(len(layers), len(layers[0]), L, L, generator=rng)
    for each, names in zip(scores, layers, strict=True):
        for head, name in zip(each, names, strict=True):
            if HEADS[name][0] in BACK:
                head += LARGE * torch.eye(L).roll(-BACK[HEADS[name][0]], dims=-1)
    scores = scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf)
    asks = ASKED if "asker" in layers[0] else TOKEN
    periods = torch.randint(shortest, 13, (B, 1), generator=rng)
    patterns = torch.rand(B, V, generator=rng).argsort(dim=-1)  # no token twice in a period

    @functools.lru_cache(maxsize=24)
    def computed(texts, removed):
        """Return what `model` does, for tokens as tuples: answers ask for it again and again."""
        B, L = len(texts), len(texts[0])
        token = F.one_hot(torch.tensor(texts), V).float()  # (B, L, V)
        blocks = torch.stack([token, *[torch.zeros_like(token)] * 4])  # (5, B, L, V)
        seen = []
        for layer, names in enumerate(layers):
            found = blocks[asks] @ blocks[NOTE].mT  # (B, L, L)
            found[..., 0] = -1  # position 0 sees only itself, so its note names its own token
            weights = []
            for head, name in enumerate(names):
                look, to, strength, of = HEADS[name]
                now = scores[layer, head, :L, :L] + AFTER.get(look, 0) * found
                weights.append(now.softmax(dim=-1).expand(B, L, L))
                if (layer, head) not in removed:
                    blocks[to, ..., of] += strength * weights[-1] @ token[..., of]
            seen.append(torch.stack(weights, dim=1))  # (B, H, L, L)
        return blocks[ANSWER], torch.stack(seen)

    def model(tokens, removed=()):
        if not all(isinstance(head, tuple | list) and len(head) == 2 for head in removed):
            raise ValueError(f"removed must be pairs (layer, head) in a list, got {removed}")
        removed = {tuple(head) for head in removed}
        unknown = removed - set(itertools.product(range(len(layers)), range(len(layers[0]))))
        if unknown:
            raise ValueError(
                f"removed lists {sorted(unknown)} as (layer, head), counted from 0, but there are "
                f"only {len(layers)} layers of {len(layers[0])} heads"
            )
        texts = tuple(map(tuple, tokens.tolist()))
        return tuple(result.clone() for result in computed(texts, frozenset(removed)))

    return model, patterns.gather(1, torch.arange(L) % periods)
